"""Traces that a tool merged from those of several ranks: the process of each device operation.

Ids that link work to its launch are unique in one process only.
"""

import polars as pl
from msgspec import Struct

from rankscope.model.reports import Process, plain_process


class Owners(Struct, frozen=True):
    """The owners of events in a merged trace; empty for a trace of one process."""

    ranks: dict[int, int] = {}  # process → the rank that events state
    process_of: dict[int, int] = {}  # owner of device work → process

    @property
    def within(self) -> list[str]:
        """In what numbers of calls and operators are unique: in one process, or in the trace."""
        return ["process"] if self.process_of else []


MEMBERS = r"\[([0-9,]+)\]$"
"""The members of a communicator, if none is left out."""

PIDS = 2**32
"""More than any process id."""


def apart(frames: list[pl.DataFrame]) -> list[pl.DataFrame]:
    """The events of ranks that share a process id, with a process of its own for each rank.

    Containers number their processes alike, and hosts their devices. The id is then that of the
    process plus PIDS times the rank that the event states.

    Args:
        frames: each with a column `process` or `owner`, and `rank`.
    """
    owned = pl.coalesce(pl.col("^(process|owner)$")).alias("process")
    known = pl.concat(each.select(owned, "rank") for each in frames).drop_nulls().unique()
    if known["process"].n_unique() == known.height:
        return frames
    return [
        each.with_columns(
            pl.col(name) + pl.col("rank").fill_null(0) * PIDS
            for name in ("process", "owner")
            if name in each.columns
        )
        for each in frames
    ]


def without_rank(key: int) -> Process:
    """The process of a key that `apart` made, or left."""
    return plain_process(key % PIDS)


def owners(
    ranges: pl.DataFrame, launches: pl.DataFrame, work: pl.DataFrame, named: pl.DataFrame
) -> Owners:
    """The processes of device work, if several processes launched some.

    The rank that events or the names of processes state tells which belong together; else the
    order of their ids, as merging tools keep it.

    Args:
        ranges: process and rank of host ranges.
        launches: the same of API calls.
        work: owner and rank of device work.
        named: owner and rank from the names of processes.
    """
    processes = launches.filter("kernel")["process"].unique().sort().to_list()
    devices = work["owner"].drop_nulls().unique().sort().to_list()
    if len(processes) < 2:
        return Owners()
    host = pl.concat(each.select(owner="process", rank="rank") for each in (ranges, launches))
    stated = _stated(pl.concat([host, named]))
    on_device = _stated(pl.concat([work.select("owner", "rank"), named]))
    ranks = {each: stated[each] for each in processes if each in stated}
    of_rank = {rank: process for process, rank in ranks.items()}
    if len(of_rank) == len(processes) and all(each in on_device for each in devices):
        process_of = {each: of_rank.get(on_device[each]) for each in devices}
        return Owners(ranks, {each: own for each, own in process_of.items() if own is not None})
    if len(devices) == len(processes):
        return Owners({}, dict(zip(devices, processes, strict=True)))
    return Owners()


def rank_of(ranges: pl.DataFrame, launches: pl.DataFrame, work: pl.DataFrame) -> int | None:
    """The rank of a trace of one process, as its events state it; None if they do not.

    It is the rank that events have, or the only one that is a member of every process group whose
    collectives ran there.

    Args:
        ranges: rank of host ranges.
        launches: rank of API calls.
        work: rank and communicator of device work.
    """
    stated = pl.concat(each["rank"].drop_nulls().unique() for each in (ranges, launches, work))
    ranks = {*stated}
    if not ranks:
        groups = work["communicator"].drop_nulls().unique().str.extract(MEMBERS).drop_nulls()
        members = [{*map(int, each.strip(",").split(","))} for each in groups]
        ranks = set.intersection(*members) if members else ranks
    return ranks.pop() if len(ranks) == 1 else None


def _stated(events: pl.DataFrame) -> dict[int, int]:
    """Owner → the rank that its events state, if they agree."""
    known = events.drop_nulls().unique()
    return dict(known.filter(pl.len().over("owner") == 1).select("owner", "rank").iter_rows())

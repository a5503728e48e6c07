"""The suspects among pieces of hardware. See METHOD.md#fleet."""

from collections.abc import Collection

import numpy as np
import polars as pl
from msgspec import Struct
from numpy.typing import NDArray

from rankscope.model.intervals import Floats

Index = NDArray[np.intp]

CLOSE = 1e-9
"""Relative difference below which two probabilities are the same."""

LARGEST_P = 0.05
"""Largest probability that is corrected; a larger one is no evidence."""

LEAST_GUILTY = 3
"""Runs in which a piece must be guilty before it is suspect."""

LARGEST_CHANCE = 0.01
"""Largest corrected probability of guilt that is not by chance."""

OWN_CHANCE = 0.05
"""Largest probability with which a GPU is guilty beyond the other GPUs of its host."""

SLOT = pl.col("host") + " " + pl.col("slot")
"""The id of the slot that a GPU is in."""

LEAST_OTHERS = 3
"""Least runs on other hardware that show how often a rank is guilty wherever it runs."""


def tails(piece: Index, probability: Floats, pieces: int, most: int) -> Floats:
    """The probability that chance makes each piece guilty in at least 0, 1, …, `most` + 1 runs.

    The number of guilty runs is a sum of independent draws with different probabilities. Its
    distribution is summed up run by run; the last count absorbs all larger ones, so that small
    tails are sums of small numbers and lose no digits.

    Args:
        piece: number of the piece, of each piece and run.
        probability: that chance makes the piece guilty in the run.
        pieces: number of pieces.
        most: largest count of interest.

    Returns:
        shape (pieces, most + 2).
    """
    order = np.argsort(piece, kind="stable")
    piece, probability = piece[order], probability[order]
    place = np.arange(len(piece)) - np.searchsorted(piece, piece)
    counts = np.zeros((pieces, most + 2))
    counts[:, 0] = 1.0
    for step in range(int(place.max(initial=-1)) + 1):
        in_step = place == step
        pieces_of_step, chance = piece[in_step], probability[in_step][:, None]
        before = counts[pieces_of_step]
        after = before * (1 - chance)
        after[:, 1:] += before[:, :-1] * chance
        after[:, -1] += before[:, -1] * chance[:, 0]
        counts[pieces_of_step] = after
    return np.asarray(np.minimum(counts[:, ::-1].cumsum(axis=1)[:, ::-1], 1.0))


def corrected(tail: Floats, guilty: Index) -> Floats:
    """The probability that any piece of the fleet looks at least as bad as each piece does.

    It is bounded by the sum, over the pieces, of the largest probability that a piece can reach
    and that is not above the one in question. That is sharper than a factor for the number of
    pieces: many of them were in too few runs to look bad at all.

    Args:
        tail: the result of `tails`.
        guilty: number of guilty runs of each piece.
    """
    odds = tail[np.arange(len(tail)), guilty]
    result = np.ones(len(tail))
    for limit in np.unique(odds[odds <= LARGEST_P]):
        reached = np.where(tail <= limit * (1 + CLOSE), tail, 0.0).max(axis=1)
        # A count beyond the last one may come closer to the limit than any that was computed.
        beyond = np.minimum(tail[:, -1], limit)
        result[odds == limit] = min(1.0, float(np.maximum(reached, beyond).sum()))
    return result


class Judged(Struct, frozen=True):
    """Pieces with their odds.

    Attributes:
        pieces: kind, id, runs, guilty, p (corrected).
        suspects: (kind, id) of the suspects.
    """

    pieces: pl.DataFrame
    suspects: tuple[tuple[str, str], ...]


def judged(appearances: pl.DataFrame) -> Judged:
    """The pieces of a fleet, and which of them are suspect."""
    hardware = _without_work_of_ranks(appearances)
    kinds = pl.col("kind")
    # A slot that always held one GPU is that GPU.
    changed = pl.col("id").is_in(_changed_slots(appearances).implode())
    tested = hardware.filter((kinds != "rank") & ((kinds != "slot") | changed))
    odds = _odds(tested)
    likely = _beyond_chance(odds)
    slots = [
        each
        for each in likely.filter(kind="slot")["id"]
        if _slot_beyond_gpus(each, appearances, odds)
    ]
    # Guilt that a slot explains is not that of the GPUs in it.
    in_slots = (pl.col("kind") == "gpu") & SLOT.is_in(slots).fill_null(False)
    outside_slots = _beyond_chance(_odds(tested.with_columns(guilty=pl.col("guilty") & ~in_slots)))
    gpus = [
        each for each in outside_slots.filter(kind="gpu")["id"] if _beyond_host(each, appearances)
    ]
    adapters = [
        each for each in likely.filter(kind="nic")["id"] if _beyond_hosts(each, appearances)
    ]
    explained = _explained(hardware, gpus, slots, adapters)
    hosts = _beyond_chance(_odds(explained)).filter(kind="host")["id"].to_list()
    suspects = [("gpu", each) for each in gpus] + [("nic", each) for each in adapters]
    suspects += [("slot", each) for each in slots] + [("host", each) for each in hosts]
    return Judged(odds, tuple(suspects))


def _odds(rows: pl.DataFrame) -> pl.DataFrame:
    """kind, id, runs, guilty, p: the odds of each piece, corrected over all of them."""
    pieces = rows.group_by("kind", "id", maintain_order=True).agg(
        pl.len().alias("runs"), pl.col("guilty").sum()
    )
    if pieces.is_empty():
        return pieces.with_columns(p=pl.lit(None, pl.Float64))
    number = rows.select("kind", "id").join(
        pieces.select("kind", "id").with_row_index("piece"),
        on=["kind", "id"],
        maintain_order="left",
    )["piece"]
    guilty = pieces["guilty"].to_numpy().astype(np.intp)
    tail = tails(
        number.to_numpy().astype(np.intp),
        rows["chance"].to_numpy(),
        pieces.height,
        int(guilty.max()),
    )
    return pieces.with_columns(p=pl.Series(corrected(tail, guilty)))


def _beyond_chance(odds: pl.DataFrame) -> pl.DataFrame:
    """The pieces that are guilty in enough runs, and beyond chance."""
    return odds.filter((pl.col("guilty") >= LEAST_GUILTY) & (pl.col("p") <= LARGEST_CHANCE))


def _without_work_of_ranks(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows, with the chance of hardware at least the rate of its rank's guilt elsewhere.

    Rank 0 often has more to do than the others. If a rank is guilty beyond chance wherever it runs,
    its guilt says nothing about its hardware.
    """
    ranks = rows.filter(kind="rank")
    odds = _beyond_chance(_odds(ranks))
    if odds.is_empty():
        return rows
    busy = ranks.filter(pl.col("id").is_in(odds["id"].implode()))
    per_host = busy.group_by("rank", "host").agg(pl.len().alias("runs"), pl.col("guilty").sum())
    of_other_hosts = pl.col("runs", "guilty").sum().over("rank") - pl.col("runs", "guilty")
    usual = (
        per_host.with_columns(of_other_hosts.name.prefix("other_"))
        .filter(pl.col("other_runs") >= LEAST_OTHERS)
        .select("rank", "host", usual=pl.col("other_guilty") / pl.col("other_runs"))
        .join(busy.select("run", "rank", "host"), on=["rank", "host"])
    )
    of_hosts = usual.group_by("run", "host").agg(of_host=pl.col("usual").max())
    return (
        rows.join(usual.drop("host"), on=["run", "rank"], how="left", maintain_order="left")
        .join(of_hosts, on=["run", "host"], how="left", maintain_order="left")
        .with_columns(usual=pl.when(pl.col("rank").is_null()).then("of_host").otherwise("usual"))
        .with_columns(chance=pl.max_horizontal("chance", "usual"))
        .drop("usual", "of_host")
    )


def _changed_slots(rows: pl.DataFrame) -> pl.Series:
    """The slots in which more than one GPU was guilty."""
    return (
        rows.filter(pl.col("kind") == "gpu", pl.col("slot").is_not_null(), "guilty")
        .group_by(SLOT)
        .agg(pl.col("id").n_unique().alias("gpus"))
        .filter(pl.col("gpus") > 1)["host"]
    )


def _slot_beyond_gpus(slot: str, rows: pl.DataFrame, odds: pl.DataFrame) -> bool:
    """Whether guilt stayed in a slot, rather than with one of the GPUs that were in it."""
    [slot_odds] = odds.filter(kind="slot", id=slot)["p"]
    in_slot = rows.filter(kind="gpu").filter(slot == SLOT)
    rivals = odds.filter(kind="gpu").filter(pl.col("id").is_in(in_slot["id"].implode()))
    return bool(slot_odds < (rivals["p"].min() or 0.0)) if rivals.height else True


def _beyond_host(gpu: str, rows: pl.DataFrame) -> bool:
    """Whether a GPU is guilty more often than the other GPUs that its hosts had in the same runs.

    True as well where a run never had another GPU of its host: then nothing contradicts.
    """
    appearances = rows.filter(kind="gpu", id=gpu).select("run", "host", "guilty")
    beside = (
        rows.filter(kind="rank")
        .join(appearances.select("run", "host"), on=["run", "host"])
        .group_by("run", "host")
        .agg(pl.len().alias("ranks"), pl.col("guilty").mean().alias("chance"))
    )
    known = appearances.join(beside, on=["run", "host"]).filter(
        (pl.col("ranks") > 1) & (pl.col("chance") > 0)
    )
    if known.is_empty():
        return True
    return _is_beyond(known["guilty"], known["chance"].to_numpy())


def _beyond_hosts(adapter: str, rows: pl.DataFrame) -> bool:
    """Whether the hosts of a network adapter are guilty with it more often than without it."""
    appearances = rows.filter(kind="nic", id=adapter).select("run", "host", "guilty")
    without = (
        rows.filter(kind="host")
        .filter(pl.col("id").is_in(appearances["host"].implode()))
        .join(appearances, on=["run", "host"], how="anti")
    )
    if appearances.filter("guilty")["host"].n_unique() < 2:
        return False
    usual = without["guilty"].mean() if without.height else 0.0
    assert isinstance(usual, float)
    return _is_beyond(appearances["guilty"], np.full(appearances.height, usual))


def _is_beyond(guilty: pl.Series, chances: Floats) -> bool:
    """Whether a piece is guilty in more of its runs than chance explains."""
    runs = len(guilty)
    tail = tails(np.zeros(runs, dtype=np.intp), chances, 1, runs)
    return bool(tail[0, int(guilty.sum())] <= OWN_CHANCE)


def _explained(
    rows: pl.DataFrame, gpus: Collection[str], slots: Collection[str], adapters: Collection[str]
) -> pl.DataFrame:
    """Appearances of hardware, without the guilt of hosts that other suspects explain."""
    slot = SLOT.is_in([*slots]).fill_null(False)
    culprits = rows.filter(pl.col("kind") == "gpu", "guilty").filter(
        pl.col("id").is_in([*gpus]) | slot
    )
    explained = culprits.group_by("run", "host").agg(pl.len().alias("known"))
    accused = (
        rows.filter(pl.col("kind") == "rank", "guilty")
        .group_by("run", "host")
        .agg(pl.len().alias("all"))
    )
    fully = accused.join(explained, on=["run", "host"]).filter(pl.col("known") >= pl.col("all"))
    plugged = rows.filter(pl.col("kind") == "nic", pl.col("id").is_in([*adapters]), "guilty")
    cleared = pl.concat([fully.select("run", "host"), plugged.select("run", "host")]).unique()
    hosts = rows.filter(kind="host")
    others = rows.filter(pl.col("kind").is_in(["gpu", "nic"]))
    freed = hosts.join(
        cleared.with_columns(free=pl.lit(True)), on=["run", "host"], how="left"
    ).with_columns(guilty=pl.col("guilty") & pl.col("free").is_null())
    return pl.concat([freed.select(rows.columns), others])

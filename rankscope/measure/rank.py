"""One rank, start to end: ranges and device work → its rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.measure.activities import activities
from rankscope.measure.collectives import collectives
from rankscope.measure.device import DeviceTimeline, attribute, device_timeline
from rankscope.measure.host import host_timeline
from rankscope.measure.numbers import UNPHASED_LIMIT, gpu_numbers, host_numbers
from rankscope.records import Problem, RankIdentity, RankRecord, RankRows
from rankscope.schema import (
    ACTIVITIES,
    COLLECTIVES,
    EXPOSED,
    MEASURES,
    PHASES,
    RANK_ITERATIONS,
    conform,
)
from rankscope.segment import UNNAMED, Found, Marks, find_marks
from rankscope.vocabulary import Vocabulary, with_operation

GPU_CLOCK_SHARE = 0.9
"""The gpu clock needs device work in some phase in at least this share of the iterations."""


@dataclass(frozen=True, slots=True)
class RankDetail:
    """One rank in detail, on its report's axis: what its numbers are made of."""

    found: Found
    marks: Marks
    host: pl.DataFrame  # SEGMENTS of the training thread
    device: DeviceTimeline
    collectives: pl.DataFrame  # COLLECTIVES without `rank`
    communicates: bool  # the device does the communicating
    has_device: bool

    @property
    def unseen(self) -> bool:
        """Whether collectives are launched whose device work the report lacks."""
        return self.marks.launches_collectives and not self.has_device

    @property
    def hidden(self) -> bool:
        """Whether the host merely launches collectives, so that waits hide in its phases."""
        return self.communicates or self.device.opaque or self.unseen


def detail_rank(
    process: int, found: Found, named: pl.DataFrame, device_work: pl.DataFrame
) -> RankDetail:
    """One process's ranges and device work, segmented and attributed.

    Args:
        process: its key.
        found: its iterations.
        named: RANGES of the report with the columns of MEANINGS.
        device_work: DEVICE_WORK of the report.
    """
    mine = pl.col("process") == process
    device_work = with_operation(device_work.filter(mine))
    communicates = bool(device_work["operation"].is_not_null().any())
    marks = find_marks(named.filter(mine), found, communicates)
    host = host_timeline(found.frame, marks)
    work = attribute(device_work, host, found.thread)
    blocking = marks.frame.filter(pl.col("label") == "exposed_communication")
    device = device_timeline(work, host, found.frame, blocking.select("start", "end"))
    communication = collectives(work, found.frame, marks.frame)
    return RankDetail(
        found, marks, host, device, communication, communicates, not device_work.is_empty()
    )


def measure_rank(
    identity: RankIdentity,
    found: Found,
    named: pl.DataFrame,
    device_work: pl.DataFrame,
    words: Vocabulary,
) -> RankRows:
    """Everything about one rank that needs no other.

    Args:
        identity: whose rank it is, and in which process.
        found: its iterations.
        named: RANGES of the report with the columns of MEANINGS.
        device_work: DEVICE_WORK of the report.
        words: the vocabulary that named them.
    """
    detail = detail_rank(identity.process, found, named, device_work)
    marks, device, calls = detail.marks, detail.device, detail.collectives
    numbers = [host_numbers(found.frame, detail.host, marks.phases, calls, not detail.hidden)]
    if detail.has_device:
        numbers.append(gpu_numbers(found.frame, device, marks.phases, calls))
    rank = pl.lit(identity.rank, pl.Int64).alias("rank")
    return RankRows(
        rank=RankRecord(
            identity=identity,
            numbered=found.numbered,
            convention=UNNAMED.get(found.row) or words.framework(found.row),
            has_device=detail.has_device,
            clock_gpu=_clock_gpu(device.work, found.frame.height, marks.phases),
            work_known=not detail.hidden,
        ),
        iterations=_views(found.frame, marks, device.work)
        .with_columns(rank)
        .pipe(conform, RANK_ITERATIONS),
        measures=conform(
            pl.concat([each.measures for each in numbers]).with_columns(rank), MEASURES
        ),
        collectives=conform(calls.with_columns(rank), COLLECTIVES),
        exposed=conform(pl.concat([each.exposed for each in numbers]).with_columns(rank), EXPOSED),
        activities=conform(
            activities(found.frame, detail.host, device, marks).with_columns(rank), ACTIVITIES
        ),
        problems=tuple(_problems(identity.rank, found, marks, device, detail.unseen)),
    )


def _clock_gpu(work: pl.DataFrame, iterations: int, known: frozenset[str]) -> bool:
    """Whether nearly every iteration has device work in some phase.

    Where the report names no phase at all, everything is `other`, and that counts.
    """
    phases = [phase for phase in PHASES if phase != "other" or not known]
    counted = (
        work.lazy()
        .filter(
            pl.col("training")
            & pl.col("operation").is_null()
            & pl.col("phase").is_in(phases)
            & pl.col("window").is_not_null()
        )
        .select(pl.col("window").n_unique())
        .collect()
        .item()
    )
    return bool(counted and counted >= GPU_CLOCK_SHARE * iterations)


def _views(iterations: pl.DataFrame, marks: Marks, work: pl.DataFrame) -> pl.DataFrame:
    """The iterations with the stretch to look at: first host range to last device end."""
    begins, ends = (iterations[name].to_numpy() for name in ("window_start", "window_end"))
    first, last = iterations["start"].to_numpy().copy(), iterations["end"].to_numpy().copy()
    start = marks.frame["start"].to_numpy()
    window = np.searchsorted(begins, start, side="right") - 1
    inside = (window >= 0) & (start < ends[window])
    np.minimum.at(first, window[inside], start[inside])
    launched = work.select("window", "end").drop_nulls()
    np.maximum.at(last, launched["window"].to_numpy(), launched["end"].to_numpy())
    return iterations.with_columns(
        start_ns="start",
        end_ns="end",
        view_start_ns=pl.Series(first),
        view_end_ns=pl.Series(last),
    )


def _problems(
    rank: int, found: Found, marks: Marks, device: DeviceTimeline, hidden: bool
) -> list[Problem]:
    """What a reader of this rank's numbers must know."""
    problems: list[Problem] = []
    computing = device.work["device"].filter(device.work["kind"] != "copy")
    cut = found.frame.filter(~pl.col("complete"))["iteration"].to_list()
    if cut:
        problems.append(
            Problem(
                "iteration-cut",
                f"the capture ends inside iteration {cut[0]} (killed, or stopped there); it is "
                "left out, and later ones are lost",
                (rank,),
            )
        )
    if hidden:
        problems.append(
            Problem(
                "waits-hidden",
                "launches NCCL but was profiled without device tables, so waits hide in whatever "
                "synchronises first; profile with --trace=cuda,nvtx",
                (rank,),
            )
        )
    blind = device.unphased.filter(pl.col("share") > UNPHASED_LIMIT).height
    if device.opaque:
        problems.append(
            Problem(
                "graphs-opaque",
                "CUDA graphs were traced as a whole, so what communicates and waits inside them "
                "is hidden; profile with --cuda-graph-trace=node",
                (rank,),
            )
        )
    if (devices := computing.n_unique()) > 1:
        problems.append(
            Problem(
                "several-devices",
                f"drives {devices} devices from one process; they are taken together: the rank "
                "computes where any of them does",
                (rank,),
            )
        )
    if blind:
        problems.append(
            Problem(
                "phases-unknown",
                f"in some iterations more than {UNPHASED_LIMIT:.0%} of the device work cannot be "
                "told a phase (no launch record, or a CUDA graph that spans phases); phases are "
                "unknown there",
                (rank,),
            )
        )
    if marks.derived:
        problems.append(
            Problem(
                "phases-from-operators",
                f"no ranges are named like {' or '.join(sorted(marks.derived, reverse=True))}: "
                "read off the framework's operators (backward is what autograd runs, forward what "
                "precedes it); ranges of your own, or --phase, are surer",
                (rank,),
            )
        )
    if not marks.phases:
        problems.append(
            Problem(
                "no-phases",
                "no ranges are named like phases; name them with --phase forward='REGEX' and so on",
                (rank,),
            )
        )
    return problems

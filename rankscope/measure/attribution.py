"""Device work and what the host did when it launched it (method section 4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from rankscope.events import Events
from rankscope.measure.collectives import CALLS
from rankscope.schema import SEGMENTS
from rankscope.vocabulary import with_operation

NEVER = np.iinfo(np.int64).max

ALIKE = ["device", "stream", "launch_thread", "kind", "talks", "window", "phase"]
"""What operations have in common that a row of the survey counts together."""

TALKS = pl.col("operation").is_not_null()


@dataclass(frozen=True, slots=True)
class HostSide:
    """What the host did in one process."""

    process: int
    timeline: pl.DataFrame  # SEGMENTS
    thread: int  # of the iteration ranges


@dataclass(frozen=True, slots=True)
class Attributed:
    """The device work of one process with the phase and iteration it was launched in."""

    events: Events  # DEVICE_WORK of the report
    host: HostSide
    survey: pl.DataFrame  # ALIKE and `training`, a row for operations that are so; their last `end`
    calls: pl.DataFrame  # CALLS of the operations that are collectives
    training: pl.Expr

    def of(self, part: pl.DataFrame) -> pl.DataFrame:
        """Of a part of `events` what is the process's, as `attribute` says."""
        return _placed(part, self.host).with_columns(training=self.training)

    def parts(self) -> Iterator[pl.DataFrame]:
        """In the order of the starts, piece by piece."""
        return map(self.of, self.events.parts())


def attribute(events: Events, hosts: Iterable[HostSide]) -> list[Attributed]:
    """For each process its operations with what the host did when it launched them.

    They are DEVICE_WORK in the order of the starts, with `operation` (of a collective, null for
    computation), `phase` (an Enum of PARTS) and `window` of the launch (null outside all windows),
    and `training`: launched by the thread of the iterations, or by another onto a stream that it
    uses (autograd's); without a launch record, run on such a stream.

    Args:
        events: DEVICE_WORK of the report, which is gone through once.
        hosts: of the processes.
    """
    looks = [_Look(host) for host in hosts]
    for part in events.parts():
        for look in looks:
            look.at(_placed(part, look.host))
    return [look.result(events) for look in looks]


class _Look:
    """A first look at all the work of a process."""

    def __init__(self, host: HostSide) -> None:
        self.host = host
        self._alike: list[pl.DataFrame] = []
        self._calls: list[pl.DataFrame] = []

    def at(self, part: pl.DataFrame) -> None:
        """Take in a part of what `_placed` gives."""
        self._alike.append(_counted_together(part.with_columns(talks=TALKS)))
        self._calls.append(part.filter(TALKS).select(CALLS))

    def result(self, events: Events) -> Attributed:
        """What is known once all has been seen."""
        by_host = pl.col("launch_thread") == self.host.thread
        own = by_host.any().over("device", "stream")
        survey = _counted_together(pl.concat(self._alike)).with_columns(own_stream=own)
        by_thread = pl.col("own_stream").any().over("launch_thread")
        survey = survey.with_columns(
            training=pl.when(pl.col("launch_thread").is_null())
            .then("own_stream")
            .otherwise(by_thread)
        ).drop("own_stream")
        return Attributed(events, self.host, survey, pl.concat(self._calls), _training(survey))


def _counted_together(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by(ALIKE).agg(pl.col("end").max())


def _placed(part: pl.DataFrame, host: HostSide) -> pl.DataFrame:
    """DEVICE_WORK of the process with `operation`, `phase` and `window`."""
    work = with_operation(part.filter(pl.col("process") == host.process))
    begins, ends = host.timeline["start"].to_numpy(), host.timeline["end"].to_numpy()
    launch = work["launch"].fill_null(NEVER).to_numpy()
    at = np.searchsorted(begins, launch, side="right") - 1
    inside = (at >= 0) & (launch < ends[at])
    place = pl.Series(at).set(pl.Series(~inside), None)
    phase = pl.col("phase")
    return work.with_columns(
        phase=host.timeline["label"].gather(place), window=host.timeline["window"].gather(place)
    ).with_columns(
        # A blocking call has no work of its own; a graph launched under no phase spans them.
        phase=pl.when(phase == "exposed_communication")
        .then(pl.lit("other", SEGMENTS["label"]))
        .when(pl.col("graph") & ~phase.is_in(["forward", "backward", "optimizer"]))
        .then(None)
        .otherwise(phase)
    )


def _training(survey: pl.DataFrame) -> pl.Expr:
    """Whether an operation is the training threads'."""
    own = survey.filter("training")
    threads = own["launch_thread"].drop_nulls().unique()
    streams = own.filter(pl.col("launch_thread").is_null()).select("device", "stream").unique()
    thread = pl.col("launch_thread")
    unrecorded = pl.any_horizontal(
        pl.lit(False),
        *(
            pl.col("device").eq_missing(device) & (pl.col("stream") == stream)
            for device, stream in streams.iter_rows()
        ),
    )
    return pl.when(thread.is_null()).then(unrecorded).otherwise(thread.is_in(threads.implode()))

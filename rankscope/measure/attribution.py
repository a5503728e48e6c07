"""Device work and what the host did when it launched it (method section 4)."""

from __future__ import annotations

from collections.abc import Iterator
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
class Attributed:
    """The device work of one process with the phase and iteration it was launched in."""

    events: Events  # DEVICE_WORK of the report
    process: int
    host: pl.DataFrame  # SEGMENTS of the host timeline
    survey: pl.DataFrame  # ALIKE and `training`, a row for operations that are so; their last `end`
    calls: pl.DataFrame  # CALLS of the rows of `parts` that are collectives

    def parts(self) -> Iterator[pl.DataFrame]:
        """In the order of the starts, piece by piece: see `attribute`."""
        training = _training(self.survey)
        for part in _placed(self.events, self.process, self.host):
            yield part.with_columns(training=training)


def attribute(events: Events, process: int, host: pl.DataFrame, thread: int) -> Attributed:
    """Operations of one process with what the host did when it launched them.

    Its `parts` are DEVICE_WORK in the order of the starts, with `operation` (of a collective, null
    for computation), `phase` (an Enum of PARTS) and `window` of the launch (null outside all
    windows), and `training`: launched by the thread of the iterations, or by another onto a stream
    that it uses (autograd's); without a launch record, run on such a stream.

    Args:
        events: DEVICE_WORK of the report.
        process: which of its processes.
        host: SEGMENTS of the host timeline.
        thread: the thread of the iteration ranges.
    """
    alike: list[pl.DataFrame] = []
    calls: list[pl.DataFrame] = []
    for part in _placed(events, process, host):
        alike.append(_counted_together(part.with_columns(talks=TALKS)))
        calls.append(part.filter(TALKS).select(CALLS))
    survey = _counted_together(pl.concat(alike)).with_columns(
        own_stream=(pl.col("launch_thread") == thread).any().over("device", "stream")
    )
    own = pl.col("own_stream")
    by_thread = own.any().over("launch_thread")
    training = pl.when(pl.col("launch_thread").is_null()).then(own).otherwise(by_thread)
    return Attributed(
        events,
        process,
        host,
        survey.with_columns(training=training).drop("own_stream"),
        pl.concat(calls),
    )


def _counted_together(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by(ALIKE).agg(pl.col("end").max())


def _placed(events: Events, process: int, host: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """DEVICE_WORK of the process with `operation`, `phase` and `window`."""
    begins, ends = host["start"].to_numpy(), host["end"].to_numpy()
    for part in events.parts():
        mine = part.filter(pl.col("process") == process)
        work = with_operation(mine)
        launch = work["launch"].fill_null(NEVER).to_numpy()
        at = np.searchsorted(begins, launch, side="right") - 1
        inside = (at >= 0) & (launch < ends[at])
        place = pl.Series(at).set(pl.Series(~inside), None)
        phase = pl.col("phase")
        yield work.with_columns(
            phase=host["label"].gather(place), window=host["window"].gather(place)
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

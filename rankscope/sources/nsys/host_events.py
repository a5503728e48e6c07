"""What Nsight Systems exports say of a thread: scheduling, calls and samples."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from rankscope.model.host_events import Calls, HostEvents, Spans, ThreadEvents
from rankscope.sources.nsys.common import Columns, Strings
from rankscope.sources.nsys.file_uses import file_uses
from rankscope.sources.nsys.host_calls import cuda_calls, os_calls, profiler_time
from rankscope.sources.nsys.samples import samples
from rankscope.sources.nsys.scheduling import switches


def host_events(
    file: Columns, pool: Strings, launches: Sequence[pl.DataFrame] | None = None
) -> HostEvents:
    """Reads what the export says of some threads, once per call.

    Args:
        file: the export.
        pool: its strings.
        launches: chunks of its API calls; None where they are to be read.
    """

    def read(spans: Spans) -> dict[int, ThreadEvents]:
        scheduled = switches(file, spans)
        called = os_calls(file, pool, spans)
        cuda = cuda_calls(file, pool, spans, launches)
        sampled = samples(file, pool, spans)
        profiler = profiler_time(file, pool, spans)
        files = file_uses(file, pool, spans)
        return {
            thread: ThreadEvents(
                switches=scheduled.get(thread),
                os_calls=None if called is None else called[thread],
                cuda_calls=None if cuda is None else cuda[thread],
                samples=None if sampled is None else sampled[thread],
                profiler=Calls.none() if profiler is None else profiler[thread],
                files=None if files is None else files[thread],
            )
            for thread in spans
        }

    return read

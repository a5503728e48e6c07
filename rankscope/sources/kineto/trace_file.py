"""The format of PyTorch profiler (Kineto) traces: `.json` and `.json.gz`."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rankscope.sources.report_format import Format, IterationHints, Viewer

if TYPE_CHECKING:
    from rankscope.model.reports import CaptureFacts, Trace
    from rankscope.sources.conventions import Vocabulary

SIGNS = re.compile(
    rb'"schemaVersion"\s*:.*"(deviceProperties|distributedInfo|traceEvents)"\s*:'
    rb'|("traceEvents"\s*:|\A\s*\[).*"cat"\s*:\s*"(kernel|gpu_memcpy|cuda_runtime|hip_runtime|cpu_op'
    rb'|user_annotation|Runtime|Kernel|Operator)"',
    re.DOTALL,
)
"""In the head of a profiler trace, and of no log, configuration or trace of another program."""

HEAD_BYTES = 2**16


def facts(path: Path) -> CaptureFacts:
    """Rank and host; times are known once the events are read; raises `UnreadableReport`."""
    from rankscope.sources.kineto import reader

    return reader.facts(path)


def read(path: Path, words: Vocabulary | None = None, more: Sequence[Path] = ()) -> Trace:
    """The whole trace; raises `UnreadableReport` where it is not a valid one."""
    from rankscope.sources.kineto import reader

    return reader.read(path, words, more)


def joined(paths: Iterable[Path]) -> list[tuple[Path, ...]]:
    """The files of each process that wrote several, by `torch.profiler.schedule`."""
    from rankscope.sources.kineto import schedules

    return schedules.joined(paths)


def is_trace(path: Path) -> bool:
    """Whether a JSON file looks like a trace of the PyTorch profiler; unreadable ones might be."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except (OSError, EOFError, zlib.error):
        return True
    return not head.strip() or SIGNS.search(head) is not None


FORMAT = Format(
    name="kineto",
    family="kineto",
    facts=facts,
    read=read,
    joined=joined,
    hints=IterationHints(
        ranges="host",
        no_ranges="profile with ProfilerActivity.CPU, and call prof.step() after every iteration",
        pattern=r"^Optimizer\.step#",
    ),
    suffixes=(".json", ".json.gz"),
    inner_suffixes=(".trace", ".pt"),
    sniff=is_trace,
    sniffed_as="traces of the PyTorch profiler",
    viewer=Viewer.BROWSER,
)

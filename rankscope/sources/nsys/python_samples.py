"""Python functions that nsys 2023.4 and 2024 sampled, which only their JSON exports hold.

With `--python-sampling` each sample is a mark of an NVTX domain, and its stack is the mark's binary
payload. SQLite, Parquet and Arrow exports leave payloads out. See FORMATS.md#limits.
"""

import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import msgspec
import polars as pl

from rankscope.errors import UnreadableReport
from rankscope.model.host_events import Spans
from rankscope.sources.columns.request import Columns
from rankscope.sources.nsys.common import PROCESS, Strings, process_of

TABLE = "PYTHON_SAMPLES"
"""The table that `convert` adds to an export folder: a row per sample."""

SAMPLES = pl.Schema(
    {
        "start": pl.Int64,
        "process": pl.Int64,
        "thread": pl.Int64,
        "function": pl.Int64,
        "file": pl.Int64,
        "outermost": pl.Int64,
    }
)
"""When (ns); process and the number of its Python thread; ids in StringIds of the innermost
function, of its file and of the outermost function."""

MAIN = ("<module>", "_run_module_as_main")
"""Outermost functions of a main thread. nsys numbers Python threads and does not say which of the
process's threads they are."""

ESCAPED = {"&lt;": "<", "&gt;": ">", "&amp;": "&", "&quot;": '"', "&#39;": "'"}
"""How nsys writes names of Python, such as `<module>`."""

DOMAIN = "Python Backtrace"
DOMAIN_NAMED, MARK = 75, 34
"""Types of NVTX events."""

HEAD, FRAME = struct.Struct("<IIIxxxx"), struct.Struct("<QQIxxxx")
"""A payload: two words, the number of frames; of each, the innermost first: function, file, line.
Function and file are ids of the table of strings. Bytes of padding hold anything."""

BATCH = 100_000
"""Samples that are held as Python objects."""


class _Blob(msgspec.Struct, rename="pascal"):
    data: bytes


class _Payload(msgspec.Struct, rename="pascal"):
    binary_data: list[_Blob] = []


class _NvtxEvent(msgspec.Struct, rename="pascal"):
    type: int
    timestamp: str
    global_tid: str
    category: str = "0"  # of a sample: the number of the Python thread
    domain_id: str = "0"
    text: str = ""
    payload: _Payload = msgspec.field(default_factory=_Payload)

    @property
    def process(self) -> int:
        """The process. The thread is that of nsys which takes the samples."""
        process: int = int(self.global_tid) // PROCESS
        return process


class _Line(msgspec.Struct, rename="pascal"):
    nvtx_event: _NvtxEvent


def are_in(folder: Path) -> bool:
    """Whether the report of this Parquet export holds Python samples."""
    marks = folder / "NVTX_EVENTS.parquet"
    if not marks.exists():
        return False
    named = (
        pl.scan_parquet(marks)
        .filter((pl.col("eventType") == DOMAIN_NAMED) & (pl.col("text") == DOMAIN))
        .head(1)
    )
    return not named.collect().is_empty()


def convert(export: Path, folder: Path) -> None:
    """Write the samples of a JSON export as `TABLE` of the Parquet export of the same report.

    Raises:
        UnreadableReport: a line is not what nsys 2023.4 and 2024 write.
    """
    batches = []
    with export.open("rb") as lines:
        try:
            samples = _samples(lines)
            while rows := [*islice(samples, BATCH)]:
                batches.append(pl.DataFrame(rows, SAMPLES, orient="row"))
        except (msgspec.MsgspecError, struct.error, ValueError, pl.exceptions.PolarsError) as error:
            raise UnreadableReport(
                f"{export.name}: {error}", hint="open the report in the GUI to see its functions"
            ) from error
    pl.concat([SAMPLES.to_frame(), *batches]).write_parquet(folder / f"{TABLE}.parquet")


def functions(file: Columns, pool: Strings, spans: Spans) -> pl.DataFrame:
    """start, globalTid and python, `function (file)`, of the threads that are main ones.

    In the order of time; without rows if the export has no `TABLE`.
    """
    nothing = {"start": pl.Int64, "globalTid": pl.Int64, "python": pl.String}
    if not file.has(TABLE, *SAMPLES):
        return pl.DataFrame(schema=nothing)
    main = {key: process_of(key).main_thread for key in {thread // PROCESS for thread in spans}}
    rows = file.read(TABLE, [*SAMPLES], only=("process", [*main]))
    text = {
        column: pool.of(rows[column]).str.replace_many(ESCAPED)
        for column in ("function", "file", "outermost")
    }
    rows = rows.with_columns(**text)
    threads = (
        rows.filter(pl.col("outermost").is_in(MAIN))
        .group_by("process", "thread")
        .len()
        .sort("process", "len", "thread", descending=[False, True, False])
        .unique("process", keep="first")
    )
    base = pl.col("file").str.extract(r"([^/\\]*)$")
    return (
        rows.join(threads, on=["process", "thread"], how="semi")
        .drop_nulls(["start", "function"])
        .select(
            "start",
            globalTid=pl.col("process").replace_strict(main, return_dtype=pl.Int64),
            python=pl.coalesce(pl.format("{} ({})", "function", base), "function"),
        )
        .sort("start")
    )


def _samples(lines: Iterable[bytes]) -> Iterator[tuple[int, ...]]:
    """Rows of SAMPLES: marks of the domain, which is named before them."""
    decoder = msgspec.json.Decoder(_Line)
    domains = set()
    for line in lines:
        if b'"NvtxEvent"' not in line or (b'"BinaryData"' not in line and b'"Text"' not in line):
            continue
        event = decoder.decode(line).nvtx_event
        if event.type == DOMAIN_NAMED and event.text == DOMAIN:
            domains.add((event.process, event.domain_id))
        elif event.type == MARK and (event.process, event.domain_id) in domains:
            for blob in event.payload.binary_data:
                _, _, frames = HEAD.unpack_from(blob.data)
                if frames:
                    function, file, _ = FRAME.unpack_from(blob.data, HEAD.size)
                    last = HEAD.size + (frames - 1) * FRAME.size
                    outermost, _, _ = FRAME.unpack_from(blob.data, last)
                    at, thread = int(event.timestamp), int(event.category)
                    yield at, event.process, thread, function, file, outermost

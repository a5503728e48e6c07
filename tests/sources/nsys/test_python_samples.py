"""Python's own samples: lines as nsys 2024.2 wrote them, and the functions they name."""

import base64
import json
import struct
from pathlib import Path

import polars as pl
import pytest

from rankscope.errors import UnreadableReport
from rankscope.sources.columns.folders import ParquetColumns
from rankscope.sources.nsys import python_samples
from rankscope.sources.nsys.common import PROCESS as PROCESS_SIZE
from rankscope.sources.nsys.common import Strings, process_of
from rankscope.sources.nsys.samples import samples

SAMPLER = 281625569010460
"""The thread of nsys that takes the samples."""

PROCESS = SAMPLER // PROCESS_SIZE
THREAD = process_of(PROCESS).main_thread

RECORDED = (
    '{"Type":75,"NvtxEvent":{"Type":75,"Timestamp":"57870105","Text":"Python Backtrace",'
    '"GlobalTid":"281625569010448","DomainId":"1","NsTime":true}}\n'
    '{"Type":34,"NvtxEvent":{"Type":34,"Timestamp":"79238611","Category":"1","Color":4291169563,'
    '"Payload":{"BinaryData":[{"SchemaId":"4294967299","Data":'
    '"AwAAAAEAAAABAAAAAAAAAHMAAAAAAAAAGAEAAAAAAAAHAAAAAAAAAA=="}]},'
    '"GlobalTid":"281625569010460","DomainId":"1","NsTime":true}}\n'
)
"""Of a real export: the domain's name, and a sample in function 0x73 of file 0x118."""

POOL = {
    1: "tokenize", 2: "/job/data&amp;text.py", 3: "&lt;module&gt;", 4: "_PyEval_EvalFrameDefault",
    5: "/opt/bin/python3.11", 6: "sgemm", 7: "/opt/lib/libblas.so.3", 8: "gc_collect_main",
    9: "fetch", 10: "_bootstrap",
}  # fmt: skip


def mark(
    at: int,
    frames: list[tuple[int, int]],
    thread: int = 1,
    domain: str = "1",
    sampler: int = SAMPLER,
) -> str:
    """A line with a stack, the innermost frame first; the padding holds anything."""
    data = struct.pack("<IIIi", 3, 1, len(frames), -1)
    data += b"".join(struct.pack("<QQIi", *frame, 7, -1) for frame in frames)
    event = {
        "Type": 34,
        "Timestamp": str(at),
        "Payload": {"BinaryData": [{"SchemaId": "1", "Data": base64.b64encode(data).decode()}]},
        "GlobalTid": str(sampler),
        "Category": str(thread),
        "DomainId": domain,
    }
    return json.dumps({"Type": 34, "NvtxEvent": event}, separators=(",", ":")) + "\n"


def converted(folder: Path, text: str) -> pl.DataFrame:
    """What `convert` writes for a JSON export."""
    (folder / "events.json").write_text(text)
    python_samples.convert(folder / "events.json", folder)
    return pl.read_parquet(folder / f"{python_samples.TABLE}.parquet")


def test_a_recorded_sample(tmp_path: Path) -> None:
    """The innermost function of a stack that a real nsys wrote, and when."""
    assert converted(tmp_path, RECORDED).rows() == [(79238611, PROCESS, 1, 0x73, 0x118, 0x73)]


def test_marks_of_others_are_no_samples(tmp_path: Path) -> None:
    """Other domains, other processes, empty stacks, other events."""
    more = [
        mark(10, [(1, 2), (3, 2)]),
        mark(11, [(1, 2)], domain="2"),
        mark(12, [(1, 2)], sampler=SAMPLER + PROCESS_SIZE),
        mark(13, []),
        '{"Type":12,"SchedEvent":{"Timestamp":"1","Note":"\\"BinaryData\\""}}\n',
    ]
    found = converted(tmp_path, RECORDED + "".join(more))
    assert found["start"].to_list() == [79238611, 10]
    assert found["function"].to_list() == [0x73, 1]
    assert found["outermost"].to_list() == [0x73, 3]


@pytest.mark.parametrize("cut", [40, 7])
def test_broken_lines(tmp_path: Path, cut: int) -> None:
    """A file that ends within a line, and a stack shorter than it says."""
    short = RECORDED.replace("AwAAAAEAAAABAAAAAAAAAHMAAAAAAAAAGAEAAAAAAAAHAAAAAAAAAA==", "AwAA")
    with pytest.raises(UnreadableReport, match=r"events\.json"):
        converted(tmp_path, RECORDED[:-cut] if cut > 7 else short)


@pytest.mark.parametrize("text", ["Python Backtrace", "PyTorch"])
def test_whether_there_are_any(tmp_path: Path, text: str) -> None:
    """An export says so by the name of a domain."""
    assert not python_samples.are_in(tmp_path)
    marks = pl.DataFrame({"start": [1], "eventType": [75], "text": [text]})
    marks.write_parquet(tmp_path / "NVTX_EVENTS.parquet")
    assert python_samples.are_in(tmp_path) == (text == "Python Backtrace")


def test_functions_of_samples(tmp_path: Path) -> None:
    """Samples in the interpreter get the Python function of the moment; others keep theirs."""
    moments = {
        1: (1_000_000, [(4, 5)]),  # interpreter; Python's nearest sample is 2 µs later
        2: (2_000_000, [(6, 7)]),  # a library that Python called
        3: (3_000_000, [(4, 5), (8, 5)]),  # the collector
        4: (4_000_000, [(4, 5)]),  # interpreter, in the module's own code
        5: (90_000_000, [(4, 5)]),  # interpreter, and no sample of Python is near
    }
    pl.DataFrame({"id": [*POOL], "value": [*POOL.values()]}).write_parquet(
        tmp_path / "StringIds.parquet"
    )
    pl.DataFrame(
        [(number, at, THREAD, 1) for number, (at, _) in moments.items()],
        ["id", "start", "globalTid", "cpuCycles"],
        orient="row",
    ).write_parquet(tmp_path / "COMPOSITE_EVENTS.parquet")
    pl.DataFrame(
        [
            (number, depth, *frame)
            for number, (_, frames) in moments.items()
            for depth, frame in enumerate(frames)
        ],
        ["id", "stackDepth", "symbol", "module"],
        orient="row",
    ).write_parquet(tmp_path / "SAMPLING_CALLCHAINS.parquet")
    tokenize = [mark(at, [(1, 2), (3, 2)]) for at in (1_002_000, 2_000_100, 3_000_100)]
    other_thread = mark(1_000_000, [(9, 2), (10, 2)], thread=2)
    converted(tmp_path, RECORDED + "".join([*tokenize, other_thread, mark(3_999_000, [(3, 2)])]))
    file = ParquetColumns(tmp_path)
    found = samples(file, Strings.read(file), {THREAD: (0, 100_000_000)})
    assert found is not None
    assert dict(zip(found[THREAD].at.tolist(), found[THREAD].function.to_list(), strict=True)) == {
        1_000_000: "tokenize (data&text.py)",
        2_000_000: "sgemm",
        3_000_000: "gc_collect",
        4_000_000: "<module> (data&text.py)",
        90_000_000: "_PyEval_EvalFrameDefault",
    }

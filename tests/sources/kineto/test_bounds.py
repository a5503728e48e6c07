"""Small files that unpack to far more than a trace are refused soon."""

import gzip
from pathlib import Path

import pytest

from rankscope.errors import UnreadableReport
from rankscope.sources.kineto import reader
from rankscope.sources.kineto.limits import Limits

HEAD = b'{"schemaVersion": 1, "deviceProperties": [], "traceEvents": ['
EVENT = b'{"ph":"X","cat":"cpu_op","name":"%s","pid":1,"tid":1,"ts":%d,"dur":1}'


def written(path: Path, piece: bytes, times: int) -> Path:
    with gzip.open(path, "wb") as file:
        file.write(HEAD + b"{}")
        for _ in range(times):
            file.write(piece)
        file.write(b"]}")
    return path


def test_millions_of_empty_events(tmp_path: Path) -> None:
    trace = written(tmp_path / "rank_0.json.gz", b",{}" * 100_000, 50)
    assert trace.stat().st_size < 10**5
    with pytest.raises(UnreadableReport, match=r"rank_0.*unpack to more than .* events"):
        reader.read(trace, limits=Limits(most_events=10**6))


@pytest.mark.parametrize("filler", [b" ", b"x"])
def test_millions_of_characters(tmp_path: Path, filler: bytes) -> None:
    event = b"," + EVENT % (b"n" + filler * 1000, 1)
    trace = written(tmp_path / "rank_0.json.gz", event * 100, 100)
    with pytest.raises(UnreadableReport, match=r"rank_0.*unpack to more than .* MB"):
        reader.read(trace, limits=Limits(most_bytes=2**20))


def test_more_names_than_any_trace_has(tmp_path: Path) -> None:
    limits = Limits(most_names=1000)
    events = b"".join(b"," + EVENT % (b"n%d" % number, number) for number in range(1001))
    few = events[: events.rindex(b',{"ph"')]
    allowed = reader.read(written(tmp_path / "rank_0.json.gz", few, 1), limits=limits)
    assert allowed.host_events == 1000
    with pytest.raises(UnreadableReport, match="different names"):
        reader.read(written(tmp_path / "rank_1.json.gz", events, 1), limits=limits)

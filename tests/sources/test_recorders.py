"""Advice fits what recorded the reports, in every answer."""

from dataclasses import replace
from pathlib import Path

import pytest

import rankscope
from rankscope.sources import formats
from rankscope.sources.recorders import ADVICE, Record, Recorder, advice, recorder_of
from tests.pytorch_job import Job, without, write
from tests.support import Cli, mostly_slow

FOREIGN = ("nsys", "--trace", "cpuctxsw", "NVTX", "nvtx", "rankscope capture")

ARGUMENTS = [
    ["imbalance"],
    *(["imbalance", "--by", by] for by in ("cause", "kernel", "collective", "phase")),
    ["imbalance", "--clock", "gpu"],
    ["plot", "why"],
    ["plot", "arrivals"],
    ["check"],
]


@pytest.fixture(
    scope="module", params=mostly_slow(["without communication", "all", "host alone"], 1, 1)
)
def database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of PyTorch's profiler that lacks something."""
    folder = tmp_path_factory.mktemp("run")
    job = Job(between=None, steps=6)
    edits = {
        "all": lambda *_: None,
        "host alone": without("gemm", "nccl", "multi", "cudaLaunch"),
        "without communication": without("nccl"),
    }
    write(folder / "job", job, edits[request.param])
    rankscope.ingest([folder / "job"], folder / "run.duckdb", jobs=1)
    return folder / "run.duckdb"


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=" ".join)
def test_a_trace_of_pytorch_is_never_advised_to_use_nsys(
    database: Path, arguments: list[str], cli: Cli, tmp_path: Path
) -> None:
    more = ["--out", tmp_path / "picture.png"] if arguments[0] == "plot" else []
    for form in ([], ["--format", "json"]) if arguments[0] != "plot" else ([],):
        answer = cli(*arguments, "--db", database, *more, *form)
        assert not [word for word in FOREIGN if word in answer.out + answer.err]


def test_check_of_a_trace_of_pytorch(tmp_path: Path, cli: Cli) -> None:
    for name, edit in (("host", without("gemm", "nccl", "multi")), ("bare", without("Profiler"))):
        folder = write(tmp_path / name, replace(Job(between=None), steps=3), edit)
        answer = cli("check", folder)
        assert not [word for word in FOREIGN if word in answer.out + answer.err]


def test_every_profiler_has_advice_for_everything() -> None:
    for recorder in Recorder:
        assert {*ADVICE[recorder]} == {*Record}
    for record in Record:
        assert not [word for word in FOREIGN if word in advice(record, Recorder.PYTORCH)]


def test_reports_of_several_profilers_are_advised_to_use_nsys() -> None:
    assert recorder_of(["kineto", "kineto"]) is Recorder.PYTORCH
    assert recorder_of(["kineto", "nsys-sqlite"]) is Recorder.NSYS
    assert recorder_of(["of a newer version"]) is Recorder.NSYS
    assert {recorder_of([each.name]) for each in formats.FORMATS} == {*Recorder}

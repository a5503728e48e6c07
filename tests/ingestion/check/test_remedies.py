"""The remedies: every line they tell a user to type is one that rankscope takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from rankscope.ingestion.check.remedies import (
    ANY,
    LAUNCHERS,
    OF_PYTORCH,
    PYTORCH,
    REMEDIES,
    recorder,
    with_remedy,
)
from rankscope.model.reports import CaptureFacts, Claim, RankEvidence, ReportFile
from rankscope.sources.environment import SLURM, TORCHRUN
from tests.support import Result

LINE = re.compile(r"rankscope (capture(?: [\w|]+)?(?: --[\w=-]+(?: [A-Za-z][\w.]*)?)*)")
VALUES = {"S": "5", "cudaProfilerApi": "cudaProfilerApi", "torch.json": "torch.json"}


def facts(*sources: RankEvidence) -> CaptureFacts:
    claims = tuple(Claim(0, None, source) for source in sources)
    return CaptureFacts(None, None, None, claims, None, None)


@pytest.mark.parametrize("code", REMEDIES)
def test_its_command_lines_are_taken(cli: Callable[..., Result], code: str) -> None:
    hint = with_remedy(code, "", "slurm").hint
    assert "{" not in hint.replace("{step}", "")
    for line in LINE.findall(hint):
        words = [VALUES.get(word, word) for word in shlex.split(line)]
        known = [*words[:2], *(w for w in words[2:] if w.startswith("--") or w in VALUES.values())]
        assert cli(*known).code == 0, line


def test_they_name_the_wrapper_of_the_launcher() -> None:
    report = ReportFile(Path("rank0.sqlite"), "nsys-sqlite", 0, 0)
    assert recorder(report, facts()) == ANY
    assert recorder(report, facts(TORCHRUN, SLURM)) == "slurm"
    for source, name in LAUNCHERS.items():
        assert recorder(report, facts(source)) == name


@pytest.mark.parametrize("code", [*REMEDIES, *OF_PYTORCH])
def test_a_trace_of_pytorch_is_never_told_to_use_nsys(code: str) -> None:
    trace = ReportFile(Path("rank0.json"), "kineto", 0, 0)
    assert recorder(trace, facts(SLURM)) == PYTORCH
    hint = with_remedy(code, "", recorder(trace, facts())).hint
    assert "nsys" not in hint
    assert "rankscope capture" not in hint


def test_what_has_no_remedy_of_its_own_is_captured_again() -> None:
    assert (
        with_remedy("new-in-a-stage", "x", "pbs").hint == "capture again with rankscope capture pbs"
    )

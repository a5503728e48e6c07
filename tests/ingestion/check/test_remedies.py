"""The remedies: every line they tell a user to type is one that rankscope takes."""

import re
import shlex
from pathlib import Path

import pytest

import rankscope
from rankscope.ingestion.check.remedies import (
    ANY,
    LAUNCHERS,
    OF_ANY,
    OF_INSPECTOR,
    OF_PYTORCH,
    PYTORCH,
    REMEDIES,
    launcher_of,
    with_remedy,
)
from rankscope.ingestion.check.single_report import OWN_HINTS
from rankscope.model.reports import CaptureFacts, Claim, RankEvidence, ReportFile
from rankscope.sources.environment import SLURM, TORCHRUN
from tests.support import Cli

LINE = re.compile(r"rankscope (capture(?: [\w|]+)?(?: --[\w=-]+(?: [A-Za-z][\w.]*)?)*)")
VALUES = {"S": "5", "cudaProfilerApi": "cudaProfilerApi", "torch.json": "torch.json"}


def facts(*sources: RankEvidence) -> CaptureFacts:
    claims = tuple(Claim(0, None, source) for source in sources)
    return CaptureFacts(None, None, None, claims, None, None)


@pytest.mark.parametrize("code", REMEDIES)
def test_its_command_lines_are_taken(cli: Cli, code: str) -> None:
    hint = with_remedy(code, "", "slurm").hint
    assert "{" not in hint.replace("{step}", "")
    for line in LINE.findall(hint):
        words = [VALUES.get(word, word) for word in shlex.split(line)]
        known = [*words[:2], *(w for w in words[2:] if w.startswith("--") or w in VALUES.values())]
        assert cli(*known).code == 0, line


def test_no_advice_hides_that_of_a_recorder() -> None:
    assert not OF_ANY.keys() & {*REMEDIES, *OF_PYTORCH, *OF_INSPECTOR}


def test_they_name_the_wrapper_of_the_launcher() -> None:
    report = ReportFile(Path("rank0.sqlite"), "nsys-sqlite", 0, 0)
    assert launcher_of(report, facts()) == ANY
    assert launcher_of(report, facts(TORCHRUN, SLURM)) == "slurm"
    for source, name in LAUNCHERS.items():
        assert launcher_of(report, facts(source)) == name


@pytest.mark.parametrize("code", [*REMEDIES, *OF_PYTORCH, *OF_ANY])
def test_a_trace_of_pytorch_is_never_advised_to_use_nsys(code: str) -> None:
    trace = ReportFile(Path("rank0.json"), "kineto", 0, 0)
    assert launcher_of(trace, facts(SLURM)) == PYTORCH
    hint = with_remedy(code, "", launcher_of(trace, facts())).hint
    assert "nsys" not in hint
    assert "rankscope capture" not in hint


@pytest.mark.parametrize("by", ["slurm", PYTORCH])
def test_every_warning_about_a_run_has_a_remedy_that_fits(by: str) -> None:
    """Another capture, without a word on what to do otherwise, helps against none of them."""
    again = with_remedy("new-in-a-stage", "", by).hint
    codes = codes_of_runs() - {*OWN_HINTS}
    bare = {code for code in codes if with_remedy(code, "", by).hint == again}
    assert bare == ({"versions-differ", "graphs-opaque"} if by == PYTORCH else set())


def codes_of_runs() -> set[str]:
    """Codes of the warnings that a run's reports and the comparison of its ranks give."""
    package = Path(rankscope.__file__).parent
    stages = ("match", "judge", "compare", "ingestion", "measure")
    texts = [
        path.read_text("utf-8")
        for stage in stages
        for path in (package / stage).rglob("*.py")
        if "diff" not in path.parts
    ]
    given = re.compile(r'(?:RunWarning|CheckWarning|with_remedy|_placed)\((?:\w+, )?\s*"([a-z-]+)"')
    found = {code for text in texts for code in given.findall(text)}
    assert len(found) > 30
    return found


def test_what_has_no_remedy_of_its_own_is_captured_again() -> None:
    assert (
        with_remedy("new-in-a-stage", "x", "pbs").hint == "capture again with rankscope capture pbs"
    )

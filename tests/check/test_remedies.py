"""The remedies: every line they tell a user to type is one that rankscope takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

import pytest

from rankscope.check.remedies import ANY, LAUNCHERS, REMEDIES, launcher, with_remedy
from rankscope.model.reports import CaptureFacts, Claim, RankEvidence
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
    assert launcher(facts()) == ANY
    assert launcher(facts(TORCHRUN, SLURM)) == "slurm"
    for source, name in LAUNCHERS.items():
        assert launcher(facts(source)) == name


def test_what_has_no_remedy_of_its_own_is_captured_again() -> None:
    assert (
        with_remedy("new-in-a-stage", "x", "pbs").hint == "capture again with rankscope capture pbs"
    )

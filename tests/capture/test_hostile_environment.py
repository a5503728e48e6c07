"""Wrappers evaluate nothing that the environment says, and use no folder that others can guess."""

import os
import re
from pathlib import Path

import pytest

from rankscope.capture import CaptureConfig, Scheduler, save, wrapper
from tests.capture.jobs import VARIABLES, launch

NSYS = '#!/bin/sh\ncase "$*" in *--help*) exit;; esac\necho "$TMPDIR" > used\n'
HOSTILE = ["a[$(touch pwned)]", "$(touch pwned)", "0; touch pwned", "1+1", "-1", "", "٣", "x"]


def prepared(folder: Path, scheduler: str, wish: CaptureConfig | None = None) -> str:
    """The path of a wrapper; an nsys that records nothing is on PATH."""
    (folder / "nsys").write_text(NSYS)
    (folder / "nsys").chmod(0o755)
    save(folder / "profile.sh", wrapper(scheduler, wish or CaptureConfig()))
    return "./profile.sh"


def numbers(scheduler: str) -> list[str]:
    """The variables that a wrapper reads as numbers."""
    script = wrapper(scheduler, CaptureConfig())
    named = re.findall(r"\$\(number (\w+)\)", script)
    return [name for name in named if f"{name}=" in VARIABLES[scheduler]]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("scheduler", [*Scheduler])
def test_values_are_not_evaluated(tmp_path: Path, scheduler: str, value: str) -> None:
    assert len(numbers(scheduler)) == 3
    for name in numbers(scheduler):
        run = prepared(tmp_path, scheduler, CaptureConfig(nodes=1, delay_s=1))
        tools = {"RANKSCOPE_NSYS": str(tmp_path / "nsys"), name: value}
        [done] = launch(scheduler, [run, "true"], tmp_path, [0], **tools)
        assert done.code != 0, (name, done)
        assert len(done.err.splitlines()) == 1
        assert "is not a number" in done.err or "no " in done.err
        assert not (tmp_path / "pwned").exists(), name


@pytest.mark.slow
@pytest.mark.parametrize("scheduler", [*Scheduler])
def test_numbers_are_decimal(tmp_path: Path, scheduler: str) -> None:
    """In arithmetic, 08 would be a wrong octal number."""
    run = prepared(tmp_path, scheduler)
    padded = dict.fromkeys(numbers(scheduler), "08")
    tools = {"RANKSCOPE_NSYS": str(tmp_path / "nsys"), **padded}
    [done] = launch(scheduler, [run, "true"], tmp_path, [0], **tools)
    assert done.code == 0, done.err


def test_a_folder_of_our_own_has_no_name_that_others_know(tmp_path: Path) -> None:
    """Where the locks of nsys belong to another user; here `[ -w` is made to say so."""
    run = prepared(tmp_path, "torchrun", CaptureConfig(tmpdir=str(tmp_path / "tmp")))
    (tmp_path / "tmp" / "nvidia" / "nsight_systems").mkdir(parents=True)
    script = (tmp_path / run).read_text()
    assert '[ ! -w "$locks" ]' in script
    (tmp_path / run).write_text(script.replace('[ ! -w "$locks" ]', "true"))
    guessed = tmp_path / "tmp" / f"nsys-{os.getuid()}"
    guessed.symlink_to(tmp_path / "elsewhere")
    used = set()
    for _ in range(3):
        tools = {"RANKSCOPE_NSYS": str(tmp_path / "nsys")}
        [done] = launch("torchrun", [run, "true"], tmp_path, [0], **tools)
        assert done.code == 0, done.err
        folder = Path((tmp_path / "used").read_text().strip())
        assert folder.parent == tmp_path / "tmp"
        assert folder.stat().st_mode & 0o777 == 0o700
        used.add(folder)
    assert len(used) == 3
    assert guessed not in used

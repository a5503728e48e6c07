"""Answers on the sample reports are those that the repository holds."""

from __future__ import annotations

from pathlib import Path

from tests.freeze import GOLDEN_ANSWERS, GOLDEN_JOBS, GOLDENS, differences, golden


def test_answers_are_the_golden_ones(tmp_path: Path) -> None:
    golden(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*GOLDEN_JOBS}
    assert {path.stem for path in tmp_path.rglob("*.txt")} == {*GOLDEN_ANSWERS}
    assert differences(GOLDENS, tmp_path) == [], "python -m tests.freeze --goldens writes them"

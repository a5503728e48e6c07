"""`explain` explains every word that the commands print: the test takes them from the outputs."""

import shutil
from pathlib import Path

import pytest

from rankscope.errors import UsageError
from rankscope.output.explain import explain
from tests.docs.words import headings, labels_of_page, labels_of_pictures
from tests.support import Cli, MakeStored, Stored


def unexplained(words: set[str]) -> set[str]:
    """The words without an entry."""
    missing = set()
    for word in words:
        try:
            assert explain(word).entries[0].summary
        except UsageError:
            missing.add(word)
    return missing


@pytest.fixture
def databases(tmp_path: Path, sample: Stored, stored: MakeStored) -> None:
    """The usual database and a second run, in the folder of the command."""
    shutil.copy(sample.db, tmp_path / "rankscope.duckdb")
    shutil.copy(stored("planted", where="forward").db, tmp_path / "other.duckdb")


@pytest.mark.slow
@pytest.mark.usefixtures("databases")
def test_headings_and_labels(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    words = headings(cli, monkeypatch)
    assert {"work", "cost", "rank time lost", "last", "slow", "spread", "cluster"} <= words
    missing = unexplained(words)
    assert not missing, "\n".join(sorted(missing))


@pytest.mark.usefixtures("databases")
def test_labels_of_the_page(cli: Cli) -> None:
    words = labels_of_page(cli)
    assert {"Parallel efficiency", "came last"} <= words
    missing = unexplained(words)
    assert not missing, "\n".join(sorted(missing))


def test_labels_of_pictures(sample: Stored) -> None:
    words = labels_of_pictures(sample.run)
    assert {"load", "waiting for others", "transfer", "flagged", "came last"} <= words
    missing = unexplained(words)
    assert not missing, "\n".join(sorted(missing))


def test_efficiencies_and_picks() -> None:
    for word in (
        "parallel efficiency", "load balance", "communication efficiency",
        "min", "median", "max", "slow", "leading", "typical", "flagged",
    ):  # fmt: skip
        assert explain(word).entries

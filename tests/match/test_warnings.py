"""What is said beside the numbers, in the words that fit."""

from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

import rankscope
from rankscope.match.collectives import match
from rankscope.match.waits import with_waits
from rankscope.match.warnings import communication_warnings, missing_ranks
from tests.forge import forge, scene
from tests.match.worlds import world


def test_ranks_without_a_report() -> None:
    some = missing_ranks((1, 3), 4, 2).message
    assert some.startswith("2 of 4 ranks have no report (1, 3): ")
    assert "the slowest may be among them" in some
    assert missing_ranks((1,), None, 2).message.startswith("1 of at least 3 ranks")


def test_a_report_alone_has_nobody_to_be_compared_with() -> None:
    alone = missing_ranks(tuple(range(1, 8)), 8, 1).message
    assert alone.startswith("7 of 8 ranks have no report (")
    assert "no other rank to compare" in alone
    assert "slowest" not in alone


@pytest.mark.parametrize(("runs_ahead", "kind"), [(False, "inconclusive"), (True, "balanced")])
def test_ranks_that_begin_the_first_iteration_apart_are_balanced_only_if_nobody_waits(
    tmp_path: Path, *, runs_ahead: bool, kind: str
) -> None:
    """Rank 2 fetches its first batch before its range, or hosts run ahead of their devices."""
    job = scene("free_running" if runs_ahead else "load_between", ranks=4, iterations=3)
    job = replace(job, plants=tuple(replace(each, offset=0) for each in job.plants))
    forge(job, tmp_path)
    run = rankscope.ingest([tmp_path], tmp_path / "run.duckdb", jobs=1)
    first = run.compare(rankscope.Options(iter_range=slice(0, 1)))
    assert "began-apart" in {each.code for each in first.warnings}
    assert first.verdict.kind == kind
    assert ("for rank 2, which began iteration 0 last" in first.verdict.sentence) is not runs_ahead


@pytest.mark.parametrize(
    ("operations", "roles_given", "words"),
    [
        (
            ["point_to_point"],
            False,
            "(sends and receives whose ends do not tell the peers",
        ),
        (["point_to_point"], True, "that --roles names)"),
        (["wait"], False, "(MPI_Wait does not say"),
        (["all_reduce"], False, "on the other ranks: waits"),
        ([], False, None),
    ],
)
def test_communication_without_counterparts(
    operations: list[str], roles_given: bool, words: str | None
) -> None:
    made = world(4, 20, 0)
    output = match(made.collectives, made.utc_starts)
    groups = with_waits(output, made.utc_starts).groups
    found = communication_warnings(
        structs.replace(output.summary, calls=0),
        groups,
        [*range(4)],
        operations=operations,
        roles_given=roles_given,
    )
    said = [each.message for each in found if each.code == "waits-unknown"]
    assert len(said) == (words is not None)
    assert not said or words in said[0]

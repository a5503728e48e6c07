"""What is said beside the numbers, in the words that fit."""

import pytest
from msgspec.structs import replace

from rankscope.match.collectives import match
from rankscope.match.waits import with_waits
from rankscope.match.warnings import communication_warnings, missing_ranks
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
        replace(output.summary, calls=0),
        groups,
        [*range(4)],
        operations=operations,
        roles_given=roles_given,
    )
    said = [each.message for each in found if each.code == "waits-unknown"]
    assert len(said) == (words is not None)
    assert not said or words in said[0]

"""What is said beside the numbers, in the words that fit."""

from rankscope.match.warnings import missing_ranks


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

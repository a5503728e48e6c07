"""Which captures can be of one job, by its size and their times."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from rankscope.errors import ForeignRun
from rankscope.sources.same_job import Capture, check_one_job

HOUR = 3600 * 10**9


def capture(
    name: str, rank: int | None, size: int | None, start_ns: int | None, host: str | None = None
) -> Capture:
    """A capture of an hour."""
    duration = None if start_ns is None else HOUR
    ranks = () if rank is None else (rank,)
    return Capture(Path(f"{name}.sqlite"), ranks, size, host, start_ns, duration)


def test_worlds_of_two_sizes_are_two_runs() -> None:
    with pytest.raises(ForeignRun, match=r"a\.sqlite.*4 ranks.*b\.sqlite.*8"):
        check_one_job([capture("a", None, 4, None), capture("b", None, 8, None)], "hint")


def test_a_rank_beyond_the_job_is_of_another() -> None:
    known, beyond = capture("a", 1, 4, None), capture("b_4", 4, None, None)
    with pytest.raises(
        ForeignRun, match=r"a\.sqlite is of a job of 4 ranks, .*b_4\.sqlite of rank 4"
    ):
        check_one_job([beyond, known], "hint")


def test_captures_that_never_overlapped_are_two_runs() -> None:
    early, late = capture("a", 0, 4, 0), capture("b", 0, 4, 2 * HOUR)
    with pytest.raises(ForeignRun, match=r"b\.sqlite was captured 3600 s after a\.sqlite"):
        check_one_job([early, late], "hint")
    with pytest.raises(ForeignRun):
        check_one_job([late, early], "hint")
    bad_clock = capture("b", 0, 4, HOUR + 30 * 10**9)
    check_one_job([early, bad_clock, capture("c", None, None, None)], "hint")


def test_other_ranks_of_one_job_outweigh_a_wrong_clock() -> None:
    early = capture("a", 0, 2, 0)
    minutes = HOUR + HOUR // 12
    check_one_job([early, capture("b", 1, 2, minutes)], "hint")
    first, other = replace(early, host="a"), capture("b", 1, 2, 24 * HOUR, "b")
    check_one_job([first, other], "hint")  # no rank is missing
    for pair in (
        [replace(each, host="b") for each in (first, other)],
        [replace(each, host=None) for each in (first, other)],
        [replace(each, world_size=3) for each in (first, other)],  # a rank is missing
    ):
        with pytest.raises(ForeignRun, match="had ended"):
            check_one_job(pair, "hint")
    late = capture("b", 1, None, minutes)
    with pytest.raises(ForeignRun):  # without a known size it is no evidence
        check_one_job([replace(early, world_size=None), late], "hint")

"""Iterations: which ranges, which numbers, which windows."""

import polars as pl
import pytest

from rankscope.measure.segment import find_iterations, whole_capture
from tests.frames import AUTOGRAD, THREAD, Range, found, named, ranges


def test_a_window_begins_where_the_range_before_ended() -> None:
    frame = found((10, 20, "step 0"), (25, 40, "step 1"), (41, 50, "step 2")).frame
    assert frame["window_start"].to_list() == [10, 20, 40]
    assert frame["window_end"].to_list() == [20, 40, 50]
    assert frame["start"].to_list() == [10, 25, 41]


def test_numbers_come_from_names() -> None:
    result = found((0, 9, "Batch7"), (10, 19, "Batch8"), (20, 29, "Batch10"))
    assert result.numbered
    assert result.frame.filter("complete")["iteration"].to_list() == [7, 8, 10]


def test_an_iteration_without_a_range_has_the_time_of_its_own() -> None:
    """Not if numbers always rise by more than one."""
    frame = found(
        (0, 9, "step 0"), (10, 19, "step 1"), (50, 59, "step 5"), (62, 69, "step 6")
    ).frame
    assert frame["iteration"].to_list() == [0, 1, 4, 5, 6]
    assert frame["complete"].to_list() == [True, True, False, True, True]
    assert frame["window_start"].to_list() == [0, 9, 19, 50, 59]
    rows = [(10 * nth, 10 * nth + 9, f"step {5 * nth}") for nth in range(4)]
    assert found(*rows).frame["complete"].all()


def test_or_from_payloads() -> None:
    frame = pl.concat([ranges((i * 10, i * 10 + 9, "step"), payload=i + 5) for i in range(3)])
    result = find_iterations(named(frame).meaningful, None)
    assert result is not None
    assert result.numbered
    assert result.frame["iteration"].to_list() == [5, 6, 7]


def test_addresses_and_hashes_number_no_steps() -> None:
    rows = [
        ranges((i * 10, i * 10 + 9, "step"), payload=(1 << 63) - 1 - 64 * (i % 2)) for i in range(3)
    ]
    result = find_iterations(named(pl.concat(rows)).meaningful, None)
    assert result is not None
    assert (result.numbered, result.frame["iteration"].to_list()) == (False, [0, 1, 2])
    assert not found(*((i * 10, i * 10 + 9, f"step {(1 << 50) + i}") for i in range(3))).numbered


def test_else_they_are_counted() -> None:
    result = found((0, 9, "train_step"), (10, 19, "train_step"))
    assert not result.numbered
    assert result.frame["iteration"].to_list() == [0, 1]


def test_epochs_count_on() -> None:
    rows = [(i * 10, i * 10 + 9, f"step {n}") for i, n in enumerate([0, 1, 2, 0, 1, 2, 0])]
    frame = found(*rows).frame
    assert frame["iteration"].to_list() == [0, 1, 2, 3, 4, 5, 6]
    assert frame["epoch"].to_list() == [0, 0, 0, 1, 1, 1, 2]
    assert frame["number"].to_list() == [0, 1, 2, 0, 1, 2, 0]


def test_steps_with_several_ranges_of_a_number_keep_them_all() -> None:
    rows = [(i * 10, i * 10 + 9, f"step {i // 2}") for i in range(8)]
    frame = found(*rows).frame
    assert frame["number"].to_list() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert frame["window_start"].to_list() == [0, *range(9, 79, 10)]


def test_what_the_capture_cut_is_incomplete() -> None:
    frame = found((0, 9, "step 0"), (10, 500, "step 1"), duration_ns=500).frame
    assert frame["complete"].to_list() == [True, False]
    frame = found((0, 9, "step 0"), (10, 499, "step 1"), duration_ns=500).frame
    assert frame["complete"].all()


def test_outer_ranges_before_inner_ones() -> None:
    rows = [(i * 100, i * 100 + 90, f"step {i}") for i in range(3)]
    rows += [(i * 100 + 5, i * 100 + 50, f"batch {i}") for i in range(3)]
    assert found(*rows).frame["end"].to_list() == [90, 190, 290]


@pytest.mark.parametrize("wrong", [(51, 400, "step 5"), (1, 59, "step 5"), (51, 65, "step 5")])
def test_an_iteration_that_holds_a_few_others_has_wrong_times(wrong: Range) -> None:
    rows = [(i * 10, i * 10 + 5, f"step {i}") for i in range(12)]
    frame = found(*rows[:5], wrong, *rows[6:]).frame.filter("complete")
    assert frame["iteration"].to_list() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
    inner = [(at + 1, at + 2, "step 77") for at, _, _ in rows[:9]]
    assert len(found(*rows, *inner).frame) == 12, "most have inner ones"


def test_numbered_ranges_before_larger_ones_without() -> None:
    rows = [(0, 1000, "iteration"), (0, 400, "step 0"), (500, 900, "step 1")]
    result = found(*rows)
    assert result.numbered
    assert result.frame.height == 2


def test_steps_that_begin_amid_batches_give_these_their_numbers() -> None:
    """Lightning steps its profiler at the end of forward, within the batch."""
    rows = [(50 + 100 * n, 150 + 100 * n, f"ProfilerStep#{n}") for n in range(2, 6)]
    for n in range(2, 6):
        start = 100 * n + 120
        rows += [
            (start, min(start + 70, 650), "[pl][profile]run_training_batch"),
            (start + 1, start + 29, "[pl][profile][Strategy]DDPStrategy.training_step"),
            (start + 31, start + 60, "[pl][profile][Strategy]DDPStrategy.backward"),
        ]
    result = found(*rows)
    assert result.numbered
    assert result.frame["number"].to_list() == [2, 3, 4]
    assert result.frame["start"].to_list() == [320, 420, 520]


def test_several_steps_may_begin_amid_a_batch() -> None:
    rows = [(30 + 50 * n, 80 + 50 * n, f"ProfilerStep#{n}") for n in range(8)]
    for n in range(4):
        rows += [
            (100 * n + 10, 100 * n + 95, "train_step"),
            (100 * n + 11, 100 * n + 25, "forward"),
            (100 * n + 85, 100 * n + 94, "backward"),
        ]
    assert found(*rows).frame["number"].to_list() == [1, 3, 5]


def test_steps_that_end_within_a_range_stay() -> None:
    """`prof.step()` is called amid the range of the script, but no forward begins before it."""
    rows = [(100 * n, 100 * n + 100, f"ProfilerStep#{n}") for n in range(4)]
    for n in range(4):
        rows += [
            (100 * n - 5, 100 * n + 90, "train_step"),
            (100 * n + 50, 100 * n + 60, "backward"),
        ]
    assert found(*rows[1:]).frame["number"].to_list() == [1, 2, 3]


def test_the_training_thread_is_where_they_are() -> None:
    rows = [(0, 100, "step 0", 7), (100, 200, "step 1", 7), (0, 10, "step 0", 8)]
    assert found(*rows).thread == 7


def test_a_range_within_its_like_is_none_of_its_own() -> None:
    frame = found((0, 100, "step"), (10, 20, "step"), (100, 200, "step")).frame
    assert frame["start"].to_list() == [0, 100]


def test_ranges_without_length_are_none() -> None:
    assert find_iterations(named(ranges((5, 5, "step 0"))).meaningful, None) is None
    assert find_iterations(named(ranges((5, 9, "something"))).meaningful, None) is None


def test_huge_numbers_in_names_are_no_crash() -> None:
    rows = [(0, 9, "step 99999999999999999999999999"), (10, 19, "step 1")]
    assert found(*rows).frame.height == 2


def test_the_users_names_beat_all_others() -> None:
    rows = [(0, 9, "step 0"), (10, 19, "step 1"), (0, 4, "mine-17"), (5, 9, "mine-18")]
    result = found(*rows, iteration=r"mine-(\d+)")
    assert result.frame["iteration"].to_list() == [17, 18]


NOBODY = pl.Series(dtype=pl.Int64)


def unnamed(*rows: Range) -> pl.DataFrame:
    """Ranges and what their names mean."""
    return named(ranges(*rows)).rows("thread", "means")


def test_whole_takes_the_thread_with_phases_not_that_with_most_ranges() -> None:
    hooks = [(i, i + 1, "gradient hook", AUTOGRAD) for i in range(20, 40)]
    rows = unnamed((0, 19, "forward"), (19, 60, "backward"), *hooks)
    launching = pl.Series([THREAD, AUTOGRAD])
    result = whole_capture(rows, (1, 59), launching, AUTOGRAD)
    assert result is not None
    assert result.thread == THREAD


def test_whole_takes_the_capture_as_one() -> None:
    result = whole_capture(unnamed((5, 9, "a"), (20, 80, "b")), (7, 95), NOBODY, 0)
    assert result is not None
    assert result.frame.select("window_start", "window_end", "iteration").rows() == [(5, 95, 0)]
    nothing = unnamed((5, 9, "a")).clear()
    assert whole_capture(nothing, None, NOBODY, 3) is None
    bare = whole_capture(nothing, (2, 40), NOBODY, 3)
    assert bare is not None
    assert bare.frame.select("window_start", "window_end").rows() == [(2, 40)]
    assert bare.thread == 3


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_the_order_of_rows_means_nothing(order: list[int]) -> None:
    rows = [(0, 9, "step 0"), (10, 19, "step 1"), (20, 29, "step 2")]
    assert found(*(rows[i] for i in order)).frame.equals(found(*rows).frame)

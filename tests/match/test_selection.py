"""Iteration ranges, warm-up, and what is complete on every rank."""

from pathlib import Path

import polars as pl
import pytest

import rankscope
from rankscope.errors import ReportError, UsageError
from rankscope.match.selection import common_iterations, parse_range, select
from rankscope.model.schema import RANK_ITERATIONS
from tests.forge import forge, scene
from tests.frames import filled
from tests.support import asked, edit, mostly_nightly

MS = 1_000_000


def iterations(*spans: range, missing: tuple[tuple[int, int], ...] = ()) -> pl.DataFrame:
    """RANK_ITERATIONS, a span of numbers per rank; `missing` are incomplete."""
    rows = [(rank, i) for rank, span in enumerate(spans) for i in span]
    frame = pl.DataFrame(rows, schema=["rank", "iteration"], orient="row")
    complete = [row not in missing for row in rows]
    return filled(frame.with_columns(complete=pl.Series(complete)), RANK_ITERATIONS)


def lengths(
    frame: pl.DataFrame, slow: dict[int, int] | None = None, work: dict[int, int] | None = None
) -> pl.DataFrame:
    """Times by iteration, ns; the work of unlisted iterations is 28 ms."""
    times = [(slow or {}).get(i, 30 * MS + (i * 7919 % 11) * 10_000) for i in frame["iteration"]]
    own = [(work or {}).get(i, 28 * MS) for i in frame["iteration"]]
    return frame.select("rank", "iteration").with_columns(
        iteration_ns=pl.Series(times), work_ns=pl.Series(own)
    )


def chosen(text: str | None, count: int = 100, warmup: bool = True) -> tuple[int, ...]:
    frame = iterations(range(count), range(count))
    wanted = None if text is None else parse_range(text)
    return select(frame, lengths(frame), wanted, include_warmup=warmup).numbers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, range(100)),
        ("10:50", range(10, 50)),
        ("10:", range(10, 100)),
        (":50", range(50)),
        (":", range(100)),
        ("-20:", range(80, 100)),
        (":-20", range(80)),
        ("-20:-10", range(80, 90)),
        ("-1000:5", range(5)),
        ("90:1000", range(90, 100)),
        ("0:1", range(1)),
        (" 10 : 12 ", range(10, 12)),
    ],
)
def test_ranges_are_slices_of_numbers(text: str | None, expected: range) -> None:
    assert chosen(text) == tuple(expected)


def test_a_range_selects_numbers_not_positions() -> None:
    frame = iterations(range(40, 60), range(40, 60))
    output = select(frame, lengths(frame), slice(45, 50), include_warmup=False)
    assert output.numbers == (45, 46, 47, 48, 49)
    output = select(frame, lengths(frame), slice(-3, None), include_warmup=False)
    assert output.numbers == (57, 58, 59)


@pytest.mark.parametrize("text", ["", "10", "a:b", "1:2:3", "1.5:3", "10-50", "::", "1:2:"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(UsageError, match="--iter-range") as refused:
        parse_range(text)
    assert "10:50" in refused.value.hint


@pytest.mark.parametrize("text", ["100:", "50:50", "50:10", ":0", "-5:-10"])
def test_ranges_that_select_nothing(text: str) -> None:
    with pytest.raises(UsageError, match="--iter-range") as refused:
        chosen(text)
    assert "0 to 99" in refused.value.hint


def test_iteration_0_is_always_warm_up() -> None:
    assert chosen(None, warmup=False) == tuple(range(1, 100))


def test_a_range_is_not_cut_by_the_warm_up() -> None:
    assert chosen("0:10", warmup=False) == tuple(range(10))
    assert chosen("0:1", warmup=False) == (0,)


def test_slow_starts_are_warm_up_up_to_a_tenth() -> None:
    frame = iterations(range(100), range(100))
    times = lengths(frame, {i: 200 * MS for i in range(6)})
    output = select(frame, times, None, include_warmup=False)
    assert output.warmup
    assert {0, 1, 2, 3} <= {*output.warmup} <= {*range(11)}
    assert output.numbers == tuple(i for i in range(100) if i not in output.warmup)
    kept = select(frame, times, None, include_warmup=True)
    assert kept.numbers == tuple(range(100))


@pytest.mark.parametrize("count", [6, 100])
def test_iterations_in_which_all_ranks_compile_are_warm_up(count: int) -> None:
    frame = iterations(range(count), range(count))
    slow, work = {0: 400 * MS, 1: 70 * MS}, {0: 380 * MS, 1: 50 * MS}
    output = select(frame, lengths(frame, slow, work), None, include_warmup=False)
    assert output.warmup == (0, 1)
    assert not output.problems
    again = work | {count - 1: 50 * MS}  # some steps are that long
    assert select(frame, lengths(frame, slow, again), None, include_warmup=False).warmup == (0,)
    later = frame.with_columns(pl.col("iteration") + 50)  # a window that begins with an evaluation
    slow, work = {50: 70 * MS}, {50: 50 * MS}
    assert not select(later, lengths(later, slow, work), None, include_warmup=False).warmup


def test_one_late_rank_is_no_warm_up() -> None:
    frame = iterations(range(100), range(100))
    output = select(frame, lengths(frame, {1: 70 * MS}), None, include_warmup=False)
    assert output.warmup == (0,)
    short = iterations(range(6), range(6))  # a rank is slow since iteration 4
    output = select(short, lengths(short, {4: 70 * MS, 5: 70 * MS}), None, include_warmup=False)
    assert output.warmup == (0,)


def test_what_half_of_the_ranks_do_is_no_warm_up() -> None:
    """One of two hosts stops for 30 ms in the second iteration."""
    frame = iterations(*[range(6)] * 4)
    times = lengths(frame, {1: 60 * MS})
    stops = pl.when(pl.col("iteration") == 1, pl.col("rank") < 2).then(30 * MS).otherwise(0)
    times = times.with_columns(pl.col("work_ns") + stops)
    assert select(frame, times, None, include_warmup=False).warmup == (0,)


def test_few_iterations_that_vary_are_no_warm_up() -> None:
    """By chance others held the ranks up for longer at first; all work as usual."""
    frame = iterations(range(6), range(6))
    output = select(frame, lengths(frame, {1: 60 * MS, 2: 58 * MS, 3: 57 * MS}), None, False)
    assert output.warmup == (0,)


def test_warm_up_is_told_by_time_where_work_is_unknown() -> None:
    frame = iterations(range(100), range(100))
    times = lengths(frame, {0: 400 * MS, 1: 70 * MS, 2: 60 * MS, 3: 50 * MS, 4: 45 * MS})
    unknown = times.with_columns(work_ns=pl.lit(None, pl.Int64))
    output = select(frame, unknown, None, include_warmup=False)
    assert (output.warmup, output.problems) == ((0, 1, 2), ())


def test_a_run_that_never_settles_loses_nothing_and_says_so() -> None:
    frame = iterations(range(100), range(100))
    output = select(frame, lengths(frame, {i: 200 * MS for i in range(40)}), None, False)
    assert output.warmup == (0,)
    assert [problem.code for problem in output.problems] == ["warmup-unsettled"]


def test_a_straggler_is_no_warm_up() -> None:
    frame = iterations(range(40), range(40))
    output = select(frame, lengths(frame, {1: 90 * MS, 8: 90 * MS, 20: 90 * MS}), None, False)
    assert 8 in output.numbers
    assert 20 in output.numbers


def test_only_what_is_complete_on_every_rank() -> None:
    frame = iterations(range(20), range(3, 20), range(18), missing=((1, 7),))
    expected = [i for i in range(3, 18) if i != 7]
    assert common_iterations(frame) == expected
    output = select(frame, lengths(frame), None, include_warmup=True)
    assert output.numbers == tuple(expected)
    [problem] = output.problems
    assert problem.code == "iterations-uneven"
    assert "14 of 20" in problem.message


def test_negatives_count_complete_iterations() -> None:
    frame = iterations(range(20), range(20), missing=((0, 19), (1, 18)))
    output = select(frame, lengths(frame), slice(-2, None), include_warmup=True)
    assert output.numbers == (16, 17)


def test_nothing_in_common() -> None:
    frame = iterations(range(5), range(5, 9))
    with pytest.raises(ReportError, match="complete on every rank: the reports share no step"):
        select(frame, lengths(frame), None, include_warmup=True)


def test_a_rank_without_a_complete_iteration_is_named() -> None:
    frame = iterations(range(5), range(1), range(5), missing=((1, 0),))
    with pytest.raises(ReportError, match="on every rank: rank 1 has none") as refused:
        select(frame, lengths(frame), None, include_warmup=True)
    assert refused.value.hint.endswith(" --ranks 0,2")


def without_work(report: Path, iterations: list[int]) -> None:
    """A report whose rank launches nothing in some iterations."""
    for i in iterations:
        [step] = asked(report, "select start, end from NVTX_EVENTS where text = ?", f"step {i}")
        calls = "CUPTI_ACTIVITY_KIND_RUNTIME where start between ? and ?"
        launched = f"where correlationId in (select correlationId from {calls})"
        for table in ("KERNEL", "MEMCPY"):
            edit(report, f"delete from CUPTI_ACTIVITY_KIND_{table} {launched}", *step)
        edit(report, f"delete from {calls}", *step)


@pytest.mark.parametrize("count", mostly_nightly([8, 30]))
def test_one_iteration_without_device_work_leaves_the_gpu_clock(count: int, tmp_path: Path) -> None:
    """It and the next one are left out: other ranks have its collectives, so records are lost."""
    job = scene("planted", ranks=4, iterations=count, kind="persistent", where="forward")
    forge(job, tmp_path)
    without_work(tmp_path / "report_rank_2.sqlite", [3])
    compared = rankscope.ingest([tmp_path], tmp_path / "run.duckdb").compare()
    facts = compared.facts
    assert facts.clock == "gpu"
    assert facts.iterations == tuple(i for i in range(1, count) if i not in (3, 4))
    assert compared.verdict.ranks == (3,)
    problems = {problem.code: problem for problem in compared.warnings}
    assert problems["iterations-without-work"].ranks == (2,)
    assert "iterations 3, 4:" in problems["iterations-without-work"].message


@pytest.mark.slow
def test_many_iterations_without_device_work_are_read_on_the_host_clock(tmp_path: Path) -> None:
    forge(scene("plain", ranks=2, iterations=12), tmp_path)
    without_work(tmp_path / "report_rank_1.sqlite", [3, 7])
    facts = rankscope.ingest([tmp_path], tmp_path / "run.duckdb").compare().facts
    assert facts.clock == "host"
    assert facts.clock_reason == (
        "rank 1 has device work of a phase in 10 of 12 iterations, fewer than 90 %"
    )

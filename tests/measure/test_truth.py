"""Every scene of the forge, both clocks, against the simulator's own account."""

import polars as pl
import pytest

from tests.forge.ownership import PHASES
from tests.support import MS, MakeStored, Stored, assert_adds_up, mostly_slow, scenes

UNPHASED = {"no_launch_record", "cuda_graph"}
ON_HOST = {"host_only", "mpi_like"}

NUMBERS = [
    "iteration_ns",
    *(f"{phase}_ns" for phase in PHASES),
    "exposed_communication_ns",
    "work_ns",
    "time_to_all_reduce_ns",
    "time_to_first_all_reduce_ns",
]


def told_and_true(job: Stored, clock: str) -> pl.DataFrame:
    """Ours beside the truth (`<name>_true`), a row per rank and iteration that was captured."""
    assert job.truth is not None
    truth = pl.DataFrame(job.truth.iterations, infer_schema_length=None).filter(clock=clock)
    output = job.analysis(clock=clock).tables.table("measures").filter(clock=clock)
    keys = ["rank", "iteration"]
    both = output.join(truth.select(*keys, pl.col(NUMBERS).name.suffix("_true")), on=keys)
    assert both.height == output.height
    first = pl.col("iteration") == pl.col("iteration").min().over("rank")
    return both.with_columns(first=first)


def wrong(both: pl.DataFrame, name: str, tolerance: float) -> pl.DataFrame:
    true, output = pl.col(f"{name}_true"), pl.col(name)
    close = (output - true).abs() <= tolerance * true.abs()
    same = pl.when(true.is_null()).then(output.is_null()).otherwise(close.fill_null(False))
    return both.filter(~same).select("rank", "iteration", name, f"{name}_true")


@pytest.mark.parametrize("name", mostly_slow(scenes({"late_capture"}), 3, 9))
def test_host_clock_is_exact(stored: MakeStored, name: str) -> None:
    both = told_and_true(stored(name), "host")
    if name == "cuda_graph":  # its phases have no ranges
        both = both.with_columns(pl.lit(None, pl.Int64).alias("forward_ns_true"))
        both = both.with_columns(pl.lit(None, pl.Int64).alias("backward_ns_true"))
    later = both.filter(~pl.col("first"))
    for column in NUMBERS:
        if name in UNPHASED - {"no_launch_record"} and column == "other_ns":
            continue
        if name not in ON_HOST and column.startswith("time_to"):
            assert both[column].is_null().all()  # what the host waits for hides in its phases
            continue
        off = wrong(later, column, 0.0)
        assert off.is_empty(), (column, off)


@pytest.mark.parametrize("name", mostly_slow(scenes(UNPHASED | ON_HOST | {"late_capture"}), 4, 4))
def test_gpu_clock_is_within_a_thousandth(stored: MakeStored, name: str) -> None:
    both = told_and_true(stored(name), "gpu")
    if name == "load_between":  # the first batch is copied before the first range: no matter how
        both = both.filter(~pl.col("first"))
    for column in NUMBERS:
        rows = both if column not in ("load_ns", "other_ns") else both.filter(~pl.col("first"))
        off = wrong(rows, column, 0.001)
        assert off.is_empty(), (column, off)


@pytest.mark.parametrize("name", mostly_slow(scenes(), 4, 8))
def test_parts_add_up_to_the_window(stored: MakeStored, name: str) -> None:
    measures = stored(name).analysis().tables.table("measures")
    assert_adds_up(measures)
    assert measures["iteration_ns"].is_not_null().all()
    work = measures.drop_nulls("exposed_communication_ns")
    assert (work["work_ns"] == work["iteration_ns"] - work["exposed_communication_ns"]).all()
    blind = measures.filter(pl.col("exposed_communication_ns").is_null())
    assert blind["work_ns"].is_null().all()


@pytest.mark.parametrize("name", mostly_slow(scenes(), 3, 9))
def test_the_first_iterations_loading_is_unknown(stored: MakeStored, name: str) -> None:
    measures = stored(name).analysis().tables.table("measures")
    first = pl.col("iteration") == pl.col("iteration").min().over("rank", "clock")
    assert measures.filter(first)["load_ns"].is_null().all()


@pytest.mark.slow
def test_phases_are_unknown_where_launches_are(stored: MakeStored) -> None:
    """Above 5 % of an iteration's computing without a launch record its phases are null."""
    job = stored("no_launch_record")
    assert job.truth is not None
    lost = pl.DataFrame(job.truth.iterations).filter(clock="gpu")
    both = told_and_true(job, "gpu").join(
        lost.select("rank", "iteration", "unrecorded_ns"), on=["rank", "iteration"]
    )
    share = pl.col("unrecorded_ns") / pl.col("compute_ns")
    blind, seen = both.filter(share > 0.051), both.filter(share < 0.049)
    assert blind.height > 100
    assert seen.height > 0
    for phase in ("load", "forward", "backward", "optimizer"):
        assert blind[f"{phase}_ns"].is_null().all(), phase
    assert seen.filter(~pl.col("first"))["forward_ns"].is_not_null().all()
    for column in ("iteration_ns", "exposed_communication_ns", "work_ns", "other_ns"):
        assert both[column].is_not_null().all(), column
    assert _told_of(job) == {0, 1, 2, 3}


@pytest.mark.slow
def test_phases_of_a_graph_that_spans_them_are_unknown(stored: MakeStored) -> None:
    job = stored("cuda_graph")
    both = told_and_true(job, "gpu")
    for phase in ("load", "forward", "backward", "optimizer"):
        assert both[f"{phase}_ns"].is_null().all(), phase
    for column in ("iteration_ns", "exposed_communication_ns", "work_ns"):
        assert wrong(both, column, 0.001).is_empty(), column
    assert _told_of(job) == {0, 1, 2, 3}


def _told_of(job: Stored) -> set[int]:
    problems = [problem for problem in job.analysis().warnings if problem.code == "phases-unknown"]
    return {rank for problem in problems for rank in problem.ranks}


@pytest.mark.parametrize("clock", ["host", "gpu"])
def test_late_captures_mean_the_same_iterations(stored: MakeStored, clock: str) -> None:
    job = stored("late_capture")
    both = told_and_true(job, clock)
    assert both.filter(pl.col("rank") == 3)["iteration"].min() == 2
    later = both.filter(~pl.col("first"))
    for column in ("iteration_ns", "load_ns", "forward_ns", "backward_ns", "optimizer_ns"):
        assert wrong(later, column, 0.001).is_empty(), column


@pytest.mark.slow
def test_a_straggler_behind_queued_buckets_shows_in_full(stored: MakeStored) -> None:
    """Five overlapping all-reduces: lateness read off kernel starts would show next to nothing."""
    job = stored("buckets", ranks=8)
    assert job.truth is not None
    output = _excess(job.run.iterations())
    true = _excess(pl.DataFrame(job.truth.iterations, infer_schema_length=None).filter(clock="gpu"))
    assert len([i for i in output if i % 5 == 2]) == 6
    for iteration, value in output.items():
        planted = 5 * MS if iteration % 5 == 2 else 0
        assert value == pytest.approx(true[iteration], abs=0.001 * 5 * MS), iteration
        assert value == pytest.approx(planted, abs=0.01 * MS), iteration  # launches jitter


def _excess(frame: pl.DataFrame) -> dict[int, float]:
    others = pl.col("work_ns").filter(pl.col("rank") != 1).median()
    mine = pl.col("work_ns").filter(pl.col("rank") == 1).first()
    return dict(frame.group_by("iteration").agg(mine - others).iter_rows())


def test_what_the_naive_sum_would_say_is_wrong(stored: MakeStored) -> None:
    """In the trap the late rank's `backward` range is the shortest; its own time the longest."""
    job = stored("host_only")
    assert job.truth is not None
    own = job.run.iterations().filter(iteration=10).sort("rank")["backward_ns"].to_list()
    assert max(range(4), key=own.__getitem__) == 1
    assert own[1] - sorted(own)[-2] > 10 * MS

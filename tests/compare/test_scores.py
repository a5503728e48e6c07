"""Scores of ranks, their spread, flags: definitions by hand."""

import numpy as np
import polars as pl
import pytest

from rankscope.compare.scores import role_z, scores, summaries
from rankscope.errors import UsageError
from rankscope.model.kinds import NAMED_PHASES
from rankscope.model.metrics import METRICS, check_metrics, column_of
from rankscope.model.results import MetricSummary
from tests.support import inputs_of

MS = 1_000_000


def wide(values: dict[int, list[int | None]]) -> pl.DataFrame:
    rows = [
        (rank, "all", i, value, 100 * MS)
        for rank, mine in values.items()
        for i, value in enumerate(mine)
    ]
    names = ["rank", "role", "iteration", "work_ns", "iteration_ns"]
    return pl.DataFrame(rows, schema=names, orient="row").with_columns(load_ns="work_ns")


def summary(values: dict[int, list[int | None]]) -> MetricSummary | None:
    frame = wide(values)
    return summaries(frame, scores(frame, ["work"], "mean"), ["work"])["work"]


def test_a_summary_by_hand() -> None:
    output = summary({0: [1, 3], 1: [10, 20], 2: [4, 4], 3: [2, 2]})
    assert output is not None
    assert (output.min.rank, output.min.value) == (0, 2)
    assert (output.median.rank, output.median.value) == (3, 2)  # the lower middle
    assert (output.max.rank, output.max.value) == (1, 15)
    assert output.mean == pytest.approx((2 + 15 + 4 + 2) / 4)
    assert output.imbalance == pytest.approx(15 / 5.75 - 1)
    assert output.lost == (9 + 0 + 6 + 8) + (17 + 0 + 16 + 18)


def test_ties_go_to_the_lowest_rank() -> None:
    output = summary({2: [5], 0: [5], 1: [5]})
    assert output is not None
    assert (output.min.rank, output.max.rank) == (0, 0)
    assert output.imbalance == 0


@pytest.mark.parametrize(("statistic", "score"), [("mean", 13), ("median", 2), ("p95", 55)])
def test_statistics(statistic: str, score: int) -> None:
    """The transient straggler shows in the mean, hides in the median."""
    frame = wide({0: [2, 3, 2, 2, 55]})
    assert scores(frame, ["work"], statistic)["work_ns"].to_list() == [score]


def test_unknown_is_no_zero() -> None:
    output = summary({0: [None, 4], 1: [6, None]})
    assert output is not None
    assert (output.min.value, output.max.value) == (4, 6)
    unknown = summary({0: [None, None], 1: [6, 7]})
    assert (unknown.mean, unknown.min, unknown.max, unknown.lost) == (None,) * 4


def test_the_rest_is_not_compared_with_all_of_a_rank_that_names_no_phase() -> None:
    names = [*NAMED_PHASES, "other"]
    frame = wide({0: [4, 4], 1: [9, 9]}).with_columns(
        pl.col("work_ns").alias(column_of(name)) for name in names
    )
    some = frame.with_columns(
        pl.when(pl.col("rank") == 0).then(column_of(name)).alias(column_of(name))
        for name in NAMED_PHASES
    )
    none = frame.with_columns(pl.lit(None, pl.Int64).alias(column_of(n)) for n in NAMED_PHASES)
    found = [
        summaries(each, scores(each, names, "mean"), ["other"])["other"].max
        for each in (frame, some, none)
    ]
    assert [each is None for each in found] == [False, True, False]


def z_of(work: list[int], roles: list[str]) -> list[float]:
    return pl.DataFrame({"role": roles, "work_ns": work}).select(role_z("work"))["work_z"].to_list()


def test_modified_z_by_hand() -> None:
    z = z_of([100, 102, 98, 101, 150], ["all"] * 5)
    assert z[4] == pytest.approx(0.6745 * (150 - 101) / 1)
    assert z[3] == 0
    floored = z_of([1000, 1000, 1100], ["all"] * 3)[2]
    assert floored == pytest.approx(0.6745 * 100 / 5)


def test_z_compares_a_rank_with_its_role() -> None:
    assert z_of([100, 100, 104, 300, 300, 300], ["a"] * 3 + ["b"] * 3)[3:] == [0, 0, 0]


def test_flags_need_five_percent_of_the_iteration() -> None:
    steady = [50 * MS] * 20
    late = [*steady]
    late[7] += 2 * MS  # 2 % of the iteration
    late[9] += 6 * MS
    output = inputs_of(wide({0: steady, 1: steady, 2: late, 3: steady})).flags
    assert output.filter("flagged").select("rank", "iteration").rows() == [(2, 9)]
    excess = output.filter(rank=2, iteration=9)["excess_ns"].item()
    assert excess == 6 * MS


def test_noise_is_no_flag() -> None:
    """An excess that is usual for the rank and for its role in that iteration."""
    draw = np.random.default_rng(1)
    noisy = {rank: (50 * MS + draw.normal(0, 5 * MS, 26)).astype(int).tolist() for rank in range(6)}
    assert inputs_of(wide(noisy)).flags["flagged"].sum() == 0


def test_the_cause_is_the_phase_with_the_largest_excess() -> None:
    frame = wide({rank: [50 * MS] * 8 for rank in range(4)})
    late = (pl.col("rank") == 1) & (pl.col("iteration") == 5)
    frame = frame.with_columns(
        work_ns=pl.col("work_ns") + pl.when(late).then(20 * MS).otherwise(0),
        load_ns=pl.when(late).then(7 * MS).otherwise(5 * MS),
        backward_ns=pl.when(late).then(48 * MS).otherwise(30 * MS),
    ).cast({"load_ns": pl.Int64, "backward_ns": pl.Int64, "work_ns": pl.Int64})
    output = inputs_of(frame).flags.filter("flagged")
    assert output.select("rank", "iteration", "cause").rows() == [(1, 5, "backward")]


@pytest.mark.parametrize(
    ("longer", "unknown", "cause"),
    [("other", 5, None), ("other", 0, "other"), ("backward", 5, "backward")],
)
def test_the_rest_is_no_cause_where_it_holds_a_load_that_is_unknown(
    longer: str, unknown: int, cause: str | None
) -> None:
    frame = wide({rank: [50 * MS] * 8 for rank in range(4)})
    late = (pl.col("rank") == 1) & (pl.col("iteration") == 5)
    output = inputs_of(
        frame.with_columns(
            work_ns=pl.when(late).then(70 * MS).otherwise("work_ns"),
            load_ns=pl.when(pl.col("iteration") == unknown).then(None).otherwise(5 * MS),
            **{column_of(longer): pl.when(late).then(65 * MS).otherwise(45 * MS)},
        ).cast({"load_ns": pl.Int64, column_of(longer): pl.Int64, "work_ns": pl.Int64})
    ).flags.filter("flagged")
    assert output.select("rank", "iteration", "cause").rows() == [(1, 5, cause)]


def test_metric_names_are_checked() -> None:
    assert check_metrics(["work", "load"]) == ["work", "load"]
    with pytest.raises(UsageError, match="wrok") as refused:
        check_metrics(["wrok"])
    assert all(name in refused.value.hint for name in METRICS)

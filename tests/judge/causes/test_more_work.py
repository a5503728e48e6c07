"""More work shows in launches, grids and bytes; who is slow has the same of them."""

from collections.abc import Collection

import polars as pl
import pytest

from rankscope.judge.causes.more_work import MORE_WORK, more_work
from rankscope.judge.causes.registry import tables_of
from rankscope.model.schema import ACTIVITIES
from tests.frames import filled
from tests.support import MS, MakeStored, mostly_slow

NUMBERS = range(10)


def row(
    rank: int, name: str, *, ms: float = 10, count: int = 10, size: int = 1_000, **more: object
) -> pl.DataFrame:
    """One activity of a rank, the same in all iterations."""
    columns = {
        "rank": rank, "phase": "backward", "kind": "kernel", "name": name, "count": count,
        "total_ns": round(ms * MS), "size": size, **more,
    }  # fmt: skip
    frame = pl.DataFrame({"iteration": NUMBERS})
    return filled(frame.with_columns(**{k: pl.lit(v) for k, v in columns.items()}), ACTIVITIES)


def output(rows: list[pl.DataFrame], roles: dict[int, str] | None = None) -> pl.DataFrame:
    every = pl.concat(rows)
    roles = roles or dict.fromkeys(every["rank"].unique(), "all")

    def table(_: str, numbers: Collection[int]) -> pl.DataFrame:
        return every.filter(pl.col("iteration").is_in(numbers))

    frame = more_work(table, roles, NUMBERS)
    assert frame.schema == MORE_WORK
    assert frame["rank"].to_list() == sorted(roles)
    return frame


def alike(ranks: Collection[int] = range(3), **how: object) -> list[pl.DataFrame]:
    return [row(rank, name, **how) for rank in ranks for name in ("gemm", "norm")]


def of(frame: pl.DataFrame, rank: int) -> dict[str, object]:
    return frame.row(by_predicate=pl.col("rank") == rank, named=True)


def test_larger_grids_are_more_work() -> None:
    frame = output([*alike(), *alike([3], size=1_310, ms=13.1)])
    assert frame["more"].to_list() == [False, False, False, True]
    last = of(frame, 3)
    assert last["ratio"] == pytest.approx(1.31)
    assert last["extra_ns"] == pytest.approx(6.2 * MS)


def test_more_launches_are_more_work_whether_grids_are_known_or_not() -> None:
    for size in (0, 1_310):
        rows = alike(size=1_000 if size else 0)
        last = of(output([*rows, *alike([3], count=13, size=size, ms=13)]), 3)
        assert last["more"], size
        assert last["ratio"] == pytest.approx(1.3 if not size else 1.31), size


def test_the_same_launches_slower_are_the_same_work() -> None:
    frame = output([*alike(), *alike([3], ms=14)])
    assert frame["more"].to_list() == [False] * 4
    assert of(frame, 3)["ratio"] == pytest.approx(1)
    assert of(frame, 3)["extra_ns"] == pytest.approx(0)


def test_a_slow_device_with_little_more_to_do_has_little_extra() -> None:
    last = of(output([*alike(), *alike([3], size=1_030, ms=12.4)]), 3)
    assert last["more"]
    assert last["extra_ns"] == pytest.approx(0.6 * MS), "of an excess of 4.8 ms"


def test_two_of_four_that_have_more_are_both_reported() -> None:
    frame = output([*alike(range(2)), *alike((2, 3), size=1_310)])
    assert frame["more"].to_list() == [False, False, True, True]


def test_kernels_that_only_one_rank_has_are_more_work() -> None:
    assert of(output([*alike(), *alike([3]), row(3, "evaluate")]), 3)["ratio"] == pytest.approx(1.5)


@pytest.mark.parametrize(("launches", "more"), [(10, False), (12, True)])
def test_kernels_that_libraries_choose_on_each_rank_are_the_same_work(
    launches: int, *, more: bool
) -> None:
    """Of the same operator, whatever their grids and how long they take."""
    own = [row(rank, f"gemm_{rank}_tile", ms=10 + rank, size=100 + rank) for rank in range(3)]
    last = row(3, "gemm_64_tile", ms=16, size=1_600, count=launches)
    assert of(output([*alike(range(4)), *own, last]), 3)["more"] is more


def test_names_that_may_be_among_the_minor_ones_are_left_out() -> None:
    minor = [row(rank, "", ms=5) for rank in range(4)]
    assert not of(output([*alike(), *alike([3]), row(3, "reduce", ms=2), *minor]), 3)["more"]


def test_kernels_whose_grids_are_fixed_follow_those_that_grow() -> None:
    rows = alike()
    last = of(output([*rows, row(3, "gemm", ms=13), row(3, "norm", size=1_310, ms=13.1)]), 3)
    assert last["ratio"] == pytest.approx(1.305), "longer samples"
    last = of(output([*rows, row(3, "gemm", ms=13), row(3, "norm", size=1_310, ms=17.03)]), 3)
    assert last["extra_ns"] == pytest.approx(3.1 * MS), "a slow device"
    last = of(output([*rows, row(3, "gemm", ms=20), row(3, "norm", size=1_310, ms=13.1)]), 3)
    assert last["ratio"] == pytest.approx(1.31), "no more than the others grow"


@pytest.mark.parametrize(
    ("usual_ms", "grown"),
    [
        pytest.param(0.5, {"cat": 1_100}, id="small kernels"),
        pytest.param(20, {"cat": 1_100, "mask": 900}, id="as much more as less"),
    ],
)
def test_kernels_whose_grids_are_fixed_follow_no_others(
    usual_ms: float, grown: dict[str, int]
) -> None:
    """A device at a lower clock is slower in matrices alone."""
    usual = {"gemm": 100.0, "cat": usual_ms, "mask": usual_ms}
    rows = [row(rank, name, ms=ms) for rank in range(3) for name, ms in usual.items()]
    rows.append(row(3, "gemm", ms=110))
    for name in ("cat", "mask"):
        size = grown.get(name, 1_000)
        rows.append(row(3, name, ms=usual_ms * size / 1_000, size=size))
    assert not of(output(rows), 3)["more"]


def test_copied_bytes_count() -> None:
    frame = output(
        [row(rank, "", kind="copy", size=1_310 if rank == 3 else 1_000) for rank in range(4)]
    )
    assert frame["more"].to_list() == [False, False, False, True]
    assert of(frame, 3)["ratio"] == pytest.approx(1.31)


def test_roles_are_compared_within_themselves() -> None:
    roles = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c"}
    frame = output([*alike(range(2)), *alike((2, 3), size=4_000), *alike([4])], roles)
    assert frame["more"].to_list() == [False, False, False, False, None]


def test_without_device_work_nothing_is_known() -> None:
    idle = [row(rank, "", kind="idle") for rank in range(2)]
    assert output(idle)["more"].to_list() == [None, None]
    nothing = more_work(lambda *_: None, {0: "all", 1: "all"}, NUMBERS)
    assert nothing["ratio"].to_list() == [None, None]


@pytest.mark.parametrize(
    ("where", "more"), mostly_slow([("data", True), ("device", False), ("kernel", False)])
)
@pytest.mark.slow
def test_simulated_jobs(stored: MakeStored, where: str, more: bool) -> None:
    job = stored("planted", where=where, factor=1.31)
    comparison = job.analysis()
    frame = more_work(tables_of(comparison.tables), comparison.roles.of, range(3, 30))
    assert frame["more"].to_list() == [False] * 3 + [more]
    longer = 1 + 0.31 * 30 / 33.3  # forward and backward, but neither optimizer nor copy
    assert of(frame, 3)["ratio"] == pytest.approx(longer if more else 1, abs=0.01)

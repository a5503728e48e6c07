"""The host clock by hand: gaps, foreign ranges, unknown phases, blocking calls."""

import polars as pl
import pytest

from rankscope.measure.rank import detail_ranks, measure_rank
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import RankIdentity, RankRows
from rankscope.sources.conventions import vocabulary
from rankscope.sources.identify import FILE_NAME
from tests.frames import PROCESS, found, named, ranges, trace

BODY = ((40, 60, "forward"), (60, 90, "backward"), (90, 95, "optimizer"))


def measured(*rows: tuple, extra: pl.DataFrame | None = None) -> RankRows:
    frame = ranges(*rows) if extra is None else pl.concat([ranges(*rows), extra])
    return measure_rank(
        RankIdentity(3, 1, None, None, None, FILE_NAME),
        detail_ranks({PROCESS: found(*rows)}, named(frame), trace())[PROCESS],
        vocabulary(ShapingOptions()),
    )


def steps(*inner: tuple, count: int = 3, begin: int = 20, length: int = 100) -> list[tuple]:
    """Steps of ranges [begin, length) every `length`, each with the inner ranges."""
    rows: list[tuple] = []
    for i in range(count):
        rows.append((i * length + begin, (i + 1) * length, f"step {i}"))
        rows += [(i * length + start, i * length + end, name) for start, end, name in inner]
    return rows


def second(rows: RankRows) -> dict[str, int | None]:
    row = rows.measures.filter(clock="host", iteration=1).row(0, named=True)
    return {name.removesuffix("_ns"): value for name, value in row.items()}


def test_the_gap_before_the_range_and_the_time_to_the_first_phase_are_loading() -> None:
    output = second(measured(*steps(*BODY)))
    assert output["load"] == 20 + 20
    assert (output["forward"], output["backward"], output["optimizer"]) == (20, 30, 5)
    assert output["other"] == 5
    assert output["iteration"] == output["work"] == 100


def test_an_explicit_fetch_makes_gaps_other() -> None:
    output = second(measured(*steps((25, 35, "load batch"), *BODY)))
    assert output["load"] == 10
    assert output["other"] == 100 - 10 - 55


def test_a_copy_to_the_device_is_loading_but_no_fetch() -> None:
    output = second(measured(*steps((25, 35, "Copy to device"), *BODY)))
    assert output["load"] == 20 + 5 + 10  # the gap, the start of the range, the copy itself
    assert output["other"] == 5 + 5


def test_foreign_ranges_before_the_first_phase_are_other() -> None:
    output = second(measured(*steps((5, 15, "my logging"), (22, 30, "my notes"), *BODY)))
    assert output["load"] == 40 - 10 - 8
    assert output["other"] == 5 + 18


def test_a_blocking_collective_inside_a_phase_is_communication() -> None:
    output = second(measured(*steps(*BODY, (70, 85, "all_reduce"))))
    assert output["exposed_communication"] == 15
    assert output["backward"] == 15
    assert output["work"] == 85
    assert output["time_to_all_reduce"] == output["time_to_first_all_reduce"] == 70


def test_several_ranges_of_a_phase_add_up() -> None:
    twice = ((40, 50, "fwd"), (50, 60, "bwd"), (60, 70, "fwd"), (70, 80, "bwd"))
    output = second(measured(*steps(*twice)))
    assert (output["forward"], output["backward"]) == (20, 20)
    assert output["optimizer"] is None, "a phase without any range is unknown, not 0"


def test_the_first_iterations_loading_is_unknown() -> None:
    row = measured(*steps(*BODY)).measures.filter(iteration=0).row(0, named=True)
    assert row["load_ns"] is None
    assert row["iteration_ns"] == 80
    assert row["other_ns"] == 80 - 55


def test_nothing_marked_is_other_and_reported() -> None:
    rows = measured(*steps())
    output = second(rows)
    assert output["load"] is None
    assert output["other"] == 100
    assert [problem.code for problem in rows.problems] == ["no-phases"]


def test_collectives_after_the_optimizer_reduce_no_gradients() -> None:
    inner = (*BODY, (70, 85, "all_reduce"), (96, 99, "all_reduce"))
    rows = measured(*steps(*inner))
    second_step = rows.collectives.filter(iteration=1).sort("start_ns")
    assert second_step["gradient"].to_list() == [True, False]
    assert second_step["ordinal"].to_list() == [0, 1]
    assert second(rows)["exposed_communication"] == 18


def test_zeroing_gradients_first_does_not_end_the_search_for_reductions() -> None:
    """`Optimizer.zero_grad` runs before backward: the reduction still precedes the step."""
    inner = ((36, 38, "Optimizer.zero_grad#SGD.zero_grad"), *BODY, (70, 85, "all_reduce"))
    rows = measured(*steps(*inner))
    assert rows.collectives.filter(iteration=1)["gradient"].to_list() == [True]
    assert second(rows)["time_to_all_reduce"] == 70


def test_waits_of_nccl_without_device_tables_hide() -> None:
    moments = [(i * 100 + 70, i * 100 + 71, "ncclAllReduce") for i in range(3)]
    launches = ranges(*moments, domain="NCCL")
    rows = measured(*steps(*BODY), extra=launches)
    assert second(rows)["work"] is None
    assert second(rows)["exposed_communication"] is None
    assert not rows.rank.work_known
    assert [problem.code for problem in rows.problems] == ["waits-hidden"]


@pytest.mark.parametrize("communicator", ["all_reduce", "all_gather"])
def test_what_communicates_in_forward_reduces_no_gradients(communicator: str) -> None:
    inner = (*BODY, (45, 50, communicator), (70, 85, "all_reduce"))
    rows = measured(*steps(*inner))
    flags = dict(rows.collectives.filter(iteration=1).select("start_ns", "gradient").iter_rows())
    assert flags[145] is False

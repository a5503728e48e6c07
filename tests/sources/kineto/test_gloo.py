"""gloo's collectives run beside the thread that called them; only its wait is communication."""

import polars as pl

from rankscope.sources.kineto.columns import RANGE, SCHEMAS
from rankscope.sources.kineto.gloo import waits_on_callers

MAIN, WORKER, OTHER = 1, 2, 3


def ranges(*rows: tuple[int, int, int, str]) -> pl.DataFrame:
    """start, end, thread, name; operators by their `::`."""
    return pl.DataFrame(
        [
            (start, end, 9, thread, "operators" if "::" in name else "", name, None)
            for start, end, thread, name in rows
        ],
        schema={
            name: SCHEMAS[RANGE][name] for name in SCHEMAS[RANGE] if name not in ("rank", "peer")
        },
        orient="row",
    )


def waits(frame: pl.DataFrame) -> list[tuple[int, int, int, int]]:
    """Call, start and end of the waits, and their threads."""
    gloo = waits_on_callers(frame).filter(pl.col("domain") == "gloo").sort("start")
    called = pl.col("start") - pl.col("payload")
    return gloo.select(called.alias("called"), "start", "end", "thread").rows()


def test_a_wait_begins_after_the_callers_last_operator() -> None:
    frame = ranges(
        (10, 20, MAIN, "c10d::allreduce_"),
        (15, 100, WORKER, "gloo:all_reduce"),
        (20, 60, MAIN, "aten::mm"),
        (25, 30, MAIN, "aten::add"),
        (20, 90, OTHER, "aten::mm"),
    )
    assert waits(frame) == [(10, 60, 100, MAIN)]


def test_a_traced_collective_is_waited_for_in_an_operator() -> None:
    """DTensor's `wait_tensor`, in the operator that needs the result."""
    frame = ranges(
        (10, 20, MAIN, "c10d::allreduce_"),
        (15, 100, WORKER, "gloo:all_reduce"),
        (30, 120, MAIN, "aten::linear"),
        (31, 35, MAIN, "aten::t"),
        (40, 101, MAIN, "_c10d_functional::wait_tensor"),
        (105, 119, MAIN, "aten::mm"),
    )
    assert waits(frame) == [(10, 40, 100, MAIN)]


def test_an_operator_that_calls_a_collective_may_wait_for_it() -> None:
    """A hook of FSDP gathers parameters within a node of autograd."""
    frame = ranges(
        (5, 120, MAIN, "autograd::engine::evaluate_function: AddmmBackward0"),
        (6, 8, MAIN, "aten::empty"),
        (10, 20, MAIN, "c10d::_allgather_base_"),
        (15, 100, WORKER, "gloo:all_gather"),
        (105, 119, MAIN, "AddmmBackward0"),
    )
    assert waits(frame) == [(10, 15, 100, MAIN)]


def test_a_blocking_call_waits_from_its_start() -> None:
    frame = ranges((10, 20, MAIN, "c10d::allreduce_"), (15, 100, WORKER, "gloo:all_reduce"))
    assert waits(frame) == [(10, 15, 100, MAIN)]


def test_waits_are_disjoint_and_in_the_order_of_calls() -> None:
    """A later bucket may end first; every rank must count them alike."""
    frame = ranges(
        (10, 20, MAIN, "c10d::allreduce_"),
        (15, 100, WORKER, "gloo:all_reduce"),
        (20, 22, MAIN, "c10d::allreduce_"),
        (22, 80, OTHER, "gloo:all_reduce"),
        (30, 32, MAIN, "c10d::allreduce_"),
        (101, 150, OTHER, "gloo:all_reduce"),
    )
    assert waits(frame) == [(10, 15, 100, MAIN), (20, 100, 100, MAIN), (30, 101, 150, MAIN)]


def test_without_as_many_calls_the_last_one_counts() -> None:
    """The capture began after the first call."""
    frame = ranges(
        (15, 100, WORKER, "gloo:all_reduce"),
        (20, 22, MAIN, "c10d::allreduce_"),
        (22, 120, OTHER, "gloo:all_reduce"),
    )
    assert waits(frame) == [(15, 15, 100, WORKER), (20, 22, 120, MAIN)]


def test_calls_that_the_device_carries_out_are_no_calls_of_gloo() -> None:
    """As of a job on devices whose hosts exchange objects; autograd's thread calls NCCL last."""
    frame = ranges(
        (1, 3, MAIN, "c10d::allgather_"),
        (2, 100, WORKER, "gloo:all_gather"),
        (4, 6, MAIN, "c10d::_allgather_base_"),
        (5, 6, MAIN, "nccl:_all_gather_base"),
        (105, 109, OTHER, "c10d::allreduce_"),
        (107, 108, OTHER, "nccl:all_reduce"),
        (110, 112, MAIN, "c10d::allgather_"),
        (120, 150, WORKER, "gloo:all_gather"),
    )
    assert waits(frame) == [(1, 6, 100, MAIN), (110, 120, 150, MAIN)]
    within = ranges((1, 3, OTHER, "c10d::allreduce_"), (2, 3, OTHER, "nccl:all_reduce"),
                    (9, 90, MAIN, "gloo:all_gather"))  # fmt: skip
    assert waits_on_callers(within).equals(within), "its range is the wait"


def test_nobody_waits_for_a_hidden_collective() -> None:
    frame = ranges(
        (10, 20, MAIN, "c10d::allreduce_"),
        (15, 50, WORKER, "gloo:all_reduce"),
        (20, 60, MAIN, "aten::mm"),
    )
    assert waits(frame) == [(10, 50, 50, MAIN)]


def test_a_send_that_is_waited_for_later_hides_no_receive() -> None:
    """Stages of a pipeline send (`isend`), receive, compute, and wait for the send at the end."""
    frame = ranges(
        (10, 12, MAIN, "c10d::send"),
        (12, 100, MAIN, "gloo:send"),
        (20, 22, MAIN, "c10d::recv_"),
        (22, 60, MAIN, "gloo:recv"),
        (20, 98, MAIN, "backward"),
    )
    assert waits(frame) == [(20, 22, 60, MAIN), (10, 98, 100, MAIN)]


def test_nobody_waits_where_a_range_begins_or_ends() -> None:
    frame = ranges(
        (10, 20, MAIN, "c10d::allreduce_"),
        (15, 100, WORKER, "gloo:all_reduce"),
        (5, 70, MAIN, "backward"),
        (80, 120, OTHER, "copy"),
    )
    assert waits(frame) == [(10, 70, 100, MAIN)]


def test_ranges_without_gloo_stay_as_they_are() -> None:
    frame = ranges((10, 20, MAIN, "aten::mm"), (15, 50, WORKER, "nccl:all_reduce"))
    assert waits_on_callers(frame).equals(frame)

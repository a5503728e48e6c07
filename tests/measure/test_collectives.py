"""Arrivals against the simulator's, and which collectives reduce gradients."""

import polars as pl
import pytest

from rankscope.measure.rank import detail_ranks
from tests.frames import PROCESS, THREAD, device_work, found, named, ranges, trace
from tests.support import MakeStored, Stored, mostly_slow, scenes

KEY = ["rank", "operation", "start_ns", "end_ns"]


def true_collectives(job: Stored) -> pl.DataFrame:
    assert job.truth is not None
    output = pl.DataFrame(job.truth.collectives, infer_schema_length=None).rename(
        {"op": "operation"}
    )
    return output.with_columns(pl.col("operation").replace({"send_recv": "point_to_point"}))


@pytest.mark.parametrize("name", mostly_slow(scenes({"late_capture"}), 2, 10))
def test_arrivals_are_exact(stored: MakeStored, name: str) -> None:
    job = stored(name)
    output = job.analysis().tables.collectives
    both = true_collectives(job).join(output, on=KEY, suffix="_told", how="left")
    lost = both.filter(pl.col("arrival_ns_told").is_null() & (pl.col("iteration") > 0))
    assert lost.is_empty(), lost
    both = both.drop_nulls("arrival_ns_told")
    if name == "no_launch_record":  # work that nobody saw launched may have held them up
        both = both.filter(pl.col("arrival_ns_told") != pl.col("start_ns"))
        assert (both["arrival_ns_told"] <= both["start_ns"]).all()
        return
    assert both.height >= 4 * 29
    off = both.filter(pl.col("arrival_ns") != pl.col("arrival_ns_told"))
    assert off.is_empty(), off.select(*KEY, "iteration", "arrival_ns", "arrival_ns_told")
    assert (both["iteration"] == both["iteration_told"]).all()


WITH_GRADIENTS = scenes({"late_capture", "cuda_graph", "no_launch_record"})


@pytest.mark.parametrize("name", mostly_slow(WITH_GRADIENTS, 1, 9))
def test_gradient_reductions_are_distinguished(stored: MakeStored, name: str) -> None:
    job = stored(name)
    output = job.analysis().tables.collectives.select(*KEY, "gradient")
    both = true_collectives(job).join(output, on=KEY)
    assert both.height
    assert (both["gradient"] == (both["purpose"] == "gradient")).all()


@pytest.mark.slow
def test_scenes_have_collectives_that_are_none(stored: MakeStored) -> None:
    """Else the test above would show little."""
    for name in ("loss_all_reduce", "trailing_all_gather", "tensor_parallel"):
        purposes = {*true_collectives(stored(name))["purpose"]}
        assert len(purposes) > 1, name


@pytest.mark.slow
def test_without_a_reduction_there_is_no_time_to_it(stored: MakeStored) -> None:
    frame = stored("no_sync").run.iterations()
    without = frame.filter(pl.col("iteration") % 4 != 3)
    assert without["time_to_all_reduce_ns"].is_null().all()
    assert frame.filter(pl.col("iteration") % 4 == 3)["time_to_all_reduce_ns"].is_not_null().all()
    assert without["work_ns"].is_not_null().all()


@pytest.mark.slow
def test_unmatched_calls_are_none(stored: MakeStored) -> None:
    for name in ("plain", "tensor_parallel", "host_only", "mpi_like", "trailing_all_gather"):
        assert stored(name).matched().unmatched.is_empty(), name


def test_one_mpi_call_is_seen_once(stored: MakeStored) -> None:
    output = stored("mpi_like").analysis().tables.collectives
    assert output.height == len(true_collectives(stored("mpi_like")))
    assert {*output["communicator"]} == {"mpi"}


ALL_REDUCE = "ncclDevKernel_AllReduce_Sum"

DATA, SHARD, NORM = 20, 24, 28
"""Streams, each of a communicator."""

Call = tuple[int, int, int, int | None]
"""Launch in its iteration, duration, stream, bytes."""


def gradients(*calls: Call, waits: int = 0, together: bool = False) -> list[tuple[int, int]]:
    """Iteration and stream of the gradient reductions of two iterations of 100 with these calls.

    Backward opens at 20, the optimizer at 80. In the second iteration, the rank waits so much
    longer for the last call. `together`: both are one iteration.
    """
    late = [0] * (len(calls) - 1) + [waits]
    begins = (0, 100)
    marks = [
        (begin + start, begin + end, name)
        for begin in begins
        for start, end, name in ((0, 19, "forward"), (20, 79, "backward"), (80, 99, "optimizer"))
    ]
    steps = [(begin, begin + 100, f"step {i}") for i, begin in enumerate(begins)]
    steps = [(0, 200, "step 0")] if together else steps
    kernels = [
        (begin + at, begin + at + length + i * more, begin + at, ALL_REDUCE, stream)
        for i, begin in enumerate(begins)
        for (at, length, stream, _), more in zip(calls, late, strict=True)
    ]
    sizes = [size for _ in begins for *_, size in calls]
    work = device_work([(*row, THREAD) for row in kernels])
    work = work.with_columns(bytes=pl.Series(sizes, dtype=pl.Int64))
    iterations = {PROCESS: found(*steps)}
    detail = detail_ranks(iterations, named(ranges(*steps, *marks)), trace(work=work))[PROCESS]
    output = detail.collectives.filter("gradient").sort("start_ns")
    stream = pl.col("communicator").cast(pl.String).str.extract(r"(\d+)$").cast(pl.Int64)
    return output.select("iteration", stream).rows()


@pytest.mark.parametrize("size", [4, 8, 64])
def test_the_norm_of_the_gradients_is_no_gradient(size: int) -> None:
    """Whether it has a communicator of its own, over all stages of a pipeline, or not."""
    buckets = [(30, 5, DATA, 1 << 20), (40, 5, DATA, 1 << 10)]
    for stream in (DATA, NORM):
        output = gradients(*buckets, (60, 9, stream, size))
        assert output == [(0, DATA), (0, DATA), (1, DATA), (1, DATA)]


def test_an_iteration_of_the_norm_alone_has_no_reduction() -> None:
    assert gradients((60, 9, NORM, 4)) == []


def test_of_two_communicators_the_one_with_most_bytes_reduces_gradients() -> None:
    calls = [(30, 2, DATA, 1 << 20), (35, 2, DATA, 1 << 20), (50, 9, SHARD, 1 << 20)]
    assert {stream for _, stream in gradients(*calls)} == {DATA}


def test_of_unknown_sizes_the_most_transfer_time_counts() -> None:
    """One call of 5 is more than two of 2; one size alone says nothing about the others."""
    calls = [(30, 2, DATA, 1 << 20), (35, 2, DATA, None), (50, 5, SHARD, None)]
    assert gradients(*calls) == [(0, SHARD), (1, SHARD)]


def test_a_wait_is_no_transfer() -> None:
    """A communicator that waits long in one iteration is not the one that carries most."""
    calls = [(30, 3, DATA, None), (45, 2, NORM, None)]
    assert gradients(*calls, waits=30) == [(0, DATA), (1, DATA)]


@pytest.mark.parametrize("at", [5, 85])
def test_reductions_outside_backward_are_none(at: int) -> None:
    assert gradients((30, 2, DATA, 1 << 20), (at, 9, SHARD, 1 << 30)) == [(0, DATA), (1, DATA)]


@pytest.mark.parametrize("at", [5, 85])
def test_of_several_steps_in_one_iteration_those_of_each_are(at: int) -> None:
    """As with `--iteration whole`."""
    calls = [(30, 2, DATA, 1 << 20), (at, 9, SHARD, 1 << 30)]
    assert gradients(*calls, together=True) == [(0, DATA), (0, DATA)]


def test_a_communicator_of_forward_reduces_no_gradients() -> None:
    assert gradients((5, 2, SHARD, 1 << 30), (30, 2, SHARD, 1 << 30)) == []

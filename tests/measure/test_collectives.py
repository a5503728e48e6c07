"""Arrivals against the simulator's, and which collectives reduce gradients."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from tests.forge import SCENES
from tests.support import Stored

ON_DEVICE = sorted(set(SCENES) - {"large", "host_only", "mpi_like", "late_capture"})
KEY = ["rank", "operation", "start_ns", "end_ns"]


def true_collectives(job: Stored) -> pl.DataFrame:
    assert job.truth is not None
    told = pl.DataFrame(job.truth.collectives, infer_schema_length=None).rename({"op": "operation"})
    return told.with_columns(pl.col("operation").replace({"send_recv": "point_to_point"}))


@pytest.mark.parametrize("name", [*ON_DEVICE, "host_only", "mpi_like"])
def test_arrivals_are_exact(stored: Callable[..., Stored], name: str) -> None:
    job = stored(name)
    told = job.analysis().tables.collectives
    both = true_collectives(job).join(told, on=KEY, suffix="_told", how="left")
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


GRADIENT_SCENES = sorted({*ON_DEVICE} - {"cuda_graph", "no_launch_record"})


@pytest.mark.parametrize("name", [*GRADIENT_SCENES, "host_only", "mpi_like"])
def test_gradient_reductions_are_told_apart(stored: Callable[..., Stored], name: str) -> None:
    job = stored(name)
    told = job.analysis().tables.collectives.select(*KEY, "gradient")
    both = true_collectives(job).join(told, on=KEY)
    assert both.height
    assert (both["gradient"] == (both["purpose"] == "gradient")).all()


def test_scenes_have_collectives_that_are_none(stored: Callable[..., Stored]) -> None:
    """Else the test above would show little."""
    for name in ("loss_all_reduce", "trailing_all_gather", "tensor_parallel"):
        purposes = {*true_collectives(stored(name))["purpose"]}
        assert len(purposes) > 1, name


def test_without_a_reduction_there_is_no_time_to_it(stored: Callable[..., Stored]) -> None:
    frame = stored("no_sync").run.iterations()
    without = frame.filter(pl.col("iteration") % 4 != 3)
    assert without["time_to_all_reduce_ns"].is_null().all()
    assert frame.filter(pl.col("iteration") % 4 == 3)["time_to_all_reduce_ns"].is_not_null().all()
    assert without["work_ns"].is_not_null().all()


def test_unmatched_calls_are_none(stored: Callable[..., Stored]) -> None:
    for name in ("plain", "tensor_parallel", "host_only", "mpi_like", "trailing_all_gather"):
        assert stored(name).matched().unmatched.is_empty(), name


def test_one_mpi_call_is_seen_once(stored: Callable[..., Stored]) -> None:
    told = stored("mpi_like").analysis().tables.collectives
    assert told.height == len(true_collectives(stored("mpi_like")))
    assert {*told["communicator"]} == {"mpi"}

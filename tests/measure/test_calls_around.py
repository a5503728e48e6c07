"""Which kernels communicate, by the ranges around their launches."""

import polars as pl
import pytest

from rankscope.measure.calls_around import calls_around, with_calls_around
from rankscope.model.options import ShapingOptions
from rankscope.model.schema import DEVICE_WORK
from rankscope.sources.conventions import vocabulary


def around(*ranges: tuple[str, int, int]) -> pl.DataFrame:
    """AROUND of ranges of one thread: name, start and end."""
    named = pl.DataFrame(ranges, ["name", "start", "end"], orient="row")
    named = named.with_columns(thread=pl.lit(1, pl.Int64), domain=pl.lit("operators"))
    means = vocabulary(ShapingOptions()).meanings(named).drop("domain", "name")
    return calls_around(named.hstack(means))


def test_an_operator_that_also_copies_leaves_the_kernel_to_the_call_inside() -> None:
    calls = around(("c10d::allgather_", 0, 100), ("nccl:all_gather", 10, 50))
    work = pl.DataFrame(
        {
            "kind": ["kernel"] * 2,
            "launch": [20, 60],
            "launch_thread": [1, 1],
            "name": ["x", "copy"],
        },
    ).with_columns(communicator=pl.lit(None, pl.String))
    none = pl.lit(None, DEVICE_WORK["operation"]).alias("operation")
    assert with_calls_around(work.with_columns(none), calls)["operation"].to_list() == [
        "all_gather",
        None,
    ]


def test_the_call_that_tells_the_kind_counts() -> None:
    sends = [("nccl:send", 20, 30), ("nccl:recv", 30, 40)]
    calls = around(("record_param_comms", 0, 99), ("nccl:all_to_all", 10, 50), *sends)
    assert calls.select("start", "around").rows() == [(10, "all_to_all")]
    assert around(("record_param_comms", 0, 99))["around"].to_list() == ["grouped"]


@pytest.mark.parametrize("name", ["fsdp::all_gather_copy_in", "symm_mem::fused_all_gather_matmul"])
def test_an_operator_that_copies_or_computes_tells_nothing(name: str) -> None:
    assert around((name, 0, 99)).is_empty()


@pytest.mark.parametrize(
    ("peers", "operation"), [("to 1", "point_to_point"), ("7 [0,1]", "grouped")]
)
def test_a_group_is_of_sends_where_its_kernel_names_peers(peers: str, operation: str) -> None:
    work = pl.DataFrame({"kind": ["kernel"], "launch": [20], "launch_thread": [1]}).with_columns(
        communicator=pl.lit(peers), operation=pl.lit("point_to_point", DEVICE_WORK["operation"])
    )
    output = with_calls_around(work, around(("nccl:coalesced", 0, 99)))
    assert output["operation"].to_list() == [operation]


@pytest.mark.parametrize(("peers", "name"), [("7 to 0, from 0, to 1, from 1", "7"), ("to 1", None)])
def test_an_all_to_all_has_no_peers(peers: str, name: str | None) -> None:
    work = pl.DataFrame({"kind": ["kernel"], "launch": [20], "launch_thread": [1]}).with_columns(
        communicator=pl.lit(peers), operation=pl.lit("point_to_point", DEVICE_WORK["operation"])
    )
    output = with_calls_around(work, around(("nccl:all_to_all", 0, 99)))
    assert output.select("operation", "communicator").rows() == [("all_to_all", name)]
    output = with_calls_around(work, around(("nccl:send", 0, 99)))
    assert output.select("operation", "communicator").rows() == [("point_to_point", peers)]

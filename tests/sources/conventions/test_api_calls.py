"""Which API calls hold their thread until the device is done."""

import polars as pl
import pytest

from rankscope.sources.conventions import synchronises
from rankscope.sources.conventions.api_calls import HELD_NS, LASTING_NS

ALWAYS = (
    "cudaStreamSynchronize_v3020",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize_v3020",
    "cudaStreamSynchronize_ptsz_v7000",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
    "cudaMemcpy_v3020",
    "cudaMemcpy2D_v3020",
    "cudaMemcpyFromSymbol_v3020",
    "cuMemcpyDtoH_v2",
    "cudaFree_v3020",
    "cudaFreeHost_v3020",
    "cuMemFree_v2",
)
LASTING = ("cudaMemcpyAsync_v3020", "cudaMemcpyToSymbolAsync", "cuMemcpyDtoHAsync_v2")
QUICK = (
    "cudaLaunchKernel_v7000",
    "cuLaunchKernelEx",
    "cudaStreamWaitEvent_v3020",
    "cudaEventQuery_v3020",
    "cudaStreamQuery",
    "cudaFreeAsync_v11020",
    "cuMemFreeAsync",
    "cudaMalloc_v3020",
    "cudaMemsetAsync_v3020",
    "cudaGraphLaunch_v10000",
    "cudaEventRecord_v3020",
    "cudaGraphAddMemcpyNode",
)


def output(name: str | None, length: int | None) -> bool | None:
    end = None if length is None else 100 + length
    schema = {"name": pl.String, "start": pl.Int64, "end": pl.Int64}
    frame = pl.DataFrame([(name, 100, end)], schema, orient="row")
    return frame.select(synchronises()).item()


@pytest.mark.parametrize("name", ALWAYS)
def test_calls_that_wait(name: str) -> None:
    assert output(name, 1)
    assert output(name, 10**9)


@pytest.mark.parametrize("name", LASTING)
def test_copies_that_wait_where_they_last(name: str) -> None:
    assert output(name, LASTING_NS)
    assert not output(name, LASTING_NS - 1)


@pytest.mark.parametrize("name", QUICK)
def test_calls_that_wait_only_where_the_queue_is_full(name: str) -> None:
    assert not output(name, HELD_NS - 1)
    assert output(name, HELD_NS)


def test_what_is_unknown_does_not_count() -> None:
    assert not output(None, 10)
    assert not output("cudaStreamSynchronize", None)
    assert not output("cudaStreamSynchronize", -1)

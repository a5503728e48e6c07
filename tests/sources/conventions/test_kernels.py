"""What kernels communicate: by the user's pattern, by what the report states, by their names."""

import polars as pl
import pytest

from rankscope.model.options import ShapingOptions
from rankscope.model.schema import OPERATION
from rankscope.sources.conventions import known, short_name, stated_operations, vocabulary

BF16 = "__nv_bfloat16"

KERNELS = {
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": "all_reduce",
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)": "all_reduce",
    "ncclKernel_AllGather_RING_LL_Sum_int8_t": "all_gather",
    "ncclDevKernel_ReduceScatter_Sum_f16_RING_LL": "reduce_scatter",
    "ncclDevKernel_Broadcast_RING_LL": "rooted",
    "ncclDevKernel_Reduce_Sum_f32_RING_LL": "rooted",
    "ncclDevKernel_SendRecv(ncclDevComm*)": "point_to_point",
    "my_ncclDevKernel_AllReduce": "all_reduce",
    "my_ncclDevKernel": None,
    "reduce_kernel": None,
    "": None,
    "ncclSymDevKernel_AllReduce_RSxLD_AGxST_sum_f32(ncclSymDevArgs)": "all_reduce",
    "ncclSymkDevKernel_AllGather_STMC(ncclSymkDevWorkArgs4K)": "all_gather",
    "ncclSymkDevKernel_ReduceScatter_LL_sum_bf16(ncclSymkDevWorkArgs4K)": "reduce_scatter",
    "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)": "grouped",
    "ncclSomethingNew(int)": "grouped",
    "rcclAnything<float>(int)": "grouped",
    "mscclKernel_Sum_half_Simple_true(ncclDevComm*)": "grouped",
    f"void vllm::cross_device_reduce_2stage<{BF16}, 8>(vllm::RankData*)": "all_reduce",
    f"void sglang::cross_device_reduce_1stage<{BF16}, 4>(sglang::RankData*)": "all_reduce",
    "(anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(float*)": "all_reduce",
    "void c10d::(anonymous namespace)::two_shot_all_reduce_kernel_inplace<float>()": "all_reduce",
    "one_shot_all_reduce_kernel<float, 16, 8>(float**)": "all_reduce",
    "flashinfer::trtllm::allreduce_fusion_kernel_oneshot_lamport<float>(int)": "all_reduce",
    "void deep_ep::intranode::dispatch<8, 768>(int4*)": "all_to_all",
    "void deep_ep::intranode::combine<float, 8>(int4*)": "all_to_all",
    "void deep_ep::intranode::notify_dispatch<8>(int const*)": "barrier",
    "void deep_ep::internode_ll::dispatch<true>(void*)": "grouped",
    "void deep_ep::layout::get_dispatch_layout<256>(long*)": None,
    "void mscclpp::allgather_direct<int>(int)": "grouped",
    "nvshmemi_transfer_rma(int)": "grouped",
    "void userbuffers_fp16_sum_inplace_gpu_rr_rs<8>(int)": "grouped",
    "kuserbuffers_pushrecv(int, int)": "grouped",
    "void mori::moe::EpDispatchIntraNodeKernel<float>(mori::moe::Args)": "grouped",
    "rocshmem::put_kernel(int)": "grouped",
    "void dispatch<8>(int4*)": None,
    "void at::native::reduce_kernel<512, 1, float>(float)": None,
    "triton_poi_fused_all_reduce_wait_tensor_3": None,
    "void oneflow::layer_norm_warp_all_reduce<float>(float)": None,
    "void cutlass::Kernel<mscclpp::allreduce>(float)": None,
    "gemm": None,
    "sycl allreduce ring kernel": "all_reduce",
    "sycl block all reduce kernel": None,
    "hcom_allReduce__912_0_1": "all_reduce",
    "hcom_allGather__912_0_1": "all_gather",
    "all-reduce-start.1": "all_reduce",
    "collective-permute-start.2": "grouped",
    "MoeDistributeCombineV2": "grouped",
    "void c10d::symmetric_memory::(anonymous namespace)::wait_signal_kernel(x)": "grouped",
    "void hybrid_ep::dispatch_kernel<x>(x)": "grouped",
    "void flux::all2all(x)": "all_to_all",
    "reduce-scatter.7": "reduce_scatter",
    "void at::native::symm_mem_barrier_all(x)": "barrier",
    "void aiter::reduce_scatter_cross_device_store<x>": "reduce_scatter",
    "oneccl_ring_reduce_scatter<float>(int)": "reduce_scatter",
    "hcom_receive__912_0_1": "grouped",
    "void ccl_labels<float>(int)": None,
}


def operations(full: list[str], options: ShapingOptions | None = None) -> list[str | None]:
    asked = pl.DataFrame({"name": full}).select(short_name().alias("name"), full="name")
    output = vocabulary(options or ShapingOptions()).operations(asked)
    return output["operation"].to_list()


@pytest.mark.parametrize(("full", "operation"), KERNELS.items())
def test_whole_names(full: str, operation: str | None) -> None:
    assert operations([full]) == [operation]


def test_short_names() -> None:
    short = {
        "void ns::(anonymous namespace)::run<float>(int)": "run",
        "std::enable_if<true, x>::type a::meet<4>(int)": "meet",
        "void plain(int)": "plain",
        "sycl gemm kernel": "sycl gemm kernel",
        "void sycl gemm kernel(int)": "sycl gemm kernel",
    }
    asked = pl.DataFrame({"name": [*short]})
    assert asked.select(short_name())["name"].to_list() == [*short.values()]


def test_a_users_pattern_beats_what_is_known() -> None:
    own = ShapingOptions.of(
        collectives={"all_to_all": "^exchange|ncclDevKernel_AllReduce", "barrier": "ns::meet<"}
    )
    asked = ["exchange_tokens", "ncclDevKernel_AllReduce_Sum_f32", "void ns::meet<4>(int)", "gemm"]
    assert operations(asked, own) == ["all_to_all", "all_to_all", "barrier", None]


@pytest.mark.parametrize(
    ("stated", "operation"),
    [
        ("allreduce", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("all_gather_into_tensor_coalesced", "all_gather"),
        ("_reduce_scatter_base", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("alltoall_base", "all_to_all"),
        ("_broadcast_oop", "rooted"),
        ("send", "point_to_point"),
        ("something new", "grouped"),
        ("", None),
        (None, None),
    ],
)
def test_what_pytorch_states(stated: str | None, operation: str | None) -> None:
    assert stated_operations(pl.Series([stated], dtype=pl.String)).to_list() == [operation]


@pytest.mark.parametrize(
    ("stated", "named", "own", "operation"),
    [
        ("all_to_all", "point_to_point", False, "all_to_all"),
        ("all_to_all", "point_to_point", True, "point_to_point"),
        ("grouped", "all_reduce", False, "all_reduce"),
        ("grouped", None, False, "grouped"),
        (None, "grouped", None, "grouped"),
        (None, None, False, None),
    ],
)
def test_which_evidence_counts(
    stated: str | None, named: str | None, own: bool | None, operation: str | None
) -> None:
    frame = pl.DataFrame(
        {"stated": [stated], "named": [named], "own": [own]},
        schema={"stated": OPERATION, "named": OPERATION, "own": pl.Boolean},
    )
    assert frame.select(known("stated", "named", "own")).item() == operation

"""Kernels: short keys of the simulator → the names that traces show."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's names, and what a profiler tells of its launch besides the grid."""

    demangled: str
    short: str
    registers: int = 64
    block: int = 256
    shared_memory: int = 0


def _nccl(short: str) -> Kernel:
    return Kernel(f"{short}(ncclDevKernelArgsStorage<(unsigned long)4096>)", short, 96, 544, 82_240)


def _cutlass(tile: str, layout: str) -> Kernel:
    name = f"ampere_bf16_s16816gemm_bf16_{tile}_ldg8_f2f_stages_64x3_{layout}"
    return Kernel(name, name, 238, 256, 98_304)


_AT = "void at::native::"
_ELEMENTWISE = "std::array<char *, (unsigned long)3>>(int, T2, T3)"

KERNELS = {
    "gemm_fwd": _cutlass("128x128", "tn"),
    "gemm_dgrad": _cutlass("128x128", "nn"),
    "gemm_wgrad": _cutlass("128x64", "nt"),
    "flash_fwd": Kernel(
        "void flash_fwd_kernel<Flash_fwd_kernel_traits<(int)128, (int)128, (int)64, (int)4, (bool)0"
        ", (bool)0, cutlass::bfloat16_t>, (bool)0, (bool)1, (bool)0, (bool)1>(Flash_fwd_params)",
        "flash_fwd_kernel",
        250,
        128,
        81_920,
    ),
    "flash_bwd": Kernel(
        "void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<(int)128, "
        "(int)64, (int)128, (int)8>, (bool)0, (bool)1>(Flash_bwd_params)",
        "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel",
        255,
        256,
        147_456,
    ),
    "add": Kernel(
        f"{_AT}vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<c10::BFloat16>, "
        + _ELEMENTWISE,
        "vectorized_elementwise_kernel",
        32,
        128,
    ),
    "gelu": Kernel(
        f"{_AT}elementwise_kernel<(int)128, (int)4, void at::native::gpu_kernel_impl_nocast<"
        "at::native::GeluCUDAKernelImpl>>(int, T3)",
        "elementwise_kernel",
        40,
        128,
    ),
    "norm_fwd": Kernel(
        f"{_AT}<unnamed>::vectorized_layer_norm_kernel<c10::BFloat16, float>(int, T2, const T1 *)",
        "vectorized_layer_norm_kernel",
        39,
        128,
        24,
    ),
    "norm_bwd": Kernel(
        f"{_AT}<unnamed>::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>(const T1*)",
        "layer_norm_grad_input_kernel_vectorized",
        56,
        128,
        32,
    ),
    "reduce": Kernel(
        f"{_AT}reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, at::native::"
        "NormOps<float, float>, unsigned int, float, (int)4>>(T3)",
        "reduce_kernel",
        32,
        512,
        16,
    ),
    "adam": Kernel(
        f"{_AT}<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::TensorListMetadata<"
        "(int)4>, at::native::<unnamed>::FusedAdamMathFunctor<float, (int)4>>(T1, T2, T3)",
        "multi_tensor_apply_kernel",
        48,
        512,
    ),
    "topk": Kernel(
        f"{_AT}sbtopk::gatherTopK<float, unsigned int, (int)2, (bool)0>(T1)",
        "gatherTopK",
        40,
        1_024,
    ),
    "permute": Kernel(
        "void permute_kernel<__nv_bfloat16, (bool)1, (int)128>(const T1 *, T1 *, const int *)",
        "permute_kernel",
        32,
        128,
    ),
    "loss": Kernel(
        f"{_AT}<unnamed>::cunn_SoftMaxForward<(int)8, c10::BFloat16, float, float>(T4 *)",
        "cunn_SoftMaxForward",
        34,
        1_024,
        4_096,
    ),
    "nccl:all_reduce": _nccl("ncclDevKernel_AllReduce_Sum_bf16_RING_LL"),
    "nccl:all_gather": _nccl("ncclDevKernel_AllGather_RING_LL"),
    "nccl:reduce_scatter": _nccl("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"),
    "nccl:broadcast": _nccl("ncclDevKernel_Broadcast_RING_LL"),
    "nccl:send_recv": _nccl("ncclDevKernel_SendRecv"),
}

NCCL = {
    operation: f"nccl:{operation}"
    for operation in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "send_recv")
} | {"all_to_all": "nccl:send_recv"}
"""Operations → kernels; an all-to-all is a group of sends and receives to NCCL."""

CHANNELS = 24
"""Blocks of NCCL's kernels."""

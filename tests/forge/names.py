"""Kernels as traces show them: names and launch shapes behind the simulator's short keys."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel's names and what a profiler tells of its launch."""

    demangled: str
    short: str
    mangled: str
    registers: int
    grid: int
    block: int
    shared_memory: int = 0


def _nccl(operation: str, algorithm: str = "_RING_LL") -> Kernel:
    short = f"ncclDevKernel_{operation}{algorithm}"
    signature = "(ncclDevComm *, unsigned long, ncclWork *)"
    mangled = f"_Z{len(short)}{short}P11ncclDevCommmP8ncclWork"
    return Kernel(short + signature, short, mangled, 96, 24, 544, 82_240)


def _gemm(layout: str) -> Kernel:
    name = f"ampere_sgemm_128x64_{layout}"
    return Kernel(name, name, name, 122, 432, 128, 12_544)


KERNELS = {
    "sgemm:nn": _gemm("nn"),
    "sgemm:nt": _gemm("nt"),
    "sgemm:tn": _gemm("tn"),
    "elementwise": Kernel(
        "void at::native::vectorized_elementwise_kernel<(int)4, at::native::CUDAFunctor_add<float>,"
        " std::array<char *, (unsigned long)3>>(int, T2, T3)",
        "vectorized_elementwise_kernel",
        "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEE"
        "St5arrayIPcLm3EEEEviT0_T1_",
        32,
        23_040,
        128,
    ),
    "layer_norm": Kernel(
        "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float>(int, T2, "
        "const T1 *, const T1 *, const T1 *, T2 *, T2 *, T1 *)",
        "vectorized_layer_norm_kernel",
        "_ZN2at6native12_GLOBAL__N_128vectorized_layer_norm_kernelIffEEviT0_PKT_S4_S4_PS1_S5_PS2_",
        39,
        8_192,
        128,
        24,
    ),
    "reduce": Kernel(
        "void at::native::reduce_kernel<(int)512, (int)1, at::native::ReduceOp<float, "
        "at::native::MeanOps<float, float, float, float>, unsigned int, float, (int)4>>(T3)",
        "reduce_kernel",
        "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_7MeanOpsIffffEEjfLi4EEEEEvT1_",
        32,
        1_024,
        512,
        16,
    ),
    "multi_tensor": Kernel(
        "void at::native::<unnamed>::multi_tensor_apply_kernel<at::native::<unnamed>::"
        "TensorListMetadata<(int)4>, at::native::<unnamed>::FusedAdamMathFunctor<float, (int)4>>"
        "(T1, T2, T3)",
        "multi_tensor_apply_kernel",
        "_ZN2at6native12_GLOBAL__N_125multi_tensor_apply_kernelINS1_18TensorListMetadataILi4EEE"
        "NS1_20FusedAdamMathFunctorIfLi4EEEEEvT_T0_T1_",
        48,
        320,
        512,
    ),
    "jpeg_decode": Kernel(
        "nvjpeg::DecodeSingleGPU::idctKernel(short const *, unsigned char *)",
        "idctKernel",
        "_ZN6nvjpeg15DecodeSingleGPU10idctKernelEPKsPh",
        40,
        600,
        64,
    ),
    "warp_affine": Kernel(
        "void dali::kernels::BatchedSeparableResampleKernel<(int)2, float, unsigned char>(T2 *)",
        "BatchedSeparableResampleKernel",
        "_ZN4dali7kernels30BatchedSeparableResampleKernelILi2EfhEEvPT0_",
        56,
        2_048,
        256,
    ),
    "normalize": Kernel(
        "void dali::kernels::slice_flip_normalize::SliceFlipNormalizeKernel<float, unsigned char>"
        "(T1 *)",
        "SliceFlipNormalizeKernel",
        "_ZN4dali7kernels20slice_flip_normalize24SliceFlipNormalizeKernelIfhEEvPT_",
        44,
        4_096,
        256,
    ),
    "nccl:AllReduce": _nccl("AllReduce_Sum_f32"),
    "nccl:ReduceScatter": _nccl("ReduceScatter_Sum_f32"),
    "nccl:Broadcast": _nccl("Broadcast"),
    "nccl:AllGather": _nccl("AllGather"),
    "nccl:SendRecv": _nccl("SendRecv", ""),
}

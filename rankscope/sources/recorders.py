"""What recorded the reports of a run, and how it records what they lack."""

from collections.abc import Iterable
from enum import Enum

from rankscope.sources import formats


class Recorder(Enum):
    """A profiler."""

    NSYS = "nsys"
    PYTORCH = "torch.profiler"  # on any device
    INSPECTOR = "NCCL Inspector"  # collectives alone


class Record(Enum):
    """What reports may lack."""

    DEVICE = "the work of the device"
    KERNELS = "kernels, to show a table of them"
    COMMUNICATION = "calls of several ranks"
    HOST = "what threads do: scheduling, samples, calls of the operating system"
    PARTS = "ranges inside the phases"
    GARBAGE = "ranges of garbage collection"
    STEPS = "ranges of iterations, on some ranks"
    NETWORK = "counters of network adapters"
    LINKS = "counters of links inside a host"


PYTORCH_DEVICE = (
    "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]), or the "
    "activity of your device"
)

COLLECTIVES_ALONE = (
    "rankscope plot arrivals shows who comes last; for why, record that rank and another one with "
    "rankscope capture or torch.profiler (NCCL Inspector records collectives alone)"
)

ADVICE = {
    Recorder.INSPECTOR: dict.fromkeys(Record, COLLECTIVES_ALONE),
    Recorder.NSYS: {
        Record.DEVICE: "profile with device tables: nsys profile --trace=cuda,nvtx",
        Record.KERNELS: "record it, as rankscope capture does (nsys --trace=cuda,nvtx); --by phase "
        "shows the work of the host",
        Record.COMMUNICATION: "annotate the all-reduce, or trace it, as rankscope capture does: "
        "--trace=cuda,nvtx (NCCL) or mpi,nvtx",
        Record.HOST: "profile with scheduling, samples and calls of the operating system: nsys "
        "profile --trace=cuda,nvtx,osrt --sample=process-tree --cpuctxsw=process-tree",
        Record.PARTS: "annotate parts inside the phases as well, with further NVTX ranges",
        Record.GARBAGE: "annotate garbage collection with a range, for example by gc.callbacks",
        Record.STEPS: "annotate every rank (rankscope capture --snippet)",
        Record.NETWORK: "record NIC counters in the next capture: nsys profile --nic-metrics=true",
        Record.LINKS: "record NVLink and PCIe counters in the next capture: nsys profile "
        "--gpu-metrics-devices=all",
    },
    Recorder.PYTORCH: {
        Record.DEVICE: f"record host and device: {PYTORCH_DEVICE}",
        Record.KERNELS: f"record it: {PYTORCH_DEVICE}; --by phase shows the work of the host",
        Record.COMMUNICATION: f"record the kernels of communication on every rank: "
        f"{PYTORCH_DEVICE}; name kernels of your own with --collective all_reduce='REGEX'",
        Record.HOST: "the PyTorch profiler does not record what threads do on the host",
        Record.PARTS: "name parts inside the phases as well, with torch.profiler.record_function",
        Record.GARBAGE: "name garbage collection with torch.profiler.record_function, for example "
        "by gc.callbacks",
        Record.STEPS: "call prof.step() after every iteration on every rank",
        **dict.fromkeys(
            (Record.NETWORK, Record.LINKS),
            "measure the links of its hosts alone, for example with nccl-tests or rccl-tests: the "
            "PyTorch profiler has no counters of links",
        ),
    },
}
"""How a profiler records it."""


def recorder_of(kinds: Iterable[str]) -> Recorder:
    """What recorded reports of some formats; of several or unknown profilers, nsys."""
    families = {form.family if (form := formats.find(kind)) else None for kind in kinds}
    if families == {"kineto"}:
        return Recorder.PYTORCH
    return Recorder.INSPECTOR if families == {"inspector"} else Recorder.NSYS


def advice(record: Record, recorder: Recorder) -> str:
    """How to record what reports lack, with what recorded them."""
    return ADVICE[recorder][record]

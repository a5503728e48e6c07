"""Closed sets of names, as enums whose values are the text that users see."""

from enum import StrEnum
from typing import Self


class Phase(StrEnum):
    """A part of an iteration, in the order in which an iteration runs through them.

    Each is a metric, with the meaning that stands beside its name. The rest of an iteration's
    window is exposed communication.
    """

    _value_: str
    meaning: str

    LOAD = "load", "fetching data and copying it to the device"
    FORWARD = "forward", "forward pass"
    BACKWARD = "backward", "backward pass, without waiting for others"
    OPTIMIZER = "optimizer", "optimizer step"
    OTHER = "other", "the rest of the window"

    def __new__(cls, name: str, meaning: str) -> Self:
        """A member whose value is its name."""
        member = str.__new__(cls, name)
        member._value_ = name
        member.meaning = meaning
        return member


PHASES = tuple(phase.value for phase in Phase)

NAMED_PHASES = tuple(phase for phase in PHASES if phase != Phase.OTHER)
"""Phases that ranges name."""

COMPUTING_PHASES = tuple(phase for phase in NAMED_PHASES if phase != Phase.LOAD)
"""Named phases that launch the training's computation."""

STEP_PHASES = (Phase.FORWARD.value, Phase.BACKWARD.value, Phase.OPTIMIZER.value)
"""Phases that every training step runs through."""

PARTS = (*PHASES, "exposed_communication")
"""What a window is made of; their lengths add up to it."""

POINT_TO_POINT = "point_to_point"
"""The operation of a send, a receive, or both in one kernel."""

OPERATIONS = (
    "all_reduce",
    "all_gather",
    "reduce_scatter",
    "all_to_all",
    "barrier",
    "rooted",  # broadcast, reduce, gather, scatter
    POINT_TO_POINT,
    "grouped",  # communication of unknown kind
)
"""What a kernel that communicates does."""


class Clock(StrEnum):
    """What times are taken from: the device's work or the host's ranges."""

    GPU = "gpu"
    HOST = "host"


class Statistic(StrEnum):
    """How the iterations of a rank become its score."""

    MEAN = "mean"
    MEDIAN = "median"
    P95 = "p95"


class VerdictKind(StrEnum):
    """The class of a verdict."""

    BALANCED = "balanced"
    PERSISTENT = "persistent"
    TRANSIENT = "transient"
    PERIODIC = "periodic"
    ROTATING = "rotating"
    STRUCTURAL = "structural"
    COMMUNICATION = "communication"
    INCONCLUSIVE = "inconclusive"


class CauseKind(StrEnum):
    """What a finding says about the phase that made a rank slow."""

    DEVICE_SLOWER = "device_slower"
    MORE_WORK = "more_work"
    CONTENTION = "contention"
    STARVED = "starved"
    LOADER = "loader"
    GARBAGE_COLLECTION = "garbage_collection"
    COPIES = "copies"
    RANGE = "range"
    BLOCKED = "blocked"
    PREEMPTED = "preempted"
    ON_CPU = "on_cpu"
    ALLOCATOR = "allocator"
    CUDA_CALL = "cuda_call"
    PROFILER = "profiler"
    UNEXPLAINED = "unexplained"


class HostState(StrEnum):
    """What a thread does at an instant."""

    ON_CPU = "on_cpu"
    BLOCKED = "blocked"  # off the CPU in a call of the operating system
    OFF_CPU = "off_cpu"  # off the CPU without one
    CUDA_CALL = "cuda_call"
    PROFILER = "profiler"
    UNKNOWN = "unknown"  # no table tells


class Counter(StrEnum):
    """What a counter of a GPU, an adapter or unified memory counts; units are in `tables`."""

    CLOCK = "clock"
    SYS_CLOCK = "sys_clock"
    SM_ACTIVE = "sm_active"
    DRAM_READ = "dram_read"
    DRAM_WRITE = "dram_write"
    PCIE_RX = "pcie_rx"
    PCIE_TX = "pcie_tx"
    NVLINK_RX = "nvlink_rx"
    NVLINK_TX = "nvlink_tx"
    SENT = "sent"
    RECEIVED = "received"
    SEND_WAITS = "send_waits"
    GPU_PAGE_FAULTS = "gpu_page_faults"
    CPU_PAGE_FAULTS = "cpu_page_faults"


class EvidenceKind(StrEnum):
    """Where the evidence for a rank comes from."""

    USER = "user"  # the user's own pattern
    ENVIRONMENT = "environment"  # variables that a launcher sets
    PROFILER = "profiler"  # what the profiler wrote about the job
    EVENTS = "events"  # what the report's events say
    FILE_NAME = "file name"
    ORDER = "order"  # the order in which a launcher usually starts processes
    ASSUMED = "assumed"  # none, but the run has no other report


class By(StrEnum):
    """The rows of the imbalance table."""

    RANK = "rank"
    HOST = "host"
    ITERATION = "iteration"
    PHASE = "phase"
    COLLECTIVE = "collective"
    KERNEL = "kernel"
    CAUSE = "cause"

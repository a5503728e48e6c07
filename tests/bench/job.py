"""A job of a thousand ranks as reduced reports: rows as `extract` gives them, made with numpy.

Tensor-parallel groups are the neighbours on a host, data-parallel ones span the hosts. Every
collective is waited for, so that all of it is exposed: no job leaves more rows behind. One rank is
slow in all its backward work.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from rankscope.model.reports import (
    CaptureFacts,
    RankIdentity,
    RankRecord,
    RankRows,
    ReportFile,
    ReportRows,
)
from rankscope.model.schema import (
    ACTIVITIES,
    COLLECTIVES,
    COUNTERS,
    EXPOSED,
    FILE_ACCESSES,
    HOST_STATES,
    MEASURES,
    RANK_ITERATIONS,
    empty,
)
from rankscope.sources.environment import TORCHRUN
from tests.frames import filled

SLOW = 5
SLOWER_NS = 6_000_000
RANKS_PER_HOST = 8
EPOCH_NS = 1_795_249_000_000_000_000
TRANSFER_NS, SKEW_NS, JITTER_NS = 300_000, 5_000, 100_000
WORK_NS = {"load": 3e6, "forward": 10e6, "backward": 20e6, "optimizer": 3e6}
SHARES = {"load": 0.05, "forward": 0.3, "backward": 0.6, "optimizer": 0.05}
"""Of an iteration's stretches between collectives, how many are of which phase."""

KERNELS = {
    "forward": ("ampere_sgemm_128x64_tn", "layer_norm", "softmax"),
    "backward": ("ampere_sgemm_128x64_nt", "ampere_sgemm_128x64_tn", "layer_norm_grad", "reduce"),
    "optimizer": ("multi_tensor_apply_kernel",),
}

STATES = {
    ("on_cpu", ""): 0.5,
    ("cuda_call", "cudaLaunchKernel"): 0.2,
    ("blocked", "poll"): 0.2,
    ("off_cpu", ""): 0.1,
}
"""State and name of what the training thread does → its share of each phase."""

METRICS = {"clock": 1980.0, "sm_active": 70.0, "dram_read": 30.0}
"""Counters of a GPU → their values."""


@dataclass(frozen=True)
class Job:
    """Moments of all calls on true time, and what each rank's clock makes of them."""

    arrivals: NDArray[np.float64]  # ns; shape (calls, ranks)
    ends: NDArray[np.float64]
    calls: str  # of an iteration: t(ensor-parallel) or d(ata-parallel)
    offsets_ns: NDArray[np.int64]
    drifts: NDArray[np.float64]

    @property
    def ranks(self) -> int:
        """How many."""
        return self.ends.shape[1]

    @property
    def iterations(self) -> int:
        """How many."""
        return len(self.ends) // len(self.calls)

    def reports(self, folder: Path, why: bool = False) -> Iterator[ReportRows]:
        """The reduced report of each rank; `why`: with what the host did, and its counters."""
        return (_report(self, rank, folder, why) for rank in range(self.ranks))


def simulated(ranks: int, iterations: int, collectives: int, slower_ns: int = SLOWER_NS) -> Job:
    """A job whose rank `SLOW` needs `slower_ns` more of backward in every iteration."""
    rng = np.random.default_rng(0)
    calls = ("ttttd" * collectives)[:collectives]
    who = np.arange(ranks)
    groups = {"t": who // RANKS_PER_HOST, "d": who % RANKS_PER_HOST}
    phases = _phases(collectives)
    arrivals = np.empty((iterations * collectives, ranks))
    ends = np.empty_like(arrivals)
    now = np.zeros(ranks)
    for call in range(len(arrivals)):
        phase = phases[call % collectives]
        work = WORK_NS[phase] / phases.count(phase)
        now += work + np.abs(rng.normal(0, JITTER_NS, ranks))
        if phase == "backward" and ranks > SLOW:
            now[SLOW] += slower_ns / phases.count(phase)
        group = groups[calls[call % collectives]]
        last = np.zeros(group.max() + 1)
        np.maximum.at(last, group, now)
        arrivals[call] = now
        now = last[group] + TRANSFER_NS + rng.uniform(0, SKEW_NS, ranks)
        ends[call] = now
    hosts = -(-ranks // RANKS_PER_HOST)
    offsets = np.repeat(rng.integers(-(10**9), 10**9, hosts), RANKS_PER_HOST)[:ranks]
    drifts = np.repeat(rng.uniform(-20e-6, 20e-6, hosts), RANKS_PER_HOST)[:ranks]
    return Job(arrivals, ends, calls, offsets, drifts)


def _phases(collectives: int) -> list[str]:
    """The phase of the work before each collective."""
    bounds = np.cumsum([share * collectives for share in SHARES.values()])
    return [[*SHARES][int(np.searchsorted(bounds, call + 0.5))] for call in range(collectives)]


def _report(job: Job, rank: int, folder: Path, why: bool) -> ReportRows:
    per = len(job.calls)
    own = [
        np.rint(times[:, rank] * (1 + job.drifts[rank])).astype(np.int64)
        for times in (job.arrivals, job.ends)
    ]
    arrival, end = own
    rows = pl.DataFrame(
        {
            "rank": np.full(len(end), rank),
            "iteration": np.repeat(np.arange(job.iterations), per),
            "place": "device",
            "communicator": ["stream 7" if call == "t" else "stream 13" for call in job.calls]
            * job.iterations,
            "operation": "all_reduce",
            "ordinal": [job.calls[:place].count(call) for place, call in enumerate(job.calls)]
            * job.iterations,
            "gradient": [call == "d" for call in job.calls] * job.iterations,
            "arrival_ns": arrival,
            "start_ns": arrival,
            "end_ns": end,
            "clock": "gpu",
        }
    )
    begin = np.concatenate(([0], end[:-1]))  # of the work before each call
    work = (arrival - begin).reshape(-1, per)
    phases = np.array(_phases(per))
    lengths = {f"{phase}_ns": work[:, phases == phase].sum(axis=1) for phase in WORK_NS}
    stop = end.reshape(-1, per)[:, -1]
    window = np.concatenate(([0], stop[:-1]))
    needed = work.sum(axis=1)
    gpu = pl.DataFrame(
        {
            "rank": np.full(job.iterations, rank),
            "iteration": np.arange(job.iterations),
            "window_start_ns": window,
            "iteration_ns": stop - window,
            **lengths,
            "other_ns": np.zeros(job.iterations, dtype=np.int64),
            "exposed_communication_ns": stop - window - needed,
            "work_ns": needed,
            "time_to_all_reduce_ns": needed,
            "time_to_first_all_reduce_ns": needed // 2,
            "compute_ns": needed - lengths["load_ns"],
            "communication_ns": stop - window - needed,
            "idle_ns": lengths["load_ns"],
        }
    )
    clocks = [gpu.with_columns(clock=pl.lit(clock)) for clock in ("host", "gpu")]
    iterations = gpu.select(
        "rank",
        "iteration",
        epoch=pl.lit(0),
        number="iteration",
        start_ns="window_start_ns",
        end_ns=pl.col("window_start_ns") + pl.col("iteration_ns"),
        view_start_ns="window_start_ns",
        view_end_ns=pl.col("window_start_ns") + pl.col("iteration_ns"),
        complete=pl.lit(True),
    )
    host = f"node{rank // RANKS_PER_HOST:04}"
    identity = RankIdentity(rank, rank, rank % RANKS_PER_HOST, job.ranks, host, TORCHRUN)
    record = RankRecord(identity, True, "PyTorch", True, True, True)
    start = EPOCH_NS + int(job.offsets_ns[rank])
    facts = CaptureFacts(host, start, int(end[-1]), (), rank % RANKS_PER_HOST, None)
    part = RankRows(
        record,
        filled(iterations, RANK_ITERATIONS),
        filled(pl.concat(clocks), MEASURES),
        filled(rows, COLLECTIVES),
        filled(rows.with_columns(start_ns="arrival_ns"), EXPOSED),
        _activities(gpu),
        _host_states(gpu) if why else empty(HOST_STATES),
        _file_accesses(gpu) if why else empty(FILE_ACCESSES),
        _counters(gpu) if why else empty(COUNTERS),
        (),
    )
    report = ReportFile(folder / f"rank{rank}.nsys-rep", "nsys-report", 10**8, 1)
    return ReportRows(report, facts, (part,), (), len(rows))


def _of(gpu: pl.DataFrame, **columns: Any) -> pl.DataFrame:
    """A row per iteration: expressions and constants."""
    given = {name: each if isinstance(each, pl.Expr) else pl.lit(each)
             for name, each in columns.items()}  # fmt: skip
    return gpu.select("rank", "iteration", **given)


def _host_states(gpu: pl.DataFrame) -> pl.DataFrame:
    """HOST_STATES: each phase is spent in calls, waiting for the device and on the CPU."""
    frames = [
        _of(gpu, phase=phase, state=state, name=name, count=4,
            total_ns=(pl.col(f"{phase}_ns") * share).cast(pl.Int64))
        for phase in WORK_NS
        for (state, name), share in STATES.items()
    ]  # fmt: skip
    return pl.concat(filled(frame, HOST_STATES) for frame in frames)


def _file_accesses(gpu: pl.DataFrame) -> pl.DataFrame:
    """FILE_ACCESSES: two files are read in each iteration."""
    total = pl.col("load_ns") // 4
    frames = [
        _of(gpu, phase="load", call="read", file=name, count=8, bytes=2**20, total_ns=total)
        for name in ("shard-0.tar", "shard-1.tar")
    ]
    return pl.concat(filled(frame, FILE_ACCESSES) for frame in frames)


def _counters(gpu: pl.DataFrame) -> pl.DataFrame:
    """COUNTERS: the clock and the load of the rank's own GPU."""
    device = pl.format("0000:{}:00.0", pl.col("rank") % RANKS_PER_HOST)
    frames = [
        _of(gpu, source="gpu", device=device, metric=metric, count=4, value=value)
        for metric, value in METRICS.items()
    ]
    return pl.concat(filled(frame, COUNTERS) for frame in frames)


def _activities(gpu: pl.DataFrame) -> pl.DataFrame:
    """ACTIVITIES: some kernels in each phase, and the device's idling for data."""
    rng = np.random.default_rng(1)
    frames = []
    for phase, names in KERNELS.items():
        for name in names:
            share = pl.Series(1 / len(names) * rng.lognormal(0, 0.03, gpu.height))
            total = (pl.col(f"{phase}_ns") * share).cast(pl.Int64)
            spread = rng.lognormal(9, 0.1, (gpu.height, 3)).astype(np.int32)
            frames.append(
                _of(gpu, phase=phase, kind="kernel", name=name, count=24, total_ns=total, size=4096,
                    clear_ns=total, clear_size=4096, launches=pl.Series(spread).arr.to_list())
            )  # fmt: skip
    idle = _of(gpu, phase="load", kind="idle", name="", count=1, total_ns=pl.col("load_ns"), size=0)
    return pl.concat(filled(frame, ACTIVITIES) for frame in [*frames, idle])

"""What a forged training job is: its size, its work, its noise, its clocks, its planted faults."""

from dataclasses import dataclass, field, replace
from typing import Literal

PlantKind = Literal["persistent", "transient", "periodic", "rotating", "structural", "balanced"]
Where = Literal["load", "forward", "backward", "optimizer", "device", "kernel", "data"]
Schema = Literal["2022.4", "2023.4"]

MICROSECOND = 1_000
MILLISECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Plant:
    """A fault put into the job on purpose.

    Attributes:
        kind: How it is spread over iterations and ranks; `balanced` plants nothing.
        where: The phase that gets longer, or one of three that say what got longer. `device`: every
            kernel of the rank, by `factor`. `kernel`: one of them, by `factor`. `data`: forward and
            backward have more to do, so their kernels run on longer grids, by `factor`.
        ranks: Who is hit; for `rotating`, those among whom one is drawn in each hit iteration.
        extra_ns: Added to the phase in a hit iteration, shared by its micro-batches.
        factor: Multiplies the phase (or every kernel, for `device`) in a hit iteration.
        iterations: The hit iterations of a `transient` plant.
        every: A `periodic` (or `rotating`) plant hits iterations with `i % every == offset`.
        offset: See `every`.
        on_host: Spend `extra_ns` on the host before the launches, not on the device, which hides
            it as long as it still has work queued.
        named: The range around what is spent on the host; None writes none.
        kernel: The slower one (a key of `names.KERNELS`), for `kernel`.
    """

    kind: PlantKind
    where: Where = "forward"
    ranks: tuple[int, ...] = ()
    extra_ns: int = 0
    factor: float = 1.0
    iterations: tuple[int, ...] = ()
    every: int = 1
    offset: int = 0
    on_host: bool = False
    named: str | None = None
    kernel: str = "sgemm:nt"


@dataclass(frozen=True, slots=True)
class Lengths:
    """Batches of random length: forward and backward of a rank scale with it, and so do grids.

    Attributes:
        mean: Median number of tokens; as many need what `Work` says.
        sigma: Spread of its logarithm, over ranks and iterations.
    """

    mean: int = 2_048
    sigma: float = 0.3


@dataclass(frozen=True, slots=True)
class Contention:
    """Computing that a running collective slows down, as both want the same memory and cores.

    Attributes:
        factor: How much longer a kernel of the training stream takes while a collective runs.
        ranks: Whose kernels; empty means everybody's.
    """

    factor: float = 1.3
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """What one iteration needs without noise or plants: durations in ns and numbers of kernels."""

    load_ns: int = 4 * MILLISECOND
    copy_ns: int = 300 * MICROSECOND
    copy_bytes: int = 38_535_168
    forward_ns: int = 10 * MILLISECOND
    backward_ns: int = 20 * MILLISECOND
    optimizer_ns: int = 3 * MILLISECOND
    forward_kernels: int = 10
    backward_kernels: int = 15
    optimizer_kernels: int = 5

    def nominal_ns(self) -> int:
        """Length of an iteration in which nothing overlaps and nobody waits."""
        return self.load_ns + self.copy_ns + self.forward_ns + self.backward_ns + self.optimizer_ns


@dataclass(frozen=True, slots=True)
class Noise:
    """Random variation of a rank's durations; `sigma=0` makes a rank perfectly regular.

    Attributes:
        sigma: Spread of the logarithm of the factor drawn per rank, iteration and phase.
        walk: Bound of a slow random walk of the rank's speed (0.05 = plus or minus 5 %).
    """

    sigma: float = 0.03
    walk: float = 0.0


@dataclass(frozen=True, slots=True)
class Host:
    """What the CPU and the launch path cost, ns."""

    launch_ns: int = 5 * MICROSECOND
    python_ns: int = 3 * MICROSECOND
    event_call_ns: int = 1 * MICROSECOND
    marker_ns: int = 500
    thread_handoff_ns: int = 20 * MICROSECOND
    launch_latency_ns: int = 2_500
    stream_gap_ns: int = 800
    event_gap_ns: int = 1_500
    sync_return_ns: int = 5 * MICROSECOND
    queue_limit: int = 1_000


@dataclass(frozen=True, slots=True)
class Network:
    """Collectives: how long the transfer takes once all have arrived, and how ends scatter, ns.

    Those of the communicators `slow` take `factor` times as long.
    """

    transfer_ns: tuple[int, int] = (MILLISECOND // 2, 3 * MILLISECOND // 2)
    small_transfer_ns: tuple[int, int] = (30 * MICROSECOND, 60 * MICROSECOND)
    skew_ns: int = 5 * MICROSECOND
    gradient_bytes: int = 102_228_128
    slow: tuple[str, ...] = ()
    factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Markers:
    """NVTX names as format strings with `{i}` for the iteration; None writes no such range."""

    iteration: str | None = "step {i}"
    load: str | None = "load"
    forward: str | None = "forward"
    backward: str | None = "backward"
    optimizer: str | None = "optimizer"
    all_reduce: str | None = "all_reduce"
    graph: str | None = "graph replay"


@dataclass(frozen=True, slots=True)
class Clock:
    """Error of one rank's clock against true time: a constant, and parts per million."""

    offset_ns: int = 0
    drift_ppm: float = 0.0


@dataclass(frozen=True, slots=True)
class Export:
    """How the reports are written.

    Attributes:
        schema: Which exporter's tables and meta data to write.
        file_name: Format string over `rank`, `host`, `pid`.
        rank_in_environment: Put RANK, LOCAL_RANK and WORLD_SIZE into the recorded environment.
        registered_names: Write range names as `textId` instead of `text`.
        shuffle_rows: Shuffle the rows of every event table.
        unrecorded_share: Share of the kernels whose API call is missing from RUNTIME.
        capture_from: First iteration that each rank's profiler captures; empty means all. The
            truth tells of every iteration all the same.
    """

    schema: Schema = "2023.4"
    file_name: str = "report_rank_{rank}.sqlite"
    rank_in_environment: bool = True
    registered_names: bool = False
    shuffle_rows: bool = False
    unrecorded_share: float = 0.0
    capture_from: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Job:
    """A distributed training job to simulate; the defaults are a plain DDP job on GPUs.

    Attributes:
        communicators: Name to ranks. `dp*` reduce gradients, `tp*` reduce activations, `pp*` are
            neighbours in a pipeline. Empty means one `dp` of all ranks.
        stages: Pipeline stages; rank = replica * stages + stage. See `pipeline_groups`.
        roles: The layout of the ranks as a user would tell it, fastest-varying first.
        lengths: Random batch lengths; None gives every batch the same.
        contention: What collectives do to the kernels beside them; None lets them run freely.
        load_at: `range`: first thing in the iteration range; `inside`: there, to be run with
            markers that do not name it; `between`: before the iteration range opens.
        copy_at: Phase that launches the copy of the batch to the device; None copies nothing.
        copy_stream: Copy on a stream of its own; the next kernel waits for it by an event.
        reduce_every: Gradients are reduced in iterations with `(i + 1) % reduce_every == 0`.
        gradient_op: Operation of the gradient reduction.
        gpu: False gives a job without CUDA: phases are host work, all-reduces block the host.
        sync_every_step: The host waits for the device at the end of every step; else only the
            launch queue's limit holds it back.
        broadcasts: Buffers that rank 0 of the data-parallel group sends ahead of each forward.
        item_copy: Read the loss back (a copy of 8 bytes) before that wait.
        graph: Forward, backward and their collectives are replayed by one graph launch.
        background_loader: A DALI-like thread launches preprocessing on its own stream.
        mpi: Without GPU: the all-reduce is an MPI call, traced in an NVTX domain `MPI`.
    """

    name: str = "job"
    ranks: int = 8
    iterations: int = 30
    seed: int = 0
    ranks_per_host: int = 4
    communicators: dict[str, tuple[int, ...]] = field(default_factory=dict)
    work: Work = Work()
    noise: Noise = Noise()
    host: Host = Host()
    network: Network = Network()
    markers: Markers = Markers()
    export: Export = Export()
    plants: tuple[Plant, ...] = ()
    clocks: tuple[Clock, ...] = ()
    stages: int = 1
    roles: str | None = None
    lengths: Lengths | None = None
    contention: Contention | None = None
    buckets: int = 5
    micro_batches: int = 1
    reduce_every: int = 1
    gradient_op: Literal["all_reduce", "reduce_scatter"] = "all_reduce"
    load_at: Literal["range", "inside", "between"] = "range"
    copy_at: Literal["load", "forward"] | None = "load"
    copy_stream: bool = False
    gpu: bool = True
    sync_every_step: bool = True
    broadcasts: int = 0
    item_copy: bool = False
    loss_all_reduce: bool = False
    trailing_all_gather: bool = False
    graph: bool = False
    background_loader: bool = False
    mpi: bool = False

    def groups(self) -> dict[str, tuple[int, ...]]:
        """Communicators by name, the default one filled in."""
        return self.communicators or {"dp": tuple(range(self.ranks))}

    def group_of(self, kind: str, rank: int) -> str | None:
        """Name of the communicator of a kind (`dp`, `tp`) that a rank belongs to."""
        for name, members in self.groups().items():
            if name.startswith(kind) and rank in members:
                return name
        return None

    def neighbours(self, rank: int) -> tuple[str | None, str | None]:
        """Communicators of a rank with the stage before its own and with the one after it."""
        replica, stage = divmod(rank, self.stages)
        before = _pair(replica, stage - 1) if stage else None
        return before, _pair(replica, stage) if stage < self.stages - 1 else None

    def contends(self, rank: int) -> bool:
        """Whether a rank's kernels are slowed by collectives that run beside them."""
        if self.contention is None:
            return False
        return not self.contention.ranks or rank in self.contention.ranks

    def clock(self, rank: int) -> Clock:
        """Clock error of a rank; none where the job lists no clocks."""
        return self.clocks[rank] if self.clocks else Clock()

    def host_name(self, rank: int) -> str:
        """Name of the machine that a rank runs on."""
        return f"node{rank // self.ranks_per_host}"

    def reduces(self, iteration: int) -> bool:
        """Whether gradients are reduced in an iteration."""
        return (iteration + 1) % self.reduce_every == 0


def tensor_groups(ranks: int, tp: int) -> dict[str, tuple[int, ...]]:
    """Communicators of tensor-parallel groups of `tp` neighbours inside data-parallel ones."""
    groups = {f"tp{i}": tuple(range(i * tp, (i + 1) * tp)) for i in range(ranks // tp)}
    return groups | {f"dp{i}": tuple(range(i, ranks, tp)) for i in range(tp)}


def _pair(replica: int, stage: int) -> str:
    return f"pp{replica}.{stage}"


def pipeline_groups(ranks: int, stages: int) -> dict[str, tuple[int, ...]]:
    """Communicators of a pipeline: `dp{stage}` of a stage's ranks, `pp{replica}.{stage}` of a
    stage and the next in one replica.

    Raises:
        ValueError: The ranks do not fill whole pipelines.
    """
    if ranks % stages:
        raise ValueError(f"{ranks} ranks are no pipelines of {stages} stages")
    groups = {f"dp{stage}": tuple(range(stage, ranks, stages)) for stage in range(stages)}
    for first in range(0, ranks, stages):
        for stage in range(stages - 1):
            groups[_pair(first // stages, stage)] = (first + stage, first + stage + 1)
    return groups


def without_plants(job: Job) -> Job:
    """The same job, with the same random numbers, had nothing been planted.

    Noise, lengths, clocks and contention stay: simulated, it tells what a plant cost.
    """
    return replace(job, plants=())

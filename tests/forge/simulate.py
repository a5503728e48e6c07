"""Runs a job: every rank's steps, iteration by iteration, on devices and networks of the engine."""

import random
from collections import deque
from dataclasses import dataclass

from tests.forge.engine import Engine, Op
from tests.forge.host import SYNCHRONIZE, RankHost
from tests.forge.job import MILLISECOND, Job
from tests.forge.ownership import Comm, Work
from tests.forge.record import Identity, RankClock, RankRecord
from tests.forge.step import step
from tests.forge.truth import Account, Row, Truth, collective_rows

SECOND = 1_000_000_000
TRAINING_STARTS = 12 * SECOND
"""Profiling starts before the framework has been imported; training comes seconds later."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """What the profilers saw, and what really happened."""

    records: tuple[RankRecord, ...]
    truth: Truth


def identity(job: Job, rank: int) -> Identity:
    """A rank's process: pids differ between machines and ranks, as they do in life."""
    node, local = divmod(rank, job.ranks_per_host)
    pid = 4_100 + 2_311 * (node % 1_000) + 97 * local
    return Identity(rank, local, job.ranks, job.host_name(rank), pid, pid, pid + 41, pid + 23)


def simulate(job: Job) -> Simulation:
    """Run a job and give every rank's record and the truth."""
    engine = Engine(job.seed)
    rng = random.Random(f"{job.seed}/sessions")
    records, hosts, accounts = [], [], []
    for rank in range(job.ranks):
        error = job.clock(rank)
        # Ranks of one machine start their profilers together, more or less.
        start = rng.randint(0, 2 * SECOND)
        clock = RankClock(start, error.offset_ns, round(error.drift_ppm * 1000))
        who = identity(job, rank)
        records.append(RankRecord(who, clock))
        begin = TRAINING_STARTS + rng.randint(0, 2 * MILLISECOND)
        hosts.append(RankHost(job, who, engine, begin))
        accounts.append(Account(job, rank))
    collectives: list[Row] = []
    clocks = tuple(record.clock for record in records)
    for iteration in range(job.iterations):
        _run(job, hosts, engine, iteration)
        arrivals: dict[int, dict[int, int]] = {}
        for host, record, account in zip(hosts, records, accounts, strict=True):
            _take(iteration, host, record, account, arrivals)
        for instance in engine.take_collectives():
            members = {rank: arrivals[rank][id(op)] for rank, op in instance.ops.items()}
            collectives += collective_rows(instance, members, clocks)
        for host in hosts:
            host.ops.clear()
            host.background.clear()
    rows: list[Row] = []
    for account in accounts:
        account.close(1 << 62)
        # Python's sort is stable: within a clock, rows stay in order of iteration.
        rows += sorted(account.rows, key=lambda row: str(row["clock"]))
    return Simulation(tuple(records), Truth(job, clocks, rows, collectives))


def _run(job: Job, hosts: list[RankHost], engine: Engine, iteration: int) -> None:
    """Let every rank run one iteration's host program, resolving the device as it goes."""
    programs = [step(host, iteration) for host in hosts]
    asleep: set[int] = set()
    ready = deque(range(len(hosts)))
    unfinished = len(hosts)
    while ready:
        rank = ready.popleft()
        asleep.discard(rank)
        for op in programs[rank]:
            if op.end < 0:
                op.awaited = True
                asleep.add(rank)
                break
        else:
            unfinished -= 1
        ready.extend(woken for woken in dict.fromkeys(engine.woken) if woken in asleep)
        engine.woken.clear()
    if unfinished:
        raise RuntimeError(f"iteration {iteration}: ranks {sorted(asleep)} wait for ever")


def _take(
    iteration: int,
    host: RankHost,
    record: RankRecord,
    account: Account,
    arrivals: dict[int, dict[int, int]],
) -> None:
    """Move what a rank did in an iteration to its record and its account, on its own clock."""
    local = record.clock.local
    captured_from = host.job.export.capture_from
    captured = not captured_from or iteration >= captured_from[host.rank]
    works: list[Work] = []
    comms: list[Comm] = []
    gradients: list[int] = []
    unrecorded = contention = 0
    arrived = account.arrivals(host.ops)
    arrivals[host.rank] = {id(host.ops[i]): time for i, time in arrived.items()}
    for i, op in enumerate(host.ops):
        start, end, launch = local(op.start), local(op.end), local(op.api_start)
        if op.collective is None:
            works.append((start, end, op.kind == "copy", launch, op.phase))
            unrecorded += 0 if op.recorded else end - start
            contention += op.end - op.start - op.duration
        else:
            comms.append((start, end, launch, op.phase))
            if op.collective.purpose == "gradient":
                gradients.append(local(arrived[i]))
        if captured:
            _store(record, op, start, end)
    if captured:
        for op in host.background:
            _store(record, op, local(op.start), local(op.end))
        record.calls += [(local(a), local(b), *rest) for a, b, *rest in host.calls]
        record.ranges += [(local(a), local(b), *rest) for a, b, *rest in host.ranges]
    segments = [(phase, local(a), local(b)) for phase, a, b in host.segments]
    span = (local(host.span[0]), local(host.span[1]))
    account.add(
        iteration,
        span,
        segments=segments,
        works=works,
        comms=comms,
        syncs=[(local(a), local(b)) for a, b, name, *_ in host.calls if name == SYNCHRONIZE],
        gradients=gradients,
        unrecorded=unrecorded,
        contention=contention,
    )
    account.close(local(host.settled()))
    host.calls.clear()
    host.ranges.clear()
    host.segments.clear()


def _store(record: RankRecord, op: Op, start: int, end: int) -> None:
    if op.stream < 0:  # a collective of the host: only its range is seen
        return
    row = (start, end, op.name, op.stream, op.correlation, op.graph_node, op.nbytes, op.scale)
    (record.copies if op.kind == "copy" else record.kernels).append(row)

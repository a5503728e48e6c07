"""The simulator's own account of a job: what each rank did in each iteration, and who waited.

It knows which phase every operation was meant for and never looks at a range. Durations of a rank
are on that rank's own clock, as an exact measurement of its report must give them.
"""

import csv
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path

from tests.forge.engine import Collective, Op
from tests.forge.job import Job
from tests.forge.ownership import (
    EXPOSED,
    PHASES,
    Comm,
    Segment,
    Sync,
    Work,
    device_shares,
    host_shares,
)
from tests.forge.plants import hit_list, tokens
from tests.forge.record import EPOCH_NS, RankClock

Row = dict[str, int | str | None]


@dataclass(frozen=True, slots=True)
class Truth:
    """What a job really did.

    Attributes:
        job: The job.
        clocks: The clock of each rank.
        iterations: A row per rank, iteration and clock (`host`, `gpu`), ns on the rank's clock.
        collectives: A row per collective instance and rank, ns on the rank's clock and in UTC.
    """

    job: Job
    clocks: tuple[RankClock, ...]
    iterations: list[Row]
    collectives: list[Row]

    def middle(self) -> int:
        """True time halfway between the first and the last end of a collective, ns."""
        ends = [int(row["end_utc_ns"] or 0) - EPOCH_NS for row in self.collectives]
        return (min(ends) + max(ends)) // 2 if ends else 0

    def correction(self, rank: int, time: int) -> int:
        """What to add to a rank's own UTC at a true time to get the lowest rank's, ns."""
        return self.clocks[0].utc(time) - self.clocks[rank].utc(time)

    def write(self, folder: Path) -> None:
        """Write `truth.json`, `truth_iterations.csv` and `truth_collectives.csv`; null is empty."""
        job, middle = self.job, self.middle()
        summary = {
            "name": job.name,
            "ranks": job.ranks,
            "iterations": job.iterations,
            "seed": job.seed,
            "gpu": job.gpu,
            "communicators": job.groups(),
            "roles": job.roles,
            "hosts": [job.host_name(rank) for rank in range(job.ranks)],
            "plants": [{**asdict(plant), "hits": hit_list(job, plant)} for plant in job.plants],
            "sequence_lengths": job.lengths
            and {
                **asdict(job.lengths),
                "kind": "rotating",
                "tokens": [
                    [tokens(job.lengths, rank, i, job.seed) for i in range(job.iterations)]
                    for rank in range(job.ranks)
                ],
            },
            "contention": job.contention and asdict(job.contention),
            "middle_utc_ns": EPOCH_NS + middle,
            "clocks": [
                {
                    "rank": rank,
                    "offset_ns": clock.offset_ns,
                    "drift_ppm": clock.drift_ppb / 1000,
                    # As a reader must find them: to be added, at `middle_utc_ns`, and its growth.
                    "correction_ns": self.correction(rank, middle),
                    "correction_ppm": (self.clocks[0].drift_ppb - clock.drift_ppb) / 1000,
                    "session_start_utc_ns": EPOCH_NS + clock.session_start,
                    "believed_session_start_utc_ns": clock.utc_epoch(),
                }
                for rank, clock in enumerate(self.clocks)
            ],
        }
        (folder / "truth.json").write_text(json.dumps(summary, indent=1), encoding="utf-8")
        for name, rows in (("iterations", self.iterations), ("collectives", self.collectives)):
            path = folder / f"truth_{name}.csv"
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]) if rows else [])
                writer.writeheader()
                writer.writerows(rows)


@dataclass(slots=True)
class Account:
    """Keeps one rank's books; an iteration is closed once everything inside its window is known."""

    job: Job
    rank: int
    rows: list[Row] = field(default_factory=list)
    _works: list[Work] = field(default_factory=list)
    _comms: list[Comm] = field(default_factory=list)
    _segments: list[Segment] = field(default_factory=list)
    _syncs: list[Sync] = field(default_factory=list)
    _open: list[tuple[int, tuple[int, int], list[int], dict[str, int]]] = field(
        default_factory=list
    )
    _host_end: int | None = None
    _device_end: int | None = None
    _latest_work: int = -1

    def arrivals(self, ops: Sequence[Op]) -> dict[int, int]:
        """True time at which this rank was ready for each collective, by position in `ops`.

        That is its launch, or the latest end of own work launched before it if that is later, but
        never after the kernel ran. Inside a graph all of it is launched at once: its start.
        """
        arrived = {}
        for i, op in enumerate(ops):
            if op.collective is None:
                self._latest_work = max(self._latest_work, op.end)
            elif op.graph_node is not None:
                arrived[i] = op.start
            else:
                arrived[i] = min(op.start, max(op.api_start, self._latest_work))
        return arrived

    def add(
        self,
        iteration: int,
        span: tuple[int, int],
        *,
        segments: list[Segment],
        works: list[Work],
        comms: list[Comm],
        syncs: list[Sync],
        gradients: list[int],
        unrecorded: int,
        contention: int,
    ) -> None:
        """Take in one iteration: its range, what the host was at, what the device ran.

        `syncs` are the calls in which the host waited for the device, `gradients` the rank's
        arrivals at gradient reductions. All ns on the rank's clock; `contention` is how much longer
        its kernels ran for the collectives beside them.
        """
        self._segments += segments
        begin = span[0] if self._host_end is None else self._host_end
        window = (begin, span[1])
        shares = host_shares(window, self._segments)
        arrivals = [] if self.job.gpu else gradients
        spans = [(s, e) for phase, s, e in self._segments if phase == EXPOSED]
        row = self._row(iteration, "host", window, shares=shares, arrivals=arrivals, exposed=spans)
        if self.job.gpu:  # the waits hide in whatever call blocks first: the host cannot tell
            row[f"{EXPOSED}_ns"] = row["work_ns"] = None
        self.rows.append(row)
        self._host_end = span[1]
        if not self.job.gpu:
            self._segments = [s for s in self._segments if s[2] > span[1]]
            return
        self._works += works
        self._comms += comms
        self._syncs += syncs
        begin = span[0] if self._device_end is None else self._device_end
        self._device_end = max(work[1] for work in works)
        beside = {"unrecorded_ns": unrecorded, "contention_ns": contention}
        self._open.append((iteration, (begin, self._device_end), gradients, beside))

    def close(self, settled: int) -> None:
        """Close the iterations whose window ends by `settled`: later launches cannot reach it."""
        while self._open and self._open[0][1][1] <= settled:
            iteration, window, gradients, beside = self._open.pop(0)
            shares, exposed = device_shares(
                window, self._works, self._comms, self._segments, self._syncs
            )
            row = self._row(
                iteration, "gpu", window, shares=shares, arrivals=gradients, exposed=exposed
            )
            self.rows.append(row | beside)
            end = window[1]
            self._works = [work for work in self._works if work[1] > end]
            self._comms = [comm for comm in self._comms if comm[1] > end]
            self._segments = [segment for segment in self._segments if segment[2] > end]
            self._syncs = [sync for sync in self._syncs if sync[1] > end]

    def _row(
        self,
        iteration: int,
        clock: str,
        window: tuple[int, int],
        *,
        shares: dict[str, int],
        arrivals: list[int],
        exposed: list[tuple[int, int]],
    ) -> Row:
        begin, end = window

        def until(arrival: int) -> int:
            before = sum(max(0, min(e, arrival) - max(s, begin)) for s, e in exposed)
            return arrival - begin - before

        row: Row = {"rank": self.rank, "iteration": iteration, "clock": clock}
        row |= {"window_start_ns": begin, "window_end_ns": end, "iteration_ns": end - begin}
        row |= {f"{phase}_ns": shares[phase] for phase in PHASES}
        if iteration == 0:  # what was loaded before the first range opened is unknown
            row["load_ns"] = None
        row[f"{EXPOSED}_ns"] = shares[EXPOSED]
        row["work_ns"] = end - begin - shares[EXPOSED]
        row["time_to_all_reduce_ns"] = until(arrivals[-1]) if arrivals else None
        row["time_to_first_all_reduce_ns"] = until(arrivals[0]) if arrivals else None
        row["unrecorded_ns"] = row["contention_ns"] = 0
        return row


def collective_rows(
    instance: Collective, arrivals: dict[int, int], clocks: Sequence[RankClock]
) -> list[Row]:
    """A row per member of an instance; waits and transfer are in true time."""
    upto = [*accumulate((arrivals[rank] for rank in instance.members), max)]
    last = upto[-1]
    if instance.op != "rooted":  # in which a member waits for those before it
        upto = [last] * len(upto)
    done = max(op.end for op in instance.ops.values())
    rows: list[Row] = []
    for rank, awaited in zip(instance.members, upto, strict=True):
        op, clock = instance.ops[rank], clocks[rank]
        rows.append(
            {
                "communicator": instance.communicator,
                "op": instance.op,
                "purpose": instance.purpose,
                "iteration": instance.iteration,
                "ordinal": instance.ordinal,
                "bytes": instance.nbytes,
                "rank": rank,
                "launch_ns": clock.local(op.api_start),
                "arrival_ns": clock.local(arrivals[rank]),
                "start_ns": clock.local(op.start),
                "end_ns": clock.local(op.end),
                "arrival_utc_ns": EPOCH_NS + arrivals[rank],
                "start_utc_ns": EPOCH_NS + op.start,
                "end_utc_ns": EPOCH_NS + op.end,
                "wait_ns": awaited - arrivals[rank],
                "transfer_ns": done - last,
            }
        )
    return rows

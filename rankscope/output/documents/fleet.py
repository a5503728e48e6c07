"""The document of `fleet`."""

from typing import Annotated, Literal

from msgspec import Struct

from rankscope.history.fleet import fleet as fleets
from rankscope.history.fleet.sentences import NS_PER_HOUR
from rankscope.model.kinds import VerdictKind
from rankscope.output.documents.common import Answer
from rankscope.output.quantities import moment
from rankscope.util.meaning import says


class FleetRun(Struct, kw_only=True):
    """A run of the fleet."""

    db: Annotated[str, says("the database of the run; runs are in the order of time")]
    start: Annotated[str | None, says("its start, in UTC")]
    start_ns: Annotated[int | None, says("its start in ns since 1970")]
    ranks: Annotated[int, says("its ranks with a report")]
    world_size: Annotated[int | None, says("ranks of the job")]
    iterations: Annotated[int, says("iterations in which the ranks were compared")]
    verdict: Annotated[VerdictKind, says("the class of its verdict")]
    gain_ns: Annotated[int | None, says("the gain of its verdict")]
    software: Annotated[str | None, says("versions of driver, CUDA and NCCL")]


class Hardware(Struct, kw_only=True):
    """A piece of hardware, suspects first."""

    kind: Annotated[Literal["host", "gpu", "nic"], says("what it is")]
    id: Annotated[str, says("name of a host, UUID of a GPU, GUID of an adapter")]
    host: Annotated[str | None, says("the host that it was in last")]
    slot: Annotated[str | None, says("the slot that it was in last; of a host: the suspect slot")]
    name: Annotated[str | None, says("its model")]
    runs: Annotated[int, says("runs in which it was compared")]
    guilty: Annotated[int, says("runs whose verdict names it")]
    rate: Annotated[float, says("rate of guilt, shrunk towards the fleet's")]
    interval: Annotated[tuple[float, float], says("95 % interval of that rate")]
    p: Annotated[float | None, says("corrected probability by chance")]
    cost_ns: Annotated[int, says("time that it cost all ranks")]
    cost_rank_hours: Annotated[float, says("`cost_ns` in hours")]
    cause: Annotated[str | None, says("the phase that cost most")]
    suspect: Annotated[bool, says("whether it is slow beyond chance")]
    trend: Annotated[Literal["worse", "better", "steady"] | None, says("how a suspect changes")]
    since: Annotated[str | None, says("when it began, in UTC")]
    follows: Annotated[
        Literal["card", "slot"] | None, says("what the guilt followed; null where nothing moved")
    ]


class FleetVerdict(Struct, kw_only=True):
    """Which hardware is slow again and again."""

    suspects: Annotated[
        tuple[str, ...], says("the ids of the suspects, the one to check first first")
    ]
    sentence: Annotated[str, says("the answer in words")]
    next: Annotated[str, says("what to check")]


class Fleet(Answer, kw_only=True, tag="rankscope/fleet/1"):
    """Which hardware is slow in run after run; METHOD.md defines the numbers."""

    runs: Annotated[tuple[FleetRun, ...], says("the runs")]
    hardware: Annotated[tuple[Hardware, ...], says("the hardware")]
    verdict: Annotated[FleetVerdict, says("the answer")]


def fleet(answer: fleets.Fleet) -> Fleet:
    """The document of `fleet`."""
    run_fields = {*FleetRun.__struct_fields__} - {"start"}
    hardware_fields = {*Hardware.__struct_fields__} - {"interval", "cost_rank_hours", "since"}
    return Fleet(
        run=None,
        warnings=answer.problems,
        runs=tuple(
            FleetRun(**{name: row[name] for name in run_fields}, start=moment(row["start_ns"]))
            for row in answer.runs.iter_rows(named=True)
        ),
        hardware=tuple(
            Hardware(
                **{name: row[name] for name in hardware_fields},
                interval=(row["low"], row["high"]),
                cost_rank_hours=row["cost_ns"] / NS_PER_HOUR,
                since=moment(row["since_ns"]),
            )
            for row in answer.hardware.iter_rows(named=True)
        ),
        verdict=FleetVerdict(
            suspects=tuple(each.id for each in answer.suspects),
            sentence=answer.sentence,
            next=answer.next,
        ),
    )

"""The answer about a fleet in words."""

from collections.abc import Mapping
from datetime import UTC, datetime

from msgspec import Struct

from rankscope.util.wording import and_more, counted

NAMED = 3
"""Most suspects that the sentence names."""

NS_PER_HOUR = 3_600 * 10**9

UNITS = (("rank-hours", NS_PER_HOUR), ("rank-minutes", 60 * 10**9), ("rank-seconds", 10**9))
"""Units of a cost, the largest first, in ns."""

KINDS = {"host": "host", "gpu": "GPU", "nic": "network adapter"}
"""Kind of hardware → its name for readers."""

CHECKS = {
    "gpu": "compare its clocks, temperature and error counters with a neighbour's "
    "(nvidia-smi -q -d PERFORMANCE,TEMPERATURE,ECC), then run dcgmi diag -r 3",
    "nic": "compare its error counters and bandwidth with another one's (ibstat, ib_write_bw)",
    "host": "compare it with a normal host: CPU clocks and load, memory, storage, fans, and "
    "dcgmi diag -r 3 on its GPUs",
}
"""Kind of hardware → how to check it."""


class Suspect(Struct, frozen=True):
    """A piece of hardware that is slow again and again; the fields are columns of HARDWARE."""

    kind: str
    id: str
    host: str | None
    slot: str | None
    runs: int
    guilty: int
    p: float
    cost_ns: int
    trend: str | None
    since_ns: int | None
    follows: str | None
    cause: str | None


def sentence(
    suspects: tuple[Suspect, ...], runs: int, others: int, pieces: Mapping[str, int]
) -> str:
    """The answer in words.

    Args:
        runs: number of runs that were compared.
        others: number of those in which no rank was judged.
        pieces: kind of hardware → number of its pieces in them.
    """
    hardware = ", ".join(
        counted(pieces[kind], name) for kind, name in KINDS.items() if kind in pieces
    )
    seen = f"in {counted(runs, 'run')}" + (f" on {hardware}" if hardware else "")
    seen += f"; in {others:,} more no rank could be judged" if others else ""
    if not suspects:
        return f"Nobody beyond chance: no hardware is named more often than chance explains {seen}."
    return f"{and_more([*map(_in_words, suspects)], NAMED, '; ')} ({seen})."


def label(suspect: Suspect) -> str:
    """A piece of hardware by its name: `GPU GPU-1f… in host n1`."""
    name = f"{KINDS[suspect.kind]} {suspect.id}"
    if suspect.kind == "host":
        return name + (f", slot {suspect.slot}," if suspect.slot else "")
    return f"{name} in host {suspect.host or 'unknown'}"


def cost_text(cost_ns: int) -> str:
    """A cost in the largest of `UNITS` that it reaches, else in the smallest: `1.5 rank-hours`."""
    name, length = next((each for each in UNITS if cost_ns >= each[1]), UNITS[-1])
    return f"{in_units(cost_ns, length)} {name}"


def in_units(cost_ns: int, length: int) -> str:
    """A cost as a number of units of `length` ns: `0.125`, `12.5`, `1,250`."""
    count = cost_ns / length
    return f"{count:,.0f}" if count >= 100 else f"{count:.3g}"


def _in_words(suspect: Suspect) -> str:
    p = f"{suspect.p:.1g}" if suspect.p >= 1e-4 else "< 0.0001"
    text = (
        f"{label(suspect)} is slow in {suspect.guilty} of {counted(suspect.runs, 'run')}"
        f" (p {p}, cost {cost_text(suspect.cost_ns)} in the profiled iterations)"
    )
    if suspect.since_ns is not None:
        text += f", since {datetime.fromtimestamp(suspect.since_ns / 1e9, UTC):%Y-%m-%d %H:%M} UTC"
    if suspect.trend in ("worse", "better"):
        text += ", getting " + suspect.trend
    if suspect.follows == "card":
        text += ", and the slowness moved with the card"
    elif suspect.follows == "slot":
        text += ", and the slowness stayed with the slot when cards changed"
    return text


def next_step(
    suspects: tuple[Suspect, ...], runs: int, is_any_named: bool, confined: int | None
) -> str:
    """The next step.

    Args:
        is_any_named: whether the verdict of any run names any hardware.
        confined: the rank that the first suspect always had, and hardly any other hardware.
    """
    if not suspects:
        return (
            "profile more runs: a suspect is named in at least three"
            if runs < 3 or is_any_named
            else "nothing to check; add further runs as they come"
        )
    first = suspects[0]
    check = CHECKS[first.kind]
    if first.slot and first.kind == "host":
        check = f"reseat or swap what is in slot {first.slot}, and check its power and risers"
    elif first.cause == "load" and first.kind == "host":
        check = "check its storage and CPUs first: its excess is in loading data"
    text = f"check {label(first).rstrip(',')} first: {check}"
    if confined is not None:
        text += (
            f"; it was always rank {confined}, and other hardware hardly ever was: run that rank "
            "elsewhere once, to tell the hardware from the work of the rank"
        )
    return text

"""The words of a verdict."""

from __future__ import annotations

from rankscope.compare.verdict.temporal import Pattern
from rankscope.compare.warnings import listed


def accusation(
    who: str, several: int, pattern: Pattern, iterations: list[int], count: int,
    cause: str | None, share: float, excess: int, typical: int, inside: str, gain: int | None,
    total: int, metric: str,
) -> str:  # fmt: skip
    """Who is slow, when, by how much, in what, and what fixing it would save."""
    verb, them = ("is", "it") if several == 1 else ("are", "them")
    when = {
        "persistent": f"in {len(iterations)} of {count} iterations",
        "periodic": f"in every {ordinal(pattern.period or 0)} iteration ({listed(iterations)})",
        "transient": f"in {plural(len(iterations), 'iteration')} ({listed(iterations)}) of {count}",
    }[pattern.kind]
    if pattern.since is not None:
        when += f", all since iteration {pattern.since}"
    part = "." if cause is None else f"; {share:.0%} of it in {cause}."
    costs = (
        ""
        if gain is None
        else f" Fixing {them} would save {ms(gain)}, {gain / total:.1%} of the time."
    )
    return (
        f"{who} {verb} slow {when}: {ms(excess)} more {metric} than the median rank, "
        f"{excess / typical:.0%} of the median iteration{part}{inside}{costs}"
    )


def also(rank: int, iterations: list[int], excess: int, cause: str | None) -> str:
    """Another rank that is slow, too, in a short sentence."""
    several = "" if len(iterations) == 1 else "s"
    return (
        f" Also rank {rank} in iteration{several} {listed(iterations)}: {ms(excess)} more"
        f"{'' if cause is None else ', in ' + cause}."
    )


def who(ranks: tuple[int, ...], hosts: dict[int, str | None], slow_hosts: tuple[str, ...]) -> str:
    """`Rank 1 (node0)`, `Ranks 1, 2`, `Host node1 (ranks 4, 5, 6, 7)`."""
    if slow_hosts:
        word = "Host" if len(slow_hosts) == 1 else "Hosts"
        return f"{word} {', '.join(slow_hosts)} (ranks {listed(list(ranks))})"
    if len(ranks) > 1:
        return f"Ranks {listed(list(ranks))}"
    host = hosts.get(ranks[0])
    return f"Rank {ranks[0]}" + ("" if host is None else f" ({host})")


def plural(count: int, one: str, many: str | None = None) -> str:
    """`1 iteration`, `2 iterations`."""
    return f"{count} {one if count == 1 else many or one + 's'}"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `7th`."""
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


def ms(nanoseconds: int) -> str:
    """`12.3 ms` of ns."""
    return f"{nanoseconds / 1e6:.1f} ms"

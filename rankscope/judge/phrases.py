"""Phrases that sentences share: ranks and hosts, iterations, amounts and ordinals."""

from collections.abc import Collection, Iterable, Mapping

from rankscope.model.kinds import VerdictKind
from rankscope.model.metrics import Unit
from rankscope.model.results import Also, Verdict
from rankscope.util.wording import MOST_LISTED, agreeing, counted, listed, ms, ranks_text


def one_host(ranks: Iterable[int], hosts: Mapping[int, str | None]) -> str | None:
    """The host of all the ranks; None if it is unknown, or they are on several."""
    places = {hosts.get(rank) for rank in ranks}
    return places.pop() if len(places) == 1 else None


def all_on(ranks: Collection[int], hosts: Mapping[int, str | None], least: int = 2) -> str:
    """`all on node1`: ranks that are all on one of several hosts; else empty.

    Args:
        ranks: at least `least` ranks, or at least two that are all ranks of a host.
        hosts: of all ranks.
        least: how many.
    """
    host, several = one_host(ranks, hosts), len({*hosts.values()}) > 1
    enough = min(least, max(list(hosts.values()).count(host), 2))
    return f"all on {host}" if host and several and len({*ranks}) >= enough else ""


def whole_hosts(ranks: Collection[int], hosts: Mapping[int, str | None]) -> tuple[str, ...]:
    """The hosts whose ranks, taken together, are exactly `ranks`; none if there are no other hosts.

    A host with a single rank does not count: the rank is named instead.
    """
    names = {hosts.get(rank) for rank in ranks}
    on_them = {rank for rank, host in hosts.items() if host in names}
    if None in names or on_them != {*ranks} or on_them == {*hosts}:
        return ()
    if any(sum(hosts[rank] == name for rank in ranks) < 2 for name in names):
        return ()
    return tuple(sorted(str(name) for name in names))


def who(
    ranks: tuple[int, ...], hosts: Mapping[int, str | None], slow_hosts: tuple[str, ...]
) -> str:
    """`Rank 1 (node0)`, `Ranks 1, 3`, `Host node1 (ranks 4-7)`."""
    if slow_hosts:
        word = agreeing(len(slow_hosts), "Host")
        return f"{word} {', '.join(slow_hosts)} ({ranks_text(ranks, MOST_LISTED)})"
    if len(ranks) > 1:
        return ranks_text(ranks, MOST_LISTED).capitalize()
    host = hosts.get(ranks[0])
    return f"Rank {ranks[0]}" + ("" if host is None else f" ({host})")


def when(verdict: Verdict | Also, count: int, *, of_captures: bool, exactly: bool = True) -> str:
    """When ranks are slow.

    Args:
        verdict: whose ranks.
        count: how many iterations are compared.
        of_captures: whether each capture is one iteration.
        exactly: whether to list the iterations, for which a title has no room.
    """
    hits, spells = verdict.iterations, verdict.spells if isinstance(verdict, Verdict) else ()
    if verdict.since is not None:
        return f"from iteration {verdict.since} on"
    if len(hits) == 1 < count:
        return f"in iteration {hits[0]}"
    if len(spells) == 1:
        return f"from iteration {spells[0][0]} to {spells[0][1]}"
    which = ""
    if verdict.period:
        short, which = f"in every {ordinal(verdict.period)} iteration", listed(hits)
    elif len(hits) == count:  # usually, but not in each of them
        if count == 1:
            return f"in this {'capture' if of_captures else 'step'}"
        return f"over all {counted(count, 'iteration')}" if count > 2 else "in both iterations"
    else:
        short = f"in {len(hits):,} of {counted(count, 'iteration')}"
        if spells:
            which = ", ".join(f"{first} to {last}" for first, last in spells[:4])
            which += ", …" * (len(spells) > 4)
        elif verdict.kind is VerdictKind.TRANSIENT:
            which = listed(hits)
    return f"{short} ({which})" if which and exactly else short


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `7th`."""
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


def amount(value: float, unit: Unit) -> str:
    """A metric's value as a sentence has it: `12.3 ms` of ns, `1,234` of a count, `5 bytes`."""
    if unit is Unit.NS:
        return ms(round(value))
    number = f"{round(value):,}" if float(value).is_integer() else f"{value:,.3g}"
    return number if unit in (Unit.COUNT, Unit.RATIO) else f"{number} {unit}"


def lowered(phrase: str) -> str:
    """`rank 1 (node0)`: inside of a sentence."""
    return phrase[0].lower() + phrase[1:]

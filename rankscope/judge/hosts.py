"""Hosts and their ranks."""

from __future__ import annotations

from collections.abc import Collection


def whole_hosts(ranks: Collection[int], hosts: dict[int, str | None]) -> tuple[str, ...]:
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

"""Who owns each instant of a device's window: the phase of its work, communication, or starving."""

from collections.abc import Sequence

PHASES = ("load", "forward", "backward", "optimizer", "other")
EXPOSED = "exposed_communication"

Work = tuple[int, int, bool, int, str]
"""Non-communication training work: start, end, is a copy, launch, phase it was meant for."""

Comm = tuple[int, int, int, str]
"""A collective on the device: start, end, launch, phase it was launched in."""

Sync = tuple[int, int]
"""A call of a training thread that holds it until the device is done: start, end."""

Segment = tuple[str, int, int]
"""What the main thread was at: phase, start, end."""


def host_shares(window: tuple[int, int], segments: Sequence[Segment]) -> dict[str, int]:
    """Time of each phase on the main thread inside a window, ns; what no segment says is other."""
    begin, end = window
    shares = dict.fromkeys((*PHASES, EXPOSED), 0)
    for phase, start, stop in segments:
        if start < end and stop > begin:
            shares[phase] += min(stop, end) - max(start, begin)
    shares["other"] += end - begin - sum(shares.values())
    return shares


def device_shares(
    window: tuple[int, int],
    works: Sequence[Work],
    comms: Sequence[Comm],
    segments: Sequence[Segment],
    syncs: Sequence[Sync] = (),
) -> tuple[dict[str, int], list[tuple[int, int]]]:
    """Time of each owner inside a window, ns, and the spans of exposed communication.

    Running work owns an instant (kernels before copies, then the earliest launched). Else, where
    the rank waits for a running collective (see `_waits_from`), it is exposed communication. Else
    the device starves: until the next work's launch for whatever the host was at, from then on for
    that work's phase.
    """
    begin, end = window
    shares = dict.fromkeys((*PHASES, EXPOSED), 0)
    exposed: list[tuple[int, int]] = []
    events: list[tuple[int, int, int]] = []
    for i, work in enumerate(works):
        if work[0] < end and work[1] > begin and work[1] > work[0]:
            events += ((max(work[0], begin), 1, i), (min(work[1], end), 0, i))
    for i, comm in enumerate(comms):
        if comm[0] < end and comm[1] > begin and comm[1] > comm[0]:
            events += ((max(comm[0], begin), 1, -1 - i), (min(comm[1], end), 0, -1 - i))
    events.sort(key=lambda event: (event[0], event[1]))
    waits_from = {i: _waits_from(comms[-1 - i][1], works, syncs) for *_, i in events if i < 0}
    running: list[tuple[bool, int, int, str]] = []  # sorts by precedence
    collectives: list[int] = []
    at = begin
    gaps: list[tuple[int, int]] = []
    for time, starts, i in events:
        if time > at:
            if running:
                shares[min(running)[3]] += time - at
            else:
                waits = min((waits_from[c] for c in collectives), default=time)
                waits = min(max(waits, at), time)
                gaps += [(at, waits)] if waits > at else []
                if waits < time:
                    shares[EXPOSED] += time - waits
                    exposed.append((waits, time))
            at = time
        if i < 0:
            collectives.append(i) if starts else collectives.remove(i)
        elif starts:
            running.append((works[i][2], works[i][3], i, works[i][4]))
        else:
            running.remove((works[i][2], works[i][3], i, works[i][4]))
    if at < end:  # nothing follows inside the window: nothing was launched, the host owns it
        gaps.append((at, end))
    for gap in gaps:
        _starve(gap, works, segments, shares)
    return shares, exposed


def _waits_from(done: int, works: Sequence[Work], syncs: Sequence[Sync]) -> int:
    """From when a rank waits for a collective that is done at a time.

    Work that was launched before and starts only afterwards waits for it, and so does a
    synchronising call that returns only afterwards.
    """
    waiting = [launch for start, _, _, launch, _ in works if start >= done]
    waiting += [called for called, returned in syncs if returned >= done]
    return min(waiting, default=done)


def _starve(
    gap: tuple[int, int],
    works: Sequence[Work],
    segments: Sequence[Segment],
    shares: dict[str, int],
) -> None:
    """Add a gap in which a device starves to the shares of those who own it."""
    begin, end = gap
    _, _, launch, phase = min(
        ((start, copy, launch, phase) for start, _, copy, launch, phase in works if start >= end),
        default=(end, False, end, "other"),
    )
    launched = min(max(launch, begin), end)
    shares[phase] += end - launched
    left = launched - begin
    for doing, start, stop in segments if left else ():
        part = min(stop, launched) - max(start, begin)
        if part > 0:
            shares[doing] += part
            left -= part
    shares["other"] += left

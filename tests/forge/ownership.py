"""Who owns each instant of a device's window: the phase of its work, communication, or idling."""

from __future__ import annotations

from collections.abc import Sequence

PHASES = ("load", "forward", "backward", "optimizer", "other")
EXPOSED = "exposed_communication"

Work = tuple[int, int, bool, int, str]
"""Non-communication training work: start, end, is a copy, launch, phase it was meant for."""

Comm = tuple[int, int, int, str]
"""A collective on the device: start, end, launch, phase it was launched in."""

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
) -> tuple[dict[str, int], list[tuple[int, int]]]:
    """Time of each owner inside a window, ns, and the spans of exposed communication.

    Running work owns an instant (kernels before copies, then the earliest launched), else a
    running collective makes it exposed communication, else the device idles: until the next
    operation's launch for whatever the host was at, from then on for that operation's phase.
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
    running: list[tuple[bool, int, int, str]] = []  # sorts by precedence
    collectives = 0
    at = begin
    gaps: list[tuple[int, int]] = []
    for time, starts, i in events:
        if time > at:
            if running:
                shares[min(running)[3]] += time - at
            elif collectives:
                shares[EXPOSED] += time - at
                exposed.append((at, time))
            else:
                gaps.append((at, time))
            at = time
        if i < 0:
            collectives += 1 if starts else -1
        elif starts:
            running.append((works[i][2], works[i][3], i, works[i][4]))
        else:
            running.remove((works[i][2], works[i][3], i, works[i][4]))
    if at < end:  # nothing follows inside the window: nothing was launched, the host owns it
        gaps.append((at, end))
    if gaps:
        _idle(gaps, works, comms, segments, shares)
    return shares, exposed


def _idle(
    gaps: list[tuple[int, int]],
    works: Sequence[Work],
    comms: Sequence[Comm],
    segments: Sequence[Segment],
    shares: dict[str, int],
) -> None:
    """Add the idle gaps of a device to the shares of those who own them."""
    ends = {gap[1] for gap in gaps}
    # Who starts at the end of a gap; work over collectives, and the order of precedence in work.
    nexts = {c[0]: (c[2], c[3]) for c in comms if c[0] in ends}
    for work in sorted((w for w in works if w[0] in ends), key=lambda w: w[2:4], reverse=True):
        nexts[work[0]] = (work[3], work[4])
    first = 0
    for begin, end in gaps:
        launch, phase = nexts.get(end, (end, "other"))
        launched = min(max(launch, begin), end)
        shares[phase] += end - launched
        left = launched - begin
        while left and first < len(segments) and segments[first][2] <= begin:
            first += 1
        for doing, start, stop in segments[first:] if left else ():
            if start >= launched:
                break
            part = min(stop, launched) - max(start, begin)
            shares[doing] += part
            left -= part
        shares["other"] += left

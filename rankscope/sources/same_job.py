"""Whether captures can be of one job: by its size, and by their times."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from rankscope.errors import ForeignRun
from rankscope.util.grouping import grouped
from rankscope.util.numbers import NEVER
from rankscope.util.wording import counted

CLOCK_SLACK_NS = 60 * 10**9
"""Captures of one job overlap in UTC, give or take this much for the hosts' clocks."""

CLOCK_WRONG_NS = 30 * CLOCK_SLACK_NS
"""The same where ranks and size say that they are of one job, but some ranks are missing."""


class Capture(Struct, frozen=True):
    """Facts of a report before it is read; None is unknown."""

    path: Path
    ranks: tuple[int, ...]  # that it claims for itself; empty: unknown
    world_size: int | None
    host: str | None
    start_ns: int | None  # UTC
    duration_ns: int | None

    @property
    def end_ns(self) -> int | None:
        """The end in UTC."""
        known = self.start_ns is not None and self.duration_ns is not None
        return self.start_ns + self.duration_ns if known else None  # type: ignore[operator]


def clock_slack_ns(captures: Sequence[Capture]) -> int:
    """How far (ns) clocks may put captures of one job apart.

    A host's clock may be wrong where each capture is of another rank of a job of one known size: by
    any time where no rank is missing and those of each host were captured together.
    """
    ranks = [each.ranks for each in captures]
    sizes = {each.world_size for each in captures} - {None}
    alone = all(len(each) == 1 for each in ranks) and len({*ranks}) == len(ranks)
    if not alone or len(sizes) != 1:
        return CLOCK_SLACK_NS
    by_host = grouped((each.host, each) for each in captures)
    whole = len(ranks) == sizes.pop() and None not in by_host
    together = all(pause_ns(each) <= CLOCK_SLACK_NS for each in by_host.values())
    return NEVER if whole and together else CLOCK_WRONG_NS


def pause_ns(captures: Iterable[Capture]) -> int:
    """The time (ns) from the first end to the last start; negative: all captures overlap.

    Unknown times do not count. `-NEVER` if no end is known.
    """
    known = [each for each in captures if each.start_ns is not None]
    ends = [end for each in known if (end := each.end_ns) is not None]
    return max(each.start_ns or 0 for each in known) - min(ends) if ends else -NEVER


def check_one_job(captures: Sequence[Capture], hint: str) -> None:
    """Raises `ForeignRun` if captures cannot be of one job.

    Args:
        captures: what is known of each report.
        hint: the advice in the error.
    """
    sizes = [(each.world_size, each.path) for each in captures if each.world_size]
    size, sized = sizes[0] if sizes else (NEVER, None)
    for each in captures:
        rank = max(each.ranks, default=0)
        if each.world_size not in (None, size) or rank >= size:
            other = f"rank {rank}" if rank >= size else f"one of {each.world_size}"
            raise ForeignRun(
                f"{sized} is of a job of {counted(size, 'rank')}, {each.path} of {other}",
                hint=hint,
            )
    apart_ns = pause_ns(captures)
    if apart_ns > clock_slack_ns(captures):
        started = [each for each in captures if each.start_ns is not None]
        ended = [each for each in started if each.end_ns is not None]
        latest = max(started, key=lambda each: each.start_ns or 0)
        earliest = min(ended, key=lambda each: each.end_ns or 0)
        raise ForeignRun(
            f"{latest.path} was captured {apart_ns / 1e9:.0f} s after {earliest.path} had ended",
            hint=hint,
        )

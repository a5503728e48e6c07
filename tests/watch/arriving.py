"""Reports that arrive in a folder, and what a watch announces of them."""

import shutil
from pathlib import Path

from rankscope.model.options import ShapingOptions
from rankscope.watch.watcher import Announcement, Watcher, WatchOptions

Windows = list[list[Path]]
"""The reports of windows."""

RANKS = 3
SLOW = 2
HOUR_NS = 3_600 * 10**9


def arrive(reports: list[Path], folder: Path, prefix: str = "") -> list[Path]:
    """Copies of reports in a folder, with the present time."""
    return [Path(shutil.copyfile(each, folder / f"{prefix}{each.name}")) for each in reports]


def watcher(folder: Path, db: Path, settle_s: float = 0, patience_s: float = 300) -> Watcher:
    return Watcher(folder, db, WatchOptions(ShapingOptions(), 1, settle_s, patience_s))


def announced(watch: Watcher, **options: bool) -> list[Announcement]:
    """What a look announces; it brings no warning."""
    poll = watch.poll(**options)
    assert poll.problems == ()
    for each in poll.announcements:
        watch.announced(each)
    return [*poll.announcements]


def classes(found: list[Announcement]) -> list[tuple[int, str, bool]]:
    """Window, class, and whether it changed."""
    return [(each.window, each.comparison.verdict.kind.value, each.changed) for each in found]

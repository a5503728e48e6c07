"""Random signals to ingests with workers: exit codes, tracebacks, and processes left over.

`python -m tests.bench.kills [COUNT]` sends COUNT (60) signals at random moments, every kind in
turn, to the command alone or to its group, and writes a line per kind into MEASUREMENTS.md.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.bench.tables import put, rows
from tests.cli.test_signals import CODES, GONE_S, await_first_line, family, start
from tests.forge import forge, scene

LATEST_S = 3.0
"""Seconds after its first line until which a command gets its signal."""

KINDS = [(number, to_all) for number in (*CODES, signal.SIGKILL) for to_all in (False, True)]


def wrong(profiles: Path, db: Path, number: int, to_all: bool, after: float) -> str:
    """What is wrong after a signal; empty if nothing is."""
    process = start(profiles, db)
    await_first_line(process)
    time.sleep(after)
    (os.killpg if to_all else os.kill)(process.pid, number)
    _, err = process.communicate(timeout=60)
    limit = time.monotonic() + GONE_S
    while (left := family(db)) and time.monotonic() < limit:
        time.sleep(0.05)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    if left:
        return f"{len(left)} processes left"
    if process.returncode not in (0, CODES.get(signal.Signals(number), -number)):
        return f"exit code {process.returncode}"
    if number != signal.SIGKILL and b"Traceback" in err:
        return "a traceback"
    return ""


def main(count: int) -> None:
    """Send signals and write the table."""
    chance = random.Random(1)
    tried, bad = Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        profiles = Path(folder) / "profiles"
        forge(scene("plain", ranks=8, iterations=12), profiles)
        for kill in range(count):
            number, to_all = KINDS[kill % len(KINDS)]
            name = f"{number.name} to {'its group' if to_all else 'the command'}"
            after = chance.uniform(0, LATEST_S)
            said = wrong(profiles, Path(folder) / f"{kill}.duckdb", number, to_all, after)
            tried[name] += 1
            if said:
                bad[name] += 1
                print(f"{name} after {after:.3f} s: {said}", file=sys.stderr)
    lines = [(name, str(times), str(bad[name])) for name, times in tried.items()]
    put(rows(("signal", "tried", "bad"), lines), "kills")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)

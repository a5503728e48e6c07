"""Memory that nothing uses any more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rankscope.util.memory import give_back

KEPT = 64 * 2**20


def in_use() -> int:
    """Resident memory of this process, bytes."""
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line
    )
    return int(line.split()[1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="only the C library of Linux can")
def test_memory_that_python_let_go_is_given_back() -> None:
    blocks = [b"x" * 100_000 for _ in range(KEPT // 100_000)]  # too small for pages of their own
    last = b"y" * 100_000  # on top of them: the C library keeps what lies below
    blocks.clear()
    before = in_use()
    give_back()
    assert before - in_use() > KEPT // 2
    assert last

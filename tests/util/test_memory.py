"""Memory that nothing uses any more."""

import gc
import sys
import weakref
from pathlib import Path

import pytest

from rankscope.util import memory

KEPT = 64 * 2**20

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives memory back")


@pytest.fixture(autouse=True)
def _as_if_for_the_first_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(memory._after, "bytes", 0)


class Circle:
    """Refers to itself."""

    def __init__(self) -> None:
        self.own = self


def in_use() -> int:
    """Resident memory of this process, bytes."""
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line
    )
    return int(line.split()[1]) * 1024


def test_memory_that_python_let_go_is_given_back() -> None:
    blocks = [b"x" * 100_000 for _ in range(KEPT // 100_000)]  # too small for pages of their own
    last = b"y" * 100_000  # on top of them: the C library keeps what lies below
    blocks.clear()
    before = in_use()
    memory.give_back(0)
    assert before - in_use() > KEPT // 2
    assert last


def test_what_only_refers_to_itself_is_let_go() -> None:
    let_go = weakref.finalize(circle := Circle(), lambda: None)
    del circle
    memory.give_back(0)
    assert not let_go.alive


def test_a_small_process_keeps_its_memory() -> None:
    assert keeps_garbage(2**62)


def test_a_process_that_had_more_and_let_it_go_keeps_the_rest() -> None:
    let_go = b"x" * KEPT
    before = in_use()
    del let_go
    assert keeps_garbage(before - KEPT // 2)


def test_a_process_looks_for_garbage_again_once_it_has_more_than_it_was_left_with() -> None:
    assert not keeps_garbage(KEPT)
    assert keeps_garbage(KEPT)


def test_a_process_that_cannot_read_how_much_it_has_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory, "PAGES", tmp_path)
    memory.give_back(0)


def keeps_garbage(worth_bytes: int) -> bool:
    """Whether what only refers to itself stays where that much memory is worth giving back."""
    gc.disable()
    try:
        let_go = weakref.finalize(circle := Circle(), lambda: None)
        del circle
        memory.give_back(worth_bytes)
        return let_go.alive
    finally:
        gc.enable()

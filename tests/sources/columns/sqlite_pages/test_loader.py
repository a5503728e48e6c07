"""The compiled reader is tested before it is used, and rankscope works whole without it."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import pytest

from rankscope.sources.columns.sqlite_pages import loader, machine_code, self_test
from rankscope.sources.columns.sqlite_pages.layout import UNUSUAL, Bytes, Outputs, Shapes, Target
from rankscope.util.atomic_io import cache_home
from rankscope.util.private import NotPrivate, private_folder
from tests.support import ROOT, MakeForged

NO_LLVM = "import sys; sys.modules.update(numba=None, llvmlite=None)"

INGEST = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
import rankscope
run = rankscope.ingest([sys.argv[1]], sys.argv[2], jobs=1)
print(run.imbalance().verdict)
"""

CALLS_PYTHON = """
declare void @PyErr_Clear()
define i64 @decode(i64* %at, i64* %n) {
  call void @PyErr_Clear()
  ret i64 0
}
"""


@pytest.fixture(autouse=True)
def _loaded_anew() -> Iterator[None]:
    loader.loaded.cache_clear()
    yield
    loader.loaded.cache_clear()


def python(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def kept() -> Path:
    """The file of the machine code in the cache."""
    return cache_home() / "compiled" / f"{machine_code.key()}.o"


def test_the_reader_is_used_and_that_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rankscope.sources"):
        decode = loader.compiled()
        assert decode is not None
        assert loader.compiled() is decode
    assert caplog.messages == ["compiled reader: used"]


def _fail(error: Exception) -> Callable[..., NoReturn]:
    def fail(*_: object, **__: object) -> NoReturn:
        raise error

    return fail


NO_SPACE = OSError(28, "No space left on device")


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda patch: patch.setenv(loader.SWITCH, "0"), "RANKSCOPE_COMPILED is 0"),
        (lambda patch: patch.setattr(sys, "byteorder", "big"), "big-endian"),
        (lambda patch: patch.setattr(loader, "private_folder", _fail(NO_SPACE)), "No space left"),
        (
            lambda patch: patch.setattr(loader, "private_folder", _fail(NotPrivate("a link"))),
            "its cache is not safe: a link",
        ),
        (lambda patch: patch.setattr(self_test, "failure", lambda _: "1 is 2"), "failed: 1 is 2"),
    ],
)
def test_where_it_is_not_used_the_reason_is_logged(
    make: Callable[[pytest.MonkeyPatch], None],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with monkeypatch.context() as patch, caplog.at_level(logging.INFO, "rankscope.sources"):
        make(patch)
        assert loader.compiled() is None
        assert loader.compiled() is None
    [message] = caplog.messages
    assert message.startswith("compiled reader: not used because ")
    assert why in message


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda patch: patch.setitem(sys.modules, "numba", None), "numba cannot be imported"),
        (lambda patch: patch.setattr("numba.config.DISABLE_JIT", 1), "NUMBA_DISABLE_JIT is set"),
        (lambda patch: patch.setattr("numba.cfunc", _fail(RuntimeError("no"))), "be compiled"),
        (
            lambda patch: patch.setattr(machine_code, "compiled", lambda _: CALLS_PYTHON),
            "cannot do without PyErr_Clear",
        ),
    ],
)
def test_where_it_cannot_be_compiled_the_reason_is_logged(
    make: Callable[[pytest.MonkeyPatch], None],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with monkeypatch.context() as patch, caplog.at_level(logging.INFO, "rankscope.sources"):
        make(patch)
        assert loader.compiled() is None
    [message] = caplog.messages
    assert why in message


def test_a_damaged_file_of_machine_code_is_made_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert loader.compiled() is not None
    good = kept().read_bytes()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine_code, "make", lambda: good[32:])
    for content in (good[:-1], b"", b"\0" * len(good), good[32:]):
        loader.loaded.cache_clear()
        private_folder(kept().parent, cache_home())
        kept().write_bytes(content)
        assert loader.compiled() is not None
        assert kept().read_bytes() == good


def test_one_process_compiles_for_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert loader.compiled() is not None
    code = kept().read_bytes()[32:]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made: list[int] = []

    def make() -> bytes:
        made.append(1)
        time.sleep(0.2)
        return code

    monkeypatch.setattr(machine_code, "make", make)
    with ThreadPoolExecutor(4) as threads:  # each has the lock's file open by itself
        waiting = [threads.submit(loader._made_or_kept, compiling=True) for _ in range(4)]
        assert all(each.result() for each in waiting)
    assert len(made) == 1


def test_it_is_compiled_only_for_much_to_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert loader.compiled() is not None
    code = kept().read_bytes()[32:]
    monkeypatch.delenv(loader.SWITCH)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(machine_code, "make", lambda: code)
    for size, used in ((10, False), (999, False), (1000, True), (99, False), (100, True)):
        amount = loader.Amount(worth_bytes=100, worth_compiling_bytes=1000)
        amount.announce(size)
        monkeypatch.setattr(loader, "amount", amount)
        loader.loaded.cache_clear()
        with caplog.at_level(logging.INFO, "rankscope.sources"):
            assert (loader.compiled() is not None) is used
    assert "not compiled yet" in caplog.messages[0]


def test_the_key_depends_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    before = machine_code.key()
    monkeypatch.setattr("llvmlite.binding.get_host_cpu_name", lambda: "another")
    assert machine_code.key() != before


def test_a_mistake_of_our_own_is_no_reason_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_code, "load", _fail(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        loader.compiled()


def test_the_self_test_finds_what_is_wrong() -> None:
    decode = loader.compiled()
    assert decode is not None
    assert self_test.failure(decode) is None

    def one_more(pages: Bytes, outputs: Outputs, shapes: Shapes, target: Target) -> int:
        kept = decode(pages, outputs, shapes, target)
        target.values[0, kept - 1] += 1
        return kept

    assert "other values" in str(self_test.failure(one_more))
    assert "unusual" in str(self_test.failure(lambda *_: UNUSUAL))
    assert "other values" in str(self_test.failure(lambda *given: decode(*given) - 1))


def test_the_self_test_without_a_place_for_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryDirectory", _fail(NO_SPACE))
    assert "no table to test it with" in str(self_test.failure(lambda *_: UNUSUAL))


def test_the_self_test_is_cheap() -> None:
    decode = loader.compiled()
    assert decode is not None
    took = []
    for _ in range(5):
        began = time.process_time()
        self_test.failure(decode)
        took.append(time.process_time() - began)
    assert min(took) < 0.02


@pytest.mark.slow
def test_ingest_without_llvm(forged: MakeForged, tmp_path: Path) -> None:
    folder = forged("planted").folder
    ways = [
        python(code, folder, tmp_path / f"{number}.duckdb")
        for number, code in enumerate([INGEST, NO_LLVM + INGEST])
    ]
    assert ways[0].stdout == ways[1].stdout
    assert "compiled reader: used" in ways[0].stderr
    assert "compiled reader: not used because llvmlite cannot be imported" in ways[1].stderr


@pytest.mark.slow
def test_no_access_is_out_of_bounds() -> None:
    """The tests of damaged files, with a reader that numba compiled with bounds checks.

    Such an access raises IndexError there; see DESIGN.md.
    """
    tests = ["test_pages.py", "test_records.py"]
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider"),
            *(str(Path(__file__).with_name(name)) for name in tests),
            *("-k", "damage or known_header or share_their_bytes or anything or any_length"),
        ],
        cwd=ROOT,
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "100%" in done.stdout

"""The compiled reader is tested before it is used, and rankscope works whole without it."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from rankscope.sources.columns.sqlite_pages import loader, records, self_test
from tests.support import ROOT, Forged

NO_NUMBA = "import sys; sys.modules.update(numba=None, llvmlite=None)"

INGEST = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
from rankscope.sources.columns.sqlite_pages import loader
loader.WORTH_BYTES = 0
import rankscope
run = rankscope.ingest([sys.argv[1]], sys.argv[2], jobs=1)
print(run.imbalance().verdict)
"""

OWN_CACHE = """
import numba
before = numba.config.CACHE_DIR
from rankscope.sources.columns.sqlite_pages import loader
loader.WORTH_BYTES = 0
assert loader.compiled() is not None
assert numba.config.CACHE_DIR == before
print(loader.compiled().decode._cache.cache_path)
"""


@pytest.fixture(autouse=True)
def _loaded_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(loader, "WORTH_BYTES", 0)
    loader._loaded.cache_clear()
    yield
    loader._loaded.cache_clear()


def python(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_reader_is_used_and_that_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rankscope.sources"):
        assert loader.compiled() is records
        assert loader.compiled() is records
    assert caplog.messages == ["compiled reader: used"]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda patch: patch.setenv(loader.SWITCH, "0"), "RANKSCOPE_COMPILED is 0"),
        (lambda patch: patch.setitem(sys.modules, "numba", None), "numba cannot be imported"),
        (lambda patch: patch.setattr("numba.config.DISABLE_JIT", 1), "NUMBA_DISABLE_JIT is set"),
        (lambda patch: patch.setattr(sys, "byteorder", "big"), "big-endian"),
        (lambda patch: patch.setattr(loader, "import_module", _raise(OSError(28))), "its cache in"),
        (
            lambda patch: patch.setattr(loader, "import_module", _raise(EOFError("cut"))),
            "its cache in",
        ),
        (
            lambda patch: patch.setattr(loader, "import_module", _raise(RuntimeError("no"))),
            "cannot be compiled",
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


def _raise(error: Exception) -> Callable[[str], None]:
    def fail(_: str) -> None:
        raise error

    return fail


def test_a_mistake_of_our_own_is_no_reason_to_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "import_module", _raise(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        loader.compiled()


def changed(**functions: object) -> SimpleNamespace:
    """The compiled module with some functions of its own replaced."""
    return SimpleNamespace(**{**vars(records), **functions})


def test_the_self_test_finds_what_is_wrong() -> None:
    assert self_test.failure(records) is None

    def one_more(pages: object, outputs: object, shapes: object, target: records.Target) -> int:
        kept = records.decode(pages, outputs, shapes, target)
        target.values[0, kept - 1] += 1
        return int(kept)

    assert "other values" in str(self_test.failure(changed(decode=one_more)))
    assert "unusual" in str(self_test.failure(changed(decode=lambda *_: records.UNUSUAL)))
    fewer = changed(decode=lambda *given: records.decode(*given) - 1)
    assert "other values" in str(self_test.failure(fewer))


def test_the_self_test_without_a_place_for_its_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.TemporaryDirectory", _raise_os)
    assert "no table to test it with" in str(self_test.failure(records))


def _raise_os(**_: object) -> None:
    raise OSError(28, "No space left on device")


def test_the_self_test_is_cheap() -> None:
    self_test.failure(records)
    took = []
    for _ in range(5):
        began = time.process_time()
        self_test.failure(records)
        took.append(time.process_time() - began)
    assert min(took) < 0.02


@pytest.mark.slow
@pytest.mark.parametrize("given", [True, False])
def test_the_cache_of_other_functions_stays_where_it_is(tmp_path: Path, given: bool) -> None:
    """Ours is in rankscope's folder, unless the user names one for all functions."""
    own = {"NUMBA_CACHE_DIR": str(tmp_path / "user")} if given else {"NUMBA_CACHE_DIR": ""}
    done = python(OWN_CACHE, XDG_CACHE_HOME=str(tmp_path / "home"), **own)
    folder = tmp_path / "user" if given else tmp_path / "home" / "rankscope" / "compiled"
    assert Path(done.stdout.strip()).is_relative_to(folder)
    assert [*folder.rglob("*.nbi")]


@pytest.mark.slow
def test_ingest_without_numba(forged: Callable[..., Forged], tmp_path: Path) -> None:
    folder = forged("planted").folder
    ways = [
        python(code, folder, tmp_path / f"{number}.duckdb")
        for number, code in enumerate([INGEST, NO_NUMBA + INGEST])
    ]
    assert ways[0].stdout == ways[1].stdout
    assert "compiled reader: used" in ways[0].stderr
    assert "compiled reader: not used because numba cannot be imported" in ways[1].stderr


@pytest.mark.slow
def test_no_access_is_out_of_bounds(tmp_path: Path) -> None:
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
        env={**os.environ, "NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "100%" in done.stdout

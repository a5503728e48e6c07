"""What a person sees in a terminal of some width."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from tests.support import MakeStored, Stored, mostly_slow, python

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
SCREEN = 40
"""Lines of a usual screen."""


def seen(width: int, *arguments: object, height: int = SCREEN, **environment: str) -> list[str]:
    """The lines that a command writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "rankscope", *map(str, arguments)],
        stdout=theirs,
        stderr=theirs,
        env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm",
             **environment},
    )  # fmt: skip
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # how a closed terminal ends on Linux
            break
        if not part:
            break
        said += part
    os.close(ours)
    assert process.wait() == 0
    return said.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "by"), mostly_slow([(80, "rank"), (60, "rank"), (100, "rank"), (80, "collective")])
)
def test_it_fits(sample: Stored, width: int, by: str) -> None:
    lines = seen(width, "imbalance", "--by", by, "--db", sample.db)
    plain = [ESCAPE.sub("", line) for line in lines]
    assert plain[0].startswith("Rank 2 (node1)"), "the verdict comes first"
    assert max(map(len, plain)) <= width
    assert lines[0].startswith("\x1b[1m")
    if by == "rank":
        head = next(line.split() for line in plain if line.startswith("rank "))
        assert {"rank", "host", "work", "load", "wait", "last", "cost"} <= {*head}
        assert ("backward" in head) == (width > 60), "the verdict tells of rank 1 in backward"
        assert any("columns that do not fit:" in line for line in plain) == (width < 100)


@pytest.mark.slow
@pytest.mark.parametrize(("width", "height"), [(80, 24), (60, 24), (100, 40), (120, 40)])
def test_a_large_job_fits_a_screen(stored: MakeStored, width: int, height: int) -> None:
    job = stored("planted", where="forward", ranks=24)
    shown = seen(width, "imbalance", "--db", job.db, height=height)
    lines = [ESCAPE.sub("", line) for line in shown]
    assert len(lines) < height, "the prompt stands below them"
    assert lines[0].startswith("Rank 23 ")
    assert lines[-1].endswith("explain WORD")
    head = next(line.split() for line in lines if line.startswith("rank "))
    assert {"rank", "host", "work", "forward", "wait", "last", "cost"} <= {*head}
    rows = [line.split()[0] for line in lines if re.match(r" +\d+ +node", line)]
    assert len(rows) == 8 if height > 24 else 3 <= len(rows) < 8
    assert rows[0] == "23", "the planted rank"
    assert any(line.startswith(f"… {24 - len(rows)} more: --all") for line in lines)
    whole = [ESCAPE.sub("", line) for line in seen(width, "imbalance", "--all", "--db", job.db)]
    assert len([line for line in whole if re.match(r" +\d+ +node", line)]) == 24
    assert "last: share of its collectives" in " ".join(whole), "what the columns mean"


@pytest.mark.slow
def test_a_wide_terminal_shows_all_columns(sample: Stored) -> None:
    lines = seen(200, "imbalance", "--db", sample.db, NO_COLOR="1")
    assert not any("\x1b" in line or "do not fit" in line for line in lines)
    (row,) = [line for line in lines if re.match(r" +2 +node1", line)]
    assert len(row.split()) == 13  # "28 %" and "610.4 ms" are two


@pytest.mark.slow
def test_progress_is_one_line_on_a_narrow_terminal(sample: Stored) -> None:
    lines = seen(60, "check", sample.folder)
    assert not [
        line for line in lines if ESCAPE.sub("", line).strip() in ("MB", "B", "kB", "bytes")
    ]
    assert any("1.6/1.6 MB" in line for line in lines)


@pytest.mark.slow
def test_of_many_rows_those_that_tell_most(sample: Stored) -> None:
    command = ("imbalance", "--by", "iteration", "--db", sample.db)
    cut = [line.split() for line in seen(80, *command)]
    assert ["…", "9", "more:", "--all"] in cut
    numbers = [words[0] for words in cut if words and words[0].isdigit()]
    assert {"2", "7", "12", "17", "18", "22", "27"} <= {*numbers}, "the flagged ones stay"
    assert not any("more:" in line for line in seen(80, *command, "--all"))


@pytest.mark.slow
def test_piped_it_is_plain_and_as_short(sample: Stored, tmp_path: Path) -> None:
    words = ("imbalance", "--by", "iteration", "--db", sample.db)
    narrow = {**os.environ, "COLUMNS": "40"}
    done = python("-m", "rankscope", *words, cwd=tmp_path, check=True, env=narrow)
    assert "\x1b" not in done.out
    assert "9 more: --all" in done.out, "as on a terminal"
    sentence = sample.run.imbalance().verdict.sentence
    assert done.out.splitlines()[0] == sentence, "sentences are not folded"

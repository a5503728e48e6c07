"""Feed rankscope spoiled reports: `python -m tests.bench.fuzz [COUNT [FIRST]]`, 300 by default.

Every one must get a clear answer: exit code 0, or 3 with one line of error and one of hint; no
traceback, no more than 20 s, no more than 1 GB of memory. Prints a JSON object for each that got
none, and exits with 1 if there was one.
"""

import contextlib
import faulthandler
import io
import json
import resource
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rankscope_cli.main import main

from tests.bench.mutants import FORMATS, mutant
from tests.forge import forge, scene

LONGEST_S = 20
"""Of processor time; a busy machine may take longer."""

STUCK_S = 120
"""Of the clock on the wall: then the mutant is named and all ends."""

MOST_MEMORY = 10**9
AS_LIMIT = 16 * 10**9
"""Of address space, which engines reserve far more of than they use."""


def answer(*arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command line."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(argument) for argument in arguments])
            code = 0
        except SystemExit as stopped:
            code = int(stopped.code or 0)
    return code, out.getvalue(), err.getvalue()


def complaint(code: int, err: str, failures: tuple[int, ...] = (3,)) -> str | None:
    """What is wrong with an answer."""
    lines = err.splitlines()
    errors = [line for line in lines if line.startswith("rankscope: error: ")]
    hints = [line for line in lines if line.startswith("hint: ")]
    if "Traceback" in err or "panicked" in err:
        return "traceback"
    if any(char in err for char in "\x1b\x07\x00"):
        return "control characters"
    if code == 0 and not errors:
        return None
    if code not in failures:
        return f"exit code {code}"
    return None if (len(errors), len(hints)) == (1, 1) else "not one line of error and one of hint"


@contextlib.contextmanager
def named(mutant: str) -> Iterator[None]:
    """Say which mutant is tried, and end all of this process where it takes too long."""
    faulthandler.dump_traceback_later(STUCK_S, exit=True)
    print(mutant, file=sys.stderr, flush=True)
    yield
    faulthandler.cancel_dump_traceback_later()


def run(count: int, first: int) -> int:
    """Try `count` mutants of each format in turn; how many got no clear answer."""
    resource.setrlimit(resource.RLIMIT_AS, (AS_LIMIT, AS_LIMIT))
    outcomes: Counter[str] = Counter()
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        forge(scene("plain", ranks=1, iterations=6), base / "whole")
        [source] = (base / "whole").glob("*.sqlite")
        for number in range(first, first + count):
            kind = FORMATS[number % len(FORMATS)]
            folder = base / str(number)
            folder.mkdir()
            path, done = mutant(source, kind, number, folder)
            begin = time.process_time()
            db = folder / "run.duckdb"
            with named(done):
                code, _, err = answer("ingest", path, "--db", db, "--jobs", 1)
                why = complaint(code, err)
                if code == 0 and why is None:
                    code, _, err = answer("imbalance", "--db", db, "--format", "json")
                    why = complaint(code, err)
            outcomes[f"exit {code}"] += 1
            if why is not None:
                bad += 1
                print(json.dumps({"mutant": done, "why": why, "stderr": err[-2000:]}), flush=True)
            outcomes["longest ms"] = max(
                outcomes["longest ms"], round(1000 * (time.process_time() - begin))
            )
    # not ru_maxrss: that begins with the memory of the process that started this one
    memory = 1024 * int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
    print(json.dumps({**outcomes, "bad": bad, "memory_MB": memory // 10**6}))
    return bad + (memory > MOST_MEMORY) + (outcomes["longest ms"] > 1000 * LONGEST_S)


if __name__ == "__main__":
    given = [int(argument) for argument in sys.argv[1:]]
    sys.exit(run(*(given + [300, 0][len(given) :])) > 0)

"""What a command costs: time, processor time and memory of all its processes (Linux)."""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
EVERY_S = 0.05
TICK = os.sysconf("SC_CLK_TCK")
SESSION, USER, SYSTEM = 3, 11, 12
"""Fields of /proc/PID/stat behind the name: whose session, ticks in the program and for it."""


class Failed(Exception):
    """A command ended with an error; the message is the end of what it said."""


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run of a command took.

    Attributes:
        seconds: From its start to its end.
        cpu_s: Of all its processes together, as last seen while they ran.
        peak_bytes: The most that one of its processes held.
        output: What it wrote to stdout.
    """

    seconds: float
    cpu_s: float
    peak_bytes: int
    output: str


def settle(inputs: Iterable[Path]) -> None:
    """Have all that was written on disk, and inputs, files and folders, in the file cache."""
    os.sync()
    for given in inputs:
        for path in given.rglob("*") if given.is_dir() else [given]:
            if path.is_file():
                with path.open("rb", buffering=0) as file:
                    while file.read(2**24):
                        pass


def cost(command: Sequence[str], environment: Mapping[str, str]) -> Cost:
    """Run a command in the checkout, and tell what it took; raises `Failed` where it fails."""
    seen: dict[int, tuple[float, int]] = {}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=errors,
            cwd=ROOT,
            # an installed program is compiled once, not in each process
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment},
            start_new_session=True,
        )
        while True:
            _look(process.pid, seen)
            try:
                process.wait(EVERY_S)
                break
            except subprocess.TimeoutExpired:
                continue
        seconds = time.perf_counter() - began
        for file in (out, errors):
            file.seek(0)
        said, output = errors.read(), out.read()
    if process.returncode:
        raise Failed((said or output).strip()[-400:] or f"exit code {process.returncode}")
    return Cost(
        seconds,
        sum(cpu for cpu, _ in seen.values()),
        max((peak for _, peak in seen.values()), default=0),
        output,
    )


def _look(session: int, seen: dict[int, tuple[float, int]]) -> None:
    """Note what each process of the session has used up to now."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()
            if int(fields[SESSION]) != session:
                continue
            status = Path(f"/proc/{name}/status").read_text()
        except (OSError, IndexError):  # it has ended meanwhile
            continue
        peak = status.partition("VmHWM:")[2].split(maxsplit=1)
        if peak:  # one that has ended, but was not waited for, has no memory
            cpu = (int(fields[USER]) + int(fields[SYSTEM])) / TICK
            seen[int(name)] = (cpu, int(peak[0]) * 1024)


def machine() -> str:
    """The machine in words: cores of this process, processor, memory."""
    cores = len(os.sched_getaffinity(0))
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    return f"{cores} cores ({models[0] if models else 'unknown'}), {memory:.0f} GiB"

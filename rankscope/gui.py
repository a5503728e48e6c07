"""Picked reports → in front of the user: copied, put on one timeline, opened in the GUI."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rankscope.compare.picks import Picks
from rankscope.errors import ToolError, UsageError
from rankscope.output.nsys_view import view_document
from rankscope.util.atomic_io import write_whole

FIRST_WITH_VIEWS = 2023
"""The 2022.4 GUI hangs on a view document on its command line; 2023.4 opens it."""

FIRST_SECONDS = 3
"""A GUI that is still there after this is taken to be starting."""

_STARTED: list[subprocess.Popen[bytes]] = []
"""GUIs left running: Python complains of forgetting a process that runs."""

VERSION = re.compile(r"\b(20\d\d)\.\d")
LAUNCHER_BYTES = 2**16


def copy_reports(picks: Picks, folder: Path) -> tuple[Path, ...]:
    """Copies of the picked reports in `folder`, which is made; names that clash get the rank.

    Raises:
        ToolError: there is no room, or no permission.
    """
    names = [file.name for file in picks.files]
    copies: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in picks.files:
            rank = next(each.rank for each in picks.picks if each.file == file)
            name = file.name if names.count(file.name) == 1 else f"rank_{rank}_{file.name}"
            target = folder / name
            if not (target.exists() and target.samefile(file)):
                partial = folder / f"{name}.partial"
                try:
                    shutil.copyfile(file, partial)
                    os.replace(partial, target)
                finally:
                    partial.unlink(missing_ok=True)
            copies.append(target)
    except OSError as error:
        raise ToolError(
            f"{folder}: reports cannot be copied there ({error.strerror})",
            hint="name another folder with --copy-to; it needs room for all picked reports",
        ) from error
    return tuple(copies)


def write_view(files: Sequence[Path], target: Path) -> None:
    """Write the document that puts `files` on one timeline.

    Raises:
        UsageError: a name that the GUI would not take, or a folder that cannot be written to.
    """
    if target.suffix != ".nsys-view":
        raise UsageError(
            f"--view {target}: the GUI opens only files that end in .nsys-view",
            hint=f"--view {target.with_suffix('.nsys-view')}",
        )
    write_whole(target, view_document(files, target.parent).encode())


def open_gui(files: Sequence[Path]) -> str:
    """Start the GUI with reports or a view document, and leave it running.

    Returns:
        What became of it, in words.

    Raises:
        ToolError: there is no GUI, no display for it, or it fails at once.
    """
    command = [_gui(), *map(str, files)]
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise ToolError(
            "--open: there is no display for the GUI",
            hint="--copy-to DIR gathers the reports to open them on your own machine",
        )
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        code = process.wait(FIRST_SECONDS)
    except subprocess.TimeoutExpired:
        _STARTED.append(process)
        return "the GUI is starting"
    except OSError as error:
        raise ToolError(
            f"{command[0]}: cannot be started ({error.strerror})",
            hint="set RANKSCOPE_NSYS_UI to the GUI's command",
        ) from error
    if code:
        raise ToolError(
            f"{command[0]}: ended at once with exit code {code}",
            hint="run it by hand to see why; --copy-to DIR gathers the reports to open elsewhere",
        )
    return "the GUI ended at once: one that runs already takes over the reports of every start"


def gui_takes_views() -> bool:
    """Whether the GUI opens a view document from its command line; False where none is here.

    Its version stands in the path of the launcher or in its text; failing both it is that of the
    nsys on PATH.
    """
    found = shutil.which(_gui_name())
    if found is None:
        return False
    launcher = Path(found).resolve()
    text = str(launcher)
    try:
        text += launcher.read_bytes()[:LAUNCHER_BYTES].decode("utf-8", "replace")
        if not VERSION.search(text):
            said = subprocess.run(
                ["nsys", "--version"], capture_output=True, text=True, check=False
            )
            text = said.stdout
    except OSError:
        pass
    year = VERSION.search(text)
    return year is not None and int(year[1]) >= FIRST_WITH_VIEWS


def _gui_name() -> str:
    return os.environ.get("RANKSCOPE_NSYS_UI", "nsys-ui")


def _gui() -> str:
    found = shutil.which(_gui_name())
    if found is None:
        raise ToolError(
            f"{_gui_name()}: not found, and it is the GUI",
            hint="set RANKSCOPE_NSYS_UI to its command, or use --copy-to and open it elsewhere",
        )
    return found

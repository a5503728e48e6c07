"""Picked reports in the Nsight Systems GUI: copied, put on one timeline, opened."""

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
"""First year of a GUI that opens a view document from its command line; 2022.4 hangs on it."""

FIRST_SECONDS = 3
"""A GUI that still runs after this time (s) has started."""

STARTED: list[subprocess.Popen[bytes]] = []
"""GUIs that are running; without a reference Python warns about them."""

VERSION = re.compile(r"\b(20\d\d)\.\d")
"""A version of Nsight Systems; the group is the year."""

LAUNCHER_BYTES = 2**16
"""Number of bytes of the launcher in which a version is searched."""


def copy_reports(picks: Picks, folder: Path) -> tuple[Path, ...]:
    """Copy the picked reports into a folder.

    Returns:
        The copies. Copies of reports with the same name have the rank in front of it.

    Raises:
        ToolError: there is not enough space, or no permission.
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
            f"{folder}: cannot copy reports to this folder ({error.strerror})",
            hint="name another folder with --copy-to; it needs space for all picked reports",
        ) from error
    return tuple(copies)


def write_view(files: Sequence[Path], target: Path) -> None:
    """Write the document that shows `files` on one timeline.

    Raises:
        UsageError: the GUI does not open files of this name, or the folder cannot be written to.
    """
    if target.suffix != ".nsys-view":
        raise UsageError(
            f"--view {target}: the name of a view document must end in .nsys-view",
            hint=f"--view {target.with_suffix('.nsys-view') if target.name else 'picks.nsys-view'}",
        )
    write_whole(target, view_document(files, target.parent).encode())


def open_gui(files: Sequence[Path]) -> str:
    """Start the GUI with reports or a view document, and leave it running.

    Returns:
        The result as a clause: `the GUI is starting`.

    Raises:
        ToolError: there is no GUI or no display, or the GUI fails at once.
    """
    command = [_gui(), *(str(file.absolute()) for file in files)]  # no name is an option
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        raise ToolError(
            "--open: there is no display for the GUI",
            hint="use --copy-to DIR, and open the reports on another machine",
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
        STARTED.append(process)
        return "the GUI is starting"
    except OSError as error:
        raise ToolError(
            f"{command[0]}: cannot be started ({error.strerror})",
            hint="set RANKSCOPE_NSYS_UI to the GUI's command",
        ) from error
    if code:
        raise ToolError(
            f"{command[0]}: ended at once with exit code {code}",
            hint="run it by hand to see why, or use --copy-to DIR and another machine",
        )
    return "the GUI process ended at once: a GUI that already runs has opened the reports"


def gui_takes_views() -> bool:
    """Whether the GUI opens a view document from its command line; False if there is no GUI.

    The version is found in the path or the text of the launcher, else it is that of the nsys on
    the PATH.
    """
    launcher_path = shutil.which(_gui_name())
    if launcher_path is None:
        return False
    launcher = Path(launcher_path).resolve()
    text = str(launcher)
    try:
        text += launcher.read_bytes()[:LAUNCHER_BYTES].decode("utf-8", "replace")
        if not VERSION.search(text):
            answer = subprocess.run(
                ["nsys", "--version"], capture_output=True, text=True, check=False
            )
            text = answer.stdout
    except OSError:
        pass
    year = VERSION.search(text)
    return year is not None and int(year[1]) >= FIRST_WITH_VIEWS


def _gui_name() -> str:
    return os.environ.get("RANKSCOPE_NSYS_UI", "nsys-ui")


def _gui() -> str:
    path = shutil.which(_gui_name())
    if path is None:
        raise ToolError(
            f"{_gui_name()}: the GUI is not found",
            hint="set RANKSCOPE_NSYS_UI to its command, or use --copy-to DIR and another machine",
        )
    return path

"""The multi-report document of the Nsight Systems GUI, and shell lines that open reports."""

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

VERSION = "1.0"
"""Version of the format of view documents."""

LONGEST_COMMAND = 20_000
"""Most characters of a shell line that is shown: one that is cut is useless."""


def view_document(files: Sequence[Path], folder: Path) -> str:
    """A `.nsys-view` document, which shows reports on one timeline.

    Args:
        files: the reports. The first one determines the time axis.
        folder: the folder of the document; its paths are relative to it.
    """
    names = [os.path.relpath(file.resolve(), folder.resolve()) for file in files]
    return json.dumps({"extension": "nsys-view", "files": names, "version": VERSION})


def open_command(files: Sequence[Path]) -> str:
    """The shell line that opens reports, each in a tab, or a view document."""
    names = map(str, files)  # a name that begins with "-" would be an option
    return shlex.join(["nsys-ui", *(f"./{name}" if name[:1] == "-" else name for name in names)])


def rsync_command(folder: Path, host: str) -> str:
    """The shell line that copies a folder to the machine where the GUI runs."""
    # -s: the other shell does not read the path; ./: a name is never an option or a host
    return shlex.join(["rsync", "-avs", f"{host}:{folder.resolve()}/", f"./{folder.name}/"])

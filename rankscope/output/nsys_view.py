"""The multi-report document of the Nsight Systems GUI, and the commands that open reports."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path

VERSION = "1.0"


def view_document(files: Sequence[Path], beside: Path) -> str:
    """A `.nsys-view`: reports on one timeline, by paths relative to the document.

    Args:
        files: the reports; the time axis is the first one's.
        beside: the folder that the document goes into.
    """
    names = [os.path.relpath(file.resolve(), beside.resolve()) for file in files]
    return json.dumps({"extension": "nsys-view", "files": names, "version": VERSION})


def open_command(files: Sequence[Path]) -> str:
    """The shell line that opens reports (several of them as tabs) or a view document."""
    return shlex.join(["nsys-ui", *map(str, files)])


def rsync_command(folder: Path, host: str) -> str:
    """The shell line that fetches a folder to where the GUI runs."""
    return shlex.join(["rsync", "-av", f"{host}:{folder.resolve()}/", f"{folder.name}/"])

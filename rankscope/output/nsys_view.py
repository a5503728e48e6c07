"""The multi-report document of the Nsight Systems GUI, and shell lines."""

import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from rankscope.match.selection import range_text
from rankscope.output.quantities import short_path
from rankscope.util.atomic_io import DEFAULT_DB

COMMAND = re.compile(r"\brankscope (?:imbalance|pick-reports)\b")
"""A command of rankscope that the advice of a verdict names."""

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


def with_options(advice: str, db: Path, iter_range: slice | None) -> str:
    """Advice in which commands of rankscope name the database and the iterations.

    The database is left out if it is the default.
    """
    options = ""
    if str(db) != os.environ.get("RANKSCOPE_DB", DEFAULT_DB):
        options += f" --db {shlex.quote(short_path(db))}"
    if iter_range is not None:
        options += f" --iter-range {range_text(iter_range)}"
    return COMMAND.sub(lambda match: match[0] + options, advice)


def rsync_command(folder: Path, host: str) -> str:
    """The shell line that copies a folder to the machine where the GUI runs."""
    # -s: the other shell does not read the path; ./: a name is never an option or a host
    return shlex.join(["rsync", "-avs", f"{host}:{folder.resolve()}/", f"./{folder.name}/"])

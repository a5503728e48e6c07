"""cli/REFERENCE.md: the `--help` of every command.

`python -m tests.reference` writes the file, `python -m tests.readme` writes it and the README's
console blocks. A test compares the file with the commands.
"""

import contextlib
import io
import os
from pathlib import Path

from rankscope_cli.main import COMMANDS, main

FILE = Path(__file__).resolve().parent.parent / "cli" / "REFERENCE.md"

HEAD = """# Commands

What `rankscope COMMAND --help` says (written by `python -m tests.readme`).
"""


def help_of(*arguments: str) -> str:
    """A page of help, 80 columns wide."""
    said, before = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = "80"
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            main([*arguments, "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if before is not None:
            os.environ["COLUMNS"] = before
    return "\n".join(line.rstrip() for line in said.getvalue().strip().splitlines())


def reference() -> str:
    """The whole page."""
    pages = [("rankscope", help_of())]
    pages += [(f"rankscope {name}", help_of(name)) for name in COMMANDS]
    return "\n".join([HEAD, *(f"## {name}\n\n```text\n{page}\n```\n" for name, page in pages)])


if __name__ == "__main__":
    FILE.write_text(reference(), "utf-8")

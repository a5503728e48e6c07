"""The README's console blocks: what stands there is what the commands print.

`python -m tests.readme` writes them anew, and the reference of commands; tests compare them.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]*)\n(?P<output>.*?)```", re.DOTALL)


def filled(text: str) -> str:
    """`text` with the output of every console block replaced by what its command prints now."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "sample_reports", Path(folder) / "sample_reports")

        def run(block: re.Match[str]) -> str:
            return f"```console\n$ {block['command']}\n{_output(block['command'], folder)}```"

        return BLOCK.sub(run, text)


def steady(text: str) -> str:
    """`text` without the seconds that a command took."""
    return re.sub(r"in \d+\.\d s", "in N s", text)


def _output(command: str, folder: str) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        shell=True,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [line.rstrip() for line in done.stdout.rstrip().splitlines()]
    return "\n".join(lines).replace(f"{folder}/", "") + "\n"


if __name__ == "__main__":
    from tests import reference

    reference.FILE.write_text(reference.reference(), "utf-8")
    readme = ROOT / "README.md"
    readme.write_text(filled(readme.read_text("utf-8")), "utf-8")

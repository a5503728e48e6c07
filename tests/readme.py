"""The console blocks of the README and the documents: they show what the commands print.

`python -m tests.readme` writes them, the JSON Schema and the keys of JSON in CONTRACT.md, and the
reference of commands; tests compare them.
"""

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path

from rankscope_cli.main import main

from rankscope.output import explain

ROOT = Path(__file__).resolve().parent.parent

README = ROOT / "README.md"

PAGES = (README, *sorted((ROOT / "rankscope" / "docs").glob("*.md")))
"""Pages whose console blocks are executed."""

BLOCK = re.compile(r"```console\n\$ (?P<command>[^\n]*)\n(?P<output>.*?)```", re.DOTALL)
"""A console block: a command, and what it prints."""

KEYS = re.compile(r"(?<=output/documents/ -->\n\n).*?(?=\n\n<!-- end of the keys -->)", re.DOTALL)
"""The keys of JSON."""

SETUP = "rankscope ingest sample_reports/ddp_4ranks --quiet"
"""Every page starts with the database of the sample."""


def tabulated(text: str) -> str:
    """`text` with the current keys of JSON, if it has them."""
    return KEYS.sub(lambda _: keys(), text)


def keys() -> str:
    """The keys of the documents in JSON, a section for each."""
    parts = []
    for of, what, entries in explain.documents():
        rows = [f"| `{each.term}` | {each.markdown.rstrip('.')} |" for each in entries]
        parts.append(
            "\n".join([f"### {of}", "", what, "", "| key | meaning |", "|---|---|", *rows])
        )
    return "\n\n".join(parts)


def filled(text: str) -> str:
    """`text` with the current output of every console block; blocks that agree stay as they are."""
    if not BLOCK.search(text):
        return text
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(ROOT / "sample_reports", Path(folder) / "sample_reports")
        if f"$ {SETUP.removesuffix(' --quiet')}\n" not in text:
            _output(SETUP, folder)

        def run(block: re.Match[str]) -> str:
            text = f"```console\n$ {block['command']}\n{_output(block['command'], folder)}```"
            return block[0] if steady(text) == steady(block[0]) else text

        return BLOCK.sub(run, text)


def steady(text: str) -> str:
    """`text` without the seconds that a command took."""
    return re.sub(r"in \d+\.\d s", "in N s", text)


def _output(command: str, folder: str) -> str:
    """What a command prints, which runs in a folder and in this process; a shell does pipes."""
    command, _, pipe = command.partition(" | ")
    program, *words = shlex.split(command)
    if program != "rankscope":
        raise ValueError(f"not a command of rankscope: {command}")
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
        try:
            main(words)
        except SystemExit as ended:
            if ended.code:
                raise RuntimeError(f"{command}: exit code {ended.code}") from ended
    text = printed.getvalue()
    if pipe:
        text = subprocess.run(
            pipe, shell=True, input=text, capture_output=True, text=True, check=True
        ).stdout
    lines = [line.rstrip() for line in text.rstrip().splitlines()]
    return "\n".join(lines).replace(f"{folder}/", "") + "\n"


if __name__ == "__main__":
    from tests import json_schema, reference

    json_schema.FILE.write_text(json_schema.text(), "utf-8")
    reference.FILE.write_text(reference.reference(), "utf-8")
    for page in PAGES:
        page.write_text(filled(tabulated(page.read_text("utf-8"))), "utf-8")

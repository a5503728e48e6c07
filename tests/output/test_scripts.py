"""The page's scripts in node, against numbers computed in Python. Skipped without node."""

import json
import shutil
import subprocess
from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

import polars as pl
import pytest

from rankscope.model.kinds import Phase
from rankscope.output.html import fleet_page
from rankscope.output.html.columns import cells
from rankscope.output.html.page import SCRIPTS
from rankscope.output.html.tables import sortable_table
from rankscope.output.palette import COMMUNICATION_PARTS
from rankscope.util.wording import milliseconds, percent
from tests.support import ran

NODE = shutil.which("node")
LEAST_NODE = 18
"""The first version with `node --test` and DecompressionStream."""

pytestmark = pytest.mark.skipif(NODE is None, reason="node is not installed")

RANKS, ITERATIONS = [0, 1, 4, 9, 12], [5, 6, 7]
ROLES = ["first", "first", "last", "last", "last"]
WORK: list[list[int | None]] = [
    [9, 40, 7], [3, None, 8],
    [100, 1, None], [200, 2, None], [300_000, 3, None],
]  # fmt: skip
"""µs per rank and iteration."""
LOWER_MEDIANS = [[3, 40, 7], [200, 2, None]]


def scripts(names: Iterable[str] = SCRIPTS) -> list[Path]:
    folder = Path(str(files("rankscope.output.html"))) / "js"
    return [folder / f"{name}.js" for name in names]


@pytest.fixture(scope="module")
def node() -> str:
    assert NODE is not None
    output = ran(NODE, "--version", check=True).out
    if int(output.strip().lstrip("v").split(".")[0]) < LEAST_NODE:
        pytest.skip(f"node {output.strip()} is older than {LEAST_NODE}")
    return NODE


def test_every_script_is_listed_and_parses(node: str, tmp_path: Path) -> None:
    listed = {*scripts(), *scripts(fleet_page.SCRIPTS)}
    assert listed == {*scripts()[0].parent.glob("*.js")}
    whole = tmp_path / "whole.js"
    for names in (SCRIPTS, fleet_page.SCRIPTS):
        own = "\n".join(path.read_text("utf-8") for path in scripts(names))
        whole.write_text(f'"use strict";\n(() => {{\n{own}\n}})();', "utf-8")
        subprocess.run([node, "--check", whole], check=True, capture_output=True)


def test_scripts_compute_what_python_computes(node: str, tmp_path: Path) -> None:
    wide = pl.DataFrame(
        {
            "rank": [rank for rank in RANKS for _ in ITERATIONS],
            "iteration": ITERATIONS * len(RANKS),
            "work_ns": [None if each is None else each * 1000 for row in WORK for each in row],
            "iteration_ns": 400_000_000,
            "role": [role for role in ROLES for _ in ITERATIONS],
            "flagged": False,
            "cause": None,
        }
    )
    ranks = pl.DataFrame({"rank": RANKS, "host": "node0", "role": ROLES})
    page = {
        "cells": cells(wide, RANKS, ITERATIONS, ("work", "iteration")),
        "phases": [*Phase],
        "communication": [*COMMUNICATION_PARTS],
        "tables": [sortable_table("ranks", "Ranks", ranks)],
        "states": {},
        "state_names": {},
        "served": False,
        "flagged": {
            "columns": ["rank", "iteration", "cause"],
            "values": [[4, 12], [6, 5], ["load", None]],
        },
    }
    numbers = (0, 4_321, 1_234_567, 9_994_999, 9_996_000, 123_456_789_000, None)
    shares = (0.0, 0.0123, 0.0996, 0.5, 1.0, None)
    truth = {
        "columns": {"work": [each for row in WORK for each in row], "iteration": [400_000] * 15},
        "medians": LOWER_MEDIANS,
        "milliseconds": [(each, milliseconds(each)) for each in numbers],
        "percent": [(each, percent(each)) for each in shares],
        "flags": [[2 * 3 + 1, "load"], [4 * 3 + 0, ""]],
    }
    given = tmp_path / "page.json"
    document = {"scripts": [*map(str, scripts()[:-1])], "page": page, "truth": truth}
    given.write_text(json.dumps(document))
    own = {"RANKSCOPE_TEST_PAGE": str(given), "PATH": "/usr/bin:/bin"}
    done = ran(node, "--test", Path(__file__).with_name("scripts.test.js"), env=own)
    assert done.code == 0, done.out

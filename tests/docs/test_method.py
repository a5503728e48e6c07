"""METHOD.md gives the constants of the code, and every constant that the verdict rests on."""

import ast
import re
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest

import rankscope
from rankscope.model.kinds import CauseKind, VerdictKind
from rankscope.model.metrics import METRICS

PACKAGE = Path(rankscope.__file__).parent
METHOD = (PACKAGE / "docs" / "METHOD.md").read_text("utf-8")

ROW = re.compile(r"^\| `([a-z_.]+)\.([A-Z0-9_]+)` \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
"""A row of a table of constants: module, name, value, reason."""

ROWS = ROW.findall(METHOD)


def constants(module: Path) -> set[str]:
    """Numbers that a module gives a name in capitals."""
    found: set[str] = set()
    for node in ast.parse(module.read_text("utf-8")).body:
        if not isinstance(node, ast.Assign):
            continue
        [target] = node.targets
        pairs = (
            zip(target.elts, node.value.elts, strict=True)
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
            else [(target, node.value)]
        )
        for name, value in pairs:
            number = isinstance(value, ast.Constant) and isinstance(value.value, int | float)
            if isinstance(name, ast.Name) and name.id.isupper() and number:
                found.add(name.id)
    return found


@pytest.mark.parametrize(("module", "name", "value"), [row[:3] for row in ROWS])
def test_a_constant_has_the_value_of_the_code(module: str, name: str, value: str) -> None:
    actual = getattr(import_module(f"rankscope.{module}"), name)
    assert actual == ast.literal_eval(value), f"rankscope/docs/METHOD.md: {module}.{name}"


def test_every_constant_of_the_verdict_has_a_reason() -> None:
    given = {(module, name) for module, name, *_ in ROWS}
    missing = {
        (module, name)
        for path in sorted((PACKAGE / "judge").glob("*.py"))
        for module in [f"judge.{path.stem}"]
        for name in constants(path)
        if (module, name) not in given
    }
    assert not missing, (
        "rankscope/docs/METHOD.md#verdict: add a row | `module.NAME` | value | reason | for each"
    )
    assert len(given) > 40


def section(anchor: str) -> str:
    """The text of a section, from its anchor to the next one."""
    return METHOD.split(f'<a id="{anchor}"></a>')[1].split('<a id="')[0]


@pytest.mark.parametrize(
    ("anchor", "names"), [("metrics", METRICS), ("verdict", VerdictKind), ("causes", CauseKind)]
)
def test_sections_name_all_metrics_classes_and_causes(anchor: str, names: Iterable[str]) -> None:
    text = section(anchor)
    missing = {str(name) for name in names if f"`{name}`" not in text}
    assert not missing, f"rankscope/docs/METHOD.md#{anchor}: add a row to the table for each"

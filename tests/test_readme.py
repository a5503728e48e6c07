"""The README tells the truth: its commands print what stands below them."""

from __future__ import annotations

import re

from tests.readme import ROOT, filled, steady

README = (ROOT / "README.md").read_text("utf-8")


def test_console_blocks_show_what_the_commands_print() -> None:
    assert README.count("```console") == 3
    assert steady(filled(README)) == steady(README)


def test_the_map_of_the_house_names_every_room() -> None:
    rooms = {
        path.name
        for path in (ROOT / "rankscope").iterdir()
        if not path.name.startswith("_") and path.name != "py.typed"
    }
    house = README[README.index("## The house") : README.index("## Tests")]
    missing = {room for room in rooms if not re.search(rf"\b{re.escape(room)}\b", house)}
    assert not missing


def test_test_command_stands_in_the_readme() -> None:
    assert "pip install -e '.[test]' && pytest" in README

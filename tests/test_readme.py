"""The README tells the truth: its commands print what stands below them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image

from tests.readme import ROOT, filled, steady

PICTURES = ROOT / "sample_reports" / "pictures"
README = (ROOT / "README.md").read_text("utf-8")


def test_console_blocks_show_what_the_commands_print() -> None:
    assert README.count("```console") == 7
    assert steady(filled(README)) == steady(README)


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.png")), ids=lambda path: path.stem)
def test_pictures_are_what_the_command_above_them_draws(picture: Path) -> None:
    with Image.open(picture) as image:
        said = image.info["Title"]
    assert f"$ rankscope plot {picture.stem}\n{picture.name}: {said}\n" in README
    assert f"]({picture.relative_to(ROOT)})" in README
    assert picture.stat().st_size < 150_000


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

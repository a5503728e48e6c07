"""The README and the documents tell the truth: their commands print what stands below them."""

import re
from pathlib import Path

import pytest
from PIL import Image

from rankscope.util.wording import ms
from tests.readme import BLOCK, PAGES, README, ROOT, filled, steady
from tests.support import SAMPLE, Cli, Stored, asked, mostly_slow

PICTURES = ROOT / "sample_reports" / "pictures"
TEXT = README.read_text("utf-8")

MOST_WORDS = 900
"""Words of the README, console blocks included: longer texts are documents."""

WITH_BLOCKS = sorted(
    (page for page in PAGES if BLOCK.search(page.read_text("utf-8"))),
    key=lambda page: page.name != "README.md",
)
"""Pages that show what commands print, the README first."""


@pytest.mark.parametrize("page", mostly_slow(WITH_BLOCKS), ids=[page.name for page in WITH_BLOCKS])
def test_console_blocks_show_what_the_commands_print(page: Path) -> None:
    text = page.read_text("utf-8")
    assert text.count("```console") == len(BLOCK.findall(text))
    assert steady(filled(text)) == steady(text), "python -m tests.readme writes them"


@pytest.mark.parametrize("picture", sorted(PICTURES.glob("*.png")), ids=lambda path: path.stem)
def test_pictures_are_what_the_command_above_them_draws(picture: Path) -> None:
    with Image.open(picture) as image:
        said = image.info["Title"]
    page = (ROOT / "rankscope" / "docs" / "PICTURES.md").read_text("utf-8")
    assert f"$ rankscope plot {picture.stem}\n{picture.name}: {said}\n" in page
    assert f"/{picture.relative_to(ROOT)})" in page
    assert picture.stat().st_size < 150_000


def test_the_map_of_the_repository_names_every_package() -> None:
    packages = {
        path.name
        for path in (ROOT / "rankscope").iterdir()
        if not path.name.startswith("_") and path.name != "py.typed"
    }
    described = TEXT[TEXT.index("## Map of the repository") : TEXT.index("## Tests")]
    missing = {each for each in packages if not re.search(rf"\b{re.escape(each)}\b", described)}
    assert not missing


def test_the_way_through_is_in_order() -> None:
    titles = ["Capture", "Check", "Ingest", "Imbalance", "Pick reports"]
    places = [TEXT.index(f"### {number}. {title}") for number, title in enumerate(titles, 1)]
    assert places == sorted(places)


def test_the_two_answers_are_what_the_data_say(sample: Stored) -> None:
    """The sums of nsys from the exports, as its statistics make them; ours from the table."""
    section = TEXT.split("## The same data, two answers")[1].split("\n## ")[0]
    rows = re.findall(r"(?m)^\| \**(\d)\** \| (.*) \|$", section)
    assert [int(rank) for rank, _ in rows] == [0, 1, 2, 3]
    ranks = sample.run.imbalance().ranks
    columns = ("backward_ns", "load_ns", "cost_ns")
    for rank, cells in rows:
        report = SAMPLE / f"report_rank_{rank}.sqlite"
        [(summed,)] = asked(
            report,
            "select avg(end - start) from NVTX_EVENTS where eventType = 59 and coalesce("
            "text, (select value from StringIds where id = textId)) = 'Backward Pass'",
        )
        ours = ranks.filter(rank=int(rank)).select(columns).row(0)
        written = [cell.strip("* ") for cell in cells.split("|")]
        assert written[0] == f"{summed / 1e6:.1f} ms"
        assert written[1:] == [ms(value) for value in ours]


def commands() -> list[str]:
    """The commands of the README that need no job of one's own, in their order."""
    text = re.sub(r"(?s)### 1\. Capture.*?### 2\.", "", TEXT)
    text = re.sub(r"(?s)With runs of your own:.*?\n## ", "", text)
    found = re.findall(r"(?m)^(?:\$ )?((?:pip .*&& )?rankscope .*)$|`(rankscope [^`]+)`", text)
    lines = [part for one, other in found for part in (one or other).split(" && ")]
    return [line.split(" | ")[0] for line in lines if line.startswith("rankscope ")]


@pytest.mark.slow
def test_every_command_of_the_readme_works_on_the_sample(cli: Cli) -> None:
    (Path.cwd() / "sample_reports").symlink_to(ROOT / "sample_reports")
    given = list(dict.fromkeys(commands()))
    assert len(given) > 12
    for line in given:
        if line != "rankscope view":  # serves until it is interrupted
            words = line.removeprefix("rankscope ").split()
            assert cli(*words).code == 0, line


def test_the_readme_is_short_and_has_the_main_commands() -> None:
    assert len(TEXT.split()) <= MOST_WORDS
    assert "pip install -e '.[test]' && pytest" in TEXT
    assert "pip install . && rankscope ingest sample_reports/ddp_4ranks" in TEXT

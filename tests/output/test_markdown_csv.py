"""Names from reports in Markdown and CSV: text, and nothing that a program acts on."""

import csv as reader
import io
import re
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from rankscope.output.markdown_csv import csv, markdown, prose, section
from rankscope.output.nsys_view import rsync_command
from rankscope.output.table_layout import Table

LIVE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "[click](javascript:alert(1))",
    "![i](http://evil/x.png)", "<http://evil>", "http://evil/x", "HTTPS://EVIL/X", "www.evil.com",
    "a|b", "`x` <b>", "``<b>``", "\\<b>", "\\|<b>", "&lt;b&gt;", "[a]: http://evil", "`",
    "me@evil.com", "@everyone", "|<b>|", "``` <b>",
]  # fmt: skip


def tokens(text: str) -> list[Token]:
    parsed = MarkdownIt("commonmark").enable("table").parse(text)
    return [each for token in parsed for each in (token, *(token.children or []))]


def assert_inert(text: str) -> None:
    """A real parser sees neither HTML nor link, and a platform's own link rules find nothing."""
    found = tokens(text)
    kinds = {token.type for token in found}
    assert not kinds & {"html_inline", "html_block", "link_open", "image"}, (text, kinds)
    plain = re.sub(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", "", text)  # links are made outside of code
    assert not re.search(r"://|www\.|(?<!\w)@\w|\w@\w", plain, re.IGNORECASE), text


@pytest.mark.parametrize("name", LIVE)
def test_no_cell_is_markup(name: str) -> None:
    table = Table(name, ("host", "value"), ((name, "1"), ("plain", "2")), frozenset(("value",)))
    text = markdown(table)
    assert_inert(text)
    shown = [token.content for token in tokens(text) if token.type in ("code_inline", "text")]
    assert name in shown, "and shows what it is"
    assert sum(token.type == "td_open" for token in tokens(text)) == 4


@pytest.mark.parametrize("name", LIVE)
def test_no_sentence_is_markup(name: str) -> None:
    text = prose(f"Rank 2 ({name}) is slow.")
    assert_inert(text)
    inline = [token.content for token in tokens(text) if token.type in ("text", "text_special")]
    assert "".join(inline) == f"Rank 2 ({name}) is slow."


FORMULAS = [
    "=1+1", "+1+1", "-1+1", "@SUM(A1)", '=HYPERLINK("http://evil")', "\t=1+1", "\r=1", "-cmd|' /C",
    "＝1+1", "=", "-",
]  # fmt: skip
HARMLESS = ["plain", "-1", "+2.5", "-1.5e-3", "a=b", "1-2", "rank 3", ""]


@pytest.mark.parametrize("name", FORMULAS)
def test_no_cell_is_a_formula(name: str) -> None:
    frame = pl.DataFrame({"host": [name], "names": [[name, "x"]], "value": [-5]})
    [row] = reader.DictReader(io.StringIO(csv(frame)))
    assert row["host"].startswith("'")
    assert row["names"].startswith("'")
    assert row["value"] == "-5", "numbers stay numbers"


@pytest.mark.parametrize("name", HARMLESS)
def test_other_cells_stay_as_they_are(name: str) -> None:
    frame = pl.DataFrame({"host": [name], "ranks": [[-1, 2]]})
    [row] = reader.DictReader(io.StringIO(csv(frame)))
    assert row == {"host": name, "ranks": "-1 2"}


@pytest.mark.parametrize("name", ["-e touch hit", "a b;touch hit", "$(touch hit)", "h:x", "'q\""])
def test_rsync_copies_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    """As the shell runs it, from this machine, which rsync takes as a local path."""
    if shutil.which("rsync") is None:
        pytest.skip("rsync is not installed")
    source, target = tmp_path / "from" / name, tmp_path / "to"
    source.mkdir(parents=True)
    (source / "report").write_text("x")
    target.mkdir()
    line = rsync_command(source, "host").replace("host:", "", 1)
    subprocess.run(["sh", "-c", line], cwd=target, check=True, capture_output=True)
    assert (target / name / "report").read_text() == "x"
    assert not [*tmp_path.rglob("hit")]


def test_rsync_takes_no_name_for_an_option() -> None:
    words = rsync_command(Path("/x/-evil"), "host").split()
    assert words[-1] == "./-evil/"
    assert "s" in words[1]


BY_RANK = Table(
    title="By rank", columns=("rank", "work"), rows=(("2", "14.0"),), numeric=frozenset()
)


def test_it_is_a_section_with_the_finding_as_its_heading() -> None:
    text = section("Rank 2 is slow. Fixing it saves 3 ms.", ["Next: look.", "4 ranks"], [BY_RANK])
    assert text.split("\n\n") == [
        "### Rank 2 is slow",
        "Fixing it saves 3 ms.",
        "- Next: look.\n- 4 ranks",
        "**By rank**",
        "| rank | work |\n| --- | --- |\n| 2 | 14.0 |",
    ]
    assert section("Balanced", [], []) == "### Balanced"


def test_names_are_no_markup() -> None:
    text = section("Rank 2 (<img src=x>) is slow. On [a](http://b) `c`", ["<b>"], [])
    assert "<" not in text
    assert "\\[a]" in text
    assert "\\`c\\`" in text

"""`rankscope plot`: files, formats, refusals, names of any kind."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from rankscope.output.plots import KINDS
from tests.support import Cli, MakeStored, Stored, mostly_nightly, mostly_slow, renamed

STARTS = {".png": b"\x89PNG\r\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}
ANYWHERE = [kind for kind in KINDS if kind != "why"]
"""Kinds that need nothing that the sample does not record."""

NAMES = ["<script>alert(1)</script>", "$\\frac{1}{0$ $", "שלום עולם", "x" * 500]


@pytest.mark.parametrize("kind", mostly_nightly(ANYWHERE))
def test_each_kind_is_written_in_each_format(cli: Cli, sample: Stored, kind: str) -> None:
    for ending, start in STARTS.items():
        result = cli("plot", kind, "--db", sample.db, "-o", f"x{ending}", "--theme", "dark")
        assert result.code == 0, result.err
        assert result.out.startswith(f"x{ending}: ")
        assert result.err == ""
        content = Path(f"x{ending}").read_bytes()
        assert content.startswith(start)
    assert cli("plot", kind, "--db", sample.db).out.startswith(f"{kind}.png: ")
    assert Path(f"{kind}.png").read_bytes().startswith(STARTS[".png"])
    assert Path(f"{kind}.png").stat().st_size < 300_000


@pytest.mark.slow
@pytest.mark.parametrize("ending", mostly_slow(STARTS, 1, 1))
def test_the_same_picture_is_the_same_file(sample: Stored, tmp_path: Path, ending: str) -> None:
    files = [Path(sample.run.plot("phases", tmp_path / f"{name}{ending}")) for name in "ab"]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.slow
def test_json_says_what_was_drawn(cli: Cli, sample: Stored) -> None:
    answer = cli("plot", "heatmap", "--db", sample.db, "--format", "json").document
    assert answer["format"] == "rankscope/plot/1"
    assert (answer["kind"], answer["file"], answer["theme"]) == ("heatmap", "heatmap.png", "light")
    verdict = cli("imbalance", "--db", sample.db, "--format", "json").document["verdict"]
    excess = f"{verdict['excess_ns'] / 1e6:.1f} ms"
    assert excess in verdict["sentence"]
    found = f"Rank 2 needs {excess} more in every 5th iteration, 99 % of it in load"
    assert answer["title"] == found, "the number of the verdict"
    assert answer["run"]["ranks"] == [0, 1, 2, 3]
    for output in ("csv", "markdown"):
        assert "heatmap.png" in cli("plot", "heatmap", "--db", sample.db, "--format", output).out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pie"], ["no such kind", "heatmap"]),
        (["heatmap", "-o", "x.jpg"], ["x.jpg", "x.png"]),
        (["heatmap", "-o", "nowhere/x.png"], ["nowhere/x.png", "folder"]),
        (["heatmap", "--metric", "speed"], ["speed", "work"]),
        (["heatmap", "--metric", "compute"], ["compute", "unknown on every rank"]),
        (["phases", "--iter-range", "500:"], ["500:", "selects nothing"]),
        (["arrivals", "--iter-range", "a:b"], ["a:b"]),
        (["timeline", "--iteration-number", "77"], ["77", "0 to 29"]),
        (["timeline", "--clock", "gpu"], ["gpu", "device work"]),
        (["heatmap", "--theme", "pink"], ["pink"]),
        (["phases", "--ranks", "0,9"], ["rank 9", "ranks 0-3"]),
        (["phases", "--ranks", "all"], ["--ranks", "not a list"]),
        ([], ["missing argument"]),
    ],
)
def test_wrong_usage(cli: Cli, sample: Stored, arguments: list[str], words: list[str]) -> None:
    result = cli("plot", *arguments, "--db", sample.db)
    result.refused(2, *words)
    assert not [*Path().glob("*.png")]


@pytest.mark.parametrize("kind", mostly_nightly(ANYWHERE))
def test_some_ranks_only(cli: Cli, sample: Stored, kind: str) -> None:
    arguments = ("--db", sample.db, "--ranks", "0,3", "-o", "x.svg")
    assert cli("plot", kind, *arguments).code == 0
    text = Path("x.svg").read_text("utf-8")
    shown = {"0", "3"} | ({"2"} if kind == "timeline" else set())  # rank 2 arrives last
    if kind == "heatmap":
        assert "rank 0, iteration 29" in text, "the worst cell of these ranks"
        assert "rank 1, iteration 18" not in text
    else:
        assert {*re.findall(r">rank (\d)[ <]", text)} == shown


def test_no_database(cli: Cli) -> None:
    cli("plot", "heatmap").refused(4, "rankscope.duckdb")


@pytest.mark.slow
def test_names_of_any_kind(cli: Cli, sample_reports: list[Path]) -> None:
    """What stands in an SVG is the name's text: no markup, no mathematics, nothing endless."""
    for report, name in zip(sample_reports, NAMES, strict=True):
        renamed(report, name)
    assert cli("ingest", *sample_reports).code == 0
    for kind in ANYWHERE:
        assert cli("plot", kind, "-o", "x.svg").code == 0
        tree = ElementTree.fromstring(Path("x.svg").read_bytes())
        assert not [each for each in tree.iter() if each.tag.endswith("script")]
        texts = ["".join(each.itertext()) for each in tree.iter() if each.tag.endswith("text")]
        if kind != "timeline":  # which shows only the picks
            assert any("$\\frac{1}{0$" in text for text in texts)
            assert any("<script>" in text for text in texts)
        assert max(map(len, texts)) < 300


@pytest.mark.slow
def test_matplotlib_loads_only_to_plot_and_without_pyplot(sample: Stored, tmp_path: Path) -> None:
    code = (
        "import sys; from rankscope_cli.main import main\n"
        "def run(*arguments):\n"
        "    try: main(arguments)\n"
        "    except SystemExit as stopped: assert not stopped.code\n"
        f"run('imbalance', '--db', {str(sample.db)!r})\n"
        "assert 'matplotlib' not in sys.modules\n"
        f"run('plot', 'phases', '--db', {str(sample.db)!r}, '-o', {str(tmp_path / 'p.png')!r})\n"
        "assert 'matplotlib' in sys.modules and 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, capture_output=True)


@pytest.mark.slow
def test_jobs_without_device_work(stored: MakeStored, tmp_path: Path) -> None:
    run = stored("host_only", 8).run
    for kind in ANYWHERE:
        assert Path(run.plot(kind, tmp_path / f"{kind}.svg")).stat().st_size > 5000

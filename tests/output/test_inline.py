"""What notebooks show: runs, comparisons, verdicts, picks, pictures and pages."""

import json
import os
from html import unescape
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rankscope
from rankscope.util import inline
from tests.support import ROOT, SAMPLE, Stored, renamed

NOTEBOOK = ROOT / "sample_reports" / "example.ipynb"
HOSTILE = "<script>alert(1)</script>"


def shown(value: Any) -> str:
    """The HTML that a notebook shows of a value."""
    text = value._repr_html_()
    assert isinstance(text, str)
    return text


def test_everything_has_a_short_text_and_html(sample: Stored) -> None:
    comparison = sample.analysis()
    result = sample.run.imbalance()
    picks = sample.run.pick_reports()
    for value, words in (
        (sample.run, "4 ranks (0-3)"),
        (comparison, "4 ranks, 29 iterations, host clock, periodic"),
        (comparison.verdict, "Rank 2 (node1)"),
        (result, "of 4 ranks: Rank 2 (node1)"),
        (picks.picks[0], "rank 3, iteration 2"),
    ):
        assert words in repr(value)
        assert "\n" not in repr(value)
        assert len(repr(value)) < 1000
    for value in (sample.run, comparison, comparison.verdict, result):
        assert "Rank 2 (node1)" in shown(value)
    assert "<td>slow</td><td>1</td><td>node0</td><td>2</td>" in shown(picks)
    assert "look at iteration 2" in shown(picks.picks[0])
    [load] = [each for each in result.metrics if each.metric == "load"]
    assert load.max is not None
    assert f"<td>{load.max.value / 1e6:.2f} (2)</td>" in shown(result)


def test_names_stay_text(sample_reports: list[Path], tmp_path: Path) -> None:
    for report in sample_reports:
        renamed(report, HOSTILE)
    run = rankscope.ingest(sample_reports, tmp_path / "run.duckdb", jobs=1)
    for value in (run, run.compare(), run.imbalance(), run.imbalance().verdict, run.pick_reports()):
        assert "<script" not in shown(value)
        assert "&lt;script&gt;" in shown(value)
    assert inline.table(["a"], [[None], ["\x1b[31m"]]).count("<td>") == 2
    assert "\x1b" not in inline.table(["a"], [["\x1b[31m"]])


@pytest.mark.slow
def test_a_picture_is_shown_and_saved(sample: Stored, tmp_path: Path) -> None:
    picture = sample.run.plot("heatmap")
    assert picture._repr_png_().startswith(b"\x89PNG")
    assert picture.title in repr(picture)
    assert [*tmp_path.iterdir()] == []
    with pytest.raises(TypeError, match="not written"):
        os.fspath(picture)
    saved = picture.save(tmp_path / "map.png")
    assert Path(saved).read_bytes() == picture._repr_png_()
    written = sample.run.plot("phases", tmp_path / "phases.svg", ranks=[0, 2])
    assert Path(written).read_text("utf-8").count("rank 3") == 0


@pytest.mark.slow
def test_a_page_is_shown_in_a_frame_and_saved(sample: Stored, tmp_path: Path) -> None:
    page = sample.run.report()
    frame = shown(page)
    assert frame.startswith('<iframe sandbox="allow-scripts"')
    assert unescape(frame.split('srcdoc="')[1].rsplit('"', 1)[0]).encode() == page.content
    with pytest.raises(TypeError, match="not written"):
        os.fspath(page)
    assert Path(sample.run.report(tmp_path / "page.html")).read_bytes().startswith(b"<!doctype")
    assert sample.analysis().verdict.sentence in repr(page)


@pytest.mark.slow
def test_the_example_notebook_runs(sample: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cell is executed as a notebook does it: its last expression is shown."""

    def ingest(paths: list[str], db: str) -> rankscope.Run:
        """The run that these reports give; other tests make it."""
        assert ([ROOT / path for path in paths], db) == ([SAMPLE], "example.duckdb")
        return sample.run

    monkeypatch.setattr(rankscope, "ingest", ingest)
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    assert (notebook["nbformat"], notebook["cells"][0]["cell_type"]) == (4, "markdown")
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"]) == 12
    names: dict[str, Any] = {}
    values, displayed = [], []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []
        *lines, last = "".join(cell["source"]).splitlines()
        exec("\n".join(lines), names)
        value = eval(last, names)
        show = getattr(value, "_repr_png_", None) or getattr(value, "_repr_html_", None)
        assert show is not None, f"{last} shows nothing in a notebook"
        values.append(value)
        displayed.append(show())
    assert any(isinstance(each, bytes) for each in displayed), "a picture"
    assert "Rank 2 (node1)" in str(displayed[0])
    why, table = [value for value in values if isinstance(value, pl.DataFrame)]
    assert why.filter(pl.col("load") > 20)["rank"].to_list() == [2], "in ms"
    assert table.columns == ["iteration", "0", "1", "2", "3"]
    assert table.height == 30

"""What maps and bars show of slow ranks of different size, of many ranks, and of one."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from matplotlib.collections import PathCollection, QuadMesh
from msgspec import structs

import rankscope
from rankscope.output.html.columns import cells
from rankscope.output.plots import Picture, draw
from tests.forge import forge, scene
from tests.forge.job import Plant
from tests.output.plots.test_pictures import job_reports, one, picture, words
from tests.support import MS, SAMPLE, Stored, copied, edit


def cells_of(job: Stored) -> dict[str, object]:
    """The cells of the page of a job."""
    analysis = job.analysis()
    facts = analysis.facts
    return cells(analysis.rows(flags=True), facts.ranks, facts.iterations, ["work", "iteration"])


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """Of 32 ranks one is always 3 ms slow, and another one 30 ms in three iterations."""
    folder = tmp_path_factory.mktemp("two")
    always = Plant("persistent", "forward", (17,), extra_ns=3 * MS)
    rarely = Plant(
        "transient", "load", (27,), extra_ns=30 * MS, iterations=(5, 9, 13), on_host=True
    )
    job = scene("planted", 32, 16, 0, "2023.4")
    forge(replace(job, plants=(always, rarely)), folder / "reports")
    run = rankscope.ingest([folder / "reports"], folder / "run.duckdb", jobs=1)
    return Stored(folder / "reports", folder / "run.duckdb", run)


@pytest.mark.slow
def test_slow_ranks_of_3_and_of_30_ms_are_both_visible(two: Stored) -> None:
    assert set(two.analysis().verdict.named) == {17, 27}
    figure = picture(two, "heatmap")
    mesh = one(figure.axes[0], QuadMesh)
    places = np.ma.filled(mesh.norm(mesh.get_array()) * 2 - 1, np.nan)  # type: ignore[attr-defined]
    numbers = [*two.analysis().selection.numbers]
    slow = [numbers.index(each) for each in (5, 9, 13)]
    usual = np.delete(np.asarray(places), [17, 27], axis=0)
    assert np.median(places[17]) > 0.25
    assert places[27, slow].min() > 0.85
    assert np.median(np.abs(usual)) < 0.1, "noise is pale"
    assert "rank 17" in words(figure), "the verdict's other rank"
    page = cells_of(two)
    limit = mesh.norm.vmax  # type: ignore[attr-defined]
    assert page["scales"]["work"] == pytest.approx([mesh.norm.linear_width, limit])  # type: ignore[attr-defined]


@pytest.mark.slow
def test_phases_of_many_ranks_leave_out_those_like_the_median(two: Stored) -> None:
    axes = picture(two, "phases").axes[0]
    said = [text.get_text() for text in axes.texts]
    assert not [text for text in said if text.strip("+−") == "0.00"]
    names = [label.get_text().split(" ·")[0] for label in axes.get_yticklabels()]
    assert {"rank 17", "rank 27"} <= {*names}
    assert len(names) <= 8
    assert any("ranks between" in text for text in said)


@pytest.mark.slow
def test_values_beyond_the_scale_are_marked(job: Stored) -> None:
    analysis = job.analysis()
    slow = (pl.col("rank") == 3) & (pl.col("iteration") == 11)
    table = analysis.rows(all_iterations=True).with_columns(
        work_ns=pl.when(slow).then(pl.col("work_ns") + 5_000 * MS).otherwise("work_ns")
    )
    figure = draw("heatmap", structs.replace(analysis, table=table))
    marks = [each for each in figure.findobj(PathCollection) if each.get_gid() == "clipped"]
    places = [tuple(point) for each in marks for point in np.asarray(each.get_offsets())]
    assert len(places) == 1
    assert analysis.selection.numbers[int(places[0][0])] == 11
    assert "beyond ±" in words(figure)
    assert "beyond ±" not in words(draw("heatmap", analysis))


@pytest.mark.slow
def test_a_single_rank_is_compared_with_itself(job: Stored, tmp_path: Path) -> None:
    copied(job_reports(job)[-1:], tmp_path / "one")
    run = rankscope.ingest([tmp_path / "one"], tmp_path / "one.duckdb")
    one_rank = Stored(tmp_path / "one", tmp_path / "one.duckdb", run)
    figure = picture(one_rank, "heatmap")
    assert Picture(figure).title.startswith("Rank 7 alone: its work is longest in iteration ")
    assert "the rank's own median" in words(figure)
    values = one(figure.axes[0], QuadMesh).get_array()  # type: ignore[attr-defined]
    assert values.max() > 7, "its slow loads"
    assert re.fullmatch(
        r"Rank 7 alone works [\d.]+ of [\d.]+ ms on average",
        Picture(picture(one_rank, "phases")).title,
    )
    assert "of rank 7" in Picture(picture(one_rank, "timeline")).title


@pytest.mark.slow
def test_a_rank_without_the_others_reports_is_alone_too(tmp_path: Path) -> None:
    run = rankscope.ingest([SAMPLE / "report_rank_2.sqlite"], tmp_path / "one.duckdb")
    assert run.compare().missing_ranks == (0, 1, 3)
    alone = Stored(SAMPLE, tmp_path / "one.duckdb", run)
    assert "the rank's own median" in words(picture(alone, "heatmap"))
    for kind in ("timeline", "phases"):
        said = words(picture(alone, kind))
        assert not re.search(r"\bmin\b|median|lower bounds", said), "there is nothing to compare"


@pytest.mark.slow
def test_without_collectives_the_work_of_a_rank_is_unknown(tmp_path: Path) -> None:
    [report] = copied([SAMPLE / "report_rank_2.sqlite"], tmp_path / "one")
    edit(report, "delete from NVTX_EVENTS where text like 'all_reduce%'")
    run = rankscope.ingest([report], tmp_path / "one.duckdb")
    assert run.iterations()["work_ns"].is_null().all()
    figure = picture(Stored(SAMPLE, tmp_path / "one.duckdb", run), "phases")
    title = Picture(figure).title
    assert title.startswith("Rank 2 alone: iterations take ")
    assert title.endswith("how much of it is work is unknown")
    [axes] = [axes for axes in figure.axes if axes.get_xlabel()]
    assert axes.get_xlabel() == "phases (ms)", "neither work nor communication is drawn"

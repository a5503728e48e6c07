"""What pictures show, read off their axes."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection, PolyCollection, QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text
from msgspec.structs import replace

import rankscope
from rankscope.api import view_of
from rankscope.compare.comparison import Comparison
from rankscope.errors import UsageError
from rankscope.output.palette import THEMES, part_name
from rankscope.output.phase_shares import phase_shares
from rankscope.output.plots import KINDS, Picture, PlotOptions, arrivals, draw
from rankscope.output.plots.arrivals import distributions, lateness
from rankscope.output.timeline_views import in_lanes
from tests.output.plots.big import multiplied
from tests.support import MS, ROOT, MakeStored, Stored, copied, mostly_nightly

TITLES = {
    "heatmap": r"Rank 7 needs 8\.\d\d ms more in every 5th iteration, 9\d % of it in load",
    "phases": r"Rank 7 works 1\.\d\d ms longer than the median rank on average",
    "timeline": r"Iteration \d+: rank 7 comes last to the all-reduce, and others wait .*",
    "arrivals": r"Rank 7 arrives 2\.\d\d ms after the first one on average, last at \d\d % of .*",
}
"""Kind → pattern of what its picture of that job says."""


@pytest.fixture(scope="module")
def thousand(job: Stored) -> Comparison:
    """The same job 128 times."""
    return multiplied(job, 128)


def picture(job: Stored, kind: str, **options: object) -> Figure:
    analysis = job.analysis()
    view = view_of(kind, analysis, options.pop("metric", None), **options)
    return draw(kind, analysis, view)


def words(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def one(axes: Axes, kind: type) -> object:
    [found] = [each for each in axes.get_children() if isinstance(each, kind)]
    return found


@pytest.mark.parametrize("theme", mostly_nightly(THEMES))
@pytest.mark.parametrize("kind", TITLES)
def test_titles_say_the_finding_and_axes_have_units(job: Stored, kind: str, theme: str) -> None:
    before = dict(rcParams)
    figure = picture(job, kind, theme=theme)
    assert dict(rcParams) == before, "a picture leaves matplotlib as it was"
    title = Picture(figure).title
    assert re.fullmatch(TITLES[kind], title), title
    said = words(figure)
    assert "Rank 7 needs 8.11 ms more in every 5th iteration" in said, "the verdict is there"
    assert "ms)" in said
    assert "8 of 8 ranks" in said
    assert "gpu clock" in said
    background = sum(figure.get_facecolor()[:3])
    assert background > 2.7 if theme == "light" else background < 0.5


@pytest.mark.parametrize("kind", mostly_nightly(TITLES))
def test_nothing_is_cut_off_at_the_edges(job: Stored, kind: str) -> None:
    figure = picture(job, kind)
    figure.draw_without_rendering()
    drawn = figure.get_tightbbox()
    width, height = figure.get_size_inches()
    assert drawn.x0 >= 0.1
    assert drawn.y0 >= 0.1
    assert drawn.x1 <= width - 0.1
    assert drawn.y1 <= height - 0.1


def test_heatmap_shows_the_planted_cells(job: Stored) -> None:
    assert job.truth is not None
    figure = picture(job, "heatmap")
    axes = figure.axes[0]
    values = one(axes, QuadMesh).get_array()  # type: ignore[attr-defined]
    slow = np.argwhere(values > 5)
    numbers = job.analysis().selection.numbers
    hits = {(7, numbers.index(i)) for i in numbers if i % 5 == job_phase(job)}
    assert {(int(row), int(column)) for row, column in slow} == hits
    [dots] = [each for each in axes.findobj(PathCollection) if each.get_gid() == "flags"]
    flags = job.analysis().flags()
    assert flags is not None
    marked = {(row, numbers[column]) for column, row in np.asarray(dots.get_offsets(), dtype=int)}
    assert marked == {*flags.filter("flagged").select("rank", "iteration").iter_rows()}
    said = words(figure)
    assert "node0" in said
    assert "node1" in said
    assert f"A  rank 7, iteration {worst_iteration(job)}" in said
    assert [label.get_text() for label in axes.get_yticklabels()] == [*map(str, range(8))]


def job_phase(job: Stored) -> int:
    verdict = job.analysis().verdict
    assert verdict.period == 5
    return verdict.iterations[0] % 5


def worst_iteration(job: Stored) -> int:
    flags = job.analysis().flags()
    assert flags is not None
    return int(flags.sort("excess_ns", descending=True)["iteration"][0])


def test_heatmap_of_another_metric_tells_of_that_metric(job: Stored) -> None:
    figure = picture(job, "heatmap", metric="optimizer")
    said = (
        "Optimizer: no rank exceeds the median rank by 1.0 % of the iteration on average, at most"
    )
    assert Picture(figure).title.startswith(said)
    reduced = picture(job, "heatmap", metric="time_to_all_reduce")
    assert " has the most time to all-reduce" in Picture(reduced).title
    assert "optimizer: excess over the median rank" in words(figure)
    assert not [e for e in figure.findobj(PathCollection) if e.get_gid() == "flags"], "not for it"


@pytest.mark.slow
def test_iterations_that_a_rank_lacks_are_hatched_and_named(stored: MakeStored) -> None:
    late = stored("late_capture", 8, late=3)
    figure = picture(late, "heatmap")
    mask = np.ma.getmaskarray(one(figure.axes[0], QuadMesh).get_array())  # type: ignore[attr-defined]
    assert np.argwhere(mask).tolist() == [[7, 0], [7, 1]]
    assert "not complete on every rank, so not compared: 1-2" in words(figure)


@pytest.mark.slow
def test_ranks_without_reports_are_hatched(job: Stored, tmp_path: Path) -> None:
    run = rankscope.ingest([job.folder], tmp_path / "few.duckdb", ranks={0, 2, 3, 6, 7})
    some = Stored(job.folder, tmp_path / "few.duckdb", run)
    figure = picture(some, "heatmap")
    values = one(figure.axes[0], QuadMesh).get_array()  # type: ignore[attr-defined]
    assert np.ma.getmaskarray(values).all(axis=1).nonzero()[0].tolist() == [1, 4, 5]
    assert figure.axes[0].patch.get_hatch()
    said = words(figure)
    assert "unknown" in said
    assert "warning: 3 of 8 ranks have no report (1, 4-5)" in said
    assert "the share of waiting in the communication is unknown" in words(picture(some, "phases"))
    assert "waits are lower bounds" in words(picture(some, "timeline"))
    assert "ranks without one may arrive earlier" in words(picture(some, "arrivals"))


def test_iterations_that_lack_a_phase_are_no_part_of_the_bars(job: Stored) -> None:
    analysis = job.analysis(include_warmup=True)
    first, *later = analysis.selection.numbers
    rows = analysis.rows().sort("iteration")
    assert rows.filter(iteration=first)["load_ns"].is_null().all()
    shares = phase_shares(analysis)
    assert shares.iterations == (*later,)
    work = rows.filter(pl.col("iteration") > first).group_by("rank").agg(pl.col("work_ns").mean())
    both = shares.frame.join(work, on="rank")
    assert ((both["total_ns"] - both["work_ns"]).abs() <= 3).all()
    figure = draw("phases", analysis, view_of("phases", analysis, None, None))
    said = " ".join(words(figure).split())
    assert f"mean over the {len(later)} iterations in which all phases are known" in said


def test_phases_stack_up_to_work_and_apart_from_it_to_communication(job: Stored) -> None:
    found = phase_shares(job.analysis()).frame
    chosen = (
        job.analysis()
        .rows()
        .group_by("rank")
        .agg(pl.col("work_ns", "exposed_communication_ns").mean())
    )
    both = found.join(chosen, on="rank", suffix="_mean")
    assert ((both["total_ns"] - both["work_ns"]).abs() <= 3).all()
    apart = both["wait_ns"] + both["transfer_ns"] - both["exposed_communication_ns_mean"]
    assert (apart.abs() <= 2).all()
    figure = picture(job, "phases")
    work, waits = figure.axes[:2]
    ends: dict[float, float] = {}
    for bar in work.patches:
        ends[bar.get_y()] = max(ends.get(bar.get_y(), 0), bar.get_x() + bar.get_width())  # type: ignore[attr-defined]
    assert sorted(ends.values(), reverse=True) == pytest.approx(
        (found["total_ns"] / MS).to_list()
    ), "most work first"
    names = [label.get_text() for label in work.get_yticklabels()]
    assert names[0] == "rank 7 · node1"
    assert [label.get_fontweight() for label in work.get_yticklabels()][:2] == ["bold", "normal"]
    median = found["total_ns"].sort()[3] / MS
    [line] = work.findobj(LineCollection)
    assert {round(segment[0][0], 6) for segment in line.get_segments()} == {round(median, 6)}
    assert {bar.get_gid() for bar in waits.patches} == {"wait", "transfer"}


def test_phases_compare_within_roles(job: Stored) -> None:
    analysis = job.analysis()
    last = pl.col("rank") >= 4
    table = analysis.rows(all_iterations=True).with_columns(
        role=pl.when(last).then(pl.lit("last")).otherwise(pl.lit("first")),
        forward_ns=pl.col("forward_ns") + pl.when(last).then(20 * MS).otherwise(0),
    )
    analysis = replace(analysis, table=table)
    axes = draw("phases", analysis).axes[0]
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names[0] == "rank 7 · last", "furthest above its own role's median"
    assert "rank 0 · first" in names[1:5], "a role with less work is not last for that"
    assert len([text for text in axes.texts if text.get_text() == "median"]) == 2


@pytest.mark.slow
def test_phases_that_are_unknown_are_named(stored: MakeStored) -> None:
    said = words(picture(stored("cuda_graph", 8), "phases"))
    assert "unknown: load, forward, backward, optimizer" in said


def test_lateness_is_behind_the_first_of_each_collective(job: Stored) -> None:
    analysis = job.analysis()
    late = lateness(analysis)
    assert late["late_ns"].min() == 0
    instance = late.filter(iteration=7)["instance"][0]
    output = dict(late.filter(instance=instance).select("rank", "late_ns").iter_rows())
    every = analysis.collectives(analysis.selection.numbers).part(analysis.selection.numbers)
    waits = every.filter(instance=instance)
    longest = waits["wait"].max()
    assert output == {rank: longest - own for rank, own in waits.select("rank", "wait").rows()}
    assert max(output, key=lambda rank: output[rank]) == waits["last"][0]
    frame = distributions(late)
    assert frame["rank"][0] == 7
    assert frame["p95_ns"][0] > 7 * MS
    assert (frame["p5_ns"] <= frame["p50_ns"]).all()
    figure = picture(job, "arrivals")
    [points] = [e for e in figure.axes[0].findobj(PathCollection) if e.get_gid() == "collectives"]
    assert len(points.get_offsets()) == late.height


def test_ranks_that_share_no_collective_are_named(
    job: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = job.analysis()
    every = analysis.collectives(analysis.selection.numbers)
    rested = replace(every, rows=every.rows.filter(pl.col("rank") != 3))
    monkeypatch.setattr(Comparison, "collectives", lambda *_: rested)
    assert "unknown for rank 3" in words(draw("arrivals", analysis))


@pytest.mark.slow
def test_arrivals_name_who_is_last_most_often_beside_who_is_latest_on_average() -> None:
    shares = pl.DataFrame({"rank": [1, 6], "last_arriver_share": [0.95, 0.053]})
    verdict = SimpleNamespace(named=())
    comparison: Any = SimpleNamespace(missing_ranks=(), waits=lambda: shares, verdict=verdict)
    frame = pl.DataFrame({"rank": [6, 1], "mean_ns": [1.29 * MS, 1.0 * MS]})
    title = arrivals._title(comparison, frame)
    assert title.endswith("last at 5.3 % of the collectives, rank 1 at 95 %")
    assert arrivals._title(comparison, frame[1:]).endswith("last at 95 % of the collectives")
    verdict.named = (1,)
    assert arrivals._title(comparison, frame[1:]).endswith("last at 95 % of the collectives")
    assert arrivals._title(comparison, frame).endswith("; it may have waited itself")
    comparison.waits = shares.clear
    assert arrivals._title(comparison, frame).endswith("; the last is unknown"), "of sends alone"


@pytest.mark.slow
def test_arrivals_of_a_single_rank_are_refused(job: Stored, tmp_path: Path) -> None:
    copied(job_reports(job)[:1], tmp_path / "one")
    run = rankscope.ingest([tmp_path / "one"], tmp_path / "one.duckdb")
    with pytest.raises(UsageError, match="no collective of this run has counterparts") as refused:
        run.plot("arrivals", tmp_path / "a.png")
    assert "need --roles" in refused.value.hint
    comparison = run.compare()
    linked = replace(comparison, roles=replace(comparison.roles, links=[(0, 1)]))
    with pytest.raises(UsageError) as refused:
        lateness(linked)
    assert "--roles" not in refused.value.hint
    for kind in ("heatmap", "phases", "timeline"):
        made = run.plot(kind, tmp_path / f"{kind}.png")
        assert Path(made).stat().st_size > 5000


def job_reports(job: Stored) -> list[Path]:
    return sorted(job.folder.glob("*.sqlite"))


@pytest.mark.slow
def test_timeline_draws_the_late_arrival(job: Stored) -> None:
    analysis = job.analysis()
    iteration = analysis.verdict.iterations[1]
    view = view_of("timeline", analysis, None, iteration)
    assert (7, "max, slow") in view.ranks
    axes = draw("timeline", analysis, view).axes[0]
    found = job.run.timeline([rank for rank, _ in view.ranks], [iteration])
    [line] = [each for each in axes.lines if each.get_gid() == "last arrival"]
    mine = found.collectives.filter(rank=7)
    drawn = round(line.get_xdata()[0] * MS)
    assert drawn in mine["arrival_ns"].to_list()
    said = [text.get_text() for text in axes.texts]
    assert "rank 7 arrives last" in said
    assert sum(text.startswith("waits ") for text in said) == 2
    lanes = axes.findobj(PolyCollection)
    phases = [each for each in lanes if each.get_gid() == "gpu phases"]
    filled = sum(np.ptp(path.vertices[:, 0]) for path in phases[0].get_paths())
    first = found.windows.filter(rank=view.ranks[0][0], clock="gpu")
    assert filled == pytest.approx((first["end_ns"] - first["start_ns"])[0] / MS)
    kinds = {str(each.get_gid()).partition(" (")[0] for each in lanes}
    assert kinds == {"gpu phases", "stream 7", "collectives"}
    assert any(each.get_hatch() for each in lanes), "waiting is hatched"
    legend = {text.get_text() for text in axes.get_legend().get_texts()}
    drawn = {part_name(part) for part in found.phases.filter(clock="gpu")["phase"]}
    assert legend == drawn | {"waiting for others", "transfer"}


@pytest.mark.slow
def test_timeline_says_when_who_is_last_is_not_the_culprit(stored: MakeStored) -> None:
    tensor_parallel = stored("tensor_parallel", 8)
    analysis = tensor_parallel.analysis()
    assert analysis.verdict.ranks == (1,)
    said = words(picture(tensor_parallel, "timeline", iteration=analysis.verdict.iterations[0]))
    assert "rank 1 comes last" in said or "may be late because it waited elsewhere" in said


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["heatmap", "phases", "arrivals"])
def test_a_thousand_ranks_are_readable(thousand: Comparison, kind: str) -> None:
    figure = draw(kind, thousand, PlotOptions(ranks=((700, "median"),)))
    figure.draw_without_rendering()
    assert figure.get_figheight() < 13
    labels = [
        label.get_window_extent() for label in figure.axes[0].get_yticklabels() if label.get_text()
    ]
    assert 8 < len(labels) < 100
    edges = sorted((box.y0, box.y1) for box in labels)
    assert all(low[1] <= high[0] + 1 for low, high in pairwise(edges))
    said = words(figure)
    assert "1,024 of 1,024 ranks" in said
    assert "a cell stands for 3 ranks" in said if kind == "heatmap" else "all 1,024 ranks" in said
    if kind != "heatmap":
        assert "rank 700 ·" in said
        assert "ranks between" in said


def test_what_cannot_be_drawn_is_refused(job: Stored) -> None:
    analysis = job.analysis()
    with pytest.raises(UsageError, match="no such kind"):
        draw("pie", analysis)
    with pytest.raises(UsageError, match="--theme pink"):
        draw("heatmap", analysis, PlotOptions(theme="pink"))
    with pytest.raises(UsageError, match="ranks or iteration are not given"):
        draw("timeline", analysis)
    with pytest.raises(UsageError, match="iteration 999"):
        job.run.plot("timeline", iteration=999)


def test_the_import_contract_names_every_kind() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    [contract] = [each for each in contracts if each["name"].startswith("Kinds of pictures")]
    modules = {f"rankscope.output.plots.{kind}" for kind in KINDS}
    assert {*contract["modules"]} == modules, (
        f"pyproject.toml, import contract {contract['name']!r}: list the modules of all KINDS"
    )


def test_overlapping_collectives_have_lanes_and_waits_stand_on_their_bars(job: Stored) -> None:
    analysis = job.analysis()
    view = view_of("timeline", analysis, None, analysis.verdict.iterations[1])
    axes = draw("timeline", analysis, view).axes[0]
    bars = [
        path.get_extents()
        for each in axes.findobj(PolyCollection)
        if str(each.get_gid()).startswith("collectives")
        for path in each.get_paths()
    ]
    for one_bar, other in pairwise(sorted(bars, key=lambda bar: (bar.y0, bar.x0))):
        if one_bar.y0 == other.y0 and one_bar.x0 != other.x0:
            assert one_bar.x1 <= other.x0 + 1e-6, "bars of a lane do not overlap"
    labels = [each for each in axes.texts if each.get_text().startswith("waits ")]
    assert labels
    for label in labels:
        x, y = label.xy  # type: ignore[attr-defined]
        [length] = {
            round(bar.x1 - bar.x0, 2) for bar in bars if bar.x0 < x < bar.x1 and bar.y0 < y < bar.y1
        }
        assert float(label.get_text().split()[1]) == pytest.approx(length, rel=0.02)


def test_calls_that_overlap_take_several_lanes() -> None:
    spans = [(0, 10), (2, 5), (3, 8), (6, 9), (10, 12)]
    calls = pl.DataFrame(spans, schema=["arrival_ns", "end_ns"], orient="row")
    assert in_lanes(calls, 6)["lane"].to_list() == [0, 1, 2, 1, 0]
    assert in_lanes(calls, 2)["lane"].to_list() == [0, 1, 1, 1, 0], "no more than there is room for"


def test_letters_stand_on_flagged_cells(job: Stored) -> None:
    figure = picture(job, "heatmap")
    axes, numbers = figure.axes[0], job.analysis().selection.numbers
    flags = job.analysis().flags()
    assert flags is not None
    flagged = {*flags.filter("flagged").select("rank", "iteration").iter_rows()}
    letters = [each for each in axes.texts if each.get_text() in [*"ABCD"]]
    assert letters
    for letter in letters:
        column, row = letter.xy  # type: ignore[attr-defined]
        assert letter.get_position() == (column, row)
        assert (row, numbers[column]) in flagged
    assert "flagged: slow there beyond noise (as are the letters)" in words(figure)


def test_both_panels_of_phases_have_one_scale(job: Stored) -> None:
    work, communication = picture(job, "phases").axes[:2]
    scales, steps = [], []
    for axes in (work, communication):
        scales.append(np.ptp(axes.get_xlim()) / axes.get_position().width)
        steps.append(np.diff(axes.get_xticks()).max())
    assert scales[0] == pytest.approx(scales[1])
    assert steps[0] == steps[1]


@pytest.mark.slow
def test_of_one_iteration_nothing_is_an_average(job: Stored) -> None:
    iteration = job.analysis().verdict.iterations[0]
    for kind, metric in (("heatmap", "forward"), ("phases", None)):
        title = job.run.plot(kind, metric=metric, iter_range=(iteration, iteration + 1)).title
        assert "on average" not in title
        assert f"in iteration {iteration}" in title

"""Hardware and runs as a picture and as a map: what the simulated fleet did is in its cells."""

import re
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure
from matplotlib.text import Text

from rankscope.errors import UsageError
from rankscope.history.fleet.collect import merged
from rankscope.history.fleet.fleet import Fleet, fleet_of
from rankscope.history.fleet.sentences import cost_text
from rankscope.output.fleet_map import MOST_ROWS, MOST_RUNS, fleet_map
from rankscope.output.plots import Picture, draw_fleet
from tests.history.fleet.fleets import HOURS, Plan, fleet


@pytest.fixture(scope="module")
def answer() -> Fleet:
    """50 hosts of 8 GPUs, 30 jobs; one card is slow."""
    return fleet_of(fleet(Plan("card", 1))[0])


def words(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def meshes(figure: Figure) -> list[QuadMesh]:
    """The cells that were compared, and those with a cost."""
    return [each for each in figure.axes[0].get_children() if isinstance(each, QuadMesh)]


def test_the_map_has_the_evidence_of_each_run(answer: Fleet) -> None:
    found = fleet_map(answer)
    assert len(found.rows) == MOST_ROWS
    assert [each.suspect for each in found.rows] == [True] + [False] * (MOST_ROWS - 1)
    [suspect] = answer.suspects
    own = answer.rows.filter(kind="gpu", id=suspect.id)
    place = {run: column for column, run in enumerate(answer.runs["run"])}
    assert {*np.flatnonzero(found.present[0])} == {place[run] for run in own["run"]}
    guilty = own.filter("guilty")
    assert {*np.flatnonzero(found.guilty[0])} == {place[run] for run in guilty["run"]}
    assert int(found.guilty[0].sum()) == suspect.guilty
    assert int(found.cost_ns.sum(axis=1)[0]) == suspect.cost_ns
    starts = [each.start for each in found.runs]
    assert starts == sorted(starts)
    named = answer.hardware.filter(pl.col("guilty") > 0).height
    assert found.more_rows == named - MOST_ROWS > 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_picture_shows_them(answer: Fleet, theme: str) -> None:
    figure = draw_fleet(answer, theme)
    found = fleet_map(answer)
    there, cost = (np.ma.getmaskarray(each.get_array()) for each in meshes(figure))
    assert np.array_equal(~there, found.present)
    assert np.array_equal(~cost, found.guilty)
    assert Picture(figure).title == answer.sentence
    labels = figure.axes[0].get_yticklabels()
    [suspect] = answer.suspects
    assert labels[0].get_text() == f"{suspect.id} ({suspect.host})"
    assert [each.get_fontweight() for each in labels[:2]] == ["bold", "normal"]
    said = words(figure)
    assert f"{suspect.guilty} of {suspect.runs}, suspect" in said
    assert f"Next: {answer.next[:40]}" in " ".join(said.split())
    assert "cost (rank-hours)" in said
    figure.draw_without_rendering()
    drawn = figure.get_tightbbox()
    assert drawn.x0 >= 0.1
    assert drawn.x1 <= figure.get_size_inches()[0] - 0.05
    background = sum(figure.get_facecolor()[:3])
    assert background > 2.7 if theme == "light" else background < 0.5


def test_runs_in_which_nobody_is_compared_are_hatched(answer: Fleet) -> None:
    collected = fleet(Plan("card", 1))[0]
    blind = collected.runs["run"][3]
    evidence = collected.evidence.with_columns(
        iterations=pl.when(run=blind).then(0).otherwise("iterations")
    )
    found = fleet_of(merged(collected.runs, evidence))
    assert [*np.flatnonzero(fleet_map(found).blind)] == [3]
    assert "run without a comparison" in words(draw_fleet(found))
    assert not fleet_map(answer).blind.any()
    none = fleet_of(
        merged(collected.runs, collected.evidence.with_columns(iterations=0 * pl.col("iterations")))
    )
    with pytest.raises(UsageError, match="no run has compared"):
        draw_fleet(none)


def test_many_runs_are_the_latest_ones(answer: Fleet) -> None:
    many = pl.concat(
        [answer.runs.with_columns(run=pl.format("{}-{}", "run", pl.lit(k))) for k in range(9)]
    )
    found = fleet_map(replace(answer, runs=many))
    assert len(found.runs) == MOST_RUNS
    assert found.more_runs == many.height - MOST_RUNS
    assert "earlier runs left out" in words(draw_fleet(replace(answer, runs=many)))


def test_names_of_hardware_are_harmless(answer: Fleet) -> None:
    hostile = "n\x1b[31m$x$\u202e" + "y" * 300
    changed = answer.hardware.with_columns(host=pl.lit(hostile))
    figure = draw_fleet(replace(answer, hardware=changed))
    assert "\x1b" not in words(figure)
    assert all(len(each.label) < 60 for each in fleet_map(replace(answer, hardware=changed)).rows)


@pytest.mark.parametrize(
    ("cost_ns", "text"),
    [
        (0, "0 rank-seconds"),
        (HOURS // 60, "1 rank-minutes"),
        (90 * HOURS // 60, "1.5 rank-hours"),
        (1250 * HOURS, "1,250 rank-hours"),
    ],
)
def test_costs_have_a_readable_unit(cost_ns: int, text: str) -> None:
    assert cost_text(cost_ns) == text
    assert re.fullmatch(r"[\d.,]+ rank-\w+", cost_text(cost_ns))

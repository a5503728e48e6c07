"""What the slow rank's thread did: real captures in which a reason was planted."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from matplotlib.container import BarContainer
from matplotlib.text import Text

import rankscope
from rankscope.errors import UsageError
from rankscope.output.html.states import cell_states
from rankscope.output.plots import Picture
from rankscope.output.plots.why import _device_title
from tests.support import MakeStored, Stored, captured, change, edit, mostly_slow

Why = Callable[[str], rankscope.Run]


@pytest.fixture
def why(ingested: MakeStored) -> Why:
    """`why(name)`: the run of one of the captures."""
    return lambda name: ingested(captured(f"2023.4/{name}")).run


@pytest.mark.parametrize(
    ("name", "finding"),
    mostly_slow(
        [
            (
                "why_fsync",
                r"Rank 1 in iteration \d+: blocked in (fsync|open64) [\d.]+ ms longer .*",
            ),
            (
                "why_gc",
                r"Rank 1 in iteration \d+: on the CPU in gc_collect [\d.]+ ms longer than .*",
            ),
            ("why_preempted", r"Rank 1 in iteration \d+: off the CPU [\d.]+ ms longer than .*"),
        ]
    ),
)
def test_the_title_says_what_was_planted(why: Why, name: str, finding: str) -> None:
    figure = why(name).plot("why").figure
    assert re.fullmatch(finding, Picture(figure).title)
    labels = [each.get_text() for each in figure.axes[0].get_yticklabels()]
    assert re.fullmatch(r"rank 1 \(slow\) · iteration (\d+)", labels[0])
    assert "(median)" in labels[1]
    assert labels[2].startswith("rank 1 (slow)")


def test_a_bar_is_as_long_as_the_phase(why: Why) -> None:
    run = why("why_fsync")
    axes = run.plot("why", iteration=12).figure.axes[0]
    bars = [each.patches[0] for each in axes.containers if isinstance(each, BarContainer)]
    first = [bar for bar in bars if abs(bar.get_y() + bar.get_height() / 2) < 0.01]
    drawn = sum(bar.get_width() for bar in first)
    states = run.compare().tables.read("host_states", ranks=[1])
    load = states.filter(pl.col("iteration") == 12, pl.col("phase") == "load")["total_ns"].sum()
    assert drawn == pytest.approx(load / 1e6, rel=1e-6)
    named = "\n".join(text.get_text() for text in axes.findobj(Text))
    assert "fsync" in named


def test_where_nothing_is_recorded_it_says_how_to(sample: Stored) -> None:
    run = sample.run
    with pytest.raises(UsageError, match="rank 2 does not say what its threads did") as raised:
        run.plot("why")
    assert "--cpuctxsw=process-tree" in (raised.value.hint or "")


@pytest.mark.slow
def test_samples_without_scheduling_are_no_bars_of_unknown(tmp_path: Path) -> None:
    for report in sorted(captured("2023.4/why_hot").iterdir()):
        copy = Path(shutil.copy(report, tmp_path))
        edit(copy, "drop table SCHED_EVENTS")
        edit(copy, "drop table OSRT_API")
    run = rankscope.ingest([tmp_path], tmp_path / "run.duckdb")
    with pytest.raises(UsageError, match="rank 1 does not say what its threads did") as raised:
        run.plot("why")
    assert "scheduling" in (raised.value.hint or "")


@pytest.mark.slow
def test_wrong_usage(why: Why) -> None:
    run = why("why_gc")
    with pytest.raises(UsageError, match="--iteration-number 99"):
        run.plot("why", iteration=99)


def test_a_rank_that_is_asked_for_is_not_called_slow(why: Why) -> None:
    axes = why("why_gc").plot("why", ranks=[0]).figure.axes[0]
    assert axes.get_yticklabels()[0].get_text().startswith("rank 0 · iteration")


def test_a_rank_that_is_slow_in_no_single_phase(why: Why) -> None:
    """Then all phases are shown, and communication."""
    run = why("why_gc")
    every = run.compare().tables.read("host_states", ranks=[0], iterations=[5])
    axes = run.plot("why", ranks=[0], iteration=5).figure.axes[0]
    bars = [each.patches[0] for each in axes.containers if isinstance(each, BarContainer)]
    first = [bar for bar in bars if abs(bar.get_y() + bar.get_height() / 2) < 0.01]
    assert sum(bar.get_width() for bar in first) == pytest.approx(every["total_ns"].sum() / 1e6)


def test_a_median_rank_without_a_record_is_no_rank_that_did_nothing(
    why: Why, tmp_path: Path
) -> None:
    """Neither the picture nor the page compares with what is unknown."""
    run = why("why_fsync")
    db = tmp_path / "part.duckdb"
    shutil.copy(run.db, db)
    change(db, "delete from host_states where rank != 1")
    part = rankscope.open_run(db)
    with pytest.raises(UsageError, match=r"rank [023] does not say what its threads did"):
        part.plot("why")
    cells = pl.DataFrame({"rank": [1], "iteration": [12]})
    assert cell_states(run.compare(), cells)
    assert cell_states(part.compare(), cells) == {}


def test_kernels_that_the_verdict_names_stand_beside_those_of_the_median_rank(
    stored: MakeStored,
) -> None:
    run = stored("planted", where="forward").run
    verdict = run.compare().verdict
    assert verdict.findings[0].activity == "kernel"
    picture = run.plot("why")
    axes = picture.figure.axes[0]
    labels = [each.get_text() for each in axes.get_yticklabels()]
    shown: dict[str, list[float]] = {"slow": [], "median": []}
    for container in axes.containers:
        assert isinstance(container, BarContainer)
        for bar in container.patches:
            shown[bar.get_gid()].append(bar.get_width())
    apart = dict(zip(labels, np.subtract(shown["slow"], shown["median"]), strict=True))
    for finding in verdict.findings:
        [excess] = [ms for name, ms in apart.items() if name.endswith(finding.name[-12:])]
        assert excess == pytest.approx(finding.excess_ns / 1e6, rel=0.01)
    assert picture.title.startswith("Rank 3: ")
    assert picture.title.removeprefix("Rank 3: ") in verdict.sentence
    assert len(labels) == len(verdict.findings)
    assert re.fullmatch(
        r"Rank 3: \d kernels take [\d.]+ ms or \d+ % longer than on the median rank",
        run.plot("why", iteration=5).title,
    )
    assert "unknown" not in {each.get_text() for each in axes.get_legend().get_texts()}


def test_a_long_name_leaves_the_title_its_number() -> None:
    comparison: Any = SimpleNamespace(verdict=SimpleNamespace(ranks=()))
    row = {"kind": ["kernel"], "name": ["gemm" * 60], "excess_total_ns": [17e6], "usual_ns": [1e6]}
    title = _device_title(comparison, 6, [1], pl.DataFrame(row))
    assert title.endswith(" takes 17.0 ms longer than on the median rank")
    assert len(title) < 100


def test_one_iteration_of_the_device(stored: MakeStored) -> None:
    run = stored("planted", where="forward").run
    said = run.plot("why", iteration=5).figure.findobj(Text)
    assert any("1 iteration (5)" in each.get_text() for each in said)

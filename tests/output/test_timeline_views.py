"""The picture, the page and the Perfetto trace show the same of one timeline."""

import json
from itertools import pairwise
from typing import Any

import polars as pl
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from msgspec.structs import replace

from rankscope.api import picks_of
from rankscope.compare.timeline import LEAST_WAIT_NS, with_last_to_arrive
from rankscope.model.kinds import Phase
from rankscope.model.reports import RunWarning
from rankscope.model.results import Timeline
from rankscope.output.html.lanes import ShownTimeline, timeline_section
from rankscope.output.palette import PHASE_COLORS, THEMES
from rankscope.output.plots import Picture, PlotOptions, draw
from rankscope.output.timeline_views import last_arrival, who_waits
from tests.support import MS, Stored, mostly_slow, traced


class Views:
    """One timeline in all three views."""

    def __init__(self, job: Stored, timeline: Timeline, patch: pytest.MonkeyPatch) -> None:
        analysis = job.analysis()
        module = "rankscope.output.plots.timeline"
        patch.setattr(f"{module}.timeline", lambda *_: timeline)
        patch.setattr(f"{module}.with_last_to_arrive", lambda _, ranks, __: tuple(ranks))
        ranks = tuple((rank, "") for rank in timeline.ranks["rank"])
        options = PlotOptions(iteration=timeline.iterations[0], ranks=ranks)
        self.picture: Figure = draw("timeline", analysis, options)
        picks = picks_of(analysis, None)
        labels = {each.rank: each.label for each in picks.picks}
        self.page: dict[str, Any] = timeline_section(ShownTimeline(timeline), labels)[0]
        self.events: list[dict[str, Any]] = json.loads(traced(timeline))["traceEvents"]

    def marks(self) -> list[list[tuple[int, int]]]:
        """Rank and moment (ns) of each mark, in the picture and on the page."""
        axes = self.picture.axes[0]
        lines = [line for line in axes.lines if line.get_gid() == "last arrival"]
        drawn = [round(line.get_xdata()[0] * MS) for line in lines]
        texts = [text.get_text() for text in axes.texts]
        named = [int(text.split()[1]) for text in texts if text.endswith(" arrives last")]
        return [
            list(zip(named, drawn, strict=True)),
            [(each["rank"], each["at"]) for each in self.page["late"]],
        ]

    def streams(self) -> list[set[str]]:
        """Names of streams in the picture, on the page and in the trace."""
        shapes = self.picture.axes[0].findobj(PolyCollection)
        threads = [e["args"]["name"] for e in self.events if e["name"] == "thread_name"]
        every = (
            [str(shape.get_gid()) for shape in shapes],
            [lane["name"] for lane in self.page["lanes"]],
            threads,
        )
        return [{name for name in names if name.startswith("stream ")} for names in every]


def slow_iteration(job: Stored) -> int:
    return job.analysis().verdict.iterations[1]


@pytest.mark.parametrize("ranks", mostly_slow([[0, 3, 7], [0, 1, 2], [7, 0]]))
def test_all_views_mark_the_same_arrival(
    job: Stored, ranks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 7 is late, whether or not it is shown."""
    timeline = job.timeline(ranks, [slow_iteration(job)])
    marks = Views(job, timeline, monkeypatch).marks()
    assert marks[0] == marks[1]
    [(rank, moment)] = marks[0]
    assert rank == 7
    late = last_arrival(timeline)
    assert late is not None
    assert late.shown == (7 in ranks)
    assert late.longest_wait_ns > 7 * MS
    if late.shown:
        whole = timeline.collectives.filter(rank=7)
        assert moment in whole["arrival_ns"].to_list()


@pytest.mark.slow
def test_a_rank_on_another_clock_does_not_decide(
    job: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = job.timeline([0, 1, 7], [slow_iteration(job)])
    first = timeline.collectives["instance"].drop_nulls().min()
    loose = replace(
        timeline,
        ranks=timeline.ranks.with_columns(
            axis=pl.when(rank=1).then(pl.lit("own")).otherwise("axis")
        ),
        collectives=timeline.collectives.with_columns(
            wait_ns=pl.when(rank=1, instance=first).then(10**12).otherwise("wait_ns")
        ),
    )
    marks = Views(job, loose, monkeypatch).marks()
    assert marks[0] == marks[1]
    assert [rank for rank, _ in marks[0]] == [7]


@pytest.mark.slow
def test_no_view_marks_an_arrival_if_nobody_waits(
    job: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = job.timeline([0, 1], [slow_iteration(job)])
    short = timeline.collectives.with_columns(wait_ns=pl.lit(LEAST_WAIT_NS - 1, pl.Int64))
    quiet = replace(timeline, collectives=short)
    assert Views(job, quiet, monkeypatch).marks() == [[], []]


@pytest.mark.slow
def test_streams_of_other_contexts_and_devices_have_lanes_of_their_own(
    job: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = job.timeline([0, 1], [slow_iteration(job)])
    kernels = timeline.operations.filter(pl.col("kind") != "collective")  # they have stream 24
    timeline = replace(timeline, operations=kernels)
    other = pl.int_range(pl.len()) % 2
    mixed = replace(timeline, operations=timeline.operations.with_columns(context=1 + other))
    for names in Views(job, mixed, monkeypatch).streams():
        assert names == {"stream 7 of context 1", "stream 7 of context 2"}
    mixed = replace(timeline, operations=timeline.operations.with_columns(device=other))
    for names in Views(job, mixed, monkeypatch).streams():
        assert names == {"stream 7 on device 0", "stream 7 on device 1"}
    for names in Views(job, timeline, monkeypatch).streams():
        assert names == {"stream 7"}


def test_a_collective_with_unknown_wait_is_not_called_a_transfer(
    job: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = job.timeline([0], [slow_iteration(job)])
    unknown = timeline.collectives.with_columns(wait_ns=pl.lit(None, pl.Int64))
    views = Views(job, replace(timeline, collectives=unknown), monkeypatch)
    lane = [each["name"] for each in views.page["lanes"]].index("collectives")
    lanes, _, _, parts, _ = views.page["bars"]
    assert {part for at, part in zip(lanes, parts, strict=True) if at == lane} == {
        "exposed_communication"
    }


@pytest.mark.slow
def test_who_is_last_is_shown_though_nobody_picked_it(job: Stored) -> None:
    analysis, slow = job.analysis(), slow_iteration(job)
    assert with_last_to_arrive(analysis, [0, 1, 2], [slow]) == (0, 1, 2, 7)
    assert with_last_to_arrive(analysis, [7, 0], [slow]) == (7, 0)
    options = PlotOptions(iteration=slow, ranks=((0, "min"), (1, "max")))
    picture = draw("timeline", analysis, options)
    said = [text.get_text() for text in picture.axes[0].texts]
    assert "rank 7" in said
    assert any(text.startswith("arrives last") for text in said)
    assert "not shown" not in Picture(picture).title


@pytest.mark.parametrize("name", mostly_slow(["job", "sample"]))
def test_waits_end_where_the_last_one_arrives(name: str, sample: Stored, job: Stored) -> None:
    """On the sample, members of a collective leave it up to 3 ms apart: durations mislead."""
    run = {"sample": sample, "job": job}[name]
    iteration = {"sample": 18, "job": slow_iteration(job)}[name]
    ranks = run.analysis().facts.ranks
    calls = run.timeline(ranks, [iteration]).collectives.drop_nulls("last_rank")
    late = calls.filter(pl.col("rank") == pl.col("last_rank")).select("instance", at="arrival_ns")
    both = calls.join(late, on="instance")
    waiting = both.filter(pl.col("wait_ns") > 0)
    assert waiting.height >= 3
    assert (
        waiting["arrival_ns"] + waiting["wait_ns"]
        == waiting.select(pl.min_horizontal("at", "end_ns")).to_series()
    ).all()
    assert (both.filter(pl.col("rank") == pl.col("last_rank"))["wait_ns"] == 0).all()


def test_titles_say_unknown_where_who_waits_is_unknown(job: Stored) -> None:
    whole = job.timeline([0, 1, 7], [slow_iteration(job)])
    calls = whole.collectives

    def said(**changes: object) -> str:
        changed = replace(whole, **changes)
        return who_waits(changed, last_arrival(changed))

    late = last_arrival(whole)
    assert late is not None
    own = calls.filter(rank=7)
    late = replace(late, moment_ns=own["arrival_ns"].to_list()[-1])
    before = (pl.col("rank") == 7) & (pl.col("end_ns") <= late.moment_ns)
    for wait in (late.longest_wait_ns, None):
        waited = pl.when(before).then(wait).otherwise("wait_ns")
        held = replace(whole, collectives=calls.with_columns(wait_ns=waited))
        says = who_waits(held, late)
        assert says.startswith("rank 7 comes last")
        assert says.endswith("it may have waited itself") == (wait is not None), "short calls"
    rooted = replace(late, calls=late.calls.with_columns(operation=pl.lit("rooted")))
    assert "comes last to the rooted collective, and" in who_waits(whole, rooted)
    nobody = calls.with_columns(last_rank=pl.lit(None, pl.Int64))
    assert "for which rank is unknown" in said(collectives=nobody)
    unmatched = nobody.with_columns(wait_ns=pl.lit(None, pl.Int64))
    assert "it is unknown who waits for whom in" in said(collectives=unmatched)
    brief = calls.with_columns(wait_ns=pl.lit(50_000))
    assert said(collectives=brief) == "no rank keeps the others waiting longer than 0.05 ms"
    late_end = pl.when(rank=1).then(pl.col("end_ns") + 100 * MS).otherwise("end_ns")
    says = said(collectives=brief, windows=whole.windows.with_columns(end_ns=late_end))
    assert "ms; rank 1 ends " in says
    assert says.endswith("ms after the first one")
    apart = whole.ranks.with_columns(axis=pl.lit("own"))
    assert "the clocks are not aligned" in said(ranks=apart)
    quiet = calls.with_columns(wait_ns=pl.lit(0, pl.Int64))
    assert said(collectives=quiet) == "no rank keeps the others waiting"
    assert said(collectives=calls.clear()).startswith("no collective")
    blind = RunWarning("collectives-missing", "no collectives in the report", (0, 1, 7))
    assert said(collectives=calls.clear(), problems=(blind,)).startswith("it is unknown")
    others = RunWarning("waits-lower-bounds", "3 ranks of the job have no report", (3,))
    assert said(problems=(others,)).startswith("of the ranks with a report, rank 7 comes last")
    assert "ranks of the job have no report" in said(collectives=quiet, problems=(others,))


def test_phases_have_one_colour_each() -> None:
    assert [*PHASE_COLORS] == [*Phase]
    for theme in THEMES.values():
        assert [*theme.parts][: len(Phase)] == [phase.value for phase in Phase]
        assert all(f"--{phase}: {theme.parts[phase]};" in theme.css for phase in Phase)
        assert len({*PHASE_COLORS.values(), theme.wait, theme.transfer}) == len(Phase) + 2


@pytest.mark.slow
def test_overlapping_collectives_lie_in_lanes_of_the_page(
    job: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    timeline = job.timeline([0, 7], [slow_iteration(job)])
    page = Views(job, timeline, monkeypatch).page
    names = [each["name"] for each in page["lanes"]]
    assert "collectives (2)" in names
    lanes, starts, ends, *_ = page["bars"]
    for place, name in enumerate(names):
        if name.startswith("collectives"):
            bars = sorted(
                (start, end)
                for lane, start, end in zip(lanes, starts, ends, strict=True)
                if lane == place
            )
            assert all(first[1] <= then[0] for first, then in pairwise(bars)), name

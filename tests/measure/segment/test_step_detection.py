"""Steps without markers: real and forged jobs whose iteration ranges were taken away."""

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import rankscope
from rankscope.measure.segment import find_steps, periodicity
from rankscope.measure.segment.periodicity import find_period
from rankscope.measure.segment.step_borders import StepEvents, step_begins
from rankscope.model.frames import with_series
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import Trace
from rankscope.sources.conventions import vocabulary
from rankscope.sources.kineto import reader
from rankscope.sources.nsys import exports
from tests.forge import Markers, forge, scene
from tests.support import (
    Cli,
    MakeForged,
    MakeStored,
    captured,
    edit,
    mostly_nightly,
    mostly_slow,
    public,
    sqlite_tables,
    unpacked,
)

BARE = Markers(*[None] * 7)
"""No range at all."""

WITHIN = 0.01
"""Of a step."""


def unmarked(tmp_path: Path, name: str, bare: bool, **parameters: object) -> Path:
    """A forged job of four ranks without iteration ranges, or without any."""
    job = scene(name, ranks=4, **parameters)
    markers = BARE if bare else replace(job.markers, iteration=None)
    forge(replace(job, markers=markers), tmp_path / "unmarked")
    return tmp_path / "unmarked"


def ends(run: rankscope.Run) -> dict[int, list[int]]:
    rows = run.sql("select rank, end_ns from iterations where complete order by rank, iteration")
    return {int(rank): part["end_ns"].to_list() for (rank,), part in rows.group_by("rank")}


def assert_same_borders(found: rankscope.Run, marked: rankscope.Run, steps: int) -> None:
    """Every step ends where a marked one does, within 1 % of it, and as many on every rank."""
    theirs = ends(marked)
    for rank, own in ends(found).items():
        true = np.array(theirs[rank])
        off = np.abs(np.array(own)[:, None] - true[None, :]).min(axis=1)
        assert off.max() <= WITHIN * np.median(np.diff(true)), rank
        assert len(own) == steps, rank


def assert_in_the_pause(trace: Trace, found: list[int], marked: list[int]) -> None:
    """Every marked step ends between the found end and the next event: no event tells more."""
    phases = trace.ranges.whole.filter(pl.col("name").str.contains("(?i)load|forward"))
    main = trace.ranges.whole.filter(pl.col("thread") == phases["thread"][0])
    starts = np.append(main["start"].sort().to_numpy(), np.iinfo(np.int64).max)
    own, true = np.array(found), np.array(marked)
    assert (own <= true).all()
    assert (true <= starts[np.searchsorted(starts, own, side="right")]).all()


@pytest.mark.parametrize(
    ("name", "bare"),
    [
        *mostly_slow(
            [
                ("plain", False),
                ("host_only", False),
                ("buckets", True),
                ("no_sync", True),
                ("cuda_graph", True),
                ("no_launch_record", True),
            ]
        ),
        *mostly_nightly(
            [
                ("load_between", False),
                ("free_running", False),
                ("tensor_parallel", True),
                ("trailing_all_gather", True),
                ("micro_batches", True),
                ("dali", True),
            ],
            0,
        ),
    ],
)
def test_forged_jobs(stored: MakeStored, tmp_path: Path, name: str, bare: bool) -> None:
    folder = unmarked(tmp_path, name, bare)
    found = rankscope.ingest([folder], tmp_path / "found.duckdb", iteration="auto")
    assert_same_borders(found, stored(name).run, 32 if name == "no_sync" else 30)
    [said] = [each for each in found.compare().warnings if each.code == "steps-found"]
    assert said.ranks == (0, 1, 2, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "where", "bare"),
    mostly_nightly(
        [("persistent", "load", False), ("periodic", "forward", True), ("periodic", "load", False)],
        2,
    ),
)
def test_the_planted_straggler_is_found(tmp_path: Path, kind: str, where: str, bare: bool) -> None:
    folder = unmarked(tmp_path, "planted", bare, kind=kind, where=where, rank=2)
    run = rankscope.ingest([folder], tmp_path / "run.duckdb", iteration="auto")
    verdict = run.imbalance().verdict
    assert (verdict.kind, verdict.ranks) == (kind, (2,))
    assert verdict.cause == (None if bare else where)
    assert verdict.period == (5 if kind == "periodic" else None)
    assert run.compare().facts.matched_by == "ordinal"


@pytest.mark.slow
def test_a_capture_that_starts_later_is_shifted(tmp_path: Path) -> None:
    """The last rank's capture begins two steps after the others'."""
    folder = unmarked(tmp_path, "late_capture", False)
    run = rankscope.ingest([folder], tmp_path / "run.duckdb", iteration="auto")
    assert "windows-shifted" in {each.code for each in run.compare().warnings}
    verdict = run.imbalance().verdict
    assert (verdict.ranks, verdict.period) == ((0,), 7)


@pytest.mark.slow
@pytest.mark.parametrize(
    "job", mostly_nightly(["2023.4/ddp_a", "2022.4/mpi", "2022.4/ddp_a", "2022.4/ddp_b"])
)
def test_real_jobs(tmp_path: Path, ingested: MakeStored, job: str) -> None:
    phases = {"backward": "Compute"} if job.endswith("mpi") else {}
    reports = unpacked(captured(job), tmp_path / "reports")
    marked = ingested(captured(job), **({"phases": phases} if phases else {})).run
    for report in reports.iterdir():
        names = "coalesce(text, (select value from StringIds where id = textId))"
        edit(report, f"delete from NVTX_EVENTS where {names} like 'Batch%'")
    found = rankscope.ingest([reports], tmp_path / "found.duckdb", phases=phases)
    [said] = [each for each in found.compare().warnings if each.code == "steps-found"]
    assert "--iteration auto" in said.message
    assert said.ranks == (0, 1, 2, 3), "one warning for all"
    off = [
        abs(own - true) / np.median(np.diff(theirs))
        for rank, theirs in ends(marked).items()
        for own, true in zip(ends(found)[rank], theirs, strict=True)
    ]
    assert np.quantile(off, 0.95) < WITHIN, "two cores for four ranks: some are switched out"
    for report in reports.iterdir():
        rank = int(report.stem.rpartition("_")[2])
        assert_in_the_pause(exports.read(report), ends(found)[rank], ends(marked)[rank])
    verdict = found.imbalance().verdict
    assert (verdict.ranks, verdict.cause, verdict.period) == ((1,), "load", 7)
    assert verdict.iterations == (3, 10, 17, 24, 31, 38)


@pytest.mark.parametrize(
    ("name", "steps"),
    mostly_slow([("tb_resnet50_old_format.json.gz", 6), ("hta_2ranks_rank1_5steps.json.gz", 5)]),
)
def test_real_traces_of_pytorch(tmp_path: Path, name: str, steps: int) -> None:
    """Operators throughout: loading by name or not at all, and no phase but the optimizer."""
    trace = reader.read(public(f"kineto/{name}"))
    is_step = pl.col("name").str.starts_with("ProfilerStep#")
    marked = trace.ranges.whole.filter(is_step, domain="").unique("name").sort("start")["end"]
    unmarked = trace.ranges.whole.filter(~is_step)
    named = with_series(unmarked, *vocabulary(ShapingOptions()).meanings(unmarked))
    found = find_steps(named, trace.device_work.whole).iterations
    assert found is not None
    off = np.abs(found.frame["end"].to_numpy() - marked.to_numpy())
    assert len(marked) == found.frame.height == steps
    assert off.max() <= WITHIN * np.median(np.diff(marked.to_numpy()))


@pytest.mark.slow
def test_the_newest_export_without_any_step_ranges(tmp_path: Path) -> None:
    report = public("nsys/mfu_2gpu_before.sqlite")
    run = rankscope.ingest([report], tmp_path / "run.duckdb", iteration="auto")
    lengths = run.sql("select rank, end_ns - start_ns as ns from iterations")
    assert {*lengths["rank"]} == {0, 1}
    assert lengths.group_by("rank").len()["len"].to_list() == [16, 16]
    assert 16e6 < float(lengths["ns"].median()) < 19e6


@pytest.mark.slow
def test_one_rank_alone_works_off_its_kernels(tmp_path: Path) -> None:
    job = replace(scene("plain", ranks=1), markers=BARE)
    forge(job, tmp_path / "reports")
    [report] = (tmp_path / "reports").glob("*.sqlite")
    edit(report, "delete from StringIds where value like 'nccl%'")
    run = rankscope.ingest([report], tmp_path / "run.duckdb", iteration="auto")
    assert run.sql("select count(*) from iterations").item() == 30
    [said] = [each for each in run.compare().warnings if each.code == "steps-found"]
    assert "kernels" in said.message


def launches(host: np.ndarray) -> StepEvents:
    """Ten launches in each step, at `host` (ms), whose 6th and 8th are collectives.

    The device is always busy.
    """
    at = np.tile(np.arange(10), len(host))
    names = [f"kernel {each}" for each in at]
    start = (2 * np.arange(at.size) + 1) * 1_000_000
    work = pl.DataFrame({"start": start, "end": start + 2_000_000, "name": names})
    work = work.with_columns(
        host=pl.Series((host.ravel() * 1_000_000).astype(np.int64)),
        collective=pl.Series(np.isin(at, [6, 8])),
        main=True,
    )
    calls = work.filter("collective").select("start", "end", "host", kind="name")
    nothing = calls.clear().select("start", "end", name="kind", means="kind")
    return StepEvents(0, nothing, work, calls)


def begins_at(events: StepEvents) -> list[int]:
    """Which launch of a step begins each of the steps that are found."""
    host = events.work["host"].to_numpy()
    begins = step_begins(events, host[6::10])
    return (np.searchsorted(host, begins) % 10).tolist()


@pytest.mark.parametrize("stalled", [1, 2, 5])
def test_a_host_that_stalls_now_and_then_moves_no_border(stalled: int) -> None:
    """It launches a step in 10 ms, then pauses for 2; in every third step it stalls for 15."""
    pauses = np.ones((12, 10))
    pauses[:, 0] = 2
    pauses[2::3, stalled] = 15
    assert begins_at(launches(np.cumsum(pauses).reshape(12, 10))) == [0] * 11


def test_lost_records_and_a_cut_begin_move_no_border() -> None:
    """Kernels have one name; the capture begins in the first step, and one of the sixth is lost."""
    pauses = np.ones((12, 10))
    pauses[:, 0] = 2
    host = np.cumsum(pauses).reshape(12, 10)
    events = launches(host)
    work = events.work.with_columns(
        name=pl.when("collective").then("name").otherwise(pl.lit("kernel"))
    )
    work = work.filter(~pl.int_range(pl.len()).is_in([*range(8), 59]))
    anchors = events.work["host"].to_numpy()[16::10]
    begins = step_begins(StepEvents(0, events.ranges, work, events.collectives), anchors)
    assert (begins / 1e6).tolist() == host[1:, 0].tolist()


def test_a_host_that_never_pauses_has_its_border_behind_the_last_collective() -> None:
    """All launches come 1 ms apart, but in every third step it stalls before the last one."""
    pauses = np.ones((12, 10))
    pauses[2::3, 8] = 15
    assert begins_at(launches(np.cumsum(pauses).reshape(12, 10))) == [9] * 11


def test_steps_that_a_host_launches_ahead_are_those_of_the_others(tmp_path: Path) -> None:
    """Rank 2 launches five times faster, and its device takes as long as all others."""
    folder = unmarked(tmp_path, "free_running", True, iterations=8)
    faster = "update CUPTI_ACTIVITY_KIND_RUNTIME set start = start / 5, end = end / 5"
    edit(folder / "report_rank_2.sqlite", faster)
    run = rankscope.ingest([folder], tmp_path / "run.duckdb")
    assert run.compare().facts.iterations == tuple(range(1, 8))
    slower = ", ".join(f"{each} = 2 * {each}" for each in ("start", "end"))
    for table in ("RUNTIME", "KERNEL", "MEMCPY", "MEMSET"):
        name = f"CUPTI_ACTIVITY_KIND_{table}"
        if name in sqlite_tables(folder / "report_rank_1.sqlite"):
            edit(folder / "report_rank_1.sqlite", f"update {name} set {slower}")
    run = rankscope.ingest([folder], tmp_path / "run.duckdb", rebuild=True)
    assert run.compare().facts.iterations == (0,), "a step is another one where it lasts twice"


def test_ranges_of_collectives_tell_no_pause_of_a_host_that_launches() -> None:
    """Launches at 0 to 9 ms of each 20, collectives at 6 and 8; the device is always busy."""
    events = launches(20 * np.arange(6)[:, None] + np.arange(10))
    host, calls = events.work["host"].to_numpy(), events.collectives
    ranges = calls.select(start="host", end=pl.col("host") + 1000, name="kind")
    ranges = ranges.with_columns(means=pl.lit("collective"))
    begins = step_begins(StepEvents(0, ranges, events.work, calls), host[6::10])
    assert np.diff(begins).tolist() == [20_000_000] * (len(begins) - 1)
    assert begins[-1] == 100_000_000


def test_ranges_of_collectives_tell_the_pauses_of_a_host_that_launches_nothing() -> None:
    """Of each 20 ms `a` has 2, a collective 10, `b` 2; then the host pauses."""
    at = [
        (20 * step + begin, lasts)
        for step in range(6)
        for begin, lasts in ((0, 2), (2, 10), (12, 2))
    ]
    ranges = pl.DataFrame({"start": [begin for begin, _ in at], "end": [sum(each) for each in at]})
    ranges = (ranges * 1_000_000).with_columns(
        name=pl.Series(["a", "reduce", "b"] * 6), means=pl.Series([None, "collective", None] * 6)
    )
    nothing = pl.Series([], dtype=pl.Int64)
    work = pl.DataFrame({"start": nothing, "end": nothing, "host": nothing, "name": []})
    begins = step_begins(StepEvents(0, ranges, work, work), ranges["start"].to_numpy()[1::3])
    assert {*(begins // 1_000_000 % 20).tolist()} == {0}


@pytest.mark.slow
def test_what_does_not_repeat_is_one_iteration(
    forged: MakeForged, cli: Cli, tmp_path: Path
) -> None:
    report = Path(shutil.copy(forged("host_only").reports[0], tmp_path / "report_rank_0.sqlite"))
    edit(report, "update NVTX_EVENTS set text = 'r' || hex(randomblob(9)) where eventType = 59")
    done = cli("ingest", report, "--iteration", "auto")
    assert done.code == 0
    assert "each capture is one iteration" in done.err


def test_a_layer_is_no_step() -> None:
    """What a step does once tells it from the layers inside it."""
    step = [0, *([1, 2, 3, 4] * 12), 5, *([6, 7, 4] * 12), 8, 9]
    period = find_period(np.array(step * 6))
    assert period is not None
    assert (period.length, period.match) == (len(step), 1.0)
    assert np.diff(period.anchors).tolist() == [len(step)] * 5


def test_a_period_amid_disturbances() -> None:
    """A checkpoint now and then, and a capture that begins and ends inside a step."""
    draw = np.random.default_rng(0)
    events = np.array([0, 1, 1, 2, 3, 3, 3, 4] * 40)
    for at in draw.integers(20, 300, 3):
        events = np.insert(events, at, [9, 9, 8])
    period = find_period(events[3:-2])
    assert period is not None
    assert period.length == 8
    assert period.match > 0.6
    assert len(period.anchors) == pytest.approx(40, abs=2)


@pytest.mark.parametrize("dense", [0, 10**9])
def test_a_match_is_the_share_that_recurs(dense: int) -> None:
    """Whether kinds are compared pair by pair or by FFT: as its definition counts them."""
    draw = np.random.default_rng(1)
    events = np.resize(draw.integers(0, 12, 37), 400)
    events[draw.integers(0, 400, 30)] = draw.integers(0, 12, 30)
    shares = [
        [(events[:-d] == kind)[events[d:] == kind].sum() / (events[:-d] == kind).sum()]
        for d in range(1, 134)
        for kind in np.unique(events)
    ]
    match = np.reshape(shares, (133, -1)).mean(axis=1)
    first = int(np.flatnonzero(match >= match.max() - periodicity.SLACK)[0])
    period = find_period(events, dense=dense, at_once=50)
    assert period is not None
    assert (period.length, period.match) == (first + 1, pytest.approx(match[first]))


@pytest.mark.parametrize("share", [0, 0.002, 0.05])
def test_few_distances_decide_as_all_do(share: float) -> None:
    """Where rare events leave few distances, some of them half a step, or too noisy to decide."""
    draw = np.random.default_rng(2)
    half = draw.integers(1, 6, 60)
    events = np.tile(np.concatenate(([0], half, [7], half)), 60)
    events[draw.random(len(events)) < share] = 6
    every = find_period(events, tries=0)  # without the limits
    limited = find_period(events)
    assert every is not None
    assert limited is not None
    assert (limited.length, limited.match) == (every.length, every.match)
    assert limited.anchors.tolist() == every.anchors.tolist()


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_one_kernel_many_times_is_no_step(names: list[str]) -> None:
    """A benchmark without ranges: thousands of steps would take as long as they are wrong."""
    count = 2000 * len(names)
    kinds = np.repeat(np.arange(len(names)), 2000)
    if len(names) > 1:
        assert find_period(kinds) is None
    start = 20_000 * np.arange(count)
    work = pl.DataFrame(
        {"name": np.array(names)[kinds], "start": start, "end": start + 9000},
    ).with_columns(
        process=1, launch=pl.col("start") - 5000, launch_thread=1, kind=pl.lit("kernel"),
        device=0, context=1, stream=7, communicator=pl.lit(None, pl.String),
        bytes=pl.lit(None, pl.Int64), grid=16, operation=pl.lit(None, pl.String),
    )  # fmt: skip
    ranges = pl.DataFrame(
        schema={
            **dict.fromkeys(("process", "thread", "start", "end"), pl.Int64),
            **dict.fromkeys(("name", "means"), pl.String),
        }
    )
    assert not find_steps(ranges, work).sure


@pytest.mark.parametrize("events", [[], [1], [1, 2], [1, 2, 3, 4, 5, 6]])
def test_too_little_has_no_period(events: list[int]) -> None:
    period = find_period(np.array(events, dtype=np.int64))
    assert period is None or period.match == 0

"""What real files do: waits nobody knows, records that are lost, names and clocks that mislead."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rankscope
from rankscope.errors import ReportError
from tests.pytorch_job import GRADIENTS, Edit, Job, kernels, without, write
from tests.support import Result, mostly_slow

EXTRA_MS = 4.0
PLAIN = Job(between=None)

SYMMETRIC = "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)"
CUSTOM = "void vllm::cross_device_reduce_1stage<float, 4>(vllm::RankData*, int)"
STRANGER = "void acme::exchange<float>(float*)"


def read(folder: Path, **options: Any) -> rankscope.Run:
    return rankscope.ingest([folder], folder.with_suffix(".duckdb"), jobs=1, **options)


def codes(run: rankscope.Run) -> dict[str, str]:
    return {each.code: each.message for each in run.compare().warnings}


def mean_ms(run: rankscope.Run, metric: str) -> dict[int, float]:
    """rank → mean of a metric in the selected iterations, ms."""
    rows = run.compare().rows([metric])
    means = rows.group_by("rank").agg(pl.col(f"{metric}_ns").mean() / 1e6).sort("rank")
    return dict(means.iter_rows())


def assert_slow(run: rankscope.Run, rank: int = 2) -> None:
    """The slow rank is found, with what it costs, or an upper bound of that."""
    verdict = run.compare().verdict
    steps = len(run.compare().facts.iterations)
    assert (verdict.kind, verdict.ranks) == ("persistent", (rank,)), verdict.sentence
    assert verdict.gain_ns is not None
    gain = verdict.gain_ns / 1e6 / steps
    assert gain == pytest.approx(EXTRA_MS, rel=0.06) or (verdict.gain_is_bound and gain >= 3.9)


@pytest.mark.parametrize(
    ("between", "operator", "stated"),
    mostly_slow(
        [
            (CUSTOM, None, None),
            (STRANGER, "nccl:all_reduce", None),
            (STRANGER, None, "_reduce_scatter_base"),
            (SYMMETRIC, None, None),
            ("ncclDevKernel_Generic_1(x)", None, "allreduce"),
            ("ncclDevKernel_SendRecv(x)", "nccl:all_to_all", None),
        ],
        3,
    ),
)
def test_waits_are_known_by_what_is_stated_or_by_the_name(
    tmp_path: Path, between: str, operator: str | None, stated: str | None
) -> None:
    job = Job(between=between, operator=operator, stated=stated)
    run = read(write(tmp_path / "job", job))
    assert_slow(run)
    assert run.compare().verdict.cause == "backward"
    assert not run.compare().verdict.gain_is_bound


def test_all_to_all_matches_though_ranks_send_different_sizes(tmp_path: Path) -> None:
    def uneven(rank: int, trace: dict[str, Any]) -> None:
        for each in kernels(trace):
            if "Seq" in each["args"] and each["args"]["Process Group Name"] == "1":
                each["args"]["In msg nelems"] = 1000 * (rank + 1)

    job = Job(between="ncclDevKernel_SendRecv(x)", operator=None, stated="all_to_allv")
    assert_slow(read(write(tmp_path / "job", job, uneven)))


@pytest.mark.parametrize("steps", mostly_slow([8, 1]))
def test_a_record_that_is_missing_shifts_no_other_call(tmp_path: Path, steps: int) -> None:
    """A rank's trace lacks calls: the second of a step, the first one, and the last one."""
    gone = (8, 19, 36) if steps > 1 else (2,)

    def lossy(rank: int, trace: dict[str, Any]) -> None:
        calls = [e for e in kernels(trace) if e["args"].get("Process Group Name") == "1"]
        for each in calls if rank == 1 else []:
            if each["args"]["Seq"] in gone:
                link = each["args"]["correlation"]
                events = trace["traceEvents"]
                trace["traceEvents"] = [e for e in events if e["args"].get("correlation") != link]

    run = read(write(tmp_path / "job", Job(steps=steps), lossy), iteration="ProfilerStep#(\\d+)")
    matched = run.compare().matching.summary.unmatched
    assert matched.group_by("rank").agg(pl.col("count").sum()).sort("rank").rows() == [
        (0, len(gone)),
        (2, len(gone)),
        (3, len(gone)),
    ]
    timeline = run.timeline([*range(4)], [*run.compare().facts.iterations])
    ends = timeline.collectives.group_by("iteration", "communicator", "instance")
    apart = ends.agg(apart=pl.col("end_ns").max() - pl.col("end_ns").min())
    assert apart["apart"].max() < 10_000, "all ranks leave a call together"


@pytest.mark.parametrize("named", [False, True])
def test_a_kernel_that_nobody_knows_is_told_or_named(tmp_path: Path, named: bool) -> None:
    folder = write(tmp_path / "job", Job(between=STRANGER, operator=None, stated=None))
    if named:
        assert_slow(read(folder, collectives={"all_reduce": "^exchange$"}))
        return
    verdict = read(folder).compare().verdict
    assert verdict.kind == "inconclusive"
    assert "kernel exchange may wait" in verdict.sentence
    assert "rank 2" in verdict.sentence
    assert "--collective" in verdict.next


def test_the_option_is_checked(tmp_path: Path, cli: Callable[..., Result]) -> None:
    folder = write(tmp_path / "job", replace(PLAIN, steps=3))
    cli("ingest", folder, "--collective", "exchange").refused(2, "NAME=REGEX")
    cli("ingest", folder, "--collective", "sum=x").refused(2, "all_reduce")
    cli("ingest", folder, "--collective", "barrier=(").refused(2, "regular expression")


@pytest.mark.parametrize("stated", mostly_slow([None, "broadcast"]))
def test_what_was_not_matched_is_not_free(tmp_path: Path, stated: str | None) -> None:
    job = Job(between="ncclDevKernel_Generic(x)", operator=None, stated=stated)
    run = read(write(tmp_path / "job", job))
    assert_slow(run)
    assert run.compare().verdict.gain_is_bound


@pytest.mark.parametrize("heads", mostly_slow(["ProfilerStep", "ProfilerStep|Distributed"]))
def test_time_before_the_first_phase_is_not_loading(tmp_path: Path, heads: str) -> None:
    run = read(write(tmp_path / "job", PLAIN, without(*heads.split("|"))))
    assert_slow(run)
    assert run.compare().verdict.cause == "backward"
    assert mean_ms(run, "load") == pytest.approx(dict.fromkeys(range(4), 2.1), abs=0.15)
    assert mean_ms(run, "optimizer") == pytest.approx(dict.fromkeys(range(4), 2.0), abs=0.1)


def test_a_phase_that_no_range_names_is_said(tmp_path: Path) -> None:
    heads = ("ProfilerStep", "autograd", "aten", "nccl:", "Distributed")

    def edit(rank: int, trace: dict[str, Any]) -> None:
        without(*heads)(rank, trace)
        for each in trace["traceEvents"]:
            if each["name"].startswith("Optimizer.step"):
                each["name"] = "optimizer"

    run = read(write(tmp_path / "job", PLAIN, edit), iteration="whole")
    assert "named like forward or backward" in codes(run)["phase-unnamed"]
    assert all(load < 3 for load in mean_ms(run, "load").values() if load is not None)


def test_the_range_that_may_be_the_phase_is_named(
    tmp_path: Path, cli: Callable[..., Result]
) -> None:
    """A job on CPUs whose ranges are a loader's, and one whose name says nothing."""

    def edit(_rank: int, trace: dict[str, Any]) -> None:
        steps = [e for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep")]
        parts = {"load": (0.0, 0.2), "Crunch it": (0.2, 0.95)}
        trace["traceEvents"] = steps + [
            {**step, "name": name, "ts": step["ts"] + begin * step["dur"],
             "dur": (end - begin) * step["dur"]}
            for step in steps
            for name, (begin, end) in parts.items()
        ]  # fmt: skip

    folder = write(tmp_path / "job", PLAIN, edit)
    said = codes(read(folder))["phase-unnamed"]
    assert "ranges Crunch it" in said
    option = said.rpartition("--phase ")[2]
    assert option == r"'backward=^Crunch\ it'"
    assert "Crunch it" in cli("check", folder, "-v").out
    run = rankscope.ingest(
        [folder], tmp_path / "b.duckdb", phases={"backward": r"^Crunch\ it"}, jobs=1
    )
    assert "phase-unnamed" not in codes(run)
    assert all(value > 10 for value in mean_ms(run, "backward").values())


def lost(rank: int, which: Callable[[int, int], bool], zero: bool) -> Edit:
    """An edit that takes away some kernels of a rank, or their times."""

    def edit(own: int, trace: dict[str, Any]) -> None:
        if own != rank:
            return
        every = [each for each in kernels(trace) if "nccl" not in each["name"]]
        gone = [each for nth, each in enumerate(every) if which(nth, len(every))]
        for each in gone:
            each["ts"] = each["dur"] = 0.0
        if not zero:
            trace["traceEvents"] = [e for e in trace["traceEvents"] if e["ts"] or e not in gone]

    return edit


@pytest.mark.parametrize("zero", mostly_slow([False, True]))
def test_records_that_are_missing_are_no_idle_time(tmp_path: Path, zero: bool) -> None:
    half = lost(1, lambda nth, count: 2 * nth >= count, zero)
    run = read(write(tmp_path / "job", PLAIN, half))
    found = codes(run)
    assert "42 of 96 launches of kernels (44 %)" in found["records-missing"]
    assert run.compare().facts.iterations == (1, 2, 3, 4, 5)
    assert_slow(run)
    assert 1 not in run.compare().verdict.named


def test_a_few_lost_records_here_and_there_give_no_exact_gain(tmp_path: Path) -> None:
    some = lost(1, lambda nth, _count: nth in (30, 58), zero=False)
    run = read(write(tmp_path / "job", replace(PLAIN, steps=16), some))
    assert set(range(16)) - {*run.compare().facts.iterations} == {0, 4, 5, 8, 9}
    assert_slow(run)
    assert run.compare().verdict.gain_is_bound


def test_kernels_before_their_launches_are_moved(tmp_path: Path) -> None:
    def early(rank: int, trace: dict[str, Any]) -> None:
        if rank == 1:
            for each in kernels(trace):
                each["ts"] = round(each["ts"] - 15_000, 3)

    run = read(write(tmp_path / "job", PLAIN, early))
    assert "ms early" in codes(run)["device-clock-early"]
    assert_slow(run)
    assert mean_ms(run, "load") == pytest.approx(dict.fromkeys(range(4), 2.1), abs=0.15)


def test_kernels_without_launches_are_placed_by_their_starts(tmp_path: Path) -> None:
    bare = without("cudaLaunchKernel", "aten", "autograd", "nccl:")
    run = read(write(tmp_path / "job", PLAIN, bare))
    assert_slow(run)
    assert "100 %" in codes(run)["launches-missing"]
    assert run.compare().rows(["backward"])["backward_ns"].null_count() > 0


def test_layers_are_no_steps(tmp_path: Path) -> None:
    """One step of a server whose layers repeat, below a range whose name nobody knows."""

    def one(rank: int, trace: dict[str, Any]) -> None:
        without("ProfilerStep", "Optimizer", "Distributed", "aten", "autograd")(rank, trace)
        events = trace["traceEvents"]
        begin = min(each["ts"] for each in events)
        end = max(each["ts"] + each["dur"] for each in events)
        for each in events:
            if each["cat"] != "kernel":
                each["tid"] = 1
        span = {"ts": begin - 5, "dur": end - begin + 10}
        host = next(each for each in events if each["cat"] == "cuda_runtime" and each["tid"] == 1)
        events.append({**host, **span, "cat": "user_annotation", "name": "request", "args": {}})

    run = read(write(tmp_path / "job", PLAIN, one))
    assert run.compare().facts.iterations == (0,)
    assert "each capture is one iteration" in codes(run)["capture-whole"]


@pytest.mark.parametrize(
    "name",
    mostly_slow(
        [
            "execute_context_0(0)_generation_{0}({0})",
            "step[DECODE bs={0}]",
            "execute_{0}_context_1(8)",
        ]
    ),
)
def test_steps_of_servers(tmp_path: Path, name: str) -> None:
    def renamed(_rank: int, trace: dict[str, Any]) -> None:
        for each in trace["traceEvents"]:
            if each["name"].startswith("ProfilerStep"):
                each["name"] = name.format(each["name"].partition("#")[2])

    run = read(write(tmp_path / "job", PLAIN, renamed))
    assert len(run.compare().facts.iterations) == 11
    assert_slow(run)


@pytest.mark.parametrize("stated", [False, True])
def test_one_file_of_all_ranks(tmp_path: Path, stated: bool) -> None:
    """Ids of launches are unique in a process, not in the file."""
    folder = write(tmp_path / "parts", PLAIN)
    events = []
    for rank in (0, 1, 2, 3):
        trace = json.loads((folder / f"rank{rank}.pt.trace.json").read_text())
        for each in trace["traceEvents"]:
            each["pid"] += 1000 * (4 - rank) if stated else 1000 * rank
            if stated:
                each["args"]["rank"] = rank
            elif each["cat"] == "kernel":
                each["args"]["device"] = rank
            events.append(each)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "merged.json").write_text(json.dumps({"traceEvents": events}))
    run = read(tmp_path / "job")
    assert_slow(run)
    assert ("ranks-by-order" in codes(run)) is not stated


def test_iterations_that_cannot_be_paired_are_captures(tmp_path: Path) -> None:
    """Every few steps of a rank reduce with another collective, and never in the same steps."""

    def odd(rank: int, trace: dict[str, Any]) -> None:
        without("ProfilerStep")(rank, trace)
        calls = [each for each in kernels(trace) if "Seq" in each["args"]]
        for each in calls[:: 3 + rank % 2]:
            each["args"]["Collective name"] = "_allgather_base"

    job = replace(PLAIN, ranks=2, slow=1, steps=40)
    folder = write(tmp_path / "job", job, odd)
    run = read(folder)
    assert run.compare().facts.iterations == (0,)
    assert "capture-whole" in codes(run)
    named = rankscope.ingest([folder], tmp_path / "a.duckdb", iteration="^Optimizer", jobs=1)
    assert named.compare().facts.iterations == (0,)
    assert "match at no shift" in codes(named)["capture-whole"]
    # the other rank comes later, while the first report is there, and when it has gone
    first, second = sorted(folder.iterdir())
    added = tmp_path / "b.duckdb"
    for path in (first, second):
        run = rankscope.ingest([path], added, iteration="^Optimizer", jobs=1)
    assert run.compare().facts.iterations == (0,)
    assert "match at no shift" in codes(run)["capture-whole"]
    assert not run.compare().verdict.sentence.startswith("Cannot")
    gone = tmp_path / "c.duckdb"
    alone = rankscope.ingest([first], gone, iteration="^Optimizer", jobs=1).compare().facts
    first.unlink()
    with pytest.raises(ReportError, match="is not as it was"):
        rankscope.ingest([second], gone, iteration="^Optimizer", jobs=1)
    assert rankscope.open_run(gone).compare().facts == alone, "the database is as before"


NAMES = ["run-1718.32-TP-{}-DP-0-PP-0.trace.json", "rank{}/trace.json", "host_{}_of.json"]


@pytest.mark.parametrize("name", mostly_slow(NAMES))
def test_ranks_in_names(tmp_path: Path, name: str) -> None:
    def silent(_rank: int, trace: dict[str, Any]) -> None:
        del trace["distributedInfo"]

    for rank in range(4):
        (tmp_path / "job" / name.format(rank)).parent.mkdir(parents=True, exist_ok=True)
    assert_slow(read(write(tmp_path / "job", PLAIN, silent, name)))


def test_a_hint_has_a_pattern_that_fits_the_path(tmp_path: Path) -> None:
    def silent(_rank: int, trace: dict[str, Any]) -> None:
        del trace["distributedInfo"]

    job = replace(PLAIN, ranks=2, steps=2)
    folder = write(tmp_path / "job", job, silent, "TP-{}-DP-7-x.json")
    for path in folder.iterdir():  # 3 and 4: no number counts the reports from 0
        path.rename(path.with_name(path.name.replace("TP-0", "TP-3").replace("TP-1", "TP-4")))
    with pytest.raises(ReportError) as refused:
        read(folder)
    assert r"--rank-pattern 'TP\-(?P<rank>\d+)'" in (refused.value.hint or "")


def test_a_hosts_clock_does_not_part_a_job(tmp_path: Path, cli: Callable[..., Result]) -> None:
    def late(rank: int, trace: dict[str, Any]) -> None:
        trace["host_name"] = f"node{rank // 2}"
        trace["baseTimeNanoseconds"] += 300 * 10**9 if rank > 1 else 0

    folder = write(tmp_path / "job", PLAIN, late)
    assert cli("check", folder).code == 0
    run = read(folder)
    assert_slow(run)
    assert "300 s ahead" in codes(run)["clock-wrong"]


def test_one_bad_event_costs_one_event(tmp_path: Path) -> None:
    folder = write(tmp_path / "job", PLAIN)
    bad = '{"ph": "X", "cat": "python_function", "name": "f("x")\n", "ts": 1, "dur": 0}, '
    for path in folder.iterdir():
        text = path.read_text()
        at = text.index('"traceEvents": [') + len('"traceEvents": [')
        path.write_text(text[:at] + bad + text[at:])
    run = read(folder)
    assert_slow(run)
    assert codes(run)["rows-broken"].startswith("ranks 0, 1, 2, 3: 1 event")


def test_a_cut_trace_keeps_its_complete_steps(tmp_path: Path) -> None:
    folder = write(tmp_path / "job", PLAIN)
    path = folder / "rank3.pt.trace.json"
    text = path.read_text()
    path.write_text(text[: len(text) * 3 // 4])
    run = read(folder)
    assert_slow(run)
    assert run.compare().facts.iterations == tuple(range(1, 8))
    assert "report-cut" in codes(run)


def test_a_failed_ingest_says_what_it_stored(tmp_path: Path) -> None:
    folder = write(tmp_path / "job", replace(PLAIN, steps=3))
    (folder / "rank3.pt.trace.json").write_text('{"schemaVersion": 1, "traceEvents": [{"a": 1}]}')
    with pytest.raises(ReportError) as refused:
        read(folder)
    assert "3 reports are stored in" in (refused.value.hint or "")


def test_the_usual_job_is_right_without_warnings(tmp_path: Path) -> None:
    run = read(write(tmp_path / "job", Job(between=GRADIENTS)))
    assert_slow(run)
    assert not run.compare().verdict.gain_is_bound
    assert {*codes(run)} == {"phases-from-operators"}


@pytest.mark.parametrize("late_us", [0, 1900])
def test_what_was_before_the_first_step_is_told(tmp_path: Path, late_us: int) -> None:
    """A single step, which a rank begins late: it did something else before."""

    def late(rank: int, trace: dict[str, Any]) -> None:
        for each in trace["traceEvents"]:
            if rank == 1 and each["name"].startswith("ProfilerStep"):
                each["ts"] = round(each["ts"] + late_us, 3)
                each["dur"] = round(each["dur"] - late_us, 3)

    run = read(write(tmp_path / "job", Job(steps=1, first=7), late))
    said = codes(run).get("began-apart", "")
    assert ("up to 1.9" in said and "rank 1 last" in said) is bool(late_us), said


@pytest.mark.parametrize("unnamed", [1, 3])
def test_reports_without_names_beside_named_ones(tmp_path: Path, unnamed: int) -> None:
    """Few of them are left out; many make each capture one iteration. It is never an error."""

    def edit(rank: int, trace: dict[str, Any]) -> None:
        if rank < unnamed:
            without("ProfilerStep", "Optimizer", "Distributed")(rank, trace)
            events = [each for nth, each in enumerate(trace["traceEvents"]) if nth % 7]
            trace["traceEvents"] = events[::3] + [e for e in events if "Seq" in e["args"]]

    run = read(write(tmp_path / "job", replace(PLAIN, slow=3), edit))
    ranks = {*run.compare().tables.ranks["rank"]}
    if unnamed == 1:
        assert ranks == {1, 2, 3}
        assert len(run.compare().facts.iterations) > 1
        assert "missing-ranks" in codes(run)
    else:
        assert ranks == {0, 1, 2, 3}
        assert run.compare().facts.iterations == (0,)
        assert "3 reports have no ranges named like iterations" in codes(run)["capture-whole"]

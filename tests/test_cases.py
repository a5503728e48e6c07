"""What real files do: waits nobody knows, phases nobody names, steps that are none."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rankscope
from tests.cases import EXTRA_MS, PLAIN, assert_slow, codes, mean_ms, read
from tests.forge import Markers, forge, scene
from tests.pytorch_job import Job, kernels, without, write
from tests.support import Cli, mostly_slow

SYMMETRIC = "ncclSymkDevKernel_AllReduce_RSxLDMC_AGxSTMC_sum_bf16(ncclSymkDevWorkArgs4K)"
CUSTOM = "void vllm::cross_device_reduce_1stage<float, 4>(vllm::RankData*, int)"
STRANGER = "void acme::exchange<float>(float*)"


@pytest.mark.parametrize(
    ("between", "operator", "stated"),
    mostly_slow(
        [
            (CUSTOM, None, None),
            (STRANGER, "c10d::allreduce_", None),
            (STRANGER, "nccl:all_reduce", None),
            (STRANGER, "hccl:all_reduce", None),
            (STRANGER, "vllm::all_reduce", None),
            (STRANGER, None, "_reduce_scatter_base"),
            (SYMMETRIC, None, None),
            ("ncclDevKernel_Generic_1(x)", None, "allreduce"),
            ("ncclDevKernel_SendRecv(x)", "nccl:all_to_all", None),
        ],
        2,
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


@pytest.mark.slow
def test_ranks_that_only_send_may_be_stages_with_more_to_do(tmp_path: Path) -> None:
    name = "ncclDevKernel_SendRecv(x)"
    job = Job(slow_in="load", between=name, stated="send", operation="send", gradients=name)
    sends = write(tmp_path / "job", job, without("nccl:"))
    verdict = read(sends).compare().verdict
    assert (verdict.kind, verdict.ranks) == ("inconclusive", ())
    assert verdict.leading is not None
    assert verdict.leading.ranks == (2,)


@pytest.mark.slow
def test_all_to_all_matches_though_ranks_send_different_sizes(tmp_path: Path) -> None:
    def uneven(rank: int, trace: dict[str, Any]) -> None:
        for each in kernels(trace):
            if "Seq" in each["args"] and each["args"]["Process Group Name"] == "1":
                each["args"]["In msg nelems"] = 1000 * (rank + 1)

    job = Job(between="ncclDevKernel_SendRecv(x)", operator=None, stated="all_to_allv")
    assert_slow(read(write(tmp_path / "job", job, uneven)))


@pytest.mark.slow
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


@pytest.mark.parametrize(
    ("name", "slow_in"),
    mostly_slow([(STRANGER, "backward"), ("rank", "load"), ("exchange+[sm90]", "forward")], 2),
)
def test_a_kernel_that_nobody_knows_is_reported_and_can_be_named(
    tmp_path: Path, name: str, slow_in: str
) -> None:
    """Also where the slow rank does not compute for longer, but its device idles."""
    job = Job(between=name, operator=None, stated=None, slow_in=slow_in)
    folder = write(tmp_path / "job", job)
    verdict = read(folder).compare().verdict
    assert verdict.kind == "inconclusive"
    assert "may wait for other ranks" in verdict.sentence
    assert "rank 2" in verdict.sentence
    said = shlex.split(verdict.next.partition("--collective ")[2])[0]
    operation, _, pattern = said.partition("=")
    assert_slow(read(folder, collectives={operation: pattern}))


@pytest.mark.slow
def test_a_kernel_beside_others_is_reported_though_it_is_shorter_by_more(tmp_path: Path) -> None:
    """What waits for a slow forward beside backward lasts longer than that."""

    def beside(rank: int, trace: dict[str, Any]) -> None:
        without("nccl:")(rank, trace)
        for each in kernels(trace):
            if each["name"] == "acme_exchange":
                each["args"] = {"correlation": each["args"]["correlation"]}
                more = 0 if rank == 2 else 8000
                each.update(ts=each["ts"] - more, dur=each["dur"] + more)

    job = replace(PLAIN, gradients="acme_exchange", slow_in="forward", steps=6)
    verdict = read(write(tmp_path / "job", job, beside)).compare().verdict
    assert "kernel acme_exchange may wait for other ranks. On rank 2" in verdict.sentence


@pytest.mark.slow
@pytest.mark.parametrize("ranks", mostly_slow([4, 2]))
def test_a_kernel_whose_name_has_the_rank_is_reported_too(tmp_path: Path, ranks: int) -> None:
    def own(rank: int, trace: dict[str, Any]) -> None:
        for each in kernels(trace):
            each["name"] = each["name"].replace("acme::exchange", f"acme::exchange_{rank}")

    job = Job(ranks=ranks, slow=ranks - 2, between=STRANGER, operator=None, stated=None)
    folder = write(tmp_path / "job", job, own)
    verdict = read(folder).compare().verdict
    assert "kernel exchange_" in verdict.sentence
    said = shlex.split(verdict.next.partition("--collective ")[2])[0]
    operation, _, pattern = said.partition("=")
    assert_slow(read(folder, collectives={operation: pattern}), ranks - 2)


@pytest.mark.slow
def test_another_kernel_of_the_same_operator_is_no_more_work(tmp_path: Path) -> None:
    """A library measured on each rank which one is fast, and chose a slow one on rank 2."""

    def chosen(rank: int, trace: dict[str, Any]) -> None:
        for each in kernels(trace):
            tile = 64 if rank == 2 else 128
            each["name"] = each["name"].replace("gemm_backward", f"gemm_tile{tile}x128")

    run = read(write(tmp_path / "job", PLAIN, chosen))
    assert_slow(run)
    assert "kernel gemm_tile64x128 takes 14.0 ms, and other" in run.compare().verdict.sentence


@pytest.mark.slow
def test_copies_that_may_wait_are_reported(tmp_path: Path) -> None:
    def copying(_rank: int, trace: dict[str, Any]) -> None:
        for each in kernels(trace):
            if "exchange" in each["name"]:
                each |= {"cat": "gpu_memcpy", "name": "Memcpy PtoP (Device -> Device)"}

    job = Job(between=STRANGER, operator=None, stated=None)
    verdict = read(write(tmp_path / "job", job, copying)).compare().verdict
    assert verdict.kind == "inconclusive"
    assert "copying may wait for other ranks. On rank 2" in verdict.sentence


@pytest.mark.parametrize("gone", mostly_slow(["backward", "rank 2", "all"], 2))
def test_a_phase_that_nobody_names_is_priced_at_its_place(tmp_path: Path, gone: str) -> None:
    """Between the collectives of the layers, not before or after all of them."""

    def edit(rank: int, trace: dict[str, Any]) -> None:
        if gone != "rank 2" or rank == 2:
            heads = ("Distributed", "Optimizer") if gone == "all" else ()
            without("autograd", "aten", "nccl:", *heads)(rank, trace)

    run = read(write(tmp_path / "job", Job(), edit))
    assert_slow(run)
    verdict = run.compare().verdict
    assert not verdict.gain_is_bound
    assert verdict.gain_ns == pytest.approx(
        verdict.iterations_share * 11 * EXTRA_MS * 1e6, rel=0.05
    )


@pytest.mark.slow
def test_a_pause_before_the_optimizer_is_priced_there(tmp_path: Path) -> None:
    """Before forward, healing would only make the rank wait longer for the others."""
    verdict = read(write(tmp_path / "job", Job(slow_in="other"))).compare().verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("periodic", (2,), "other")
    assert verdict.gain_ns is not None
    assert verdict.gain_ns / 1e6 == pytest.approx(3 * EXTRA_MS, rel=0.06)


def test_the_option_is_checked(tmp_path: Path, cli: Cli) -> None:
    folder = write(tmp_path / "job", replace(PLAIN, steps=3))
    cli("ingest", folder, "--collective", "exchange").refused(2, "NAME=REGEX")
    cli("ingest", folder, "--collective", "sum=x").refused(2, "all_reduce")
    cli("ingest", folder, "--collective", "barrier=(").refused(2, "regular expression")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "operator", "stated"),
    mostly_slow(
        [
            ("ncclDevKernel_Generic(x)", None, None),
            ("ncclDevKernel_Generic(x)", None, "broadcast"),
            (STRANGER, "record_param_comms", None),
        ]
    ),
)
def test_what_was_not_matched_is_not_free(
    tmp_path: Path, kernel: str, operator: str | None, stated: str | None
) -> None:
    job = Job(between=kernel, operator=operator, stated=stated)
    run = read(write(tmp_path / "job", job))
    assert_slow(run)
    assert run.compare().verdict.gain_is_bound


@pytest.mark.slow
@pytest.mark.parametrize("stated", mostly_slow(["broadcast", None]))
def test_waits_between_the_matched_calls_of_a_capture_are_no_work(
    tmp_path: Path, stated: str | None
) -> None:
    """The others wait for rank 2 in calls that have no partner, and meet all at the gradients."""
    job = Job(between="ncclDevKernel_Generic(x)", operator=None, stated=stated)
    names = ("ProfilerStep", "autograd", "aten", "nccl:", "Distributed", "Optimizer")
    run = read(write(tmp_path / "job", job, without(*names)), iteration="whole")
    verdict = run.compare().verdict
    assert (verdict.kind, verdict.ranks) == ("persistent", (2,)), verdict.sentence
    assert verdict.gain_ns == pytest.approx((job.steps - 1) * EXTRA_MS * 1e6, rel=0.06)
    assert verdict.gain_is_bound
    picks = run.pick_reports()
    assert (picks.metric, picks.picks[0].title, picks.picks[0].rank) == (
        "collective_wait", "min, slow", 2,
    ), "by arrivals, as the verdict"  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "steps", "found", "gain_ms"),
    [
        ("balanced", 3, "balanced", None),
        ("persistent", 3, "persistent", 16.0),  # the first forward precedes all collectives
        ("persistent", 1, "inconclusive", None),
    ],
)
def test_work_beside_communication_is_work_in_a_capture(
    tmp_path: Path, kind: str, steps: int, found: str, gain_ms: float | None
) -> None:
    """All-reduces run beside backward: who waits in them is not who works less."""
    unnamed = Markers(None, None, None, None, None, None, None)
    job = scene("planted", ranks=4, iterations=steps, kind=kind)
    forge(replace(job, markers=unnamed), tmp_path / "job")
    verdict = read(tmp_path / "job", iteration="whole").compare().verdict
    assert verdict.kind == found, verdict.sentence
    assert ("rank 3 works" in verdict.sentence) == (kind == "persistent" and steps == 1)
    if gain_ms is not None:
        assert verdict.ranks == (3,)
        assert verdict.gain_ns == pytest.approx(gain_ms * 1e6, rel=0.2)


@pytest.mark.slow
def test_a_capture_of_many_steps_costs_what_they_cost(tmp_path: Path) -> None:
    """The slow forward of each step delays the collectives of that step."""
    forge(scene("planted", ranks=4, iterations=8, kind="persistent"), tmp_path / "job")
    by_steps = read(tmp_path / "job").compare().verdict
    verdict = read(tmp_path / "job", iteration="whole").compare().verdict
    assert (verdict.ranks, verdict.cause) == (by_steps.ranks, "forward")
    assert not verdict.gain_is_bound
    assert verdict.gain_ns == pytest.approx(by_steps.gain_ns, rel=0.1)
    assert "slow in this capture" in verdict.sentence


@pytest.mark.slow
def test_gains_are_exact_where_iterations_have_several_batches(tmp_path: Path) -> None:
    """An iteration has four batches, and all ranks meet after each."""

    def fewer(_rank: int, trace: dict[str, Any]) -> None:
        steps = [e for e in trace["traceEvents"] if e["name"].startswith("ProfilerStep")]
        ends = [each["ts"] + each["dur"] for each in steps]
        for nth, each in enumerate(steps):
            each["dur"] = ends[nth | 3] - each["ts"] if nth % 4 == 0 else 0
        trace["traceEvents"] = [e for e in trace["traceEvents"] if e["dur"]]

    run = read(write(tmp_path / "job", replace(PLAIN, steps=24), fewer))
    verdict = run.compare().verdict
    assert len(run.compare().facts.iterations) == 5
    assert verdict.ranks == (2,)
    assert not verdict.gain_is_bound
    assert verdict.gain_ns == pytest.approx(5 * 4 * EXTRA_MS * 1e6, rel=0.05)


@pytest.mark.parametrize("heads", mostly_slow(["ProfilerStep", "ProfilerStep|Distributed"]))
def test_time_before_the_first_phase_is_not_loading(tmp_path: Path, heads: str) -> None:
    run = read(write(tmp_path / "job", PLAIN, without(*heads.split("|"))))
    assert_slow(run)
    assert run.compare().verdict.cause == "backward"
    assert mean_ms(run, "load") == pytest.approx(dict.fromkeys(range(4), 2.1), abs=0.15)
    assert mean_ms(run, "optimizer") == pytest.approx(dict.fromkeys(range(4), 2.0), abs=0.1)
    output = codes(run)
    assert "where they begin is unknown: load includes all" in output["iterations-assumed"]
    assert "phases-unknown" not in output, "what ran before the first end is of no iteration"


@pytest.mark.slow
@pytest.mark.parametrize("head", mostly_slow(["ProfilerStep", "never"]))
def test_a_pause_between_steps_is_only_known_as_loading_where_they_begin(
    tmp_path: Path, head: str
) -> None:
    run = read(write(tmp_path / "job", replace(PLAIN, slow_in="load"), without(head)))
    assert_slow(run)
    verdict = run.compare().verdict
    assert verdict.cause == "load"
    assert ("load is all that the host does between them" in verdict.sentence) is (head != "never")


def test_operators_tell_phases_without_any_range(tmp_path: Path) -> None:
    """Autograd's thread launches the reductions, and is not the one that trains."""
    run = read(write(tmp_path / "job", PLAIN, without("ProfilerStep", "Distributed", "Optimizer")))
    assert_slow(run)
    assert mean_ms(run, "forward") == pytest.approx(dict.fromkeys(range(4), 5.0), abs=0.15)


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", mostly_slow(["my_step_{}", "epoch 3: {} of 12", "{} (try 1)", "a\nb\u200b\x07 {}"])
)
def test_ranges_that_may_be_the_iterations_are_proposed(tmp_path: Path, name: str) -> None:
    def own(rank: int, trace: dict[str, Any]) -> None:
        without("Optimizer")(rank, trace)
        for each in trace["traceEvents"]:
            if each["name"].startswith("ProfilerStep#"):
                each["name"] = name.format(each["name"].partition("#")[2])

    folder = write(tmp_path / "job", PLAIN, own)
    [option] = shlex.split(codes(read(folder))["iterations-unnamed"].rpartition("--iteration ")[2])
    assert " (" not in option, "check shows messages up to there"
    run = rankscope.ingest([folder], tmp_path / "b.duckdb", iteration=option, jobs=1)
    assert run.compare().facts.iterations == tuple(range(1, 12))
    assert not {"iterations-unnamed", "matched-by-ordinal"} & {*codes(run)}
    whole = rankscope.ingest([folder], tmp_path / "c.duckdb", iteration="whole", jobs=1)
    assert "iterations-unnamed" not in codes(whole)


@pytest.mark.parametrize(
    ("name", "counts"),
    mostly_slow([("job 7 turn {} of 40", True), ("turn {} v2", True), ("turn [bs={size}]", False)]),
)
def test_a_pattern_needs_no_group(tmp_path: Path, name: str, *, counts: bool) -> None:
    def own(_rank: int, trace: dict[str, Any]) -> None:
        for each in trace["traceEvents"]:
            if each["name"].startswith("ProfilerStep#"):
                number = int(each["name"].partition("#")[2])
                each["name"] = name.format(number, size=number // 4)

    run = read(write(tmp_path / "job", replace(PLAIN, first=5), own), iteration="turn")
    assert run.compare().facts.iterations == tuple(range(5, 17) if counts else range(1, 12))
    assert ("matched-by-ordinal" in codes(run)) is not counts


@pytest.mark.slow
def test_the_range_that_may_be_the_phase_is_named(tmp_path: Path, cli: Cli) -> None:
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
    assert option == r"'backward=^Crunch\sit'"
    assert "Crunch it" in cli("check", folder, "-v").out
    run = rankscope.ingest(
        [folder], tmp_path / "b.duckdb", phases={"backward": r"^Crunch\sit"}, jobs=1
    )
    assert "phase-unnamed" not in codes(run)
    assert all(value > 10 for value in mean_ms(run, "backward").values())


@pytest.mark.slow
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
        whole = {**host, **span, "cat": "user_annotation", "name": "request", "args": {}}
        calls = [each for each in events if each["name"] == "cudaLaunchKernel"]
        layers = [{**call, "name": f"layer {nth}"} for nth, call in enumerate(calls[::8])]
        events += [whole, *({**layer, "cat": "user_annotation"} for layer in layers)]

    run = read(write(tmp_path / "job", PLAIN, one))
    assert run.compare().facts.iterations == (0,)
    assert "each capture is one iteration" in codes(run)["capture-whole"]
    assert "iterations-unnamed" not in codes(run), "layers fill little of the time"


@pytest.mark.slow
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

"""Records that are lost, wrong or counted twice: they are said, and never taken for no work."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rankscope
from rankscope.sources.conventions import synchronises
from tests.cases import EXTRA_MS, PLAIN, assert_slow, codes, mean_ms, read
from tests.pytorch_job import GRADIENTS, Edit, Job, kernels, without, write
from tests.support import Cli, mostly_slow


def numbered_again(_rank: int, trace: dict[str, Any]) -> None:
    """Numbers of calls start over after 50."""
    for each in trace["traceEvents"]:
        if "correlation" in each["args"]:
            each["args"]["correlation"] = each["args"]["correlation"] % 50 + 1


def one_in_another(_rank: int, trace: dict[str, Any]) -> None:
    """Each launch calls another API under its own number."""
    calls = [each for each in trace["traceEvents"] if each["name"] == "cudaLaunchKernel"]
    trace["traceEvents"] += [
        {**each, "name": "cuLaunchKernelEx", "cat": "cuda_driver", "ts": each["ts"] + 1, "dur": 1}
        for each in calls
    ]


@pytest.mark.slow
@pytest.mark.parametrize("edit", mostly_slow([numbered_again, one_in_another]))
def test_numbers_of_calls_that_come_twice(tmp_path: Path, edit: Edit) -> None:
    run = read(write(tmp_path / "job", PLAIN, edit))
    assert_slow(run)
    assert mean_ms(run, "forward") == pytest.approx(dict.fromkeys(range(4), 5.0), abs=0.15)
    assert {*codes(run)} == {"phases-from-operators"}


def test_calls_that_cannot_be_told_apart_are_said(tmp_path: Path) -> None:
    """A number was used six times, and one of its kernels has no record."""

    def edit(rank: int, trace: dict[str, Any]) -> None:
        numbered_again(rank, trace)
        if rank == 1:
            trace["traceEvents"].remove(kernels(trace)[20])

    run = read(write(tmp_path / "job", replace(PLAIN, steps=40), edit))
    assert "6 of 320 launches" in codes(run)["records-missing"], codes(run)
    assert "rank 1" in codes(run)["launches-missing"], codes(run)


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


@pytest.mark.parametrize(
    ("steps", "left"),
    [
        ((5,), (1, 2, 3, 4, 7, 8, 9, 10, 11)),
        ((4, 5), (1, 2, 3, 7, 8, 9, 10, 11)),
        ((0,), tuple(range(1, 12))),  # the first step of a capture may be cut
        (tuple(range(1, 7)), tuple(range(1, 12))),  # half of the steps: no records are lost
    ],
)
def test_records_that_are_lost_with_their_launches_are_known_from_other_ranks(
    tmp_path: Path, steps: tuple[int, ...], left: tuple[int, ...]
) -> None:
    """Each step of rank 1 lost what it launched last, collectives among it."""

    def edit(rank: int, trace: dict[str, Any]) -> None:
        numbers = len(kernels(trace)) // PLAIN.steps
        lost = [number // numbers in steps and number % numbers > 3 for number in range(999)]
        if rank == 1:
            trace["traceEvents"] = [
                each
                for each in trace["traceEvents"]
                if not lost[each["args"].get("correlation", 1) - 1]
            ]

    compared = read(write(tmp_path / "job", PLAIN, edit)).compare()
    assert compared.facts.iterations == left
    said = [each for each in compared.warnings if each.code == "iterations-without-work"]
    assert [each.ranks for each in said] == [(1,)] * (len(left) < 11)


def test_records_that_each_rank_lost_in_another_iteration_leave_the_iterations(
    tmp_path: Path,
) -> None:
    """The iterations that any of many ranks left out would be nearly all."""

    def edit(rank: int, trace: dict[str, Any]) -> None:
        numbers = len(kernels(trace)) // PLAIN.steps
        trace["traceEvents"] = [
            each
            for each in trace["traceEvents"]
            if divmod(each["args"].get("correlation", 1) - 1, numbers)[0] != 2 + 2 * rank
            or (each["args"].get("correlation", 1) - 1) % numbers <= 3
        ]

    facts = read(write(tmp_path / "job", PLAIN, edit)).compare().facts
    assert facts.iterations == tuple(range(1, 12))


def test_launches_of_any_api_are_counted_once(tmp_path: Path) -> None:
    """Each call of the runtime calls the driver, which has numbers of its own."""

    def other_api(rank: int, trace: dict[str, Any]) -> None:
        lost(1, lambda nth, count: 2 * nth >= count, zero=False)(rank, trace)
        for each in [each for each in trace["traceEvents"] if each["name"] == "cudaLaunchKernel"]:
            each |= {"name": "urEnqueueKernelLaunchWithArgsExp", "cat": "xpu_runtime"}
            inner = {"name": "zeCommandListAppendLaunchKernel", "cat": "xpu_driver"}
            number = {"correlation": each["args"]["correlation"] + 10_000}
            inner |= {"ts": each["ts"] + 1, "dur": 1, "args": number}
            trace["traceEvents"].append({**each, **inner})

    found = codes(read(write(tmp_path / "job", PLAIN, other_api)))
    assert found["records-missing"].startswith("rank 1: 42 of 96 launches of kernels (44 %)")


@pytest.mark.parametrize(
    "name", ["urQueueFinish", "aclrtSynchronizeStream", "zeEventHostSynchronize"]
)
def test_calls_of_any_api_wait_for_the_device(name: str) -> None:
    calls = pl.DataFrame({"name": [name, "urEnqueueEventsWait"], "start": 0, "end": 10})
    assert calls.filter(synchronises())["name"].to_list() == [name]


@pytest.mark.slow
def test_a_stream_without_records_makes_no_clock_late(tmp_path: Path) -> None:
    """The device seems idle between the collectives, and these seem to wait for long."""

    def no_compute(rank: int, trace: dict[str, Any]) -> None:
        without("cudaStreamSynchronize", *("gemm", "multi_tensor") * (rank == 1))(rank, trace)

    run = read(write(tmp_path / "job", PLAIN, no_compute))
    assert "84 of 96 launches of kernels" in codes(run)["records-missing"]
    assert "device-clock-wrong" not in codes(run)
    assert mean_ms(run, "collective_wait")[1] == pytest.approx(EXTRA_MS, rel=0.05)
    assert run.compare().verdict.ranks in ((), (2,))


@pytest.mark.slow
def test_events_without_any_time_are_reported(tmp_path: Path) -> None:
    def untimed(rank: int, trace: dict[str, Any]) -> None:
        if rank == 3:
            trace["traceEvents"].sort(key=lambda each: each["ts"])
            for each in trace["traceEvents"][len(trace["traceEvents"]) // 2 :]:
                each |= {"ts": 0.0, "dur": 0.0}

    run = read(write(tmp_path / "job", PLAIN, untimed))
    assert codes(run)["rows-broken"].startswith("rank 3: 168 events without a possible time")
    assert_slow(run)


@pytest.mark.slow
def test_a_phase_that_never_ended_is_of_no_other_iteration(tmp_path: Path) -> None:
    """The profiler ends with the capture what an exception left."""

    def left(rank: int, trace: dict[str, Any]) -> None:
        annotations = [each for each in trace["traceEvents"] if each["cat"] == "user_annotation"]
        last = max(each["ts"] + each["dur"] for each in annotations)
        forward = [each for each in annotations if each["name"].endswith(".forward")]
        for each in forward[4:5] if rank == 1 else ():
            each["dur"] = last - each["ts"]

    run = read(write(tmp_path / "job", PLAIN, left))
    assert 4 not in run.compare().facts.iterations
    assert mean_ms(run, "forward") == pytest.approx(dict.fromkeys(range(4), 5.0), abs=0.15)
    assert mean_ms(run, "load") == pytest.approx(dict.fromkeys(range(4), 2.1), abs=0.15)
    assert_slow(run)


@pytest.mark.slow
def test_phases_that_last_for_iterations_by_design_cost_none(tmp_path: Path) -> None:
    """Each batch is loaded two steps ahead."""

    def ahead(_rank: int, trace: dict[str, Any]) -> None:
        steps = [each for each in trace["traceEvents"] if each["name"].startswith("ProfilerStep")]
        trace["traceEvents"] += [
            {**one, "name": "load batch", "ts": one["ts"] + 10, "dur": last["ts"] - one["ts"]}
            for one, last in zip(steps, steps[3:], strict=False)
        ]

    run = read(write(tmp_path / "job", PLAIN, ahead))
    assert len(run.compare().facts.iterations) == 11
    assert run.compare().verdict.ranks == (2,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "field", "ended"),
    mostly_slow(
        [
            ("gemm", "dur", False),
            ("ProfilerStep", "dur", False),
            ("gemm", "ts", False),
            ("gemm", "dur", True),
            ("ProfilerStep", "ts", True),
        ],
        2,
    ),
)
def test_an_event_that_outlasts_its_capture_is_a_broken_record(
    tmp_path: Path, head: str, field: str, ended: bool
) -> None:
    def broken(rank: int, trace: dict[str, Any]) -> None:
        events = trace["traceEvents"]
        last = max(each["ts"] for each in events)
        if rank == 1:
            some = [each for each in events if each["name"].startswith(head)]
            some[len(some) // 2][field] += 3.6e9
        if ended:
            end = {"ph": "i", "name": "Record Window End", "cat": "", "ts": last + 20_000}
            events.append({**end, "args": {}})

    run = read(write(tmp_path / "job", PLAIN, broken))
    assert codes(run)["rows-broken"].startswith("rank 1: 1 event without a possible time")
    assert ("1 of 96 launches" in codes(run).get("records-missing", "")) == (head == "gemm")
    assert_slow(run)


@pytest.mark.slow
@pytest.mark.parametrize(("field", "part"), mostly_slow([("dur", 1), ("dur", 0.2), ("ts", 0.2)]))
def test_a_kernel_that_runs_into_the_next_one_has_a_wrong_time(
    tmp_path: Path, field: str, part: float
) -> None:
    """A stream runs one kernel after the other; 3 ms too many made the rank seem slow."""

    def off(rank: int, trace: dict[str, Any]) -> None:
        draw = random.Random(1)
        for each in kernels(trace) if rank == 1 else ():
            if each["name"].startswith("gemm") and draw.random() < part:
                each[field] += 3000.0

    run = read(write(tmp_path / "job", PLAIN, off))
    assert codes(run)["records-missing"].startswith("rank 1: ")
    verdict = run.compare().verdict
    assert verdict.kind == "inconclusive"
    assert "rank 1" not in verdict.sentence, "its kernels of these iterations are unknown"


@pytest.mark.slow
def test_a_wrong_time_among_many_kernels_is_told_by_its_amount(tmp_path: Path) -> None:
    """Left out alone, the long kernel that the next one seems to overlap would be missing."""

    def off(rank: int, trace: dict[str, Any]) -> None:
        number, events = count(10**6), trace["traceEvents"]
        for call in [each for each in events if each["name"] == "cudaLaunchKernel"] * 40:
            args = {"correlation": next(number), "device": 0, "stream": 9}
            tiny = {"cat": "kernel", "name": "tiny", "tid": 9, "dur": 0.5, "args": args}
            events += [{**call, "args": args}, {**call, **tiny, "ts": call["ts"] + 5}]
        long = [each for each in kernels(trace) if each["name"].startswith("gemm")]
        for each in long[:: len(long) // 4] if rank == 1 else ():  # one of a step
            each["dur"] += 3000.0

    run = read(write(tmp_path / "job", replace(PLAIN, steps=4), off))
    assert codes(run)["records-missing"].startswith("rank 1: ")


def test_a_kernel_without_a_launch_is_never_dropped(tmp_path: Path) -> None:
    """No launch would tell that its record was left out."""

    def off(rank: int, trace: dict[str, Any]) -> None:
        without("cudaLaunchKernel", "aten", "autograd", "nccl:")(rank, trace)
        for each in kernels(trace):
            each["dur"] += 1500.0 if rank == 1 and each["name"].startswith("gemm") else 0.0

    spent = mean_ms(read(write(tmp_path / "job", replace(PLAIN, steps=4), off)), "compute")
    assert spent[1] > spent[0]


def in_units(us: int, to: Callable[[float], int]) -> Edit:
    """An edit that makes all times multiples of a unit."""

    def edit(_rank: int, trace: dict[str, Any]) -> None:
        for each in trace["traceEvents"]:
            each |= {name: to(each[name] / us) * us for name in ("ts", "dur")}

    return edit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit_us", "to"), mostly_slow([(100, math.floor), (100, round), (10_000, round)])
)
def test_times_that_are_rounded_coarsely_are_unknown(
    tmp_path: Path, unit_us: int, to: Callable[[float], int]
) -> None:
    """Calls of one thread begin at once, or kernels have no length."""
    run = read(write(tmp_path / "job", PLAIN, in_units(unit_us, to)))
    assert run.compare().verdict.kind == "inconclusive"
    assert "records-missing" in codes(run)


def jittered(rank: int, trace: dict[str, Any]) -> None:
    """Kernels of one rank start up to 50 µs too early or too late."""
    draw = random.Random(7)
    for each in kernels(trace) if rank == 1 else ():
        each["ts"] = round(each["ts"] + draw.uniform(-50, 50), 3)


@pytest.mark.slow
@pytest.mark.parametrize("job", mostly_slow([PLAIN, replace(PLAIN, between=GRADIENTS)]))
@pytest.mark.parametrize("edit", [jittered, in_units(10, math.floor)])
def test_times_that_are_not_exact_give_no_exact_gain(tmp_path: Path, job: Job, edit: Edit) -> None:
    """Nothing in multiples of 10 µs contradicts: a program may have made them."""
    run = read(write(tmp_path / "job", job, edit))
    assert_slow(run)
    assert run.compare().verdict.gain_is_bound
    assert "times-unsure" in codes(run)
    assert "records-missing" not in codes(run)


@pytest.mark.slow
@pytest.mark.parametrize("job", mostly_slow([replace(PLAIN, between=GRADIENTS), PLAIN]))
@pytest.mark.parametrize("seed", mostly_slow([3, 4]))
def test_operators_that_are_missing_on_a_rank_move_no_work(
    tmp_path: Path, job: Job, seed: int
) -> None:
    """A third of them: what autograd's thread launches is backward all the same."""

    def edit(rank: int, trace: dict[str, Any]) -> None:
        draw, events = random.Random(seed), trace["traceEvents"]
        trace["traceEvents"] = [
            each for each in events
            if rank != 2 or each["cat"] != "cpu_op" or draw.random() > 0.3
        ]  # fmt: skip

    run = read(write(tmp_path / "job", job, edit))
    assert_slow(run)
    assert "100 % of it in backward" in run.compare().verdict.sentence


@pytest.mark.slow
def test_advice_about_records_fits_a_trace_that_has_some(tmp_path: Path, cli: Cli) -> None:
    """A quarter of a rank's kernels has no launch: all its iterations are unknown."""

    def unnumbered(rank: int, trace: dict[str, Any]) -> None:
        for each in kernels(trace)[::4] if rank == 1 else ():
            each["args"]["correlation"] = 0

    run = read(write(tmp_path / "job", replace(PLAIN, steps=6), unnumbered))
    assert {"records-missing", "launches-missing"} <= {*codes(run)}
    verdict = run.compare().verdict
    assert verdict.kind == "inconclusive"
    assert verdict.next.startswith("rankscope check"), "the clock of the gpu tells no more"
    asked = cli("imbalance", "--db", run.db, "--clock", "gpu").out
    assert "says which records of the device are missing" in " ".join(asked.split())


@pytest.mark.slow
def test_a_clock_that_is_known_is_advised(tmp_path: Path, cli: Cli) -> None:
    run = read(write(tmp_path / "job", replace(PLAIN, steps=6)))
    host = cli("imbalance", "--db", run.db, "--clock", "host").out
    assert "Next: ask for --clock gpu. " in " ".join(host.split())


def capturing(_rank: int, trace: dict[str, Any]) -> None:
    """A server captures a graph amid a step: none of these launches runs."""
    call = next(each for each in trace["traceEvents"] if each["name"] == "cudaLaunchKernel")
    names = ["cudaStreamBeginCapture", *["cudaLaunchKernel"] * 9, "cudaStreamEndCapture"]
    trace["traceEvents"] += [
        {**call, "name": name, "ts": call["ts"] + nth / 10, "dur": 0.1,
         "args": {"correlation": 10**6 + nth}}
        for nth, name in enumerate(names, -20)
    ]  # fmt: skip


@pytest.mark.slow
def test_launches_that_a_graph_captures_are_not_lost(tmp_path: Path) -> None:
    run = read(write(tmp_path / "job", PLAIN, capturing))
    assert "records-missing" not in codes(run)
    assert_slow(run)


@pytest.mark.slow
def test_a_few_lost_records_here_and_there_give_no_exact_gain(tmp_path: Path) -> None:
    some = lost(1, lambda nth, _count: nth in (30, 58), zero=False)
    run = read(write(tmp_path / "job", replace(PLAIN, steps=16), some))
    assert set(range(16)) - {*run.compare().facts.iterations} == {0, 4, 5, 8, 9}
    assert_slow(run)
    assert run.compare().verdict.gain_is_bound


@pytest.mark.slow
@pytest.mark.parametrize(
    ("off_us", "said", "gone"),
    mostly_slow(
        [
            (-15_000, "early", "nothing"),
            (3_000, "late", "cudaStreamSynchronize"),
            (500_000, "late", "nothing"),
        ],
        2,
    ),
)
def test_a_devices_clock_that_is_off_is_set(
    tmp_path: Path, off_us: int, said: str, gone: str
) -> None:
    def off(rank: int, trace: dict[str, Any]) -> None:
        without(gone)(rank, trace)
        capturing(rank, trace)
        for each in kernels(trace) if rank == 1 else ():
            each["ts"] = round(each["ts"] + off_us, 3)

    run = read(write(tmp_path / "job", PLAIN, off))
    assert f"ms {said}" in codes(run)["device-clock-wrong"]
    assert_slow(run)
    assert mean_ms(run, "load") == pytest.approx(dict.fromkeys(range(4), 2.1), abs=0.15)


@pytest.mark.slow
def test_the_start_of_an_operator_tells_nothing_of_a_clock(tmp_path: Path) -> None:
    """A trace without calls: an operator may launch its kernel late (by a queue of tasks)."""

    def no_calls(_rank: int, trace: dict[str, Any]) -> None:
        for each in trace["traceEvents"]:
            if each["name"] == "cudaLaunchKernel":
                each |= {"cat": "cpu_op", "name": "acme::run"}
            if "correlation" in each["args"]:
                each["args"]["External id"] = each["args"].pop("correlation")
            each["ts"] += 3_000 * (each["cat"] == "kernel")

    assert "device-clock-wrong" not in codes(read(write(tmp_path / "job", PLAIN, no_calls)))


@pytest.mark.slow
@pytest.mark.parametrize("fast", mostly_slow([0.01, -0.05, 0.1]))
def test_a_devices_clock_that_runs_fast_or_slow_is_scaled(tmp_path: Path, fast: float) -> None:
    def off(rank: int, trace: dict[str, Any]) -> None:
        first = kernels(trace)[0]["ts"]
        for each in kernels(trace) if rank == 1 else ():
            each["ts"] = round(first + (each["ts"] - first) * (1 + fast), 3)
            each["dur"] = round(each["dur"] * (1 + fast), 3)

    run = read(write(tmp_path / "job", PLAIN, off))
    said = "fast" if fast > 0 else "slow"
    assert f" % {said}: " in codes(run)["device-clock-wrong"]
    assert_slow(run)
    for metric, value in {"load": 2.05, "backward": 10, "iteration": 23.5}.items():
        assert mean_ms(run, metric)[1] == pytest.approx(value, rel=0.02)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("steps", "head"),
    mostly_slow(
        [(1, "waits"), (4, "unseen"), (1, "none"), (1, "runs"), (4, "runs"), (4, "none")], fast=3
    ),
)
def test_what_was_launched_before_the_capture_is_of_no_iteration(
    tmp_path: Path, steps: int, head: str
) -> None:
    """The device still runs the step before for 20 ms, while the host launches the first one.

    If it waits in a collective then, its first kernel starts after the first launch. A collective
    that began before the capture has no record; the next one has no name. Or nothing that was
    launched before it has one.
    """

    def behind(_rank: int, trace: dict[str, Any]) -> None:
        first = kernels(trace)[0]
        before = {**first, "ts": first["ts"] - 200, "dur": 5_000, "args": {**first["args"]}}
        del before["args"]["correlation"]
        synced = next(e for e in trace["traceEvents"] if e["name"] == "cudaStreamSynchronize")
        end = synced["ts"] + synced["dur"]
        for each in trace["traceEvents"]:
            if each["cat"] == "kernel" or each["ts"] >= end:
                each["ts"] += 20_000
            elif each["ts"] + each["dur"] >= end:
                each["dur"] += 20_000
        heads = [{**before, "ts": before["ts"] + 5_000 * place} for place in range(4)]
        if head in {"waits", "unseen"}:
            call = next(e for e in kernels(trace) if "nccl" in e["name"])
            stream = {**before["args"], "stream": call["args"]["stream"]}
            alone = {"name": "ncclDevKernel_AllReduce_RING", "tid": call["tid"], "args": stream}
            heads[head == "unseen"] |= alone
        if head != "none":
            trace["traceEvents"] += heads[head == "unseen" :]

    run = read(write(tmp_path / "job", replace(PLAIN, steps=steps), behind))
    wrong = {"phases-unknown", "launches-missing", "unmatched-collectives"}
    assert not wrong & {*codes(run)}
    rows = run.iterations(clock="gpu").filter(iteration=0).sort("rank")
    means = (rows["backward_ns"] / 1e6).to_list()
    assert means == pytest.approx([10, 10, 14, 10], rel=0.02)
    assert (rows["work_ns"] / 1e6).to_list() == pytest.approx([17, 17, 21, 17], abs=0.5)


@pytest.mark.slow
def test_kernels_without_launches_are_placed_by_their_starts(tmp_path: Path) -> None:
    bare = without("cudaLaunchKernel", "aten", "autograd", "nccl:")
    run = read(write(tmp_path / "job", PLAIN, bare))
    assert_slow(run)
    assert "100 %" in codes(run)["launches-missing"]
    assert run.compare().rows(["backward"])["backward_ns"].null_count() > 0


def test_work_is_unknown_where_a_rank_above_0_has_no_collectives(tmp_path: Path) -> None:
    """Its number alone says that the job has others."""

    def alone(rank: int, trace: dict[str, Any]) -> None:
        trace["distributedInfo"] = {"rank": rank}
        without("nccl")(rank, trace)

    folder = write(tmp_path / "job", Job(ranks=2, steps=3), alone)
    for rank, known in ((0, True), (1, False)):
        run = rankscope.ingest([next(folder.glob(f"rank{rank}*"))], tmp_path / f"{rank}.duckdb")
        rows = run.compare().rows(["work", "exposed_communication"])
        assert rows["work_ns"].is_not_null().all() == known
        assert rows["exposed_communication_ns"].is_not_null().all() == known
        assert ("collectives-missing" in codes(run)) != known


@pytest.mark.slow
def test_one_bad_event_costs_one_event(tmp_path: Path) -> None:
    folder = write(tmp_path / "job", PLAIN)
    bad = '{"ph": "X", "cat": "python_function", "name": "f("x")\n", "ts": 1, "dur": 0}, '
    for path in folder.iterdir():
        text = path.read_text()
        at = text.index('"traceEvents": [') + len('"traceEvents": [')
        path.write_text(text[:at] + bad + text[at:])
    run = read(folder)
    assert_slow(run)
    assert codes(run)["rows-broken"].startswith("ranks 0-3: 1 event")


@pytest.mark.slow
def test_a_cut_trace_keeps_its_complete_steps(tmp_path: Path) -> None:
    folder = write(tmp_path / "job", PLAIN)
    path = folder / "rank3.pt.trace.json"
    text = path.read_text()
    path.write_text(text[: len(text) * 3 // 4])
    run = read(folder)
    assert_slow(run)
    assert run.compare().facts.iterations == tuple(range(1, 8))
    assert "report-cut" in codes(run)

"""Counters of one rank's report speak for all ranks of its host; files name what a call waited for.

The rows are made from the documented schema: no real export with these tables was seen.
"""

from pathlib import Path

import polars as pl
import pytest

import rankscope
from rankscope.api import picks_of
from rankscope.compare.next_capture import next_capture
from rankscope.judge.causes.counters import by_rank, compared, device_words, network_words
from rankscope.judge.causes.registry import context_of
from rankscope.model.kinds import Counter
from rankscope.model.schema import COUNTERS
from tests.frames import filled
from tests.support import MS, MakeForged, asked, copied, mostly_nightly, with_rows, with_table

RANKS = pl.DataFrame(
    [
        (0, "/r0", "a", "GPU-a0", "0000:1b:00.0"),
        (1, "/r1", "a", None, "0000:3b:00.0"),
        (2, "/r2", "b", "GPU-b0", "0000:1b:00.0"),
        (3, "/r3", None, "GPU-c0", None),
    ],
    schema=["rank", "path", "host", "gpu_uuid", "gpu_bus"],
    orient="row",
)


def counter(rank: int, source: str, device: str, metric: str, value: float) -> pl.DataFrame:
    columns = {"rank": rank, "iteration": 4, "source": source, "device": device, "metric": metric,
               "value": value}  # fmt: skip
    return filled(pl.DataFrame([columns]), COUNTERS)


def test_counters_belong_to_the_ranks_that_use_the_device() -> None:
    output = by_rank(
        pl.concat(
            [
                counter(0, "gpu", "GPU-a0", "clock", 1_980),
                counter(0, "gpu", "0000:3b:00.0", "clock", 1_200),
                counter(0, "gpu", "", "clock", 5),  # whose is not known
                counter(2, "gpu", "0000:1b:00.0", "clock", 1_500),  # the slot of rank 2's host
                counter(3, "gpu", "GPU-c0", "clock", 1_700),
                counter(0, "nic", "0x1", "sent", 10),
                counter(0, "nic", "0x2", "sent", 30),
                counter(2, "process", "", "gpu_page_faults", 3),
            ]
        ),
        RANKS,
    )
    assert {*output.rows()} == {
        (0, 4, "clock", 1_980.0),
        (1, 4, "clock", 1_200.0),
        (2, 4, "clock", 1_500.0),
        (3, 4, "clock", 1_700.0),
        (0, 4, "sent", 40.0),
        (1, 4, "sent", 40.0),
        (2, 4, "gpu_page_faults", 3.0),
    }


def test_a_device_that_several_reports_count_is_counted_once() -> None:
    both = [counter(rank, "nic", "0x1", "sent", 10 + 2 * rank) for rank in (0, 1)]
    output = by_rank(pl.concat(both), RANKS)
    assert {*output["value"]} == {11.0}


def test_a_run_without_counters_has_none() -> None:
    assert by_rank(pl.DataFrame(schema=COUNTERS), RANKS).is_empty()
    nowhere = RANKS.with_columns(pl.lit(None, pl.String).alias(name) for name in ("gpu_uuid",
        "gpu_bus", "host"))  # fmt: skip
    assert by_rank(counter(0, "gpu", "GPU-a0", "clock", 1.0), nowhere).is_empty()


def words(metric: Counter, values: dict[int, float]) -> str:
    rows = pl.DataFrame(
        [(rank, number, str(metric), value) for rank, value in values.items() for number in (2, 5)],
        schema=["rank", "iteration", "metric", "value"],
        orient="row",
    )
    flagged = pl.DataFrame({"rank": [3, 3], "iteration": [2, 5], "excess_ns": [MS, MS]})
    roles = dict.fromkeys(range(4), "all")
    tables = {"counters": rows}
    context = context_of(lambda name, _: tables.get(name), roles, flagged, "backward")
    found = compared(context, metric)
    assert found is None or found.slow == values[3]
    return device_words(context)


def test_a_lower_clock_is_named() -> None:
    usual = {0: 1_980.0, 1: 1_965.0, 2: 1_995.0}
    output = words(Counter.CLOCK, usual | {3: 1_200.0})
    assert output == "clock 1,200 MHz where peers have 1,980"
    assert words(Counter.CLOCK, usual | {3: 1_900.0}) == ""
    assert words(Counter.CLOCK, {3: 1_200.0}) == "", "that of the peers is unknown"
    assert words(Counter.CLOCK, {0: 1_980.0}) == "", "that of the slow rank is unknown"


def test_more_page_faults_are_named() -> None:
    output = words(Counter.GPU_PAGE_FAULTS, {0: 3.0, 1: 3.0, 2: 0.0, 3: 1_250.0})
    assert output == "1,250 page faults of unified memory per iteration where peers have 3"
    assert words(Counter.GPU_PAGE_FAULTS, dict.fromkeys(range(4), 1_250.0)) == ""


def network(*waits: tuple[int, int, float]) -> str:
    """Of rank, iteration and value. Ranks 0 and 1 are on host a, 2 on b, 3 on an unknown one.

    Rank 0 is slow in iterations 2 and 5.
    """
    rows = [(rank, number, "send_waits", value) for rank, number, value in waits]
    schema = {"rank": pl.Int64, "iteration": pl.Int64, "metric": pl.String, "value": pl.Float64}
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    hosts = {0: "a", 1: "a", 2: "b", 3: None}
    return network_words(lambda *_: frame, {0}, {2, 5}, range(9), hosts)


def test_adapters_that_wait_to_send_are_named() -> None:
    usual = [(2, 2, 10.0), (3, 2, 500.0), (2, 4, 500.0)]
    said = "wait 12.0 times as long to send as those of other hosts"
    assert network((0, 2, 120.0), (0, 5, 120.0), (1, 2, 120.0), *usual) == said
    assert network((0, 2, 120.0), (2, 2, 0.0)) == "wait to send, unlike those of other hosts"
    assert network((0, 2, 20.0), *usual) == ""
    assert network((0, 2, 120.0), (1, 2, 10.0)) == "", "its own host is no other one"
    assert network((2, 2, 10.0)) == "", "that of the slow host is unknown"
    assert network() == ""


def test_without_other_hosts_the_other_iterations_are_usual() -> None:
    said = "wait 3.0 times as long to send as in other iterations"
    assert network((0, 2, 120.0), (0, 3, 40.0), (1, 4, 900.0)) == said
    assert network((0, 2, 120.0), (0, 3, 90.0)) == ""


@pytest.mark.slow
def test_a_slow_transfer_says_that_adapters_wait(forged: MakeForged, tmp_path: Path) -> None:
    reports = copied(forged("slow_link", ranks=8).reports, tmp_path / "reports")
    for rank, report in enumerate(reports):
        with_waits(report, 8_000 if rank < 4 else 1_000)
    comparison = rankscope.ingest([tmp_path / "reports"], tmp_path / "db").compare()
    verdict = comparison.verdict
    assert (verdict.kind, verdict.members) == ("communication", (0, 1, 2, 3))
    picks = picks_of(comparison, None)
    assert {each.rank for each in picks.picks if each.leads} == {0, 1, 2}
    counted = [each.option for each in next_capture(comparison, picks).options]
    assert counted == ["--gpu-metrics-devices=all", "--nic-metrics=true"], "they share a host"
    waits = "network adapters of its hosts wait 8.0 times as long to send as those of other hosts"
    assert waits in verdict.sentence


GPUS = [(rank, f"GPU-{rank}", f"0000:{rank}b:00.0", "H200") for rank in range(4)]
TYPE = 0x0100_0000_0000_0200


def with_gpus(report: Path) -> None:
    with_table(report, "TARGET_INFO_GPU", "id, uuid text, busLocation text, name text", *GPUS)


def with_clocks(report: Path, slow: int) -> None:
    """Clocks of all GPUs of the host, once per ms, in the report of one rank."""
    [(end,)] = asked(report, "SELECT max(end) FROM NVTX_EVENTS")
    metrics = [(TYPE + gpu, 1, 9, "GPC Clock Frequency [MHz]") for gpu in range(4)]
    columns = "typeId, sourceId, metricId, metricName text"
    with_table(report, "TARGET_INFO_GPU_METRICS", columns, *metrics)
    rows = [
        (at, TYPE + gpu, 9, (1_200 if gpu == slow else 1_980) * 10**6)
        for at in range(0, end, MS)
        for gpu in range(4)
    ]
    with_table(report, "GPU_METRICS", "timestamp, typeId, metricId, value", *rows)


@pytest.mark.slow
@pytest.mark.parametrize("recorder", mostly_nightly([3, 0]))
def test_the_verdict_says_that_the_clock_is_low(
    forged: MakeForged, tmp_path: Path, recorder: int
) -> None:
    reports = copied(forged("planted", where="device", factor=1.25).reports, tmp_path / "reports")
    for report in reports:
        with_gpus(report)
    with_clocks(reports[recorder], slow=3)
    run = rankscope.ingest([tmp_path / "reports"], tmp_path / "db")
    comparison = run.compare(rankscope.Options())
    verdict = comparison.verdict
    assert verdict.ranks == (3,)
    assert all(clock in verdict.sentence for clock in ("1,200 MHz", "1,980"))
    assert verdict.findings[0].evidence == ("activities", "counters")
    assert "cause is known" in next_capture(comparison, picks_of(comparison, None)).sentence


def test_the_file_of_a_blocking_call_is_named_without_its_folder(
    forged: MakeForged, tmp_path: Path
) -> None:
    """The slow rank writes in the gap that its peers do not have."""
    reports = copied(forged("planted", where="load").reports, tmp_path / "reports")
    for rank, report in enumerate(reports):
        with_writes(report, slow=rank == 3)
    run = rankscope.ingest([tmp_path / "reports"], tmp_path / "db")
    comparison = run.compare(rankscope.Options(clock="host"))
    [found] = [each for each in comparison.verdict.findings if each.kind == "blocked"]
    assert found.detail == "write (model.pt, 64.0 MB per iteration)"
    assert found.detail in comparison.verdict.sentence
    assert found.evidence == ("host_states", "file_accesses")
    assert "cause is known" in next_capture(comparison, picks_of(comparison, None)).sentence
    stored = comparison.tables.table("file_accesses")
    assert {*stored["file"]} == {"model.pt"}
    assert b"someone" not in (tmp_path / "db").read_bytes()


def with_writes(report: Path, slow: bool) -> None:
    """A write in each range of loading: all of it on the slow rank, 1 ms on others."""
    call = 990_001
    with_rows(report, "StringIds", (call, "write"))
    loads = asked(
        report,
        "SELECT start, end, globalTid FROM NVTX_EVENTS WHERE text = 'load' OR textId = "
        "(SELECT id FROM StringIds WHERE value = 'load')",
    )
    assert loads
    rows = [
        (start, end if slow else min(end, start + MS), thread, call) for start, end, thread in loads
    ]
    with_table(report, "OSRT_API", "start, end, globalTid, nameId", *rows)
    file = (1, "/home/someone/run/model.pt")
    with_table(report, "OSRT_FILE_ACCESS_DESCRIPTORS", "fileAccessId, filePath text", file)
    with_table(
        report,
        "OSRT_FILE_ACCESS_EVENTS",
        "fileAccessId, threadId, startedAt, endedAt, apiCallId, bytesProcessed",
        *((1, thread % 2**24, start, end, call, 64_000_000) for start, end, thread, _ in rows),
    )


def with_waits(report: Path, ticks: int) -> None:
    """An adapter that waits so many ticks in each ms."""
    [(end,)] = asked(report, "SELECT max(end) FROM NVTX_EVENTS")
    waits = (1, 0, "IB: Send waits", "ticks/ms")
    columns = "metricsListId, metricsIdx, name text, unit text"
    with_table(report, "TARGET_INFO_NETWORK_METRICS", columns, waits)
    rows = [(at, at + MS, 5, 1, 0, ticks) for at in range(0, end, MS)]
    columns = "start, end, globalId, metricsListId, metricsIdx, value"
    with_table(report, "NET_NIC_METRIC", columns, *rows)

"""Counters of GPUs, adapters and unified memory: made rows of the documented schema."""

import random
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from rankscope.sources.nsys import exports
from rankscope.sources.nsys.common import PROCESS
from tests.sources.exports import KINDS, as_export
from tests.support import MakeForged, edit, with_rows, with_table

EDGES = np.array([1_000, 2_000, 3_000], np.int64)
TYPE = 0x0100_0000_0000_0200
"""Of an event type; its lowest byte is the GPU."""

GUID = -(2**60)
PROCESS_KEY = 7

NAMES = {
    3: "GPC Clock Frequency [MHz]",
    4: "SMs Active [Throughput %]",
    5: "NVLink RX Requests User Data [Throughput %]",
    6: "NVLink RX Responses User Data [Throughput %]",
    7: "A metric of the future",
}
GPU_ROWS = [
    # timestamp, GPU, metric, value
    (500, 0, 3, 999),  # before the windows
    (1_100, 0, 3, 1_200_000_000),  # in Hz
    (1_900, 0, 3, 1_400_000_000),
    (2_000, 0, 3, 1_980),  # in MHz
    (1_100, 0, 4, 60),
    (1_500, 1, 4, 90),
    (1_500, 1, 5, 20),
    (1_500, 1, 6, 5),
    (1_500, 1, 7, 1),
    (3_000, 1, 4, 7),  # after them
]


@pytest.fixture
def report(report: Path) -> Path:
    """One with counters of two GPUs and an adapter, and page faults of two processes."""
    rows = [(at, TYPE + gpu, metric, value) for at, gpu, metric, value in GPU_ROWS]
    random.Random(1).shuffle(rows)
    metrics = ((TYPE + n, 1, *metric) for n in (0, 1) for metric in NAMES.items())
    own, other = PROCESS_KEY * PROCESS, (PROCESS_KEY + 1) * PROCESS
    with_table(report, "GPU_METRICS", "timestamp, typeId, metricId, value", *rows)
    with_table(
        report, "TARGET_INFO_GPU_METRICS", "typeId, sourceId, metricId, metricName text", *metrics
    )
    with_table(
        report,
        "TARGET_INFO_GPU",
        "id, uuid text, busLocation text",
        (0, "GPU-0", "0000:1B:00.0"),
        (1, None, "0000:3B:00.0"),
    )
    with_table(
        report,
        "NET_NIC_METRIC",
        "start, end, globalId, portId, metricsListId, metricsIdx, value",
        (1_000, 1_200, 55, 1, 1, 0, 4_000),
        (1_200, 1_800, 55, 1, 1, 0, 8_000),
        (1_000, 1_800, 55, 2, 1, 0, 1_000),
        (1_000, 1_800, 55, 1, 1, 1, 99),
        (2_100, 2_200, 55, 1, 1, 2, 600),
    )
    with_table(
        report,
        "TARGET_INFO_NETWORK_METRICS",
        "metricsListId, metricsIdx, name text, unit text",
        (1, 0, "IB: Bytes sent", "bytes/ms"),
        (1, 1, "IPoIB: Bytes sent", "bytes/ms"),
        (1, 2, "IB: Bytes received", "bytes"),
    )
    with_table(report, "NIC_ID_MAP", "nicId, globalId", (2, 55))
    with_table(report, "TARGET_INFO_NIC_INFO", "GUID, nicId", (GUID, 2))
    with_table(
        report,
        "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
        "start, end, globalPid, numberOfPageFaults",
        (2_500, 2_600, own, 30),
        (2_700, 2_800, own, 12),
        (1_500, 1_600, other, 9),
    )
    return with_table(
        report, "CUDA_UM_CPU_PAGE_FAULT_EVENTS", "start, globalPid", (1_500, own), (1_600, own)
    )


def output(path: Path) -> dict[int, set[tuple[object, ...]]]:
    reader = exports.read(path).counters_of
    assert reader is not None
    found = reader({PROCESS_KEY: EDGES, PROCESS_KEY + 1: EDGES})
    return {key: {*frame.with_columns(pl.col("value").round(6)).rows()} for key, frame in
            found.items()}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_counters_are_reduced_to_windows(report: Path, tmp_path: Path, kind: str) -> None:
    found = output(as_export(report, kind, tmp_path))
    guid = f"0x{GUID % 2**64:016x}"
    assert found[PROCESS_KEY] == {
        (0, "gpu", "GPU-0", "clock", 2, 1_300.0),
        (1, "gpu", "GPU-0", "clock", 1, 1_980.0),
        (0, "gpu", "GPU-0", "sm_active", 1, 60.0),
        (0, "gpu", "0000:3b:00.0", "sm_active", 1, 90.0),
        (0, "gpu", "0000:3b:00.0", "nvlink_rx", 1, 25.0),
        # both ports: (4,000 · 200 + 8,000 · 600) / 800 and 1,000 bytes per ms
        (0, "nic", guid, "sent", 2, 8_000_000.0),
        # 600 bytes in 100 ns
        (1, "nic", guid, "received", 1, 6e9),
        (0, "process", "", "gpu_page_faults", 0, 0.0),
        (1, "process", "", "gpu_page_faults", 2, 42.0),
        (0, "process", "", "cpu_page_faults", 2, 2.0),
        (1, "process", "", "cpu_page_faults", 0, 0.0),
    }
    assert found[PROCESS_KEY + 1] == {
        (0, "process", "", "gpu_page_faults", 1, 9.0),
        (1, "process", "", "gpu_page_faults", 0, 0.0),
    }, "counters of the host are the first process's"


def test_a_report_without_counters_has_none(forged: MakeForged) -> None:
    assert exports.read(forged("plain").reports[1]).counters_of is None


def test_devices_that_are_not_described_are_unknown(report: Path) -> None:
    edit(report, "DROP TABLE TARGET_INFO_GPU")
    edit(report, "DROP TABLE NIC_ID_MAP")
    assert {row[2] for row in output(report)[PROCESS_KEY]} == {""}


@pytest.mark.parametrize("kind", KINDS)
def test_metrics_of_unknown_names_are_left_out(report: Path, tmp_path: Path, kind: str) -> None:
    edit(report, "UPDATE TARGET_INFO_GPU_METRICS SET metricName = 'new'")
    edit(report, "UPDATE TARGET_INFO_NETWORK_METRICS SET name = 'new'")
    path = as_export(report, kind, tmp_path)
    assert {row[1] for row in output(path)[PROCESS_KEY]} == {"process"}


def test_broken_rows_are_left_out(report: Path) -> None:
    whole = output(report)
    with_rows(
        report,
        "GPU_METRICS",
        *[(None, TYPE, 3, 1), (1_200, None, 3, 1), (1_200, TYPE, None, 1)],
        *[(1_200, TYPE, 3, None), (1_200, TYPE, 3, "text")],
    )
    times = [(1_200, 1_100, 5), (None, 1_300, 5), (1_200, 1_300, None), (1_200, None, 5)]
    with_rows(
        report, "NET_NIC_METRIC", *((start, end, 55, 1, 1, 0, each) for start, end, each in times)
    )
    with_rows(report, "CUDA_UM_GPU_PAGE_FAULT_EVENTS", (1_200, 1_300, None, 7))
    assert output(report) == whole


def test_times_are_on_the_axis_of_the_session(report: Path) -> None:
    shift = ("EXPORT_CONFIG_TIME_SHIFT", "1000")
    with_table(report, "META_DATA_EXPORT", "name text, value text", shift)
    rows = output(report)[PROCESS_KEY]
    assert (0, "gpu", "GPU-0", "clock", 1, 1_980.0) in rows
    assert (1, "gpu", "0000:3b:00.0", "sm_active", 1, 90.0) not in rows

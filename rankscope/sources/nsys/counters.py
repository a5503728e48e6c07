"""Counters of Nsight Systems exports: of GPUs, of network adapters, and faults of unified memory.

Read by the schema that NVIDIA documents: no real export with these tables was seen. Counters of
GPUs and adapters are recorded once for a host, in the report of one of its processes. Metrics are
found by their names, because ids change. The number of a GPU is the lowest byte of `typeId`, that
of TARGET_INFO_GPU.
"""

from collections.abc import Iterator

import numpy as np
import polars as pl

from rankscope.model.host_events import WINDOWED_COUNTERS, CounterEvents
from rankscope.model.intervals import Times
from rankscope.model.kinds import Counter
from rankscope.model.schema import conform
from rankscope.sources.columns.request import Columns
from rankscope.sources.nsys.common import PROCESS, without_nulls
from rankscope.sources.nsys.hardware import ADAPTERS, host_gpus, spelled_guid

GPU_SAMPLES, GPU_NAMES = "GPU_METRICS", "TARGET_INFO_GPU_METRICS"
NIC_SAMPLES, NIC_NAMES = "NET_NIC_METRIC", "TARGET_INFO_NETWORK_METRICS"
NIC_IDS = "NIC_ID_MAP"
FAULTS = {
    Counter.GPU_PAGE_FAULTS: "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    Counter.CPU_PAGE_FAULTS: "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
}

GPU_SAMPLE = ["timestamp", "typeId", "metricId", "value"]
NIC_SAMPLE = ["start", "end", "globalId", "metricsListId", "metricsIdx", "value"]

DEVICE_BITS = 0xFF
"""The bits of `typeId` that number the GPU."""

GPU_METRICS = {
    r"^gpc clock": Counter.CLOCK,
    r"^sys clock": Counter.SYS_CLOCK,
    r"^sms? active\b": Counter.SM_ACTIVE,
    r"^dram read": Counter.DRAM_READ,
    r"^dram write": Counter.DRAM_WRITE,
    r"^pcie rx": Counter.PCIE_RX,
    r"^pcie tx": Counter.PCIE_TX,
    r"^nvlink rx": Counter.NVLINK_RX,
    r"^nvlink tx": Counter.NVLINK_TX,
}
"""Beginning of a metric's name, in lower case → what it is."""

NIC_METRICS = {
    r"^(ib|eth\w*|roce): ?bytes sent": Counter.SENT,
    r"^(ib|eth\w*|roce): ?bytes received": Counter.RECEIVED,
    r"^(ib|eth\w*|roce): ?send waits": Counter.SEND_WAITS,
}
"""The same of adapters. IP over InfiniBand is left out: its bytes are sent by InfiniBand."""

IN_PARTS = (Counter.NVLINK_RX, Counter.NVLINK_TX)
"""Given as shares of several kinds of packets, which add up."""

PER_MS = 1e3
"""Values of adapters are per ms, so their units say; those of rows are per second."""

MOST_MHZ = 100_000
"""A clock above it is in Hz: names of metrics say MHz also where values are in Hz."""


def counters(file: Columns) -> CounterEvents | None:
    """Reads the counters of the export, reduced chunk by chunk; None if it has none."""
    faults = {
        counter: table for counter, table in FAULTS.items() if file.has(table, "start", "globalPid")
    }
    gpus = file.has(GPU_SAMPLES, *GPU_SAMPLE) and file.has(GPU_NAMES, *GPU_SAMPLE[1:3])
    nics = file.has(NIC_SAMPLES, *NIC_SAMPLE) and file.has(NIC_NAMES, *NIC_SAMPLE[3:5], "name")
    if not (gpus or nics or faults):
        return None

    def read(edges: dict[int, Times]) -> dict[int, pl.DataFrame]:
        frames = {process: [pl.DataFrame(schema=WINDOWED_COUNTERS)] for process in edges}
        for process in [*edges][:1]:
            frames[process] += [_of_gpus(file, edges[process])] if gpus else []
            frames[process] += [_of_adapters(file, edges[process])] if nics else []
        for process, parts in frames.items():
            parts += [
                _page_faults(file, table, counter, process, edges[process])
                for counter, table in faults.items()
            ]
        return {process: pl.concat(parts) for process, parts in frames.items()}

    return read


def _of_gpus(file: Columns, edges: Times) -> pl.DataFrame:
    key = ["typeId", "metricId"]
    names = _named(file.read(GPU_NAMES, key, ["metricName"]), "metricName", GPU_METRICS)
    known = ("metricId", names["metricId"].unique().to_list())
    sums = _sums(
        (
            piece.with_columns(start="timestamp", weight=pl.lit(1))
            for piece in file.pieces(GPU_SAMPLES, GPU_SAMPLE, only=known)
        ),
        edges,
        key,
    )
    devices = {id_: uuid or bus or "" for id_, (uuid, _, bus, _) in host_gpus(file).items()}
    means = sums.join(names, on=key).with_columns(
        number=pl.col("typeId") & DEVICE_BITS, value=pl.col("total") / pl.col("weight")
    )
    clock = pl.col("metric").is_in([Counter.CLOCK, Counter.SYS_CLOCK])
    mean, total = pl.col("value").mean(), pl.col("value").sum()
    return (
        means.with_columns(
            value=pl.when(clock & (pl.col("value") > MOST_MHZ))
            .then(pl.col("value") / 1e6)
            .otherwise("value")
        )
        .group_by("window", "number", "metric")
        .agg(
            pl.col("count").max(),
            value=pl.when(pl.col("metric").first().is_in(IN_PARTS)).then(total).otherwise(mean),
        )
        .with_columns(
            source=pl.lit("gpu"),
            device=pl.col("number").replace_strict(devices, default="", return_dtype=pl.String),
        )
        .pipe(_windowed)
    )


def _of_adapters(file: Columns, edges: Times) -> pl.DataFrame:
    key = ["metricsListId", "metricsIdx"]
    listed = file.read(NIC_NAMES, key, ["name", "unit"])
    names = _named(listed, "name", NIC_METRICS).join(
        listed.select(*key, "unit").unique(key), on=key, how="left"
    )
    columns = [*NIC_SAMPLE, "portId"]
    sums = _sums(
        (
            piece.with_columns(
                pl.col("portId").fill_null(0), weight=pl.col("end") - pl.col("start")
            )
            for piece in file.pieces(NIC_SAMPLES, columns)
        ),
        edges,
        ["globalId", "portId", *key],
    )
    is_rate = pl.col("unit").fill_null("").str.contains("/ ?ms$")
    rate = pl.col("total") / pl.col("weight") * PER_MS
    amount = pl.col("plain") / pl.col("weight") * 1e9
    guids = _guids(file)
    return (
        sums.join(names, on=key)
        .with_columns(value=pl.when(is_rate).then(rate).otherwise(amount))
        .group_by("window", "globalId", "metric")
        .agg(pl.col("count").max(), pl.col("value").sum())
        .with_columns(
            source=pl.lit("nic"),
            device=pl.col("globalId").replace_strict(guids, default="", return_dtype=pl.String),
        )
        .pipe(_windowed)
    )


def _guids(file: Columns) -> dict[int, str]:
    """`globalId` of each adapter → its GUID."""
    if not (file.has(NIC_IDS, "nicId", "globalId") and file.has(ADAPTERS, "nicId", "GUID")):
        return {}
    ids = file.read(NIC_IDS, ["nicId", "globalId"]).drop_nulls()
    known = ids.join(file.read(ADAPTERS, ["nicId", "GUID"]).drop_nulls(), on="nicId")
    return {
        global_id: spelled_guid(guid)
        for global_id, guid in known.select("globalId", "GUID").iter_rows()
    }


def _page_faults(
    file: Columns, table: str, counter: Counter, process: int, edges: Times
) -> pl.DataFrame:
    """A row per window, also without faults; no rows if the process has none at all."""
    pieces = (
        piece.filter(pl.col("globalPid") // PROCESS == process).with_columns(
            value=pl.col("numberOfPageFaults").fill_null(1), weight=pl.lit(1)
        )
        for piece in file.pieces(table, ["start", "globalPid", "numberOfPageFaults"])
    )
    sums = _sums(pieces, edges, [])
    if sums.is_empty():
        return pl.DataFrame(schema=WINDOWED_COUNTERS)
    windows = pl.DataFrame({"window": pl.int_range(len(edges) - 1, eager=True)})
    return (
        windows.join(sums, on="window", how="left")
        .with_columns(
            pl.col("count").fill_null(0),
            value=pl.col("plain").fill_null(0),
            source=pl.lit("process"),
            device=pl.lit(""),
            metric=pl.lit(str(counter)),
        )
        .pipe(_windowed)
    )


def _named(listed: pl.DataFrame, name: str, known: dict[str, Counter]) -> pl.DataFrame:
    """The ids of known metrics, with `metric`."""
    text = pl.col(name).str.to_lowercase().str.strip_chars()
    by_name = pl.coalesce(
        pl.when(text.str.contains(pattern)).then(pl.lit(str(metric)))
        for pattern, metric in known.items()
    )
    ids = [each for each, dtype in listed.schema.items() if dtype == pl.Int64]
    return listed.select(*ids, metric=by_name).drop_nulls().unique(ids, keep="first")


def _sums(pieces: Iterator[pl.DataFrame], edges: Times, key: list[str]) -> pl.DataFrame:
    """window, the key, count, and sums in a window: weight, total (weighted), plain."""
    parts = []
    for piece in pieces:
        whole = without_nulls(piece, "start", "value", "weight").filter(pl.col("weight") > 0)
        window = np.searchsorted(edges, whole["start"].to_numpy(), side="right") - 1
        value = pl.col("value").cast(pl.Float64)
        parts.append(
            whole.with_columns(window=pl.Series(window, dtype=pl.Int64))
            .filter(pl.col("window").is_between(0, len(edges) - 2))
            .group_by("window", *key)
            .agg(
                count=pl.len().cast(pl.Int64),
                weight=pl.col("weight").sum().cast(pl.Float64),
                total=(value * pl.col("weight")).sum(),
                plain=value.sum(),
            )
        )
    sums = pl.concat(parts).group_by("window", *key)
    return sums.agg(pl.col("count", "weight", "total", "plain").sum())


def _windowed(rows: pl.DataFrame) -> pl.DataFrame:
    return conform(rows, WINDOWED_COUNTERS, drop_others=True).sort("window", "device", "metric")

"""The calls that waited for the device, as every reader finds them."""

import random
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest

from rankscope.measure.report import Reader
from rankscope.model.options import ShapingOptions
from rankscope.sources import formats
from rankscope.sources.conventions import vocabulary
from rankscope.sources.conventions.api_calls import HELD_NS
from rankscope.sources.discover import describe
from tests.forge import scene, simulate
from tests.forge.host import SYNCHRONIZE
from tests.forge.kineto_export import export_kineto
from tests.forge.record import RankRecord
from tests.forge.sqlite_export import export
from tests.sources.exports import as_export
from tests.sources.limits import IN_PIECES, within

JOB = scene("planted", ranks=2, iterations=6)
OTHERS = ("cudaStreamWaitEvent_v3020", "cudaEventQuery_v3020", "cudaMemcpyAsync_v3020")


@pytest.fixture(scope="module")
def record() -> RankRecord:
    """A rank that also frees memory, and makes some calls that do not wait."""
    made = simulate(JOB).records[1]
    draw = random.Random(1)
    who = made.identity
    for number in range(200):
        start = draw.randrange(10**10, 2 * 10**10)
        name = OTHERS[number % 3] if number else "cudaFree_v3020"
        made.calls.append((start, start + 19_000, name, who.autograd_tid, 10**6 + number))
    full = (start, start + HELD_NS, "cudaLaunchKernel_v7000", who.autograd_tid, 10**6 + 200)
    made.calls += [full, (*full[:1], full[1] - 1, *full[2:4], 10**6 + 201)]
    return made


def waited(record: RankRecord) -> list[tuple[int, int]]:
    kinds = (SYNCHRONIZE, "cudaFree_v3020")
    calls = ((start, end - start, name) for start, end, name, *_ in record.calls)
    return sorted((start, took) for start, took, name in calls if name in kinds or took >= HELD_NS)


def read(path: Path, kind: str, reader: Reader = formats.read) -> pl.DataFrame:
    calls = reader(describe(path, kind), vocabulary(ShapingOptions())).device_work.sync_calls
    return calls.sort("start")


@pytest.mark.usefixtures("compiled_reader")
@pytest.mark.parametrize("kind", ["sqlite", "parquetdir", "arrowdir"])
@pytest.mark.parametrize("held", [True, False])
def test_nsys(tmp_path: Path, record: RankRecord, kind: str, held: bool) -> None:
    path = export(JOB, record, tmp_path)
    if kind != "sqlite":
        path = as_export(path, kind, tmp_path)
    output = read(path, f"nsys-{kind}", formats.read if held else within(IN_PIECES))
    assert [(s, e - s) for s, e in output.select("start", "end").iter_rows()] == waited(record)
    who = record.identity
    threads = {who.global_tid(who.main_tid), who.global_tid(who.autograd_tid)}
    assert {*output["thread"]} == threads
    assert {*output["process"]} == {thread >> 24 for thread in threads}


def test_kineto(tmp_path: Path, record: RankRecord) -> None:
    output = read(export_kineto(JOB, record, tmp_path), "kineto")
    true = waited(record)
    assert output.select(pl.col("end") - pl.col("start")).to_series().to_list() == [
        length for _, length in true
    ]
    gaps = [after - before for (before, _), (after, _) in pairwise(true)]
    assert output["start"].diff().drop_nulls().to_list() == gaps
    assert {*output["thread"]} == {record.identity.main_tid, record.identity.autograd_tid}

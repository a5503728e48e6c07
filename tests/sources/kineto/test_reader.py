"""The PyTorch profiler's traces: one job, whichever profiler wrote it, gives the same numbers."""

import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import rankscope
from rankscope.errors import ReportError, UnreadableReport
from rankscope.model.reports import CaptureFacts, Claim
from rankscope.model.schema import DEVICE_WORK, RANGES
from rankscope.sources.kineto import reader
from rankscope.sources.kineto.json_stream import EventFile
from rankscope.sources.kineto.limits import Limits
from tests.forge import forge, scene, simulate
from tests.forge.kineto_export import export_kineto
from tests.support import assert_adds_up, mostly_slow, public

ONE = {"ts": 1, "dur": 9}
STEP = {"ph": "X", "cat": "user_annotation", "pid": 7, "tid": 7}


def written(path: Path, events: list[dict[str, Any]], **beside: Any) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, **beside, "traceEvents": events}, indent=2))
    return path


def step(number: int, start: float | str, length: float | str, **more: Any) -> dict[str, Any]:
    return {**STEP, "name": f"ProfilerStep#{number}", "ts": start, "dur": length, **more}


def kernel(start: float, correlation: int, name: str = "k", **args: Any) -> dict[str, Any]:
    args = {"device": 0, "context": 1, "stream": 7, "correlation": correlation, **args}
    times = {"ts": start, "dur": 5}
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, **times, "args": args}


def call(start: float, correlation: int, name: str = "cudaLaunchKernel", **more: Any) -> dict:
    args = {"cbid": 211, "correlation": correlation}
    times = {"ts": start, "dur": 2}
    host = {"pid": 7, "tid": 8, "args": args}
    return {"ph": "X", "cat": "cuda_runtime", "name": name, **times, **host, **more}


def test_work_whose_number_two_processes_used_is_there_once(tmp_path: Path) -> None:
    events = [step(1, 0, 100), call(10, 5), call(50, 5, pid=9), kernel(20, 5), kernel(60, 6)]
    work = reader.read(written(tmp_path / "rank0.json", [*events, call(55, 6)])).device_work.whole
    assert work.select("start", "launch").rows() == [(20_000, None), (60_000, 55_000)]


@pytest.mark.parametrize("end", ["1e9999999", '"x"', '"NaN"'])
def test_an_event_whose_end_is_no_time_is_left_out(tmp_path: Path, end: str) -> None:
    begin = {**kernel(30, 6), "ph": "B"}
    del begin["dur"]
    end_event = {**begin, "ph": "E", "ts": "@"}
    path = written(tmp_path / "rank0.json", [step(1, 0, 100), call(10, 5), kernel(20, 5), begin])
    path.write_text(path.read_text().replace("]\n}", f", {json.dumps(end_event)}]\n}}"))
    path.write_text(path.read_text().replace('"@"', end))
    trace = reader.read(path)
    assert (trace.device_work.whole["start"].to_list(), trace.broken_ranges) == ([20_000], 1)


def test_categories_are_shown_without_what_a_terminal_obeys(tmp_path: Path) -> None:
    odd = {**kernel(30, 6), "cat": "\x1b[31m" + "x" * 1000}
    path = written(tmp_path / "rank0.json", [step(1, 0, 100), call(10, 5), kernel(20, 5), odd])
    (said,) = reader.read(path).device_work.unread
    assert said.isprintable(), "nothing that a terminal obeys"
    assert len(said) < 200


@pytest.mark.parametrize(
    "name", mostly_slow(["buckets", "no_launch_record", "tensor_parallel", "cuda_graph"], slow=1)
)
def test_a_job_gives_the_same_numbers_in_both_formats(tmp_path: Path, name: str) -> None:
    job = scene(name, ranks=2, iterations=6)
    forge(job, tmp_path / "nsys")
    for record in simulate(job).records:
        export_kineto(job, record, tmp_path / "kineto")
    runs = [
        rankscope.ingest([tmp_path / kind], tmp_path / f"{kind}.duckdb", jobs=1)
        for kind in ("nsys", "kineto")
    ]
    one, other = (run.iterations().drop("^.*start.*$") for run in runs)
    assert one.height == 2 * 6
    assert_same(one, other)
    assert_adds_up(other)
    one, other = (
        run.sql("select * exclude (window_start_ns) from measures order by rank, clock, iteration")
        for run in runs
    )
    assert_same(one, other)
    one, other = (run.sql("select * from activities").sort(pl.all()) for run in runs)
    assert one.height
    assert_same(one, other)
    # traces state the sizes of messages, which tell slow transfers from large ones
    first, second = (run.imbalance().verdict for run in runs)
    for field in ("kind", "ranks", "cause", "iterations", "excess_ns", "gain_ns", "also"):
        assert getattr(first, field) == getattr(second, field), field


def assert_same(one: pl.DataFrame, other: pl.DataFrame) -> None:
    """Equal, and to the nanosecond: the traces have three decimals."""
    assert one.columns == other.columns
    different = [name for name in one.columns if not one[name].equals(other[name])]
    assert not different, [(one[name].to_list(), other[name].to_list()) for name in different[:1]]


def test_times_are_whole_nanoseconds_on_an_axis_of_utc(tmp_path: Path) -> None:
    events = [step(1, 4458676522690.655, 10.001), step(2, "4458676522700.656", "9.999")]
    text = json.dumps({"traceEvents": events, "baseTimeNanoseconds": 1711964646000000000})
    path = tmp_path / "trace_rank_0.json"
    path.write_text(text.replace("4458676522690.655", "4458676522690.6551"))
    trace = reader.read(path)
    assert trace.ranges.whole.select("start", "end").rows() == [(0, 10_001), (10_001, 20_000)]
    assert trace.facts.utc_start_ns == 1711964646000000000 + 4458676522690655


@pytest.mark.parametrize(
    ("ts", "utc"), [(1669783687352244, 1669783687352244000), (4458676522690, None)]
)
def test_without_a_base_time_only_plausible_times_are_utc(
    tmp_path: Path, ts: int, utc: int | None
) -> None:
    assert reader.read(written(tmp_path / "t.json", [step(1, ts, 5)])).facts.utc_start_ns == utc


def test_frames_are_those_of_nsys(tmp_path: Path) -> None:
    nccl = {
        "Collective name": "allreduce",
        "In msg nelems": 100,
        "dtype": "BFloat16",
        "Process Group Name": "3",
        "Process Group Ranks": "[0, 4]",
        "Seq": 12,
    }
    events = [
        step(1, 0, 100),
        step(1, 0, 100, cat="gpu_user_annotation"),
        {**STEP, "cat": "cpu_op", "name": "aten::mm", **ONE, "args": {"External id": 5}},
        {**STEP, "cat": "python_function", "name": "train.py(3): f", **ONE},
        call(2, 30),
        call(3, 31, "cudaGraphLaunch"),
        {**call(4, 32), "cat": "cuda_driver"},
        call(3.5, 32),
        kernel(10, 30, "void at::native::(anonymous namespace)::f<int>(int)", grid=[2, 3, 4]),
        kernel(20, 31, "volta_sgemm_64x64_tn"),
        kernel(30, 32, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", **nccl),
        kernel(40, 99, **{"External id": 5}),
        kernel(50, 98),
        {**kernel(60, 97, bytes=64), "cat": "gpu_memcpy", "name": "Memcpy HtoD"},
        {**kernel(70, 96, bytes=8), "cat": "gpu_memset", "name": "Memset (Device)"},
    ]
    trace = reader.read(written(tmp_path / "t.json", events))
    assert trace.ranges.whole.schema == RANGES
    assert trace.device_work.whole.schema == DEVICE_WORK
    assert trace.ranges.whole.select("name", "domain", "process", "thread").rows() == [
        ("ProfilerStep#1", "", 7, 7),
        ("aten::mm", "operators", 7, 7),
    ]
    work = trace.device_work.whole
    assert work["name"].to_list()[:3] == [
        "f",
        "volta_sgemm_64x64_tn",
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
    ]
    assert work["kind"].to_list() == ["kernel"] * 5 + ["copy", "set"]
    assert work["grid"].to_list() == [24, *[None] * 6]
    assert work["bytes"].to_list() == [None, None, 200, None, None, 64, 8]
    assert work["launch"].to_list() == [2000, 3000, 3500, 1000, None, None, None]
    assert work["launch_thread"].to_list() == [8, 8, 8, 7, None, None, None]
    assert work["graph"].to_list() == [False, True, *[False] * 5]
    assert work["communicator"].to_list()[2:4] == ["3 [0,4]", None]
    assert work["sequence"].to_list()[2] == 12
    assert set(work["process"]) == {7}


def test_the_old_format_is_the_same_frames(tmp_path: Path) -> None:
    old = {"pid": 7, "tid": "1890023232"}
    events = [
        {**step(5, 0, 90), **old, "cat": "Operator"},
        {**STEP, **old, "cat": "Operator", "name": "aten::zero_", "ts": 1, "dur": 2},
        {**call(2, 30), **old, "cat": "Runtime"},
        {**kernel(10, 30), "cat": "Kernel", "tid": "stream 9"},
        {**kernel(20, 31, bytes=4), "cat": "Memset", "tid": "stream 9"},
    ]
    del events[3]["args"]["stream"]
    trace = reader.read(written(tmp_path / "t.json", events))
    assert trace.ranges.whole["domain"].to_list() == ["", "operators"]
    assert trace.ranges.whole["thread"].to_list() == [1890023232] * 2
    assert trace.device_work.whole["stream"].to_list() == [9, 7]
    assert trace.device_work.whole["launch_thread"].to_list() == [1890023232, None]


def test_rank_and_host_and_nothing_else_is_kept(tmp_path: Path) -> None:
    info = {"backend": "nccl", "rank": 3, "world_size": 8, "env": "SECRET"}
    beside = {"distributedInfo": info, "host_name": "node\x1b[31m1", "commandLine": "SECRET"}
    path = written(tmp_path / "t.json", [step(1, 5, 5)], **beside)
    expected = (Claim(3, 8, reader.DISTRIBUTED_INFO),)
    for facts in (reader.facts(path), reader.read(path).facts):
        assert facts.environment == expected
        assert facts.host == "node?[31m1"
        assert "SECRET" not in repr(facts)


@pytest.mark.parametrize("size", [0, -1, 2**40])
def test_a_size_that_no_job_has_is_unknown(tmp_path: Path, size: int) -> None:
    info = {"rank": 3, "world_size": size}
    path = written(tmp_path / "t.json", [step(1, 5, 5)], distributedInfo=info)
    assert reader.facts(path).environment == (Claim(3, None, reader.DISTRIBUTED_INFO),)


def test_what_stands_behind_the_events_counts_too(tmp_path: Path) -> None:
    events = json.dumps([step(1, 5, 5)])
    path = tmp_path / "t.json"
    path.write_text(f'{{"traceEvents": {events}, "distributedInfo": {{"rank": 2}}}}')
    assert reader.read(path).facts.environment == (Claim(2, None, reader.DISTRIBUTED_INFO),)


def test_the_name_of_a_worker_tells_the_host_of_its_own_process(tmp_path: Path) -> None:
    for pid, host in ((7, "node_3"), (8, None)):
        path = written(tmp_path / f"node_3_{pid}.1795269835229.pt.trace.json", [step(1, 5, 5)])
        assert reader.read(path).facts.host == host


def test_faults_that_kineto_is_known_for_are_mended(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(
        b'{"schemaVersion": 1, "traceEvents": [\n'
        b'{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy", "pid": 0, "tid": 7, "ts": 1, "dur": 0,'
        b' "args": {"stream": 7, "bytes": 8, "memory bandwidth (GB/s)": inf}},\n'
        b'{"ph": "X", "cat": "user_annotation", "name": "C:\\new\\x \xff\x01", "pid": 7, "tid": 7,'
        b' "ts": 1, "dur": 2},\n'
        b"]}"
    )
    trace = reader.read(path)
    assert trace.device_work.whole.height == 1
    assert trace.ranges.whole.height == 1


def test_events_that_are_none_are_counted_not_trusted(tmp_path: Path) -> None:
    wrong: list[Any] = [
        step(1, "NaN", 5),
        step(2, 5, -5),
        step(3, [1, 2], 5),
        step(4, 10**30, 5),
        step(4, -9e15, 5),
        step(4, 5, 9e15),
        {**step(5, 5, 5), "args": [1]},
        {**step(6, 5, 5), "name": {"a": 1}},
        {**step(7, 5, 5), "tid": "nobody"},
        7,
    ]
    right = [step(8, 10, 5), step(9, 15, 5, tid="7", pid=7.0), kernel(3, 1, grid=[2**70, 2, 2])]
    trace = reader.read(written(tmp_path / "t.json", [*right, *wrong]))
    assert trace.ranges.whole["name"].to_list() == ["ProfilerStep#8", "ProfilerStep#9"]
    assert trace.device_work.whole["grid"].to_list() == [None]
    assert trace.broken_rows == len(wrong)


@pytest.mark.parametrize("packed", [False, True])
def test_pieces_are_cut_between_events_only(tmp_path: Path, packed: bool) -> None:
    """Whatever stands in names and arguments, and wherever a chunk ends."""
    trap = {"name": '}, {"ph": "X"}, {', "args": {"a": [{"b": 1}, {"c": 2}, {"d": "},{"}]}}
    events = [{**step(i, i, 1), **trap} for i in range(200)]
    path = written(tmp_path / "t.json", events, distributedInfo={"rank": 1})
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    for size in (700, 1111, 9999):
        trace = reader.read(path, limits=Limits(first_bytes=size, chunk_bytes=size))
        assert trace.ranges.whole["start"].to_list() == [i * 1000 for i in range(200)]
        assert trace.facts.environment[0].rank == 1


def test_a_packed_trace_is_decoded_in_the_same_chunks(tmp_path: Path) -> None:
    plain = written(tmp_path / "t.json", [step(i, i, 1) for i in range(10_000)])
    packed = tmp_path / "t.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    limits = Limits(first_bytes=2**18, chunk_bytes=2**18)
    chunks = [[len(each) for each in EventFile(path, limits)] for path in (plain, packed)]
    assert chunks[0] == chunks[1]
    assert 2 < len(chunks[0]) < 10


DAMAGED = {
    "empty": (b"", "is empty"),
    "spaces": (b" \n ", "is empty"),
    "text": (b"hello", "is not JSON"),
    "UTF-16": ('{"traceEvents": []}'.encode("utf-16"), "UTF-16"),
    "object": (b'{"a": 1}', "not a profiler trace"),
    "nested": (b'{"w": {"traceEvents": []}}', "not a profiler trace"),
    "deep": (b'{"traceEvents": [{"args": ' + b"[" * 10**6, "truncated"),
    "deep and closed": (
        b'{"traceEvents": [{"a": ' + b"[" * 10**5 + b"]" * 10**5 + b"}]}",
        "damaged",
    ),
    "no events": (b'{"schemaVersion": 1, "traceEvents": []}', "no work of a device"),
    "no list": (b'{"schemaVersion": 1, "traceEvents": {"a": 1}}', "not a profiler trace"),
    "numbers": (b'{"schemaVersion": 1, "traceEvents": [1, 2, null]}', "0 events, but no range"),
    "others": (
        b'{"schemaVersion": 1, "traceEvents": [{"cat": "gc"}, {}]}',
        "2 events, but",
    ),
    "cut": (b'{"traceEvents": [{"ph": "X", "cat": "cpu_op"}, {"ph": ', "truncated"),
    "unquoted": (b'{"traceEvents": [{"ph": "X", cat: 1}]}', "damaged"),
    "bad gzip": (b"\x1f\x8bnonsense that is long enough", "cannot be read"),
    "cut gzip": (gzip.compress(b'{"traceEvents": [' + b'{"ph": "X"},' * 999)[:60], "truncated"),
    "execution trace": (b'{"nodes": [{"attrs": [{"name": "rf_id"}]}]}', "execution trace"),
    "rocprofiler": (b'{"rocprofiler-sdk-tool": [{"metadata": {"pid": 5}}]}', "rocprofiler, which"),
    "older execution trace": (b'{"nodes": [{"id": 2, "rf_id": 0}]}', "execution trace"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_no_trace_is_refused_with_reason_and_remedy(tmp_path: Path, name: str) -> None:
    content, reason = DAMAGED[name]
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableReport, match=reason) as refused:
        reader.read(path)
    assert str(path) in refused.value.message
    assert refused.value.hint


def test_mutations_are_read_or_refused_but_never_crash(tmp_path: Path) -> None:
    """Bits flipped, stretches cut out, doubled or swapped, with a word for the user each time."""
    [record, *_] = simulate(scene("buckets", ranks=2, iterations=1)).records
    whole = export_kineto(scene("buckets", ranks=2, iterations=1), record, tmp_path).read_bytes()
    rng, path = random.Random(5), tmp_path / "t.json"
    read, refusals = 0, list[str]()
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            at, length = rng.randrange(len(data)), rng.randint(1, 300)
            match rng.randrange(4):
                case 0:
                    data[at] ^= 1 << rng.randrange(8)
                case 1:
                    del data[at : at + length]
                case 2:
                    data[at:at] = data[at : at + length]
                case _:
                    data[at : at + length] = rng.choice([b"1e999", b'"', b"-", b"null", b"\xff"])
        path.write_bytes(data)
        try:
            reader.read(path)
            read += 1
        except UnreadableReport as error:
            refusals.append(error.message)
    assert read
    assert refusals
    assert all(str(path) in refusal for refusal in refusals)


def test_a_huge_event_is_refused_without_reading_on(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'{"traceEvents": [{"name": "' + b"x" * 2**20 + b'"}]}')
    with pytest.raises(UnreadableReport, match="damaged or truncated"):
        reader.read(path, limits=Limits(first_bytes=2**12, chunk_bytes=2**12, largest_bytes=2**16))


def test_a_name_may_be_long(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", [{**step(1, 0, 5), "name": "x" * 10**7}, step(2, 5, 5)])
    assert reader.read(path).ranges.whole["name"].str.len_bytes().max() == 10**7


REAL = {
    "hta_gpu_user_annotation": (653, 140, Claim(0, None, reader.DISTRIBUTED_INFO)),
    "hta_2ranks_rank1_5steps": (58_715, 22_290, Claim(1, 2, reader.DISTRIBUTED_INFO)),
    "linear_kineto": (37_078, 10_356, None),
    "hta_nccl_metadata_rank0": (14_388, 3_774, Claim(0, 2, reader.DISTRIBUTED_INFO)),
    "resnet_kineto": (39_506, 10_113, None),
    "tb_resnet50_old_format": (33_384, 10_015, None),
}
"""Ranges, operations of the device and claim, counted with another JSON library."""


@pytest.mark.parametrize("name", mostly_slow(REAL, slow=2))
def test_real_traces_are_read_whole(name: str) -> None:
    ranges, work, claim = REAL[name]
    trace = reader.read(public(f"kineto/{name}.json.gz"))
    assert (trace.ranges.whole.height, trace.device_work.whole.height) == (ranges, work)
    assert trace.facts.environment == (() if claim is None else (claim,))
    assert trace.broken_rows == 0
    assert isinstance(trace.facts, CaptureFacts)
    launched = trace.device_work.whole.filter(pl.col("launch").is_not_null())
    assert (launched["launch"] <= launched["start"]).all()
    assert launched.height > 0.9 * work


def test_process_groups_of_a_real_trace() -> None:
    work = reader.read(public("kineto/hta_nccl_metadata_rank0.json.gz")).device_work.whole
    nccl = work.filter(pl.col("name").cat.starts_with("nccl"))
    assert nccl["communicator"].unique().to_list() == ["0 [0,1]"]
    assert nccl["bytes"].null_count() == 0
    assert nccl["bytes"].max() == 4 * 7_875_584


@pytest.mark.slow
def test_a_real_trace_with_phases_adds_up(tmp_path: Path) -> None:
    path = public("kineto/hta_nccl_metadata_rank0.json.gz")
    run = rankscope.ingest([path], tmp_path / "run.duckdb")
    frame = run.iterations()
    assert frame["iteration"].to_list() == [4, 5, 6]
    assert_adds_up(frame)
    assert (frame["backward_ns"] > 60_000_000).all()


def test_execution_traces_are_distinguished(tmp_path: Path, cli: Callable[..., Any]) -> None:
    folder = public("kineto/astrasim_2ranks")
    cli("ingest", folder).refused(2, "no reports found", "traces of the PyTorch profiler")
    with pytest.raises(ReportError, match="execution trace"):
        rankscope.ingest([next(folder.iterdir())], tmp_path / "run.duckdb")

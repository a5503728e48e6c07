"""What NCCL tells of its kernels by payloads of its ranges."""

import random
import shutil
import struct
from collections.abc import Callable, Iterable
from pathlib import Path

import polars as pl
import pytest

import rankscope
from rankscope.ingestion.check import check
from rankscope.model.limits import USUAL
from rankscope.sources.nsys import exports, tables
from tests.sources.exports import KINDS, as_export
from tests.sources.limits import IN_PIECES
from tests.support import (
    MARKS,
    MakeForged,
    asked,
    edit,
    mostly_slow,
    sqlite_tables,
    with_rows,
    with_table,
)

DOMAIN, SCHEMA = 7, 16777223
COMMUNICATOR = 17_000_000_000_000_000_001  # above 2**63
SIZE = 4096


def nccl(path: Path) -> pl.DataFrame:
    work = exports.read(path).device_work.whole
    others = work.filter(~pl.col("name").cat.starts_with("nccl"))
    assert others["communicator"].null_count() == others.height
    return work.filter(pl.col("name").cat.starts_with("nccl")).sort("start")


def blob(
    communicator: int = COMMUNICATOR, size: int = SIZE, schema: int = SCHEMA, peer: int = 0
) -> bytes:
    """A payload as nsys 2026.2 exports it."""
    payload = struct.pack("<QQIxxxx", communicator, size, peer)
    return struct.pack("<IIIIQQ", DOMAIN, 0, schema, 0, len(payload), 32 + len(payload)) + payload


def json(communicator: int = COMMUNICATOR, size: int = SIZE) -> str:
    return f'{{"NCCL communicator ID":{communicator},"Message size [bytes]":{size}}}'


def launches(path: Path) -> list[tuple[int, int, int]]:
    """start, end and thread of the calls that launch NCCL's kernels."""
    return asked(
        path,
        'select r.start, r."end", r.globalTid from CUPTI_ACTIVITY_KIND_RUNTIME r '
        "join CUPTI_ACTIVITY_KIND_KERNEL k using (correlationId) "
        "join StringIds s on s.id = k.shortName where s.value like 'nccl%' order by r.start",
    )


def ranges(path: Path, rows: Iterable[tuple[object, ...]]) -> None:
    """Ranges of NCCL's domain: start, end, thread, name, JSON and bytes."""
    columns = "start, end, globalTid, text, jsonText, binaryData, eventType, domainId"
    with_rows(path, f"NVTX_EVENTS ({columns})", *((*row, 59, DOMAIN) for row in rows))


def laid_out(path: Path, message: str = "Message size [bytes]") -> Path:
    """A report with what newer exports have: bytes of payloads, and how they are laid out."""
    edit(path, "alter table NVTX_EVENTS add column binaryData text")
    schema = (DOMAIN, SCHEMA, 24)
    with_table(path, "NVTX_PAYLOAD_SCHEMAS", "domainId, schemaId, payloadSize", schema)
    entries = (("NCCL communicator ID", None), (message, 8), ("Reduction operation", 16))
    return with_table(
        path,
        "NVTX_PAYLOAD_SCHEMA_ENTRIES",
        "domainId, schemaId, name text, offset",
        *((DOMAIN, SCHEMA, *each) for each in entries),
    )


def around(path: Path, text: str | None, raw: bytes | None) -> None:
    """A call of NCCL around each launch of its kernels."""
    calls = [
        (start - 50, end + 50, thread, "ncclAllReduce", text, raw)
        for start, end, thread in launches(path)
    ]
    assert calls
    ranges(path, calls)


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_of_payloads(report: Path, tmp_path: Path, kind: str) -> None:
    around(laid_out(report), None, blob())
    path = as_export(report, kind, tmp_path / "out")
    output = nccl(path)
    assert {*output["communicator"]} == {str(COMMUNICATOR)}
    assert {*output["bytes"]} == {SIZE}
    assert exports.read(path).device_work.unread == ()


def test_json_of_payloads(report: Path) -> None:
    edit(report, "alter table NVTX_EVENTS add column binaryData text")
    around(report, json(), None)
    assert nccl(report)["communicator"].null_count() > 0, "nothing says whose domain it is"
    with_rows(report, MARKS, (0, None, 75, "NCCL", 1, DOMAIN))
    output = nccl(report)
    assert {*output["communicator"]} == {str(COMMUNICATOR)}
    assert {*output["bytes"]} == {SIZE}


@pytest.mark.parametrize(
    ("communicators", "names", "communicator", "size"),
    [
        ((5, 5), ("ncclAllReduce", "ncclAllReduce"), "5", 2 * SIZE),
        ((5, 5), ("ncclSend", "ncclRecv"), "5", None),
        ((5, 6), ("ncclAllReduce", "ncclAllReduce"), None, 2 * SIZE),
    ],
)
def test_a_group_launches_when_it_ends(
    report: Path,
    communicators: tuple[int, int],
    names: tuple[str, str],
    communicator: str | None,
    size: int | None,
) -> None:
    laid_out(report)
    for start, end, thread in launches(report):
        calls = [(start - 80, start - 75, thread, "ncclGroupStart", None, None)]
        calls += [
            (start - 70 + 10 * i, start - 65 + 10 * i, thread, name, None, blob(number))
            for i, (name, number) in enumerate(zip(names, communicators, strict=True))
        ]
        ranges(report, [*calls, (start - 10, end + 10, thread, "ncclGroupEnd", None, None)])
    output = nccl(report)
    assert {*output["communicator"]} == {communicator}
    if size:
        assert {*output["bytes"]} == {size}


PAIR = ("ncclSend", "ncclRecv")


def sending(report: Path) -> list[tuple[int, int, int]]:
    """`launches` of NCCL's kernels, which send and receive."""
    edit(report, "update StringIds set value = 'ncclDevKernel_SendRecv' where value like 'nccl%'")
    return launches(report)


def grouped(report: Path, calls: Iterable[str], start: int, end: int, thread: int) -> None:
    """A group of calls that launches what is launched from `start` to `end`."""
    rows = [
        (start - 90 + 5 * i, start - 87 + 5 * i, thread, name)
        for i, name in enumerate(("ncclGroupStart", *calls))
    ]
    rows.append((start - 10, end + 10, thread, "ncclGroupEnd"))
    columns = "start, end, globalTid, text, eventType, domainId"
    with_rows(report, f"NVTX_EVENTS ({columns})", *((*row, 59, DOMAIN) for row in rows))


@pytest.mark.parametrize(
    ("calls", "operation"),
    [
        ([4 * PAIR], "all_to_all"),
        ([3 * PAIR], "point_to_point"),
        ([("ncclSend",) * 4], "point_to_point"),
        ([4 * PAIR, 4 * PAIR, PAIR], "all_to_all"),
        ([4 * PAIR, PAIR, PAIR], "point_to_point"),
    ],
    ids=["four", "ring", "scatter", "nothing to send to some", "few"],
)
def test_sends_to_many_at_once_are_an_all_to_all(
    report: Path, calls: list[tuple[str, ...]], operation: str
) -> None:
    for nth, (start, end, thread) in enumerate(sending(report)):
        grouped(report, calls[nth % len(calls)], start, end, thread)
    for limits in (USUAL, IN_PIECES):
        work = tables.trace(exports.columns_of(report, limits)).device_work.whole
        assert {*work["operation"].drop_nulls()} == {operation}


def test_a_group_on_several_streams_is_no_all_to_all(report: Path) -> None:
    """Each of them may exchange with one neighbour."""
    for first, last in zip(*[iter(sending(report))] * 2, strict=True):
        edit(
            report,
            "update CUPTI_ACTIVITY_KIND_KERNEL set streamId = 99 where correlationId = "
            f"(select correlationId from CUPTI_ACTIVITY_KIND_RUNTIME where start = {first[0]})",
        )
        grouped(report, 4 * PAIR, first[0], last[1], first[2])
    assert {*nccl(report)["operation"]} == {"point_to_point"}


def with_peers(report: Path, calls: Iterable[tuple[str, int]]) -> Path:
    """Each launch is of a group of these calls, which name their peers in the communicator 5."""
    laid_out(report)
    entry = "(domainId, schemaId, name, offset)"
    of_field = (DOMAIN, SCHEMA, "Peer rank", 16)
    with_rows(report, f"NVTX_PAYLOAD_SCHEMA_ENTRIES {entry}", of_field)
    for start, end, thread in sending(report):
        rows = [(start - 90, start - 88, thread, "ncclGroupStart", None, None)]
        for i, (name, peer) in enumerate(calls):
            of_call = blob(5, peer=peer)
            rows.append((start - 80 + 5 * i, start - 77 + 5 * i, thread, name, None, of_call))
        ranges(report, [*rows, (start - 10, end + 10, thread, "ncclGroupEnd", None, None)])
    return report


def test_sends_and_receives_name_their_peers(report: Path) -> None:
    """As NCCL lays out `ncclSend` and `ncclRecv`: a communicator, bytes, and a place in it."""
    calls = [("ncclSend", 2), ("ncclRecv", 0)]
    assert {*nccl(with_peers(report, calls))["communicator"]} == {"5 to 2, from 0"}


@pytest.mark.parametrize(("peers", "operation"), [(1, "point_to_point"), (4, "all_to_all")])
def test_many_tensors_for_one_peer_are_no_all_to_all(
    report: Path, peers: int, operation: str
) -> None:
    """As of ring attention: keys and values, and their gradients, to the next rank."""
    calls = [(name, 2 + i // 2 % peers) for i, name in enumerate(4 * PAIR)]
    assert {*nccl(with_peers(report, calls))["operation"]} == {operation}


def test_the_end_of_a_group_that_began_before_the_capture(report: Path) -> None:
    laid_out(report)
    first, *rest = launches(report)
    start, end, thread = first
    ranges(
        report,
        [
            (start - 50, start - 40, thread, "ncclAllReduce", None, blob(4)),
            (start - 10, end + 10, thread, "ncclGroupEnd", None, None),
            *((s - 50, e + 50, t, "ncclAllReduce", None, blob()) for s, e, t in rest),
        ],
    )
    assert nccl(report)["communicator"].to_list() == [None, *[str(COMMUNICATOR)] * len(rest)]


def unknown_schema(report: Path) -> None:
    around(laid_out(report), None, blob(schema=1))


def cut(report: Path) -> None:
    around(laid_out(report), None, blob()[:40])


def another_name(report: Path) -> None:
    around(laid_out(report, message="Bytes"), '{"hash": "0x12"}', None)
    with_rows(report, MARKS, (0, None, 75, "NCCL", 1, DOMAIN))


@pytest.mark.parametrize("spoil", [unknown_schema, cut, another_name])
def test_what_is_laid_out_otherwise_is_left_and_said(
    report: Path, spoil: Callable[[Path], None]
) -> None:
    spoil(report)
    assert nccl(report)["communicator"].null_count() == len(launches(report))
    [checked] = check([report])
    [said] = [each for each in checked.problems if each.code == "part-unread"]
    assert "NCCL" in said.message


@pytest.mark.parametrize("kind", mostly_slow(KINDS))
def test_the_order_of_rows_tells_nothing(report: Path, tmp_path: Path, kind: str) -> None:
    """Newer exports do not promise any."""

    def read(path: Path, name: str) -> pl.DataFrame:
        return exports.read(as_export(path, kind, tmp_path / name)).device_work.whole.cast(
            {"name": pl.String}
        )

    around(laid_out(report), None, blob())
    ordered = read(report, "ordered")
    shuffled(report)
    assert read(report, "shuffled").equals(ordered)
    assert ordered["communicator"].count() == len(launches(report))


def shuffled(path: Path) -> None:
    """Each table's rows in an order of chance."""
    for name in sqlite_tables(path):
        rows = asked(path, f'select * from "{name}"')
        random.Random(name).shuffle(rows)
        edit(path, f'delete from "{name}"')
        with_rows(path, f'"{name}"', *rows)


def test_communicators_are_matched_by_what_nccl_tells(forged: MakeForged, tmp_path: Path) -> None:
    """Every rank's stream has a number of its own; the payloads say that they are one."""
    for rank, original in enumerate(forged("plain").reports):
        path = Path(shutil.copy(original, tmp_path / f"report_rank_{rank}.sqlite"))
        around(laid_out(path), None, blob())
    run = rankscope.ingest([tmp_path], tmp_path / "run.duckdb")
    names = run.sql("select distinct communicator from collectives where place = 'device'")
    assert names["communicator"].to_list() == [f"named {COMMUNICATOR}"]
    assert run.compare().matching.summary.unmatched.is_empty()

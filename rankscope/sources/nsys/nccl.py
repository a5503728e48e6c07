"""NCCL's description of its kernels in Nsight Systems exports: communicator, size, peers.

NCCL marks its calls by NVTX ranges, whose payloads describe them (NVIDIA/nccl: src/collectives.cc
and src/include/nvtx_payload_schemas.h, where the fields below have their names). Exports show
payloads, if at all, in one of two ways: as JSON in `NVTX_EVENTS.jsonText`; or, since 2026 and only
with `nsys export --include-blobs=true`, as bytes in `NVTX_EVENTS.binaryData`: a header of 32 bytes,
then what `NVTX_PAYLOAD_SCHEMAS` and `NVTX_PAYLOAD_SCHEMA_ENTRIES` lay out (GindaChen/nsys-ai:
nsys_ai/skills/builtins/nccl_payload_breakdown.py, for reports of nsys 2026.2).
"""

import re

import polars as pl

from rankscope.model.kinds import POINT_TO_POINT
from rankscope.model.schema import DEVICE_WORK, OPERATION, STREAM, conform
from rankscope.sources.columns.request import Columns
from rankscope.sources.nsys.nvtx import OF_DOMAIN, Nvtx

SCHEMAS, ENTRIES = "NVTX_PAYLOAD_SCHEMAS", "NVTX_PAYLOAD_SCHEMA_ENTRIES"

FIELDS = {
    "identifier": ("NCCL communicator ID", 8),  # the same on every rank
    "message": ("Message size [bytes]", 8),
    "peer": ("Peer rank", 4),  # its place in the communicator
}
"""Names of fields of NCCL's payloads, and their lengths in bytes."""

PLACES = [f"{field}_at" for field in FIELDS]
"""Columns with the offsets of these fields."""

SIDES = {"ncclSend": "to", "ncclRecv": "from"}
"""How what a call does to its peer is said, as in PEERS."""

HEADER, SCHEMA_AT, SIZE_AT = 32, 8, 16
"""Bytes before a payload; offsets in them of the schema's id (4 bytes) and the size (8 bytes)."""

LARGEST = 2**20
"""A payload of more bytes is not NCCL's."""

EXCHANGED = 4
"""Peers that a group sends to and receives from, which make it an all-to-all.

Fewer may be neighbours in a ring. Where payloads do not tell the peers, each call counts as one.
"""

UNREAD = (
    "NCCL's description of its communicators has an unknown layout and is not used: NVTX payloads"
)

OWN_STREAM = ("process", *STREAM)
"""Key of a stream among those of several processes."""

OF_NCCL = pl.col("name").cat.starts_with("nccl") | pl.col("name").cat.starts_with("rccl")
"""Operations that are NCCL's, or RCCL's."""


def with_nccl(
    file: Columns, work: pl.DataFrame, nvtx: Nvtx
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """DEVICE_WORK with NCCL's description of its kernels, and a message if that is unreadable.

    Nothing is guessed: a kernel without a consistent description stays as it is.

    Args:
        work: DEVICE_WORK.
        nvtx: the export's NVTX events.
    """
    numbered = work.with_row_index("row")
    if nvtx.of_nccl.is_empty() or (kernels := numbered.filter(OF_NCCL)).is_empty():
        return work, ()
    facts = _by_calls(file, kernels, nvtx)
    if facts is None:
        return work, (UNREAD,)
    described = numbered.join(
        facts, on="row", how="left", maintain_order="left", suffix="_nccl"
    ).with_columns(
        pl.coalesce("communicator", "communicator_nccl"),
        bytes=pl.coalesce("message", "bytes"),
        operation=pl.when("all_to_all")
        .then(pl.lit("all_to_all", OPERATION))
        .otherwise("operation"),
    )
    return conform(described, DEVICE_WORK, drop_others=True), ()


def _by_calls(file: Columns, kernels: pl.DataFrame, nvtx: Nvtx) -> pl.DataFrame | None:
    """row, communicator, message and all_to_all by the host calls that launched the kernels.

    None where payloads are not as known.

    A call launches its kernel before it returns; the calls of a group launch theirs when it ends.
    They give the communicator if they have only one. If they launched a single kernel, they give
    the size if they are of one kind, and its peers. A rank leaves out peers to which it has nothing
    to send: kernels of a stream that send and receive are all-to-alls if most of their groups are.
    """
    calls = _calls(file, nvtx)
    if calls is None:
        return None
    described = pl.col("message").is_not_null()
    sent, got = (pl.col("to").filter(pl.col("name") == each) for each in SIDES)
    sent, got = (
        pl.when(each.null_count() == 0).then(each.n_unique()).otherwise(each.len())
        for each in (sent, got)
    )
    scopes = calls.group_by("scope").agg(
        _only(pl.col("communicator").filter(described)),
        pl.when(pl.col("name").filter(described).n_unique() == 1).then(pl.col("message").sum()),
        both=pl.min_horizontal(sent, got),
        peers=pl.when(pl.col("to").count() == pl.col("name").is_in([*SIDES]).sum()).then(
            pl.col("to").str.join(", ")
        ),
    )
    launches = kernels.drop_nulls(["launch", "launch_thread"]).sort("launch")
    sends = (pl.col("operation") == POINT_TO_POINT) & (
        pl.struct(OWN_STREAM).n_unique().over("scope") == 1
    )
    alone = pl.len().over("scope") == 1
    return (
        launches.select("row", "launch", "launch_thread", "operation", *OWN_STREAM)
        .join_asof(
            calls.select("scope", "thread", "start", "end"),
            left_on="launch",
            right_on="start",
            by_left="launch_thread",
            by_right="thread",
            strategy="backward",
            check_sortedness=False,
        )
        .filter(pl.col("launch") <= pl.col("end"))
        .join(scopes, on="scope")
        .with_columns(
            message=pl.when(alone).then("message"),
            all_to_all=sends & (pl.when(sends).then("both").median().over(OWN_STREAM) >= EXCHANGED),
        )
        .select(
            "row",
            pl.when(alone & sends & ~pl.col("all_to_all") & (pl.col("peers") != ""))
            .then(pl.format("{} {}", "communicator", "peers"))
            .otherwise("communicator")
            .alias("communicator"),
            "message",
            "all_to_all",
        )
    )


def _only(values: pl.Expr) -> pl.Expr:
    """The value of a group that has only one."""
    return pl.when(values.n_unique() == 1).then(values.first())


def _layouts(file: Columns) -> pl.DataFrame:
    """domainId, schemaId, payloadSize, and PLACES of NCCL's fields in such payloads."""
    keys = ["domainId", "schemaId"]
    if not (file.has(SCHEMAS, *keys, "payloadSize") and file.has(ENTRIES, *keys, "offset", "name")):
        return pl.DataFrame(schema=dict.fromkeys([*keys, *PLACES, "payloadSize"], pl.Int64))
    entries = file.read(ENTRIES, [*keys, "offset"], ["name"])
    offset = pl.col("offset").fill_null(0)
    fields = entries.group_by(keys).agg(
        offset.filter(pl.col("name") == name).first().alias(place)
        for place, (name, _) in zip(PLACES, FIELDS.values(), strict=True)
    )
    sizes = file.read(SCHEMAS, [*keys, "payloadSize"]).unique(keys)
    within = (
        pl.col(place).is_between(0, pl.col("payloadSize") - length).fill_null(True)
        for place, (_, length) in zip(PLACES, FIELDS.values(), strict=True)
    )
    return (
        fields.drop_nulls("message_at")  # other calls begin or end communicators
        .join(sizes.drop_nulls(), on=keys)
        .filter(*within, pl.col("payloadSize") < LARGEST)
    )


def _calls(file: Columns, nvtx: Nvtx) -> pl.DataFrame | None:
    """NCCL's host calls in order: thread, start, end, name, communicator, message, to and scope.

    None where they have payloads, but none as known. `to` is the peer of a send or receive. Calls
    of one group have one scope, others a scope each.
    """
    layouts = _layouts(file)
    domains = pl.concat([layouts["domainId"], nvtx.nccl_domains])
    own = pl.col("domainId").is_in(domains.implode())
    calls = (
        nvtx.of_nccl.filter(pl.col("name").str.contains(OF_DOMAIN["NCCL"]))
        .with_columns(pl.when(own).then(each).alias(each) for each in ("json", "binaryData"))
        .with_columns(schemaId=_number(pl.lit(SCHEMA_AT), 4).cast(pl.Int64))
        .join(layouts, on=["domainId", "schemaId"], how="left")
    )
    whole = (_number(pl.lit(SIZE_AT), 8) == pl.col("payloadSize")) & (
        pl.col("binaryData").bin.size() >= HEADER + pl.col("payloadSize")
    )
    read = calls.with_columns(
        pl.coalesce(
            _number(pl.when(whole).then(HEADER + pl.col(f"{field}_at")), length),
            pl.col("json")
            .str.extract(rf'"{re.escape(name)}"\s*:\s*"?(\d{{1,20}})\b')
            .cast(pl.UInt64, strict=False),
        ).alias(field)
        for field, (name, length) in FIELDS.items()
    ).with_columns(
        to=pl.format(
            "{} {}",
            pl.col("name").replace_strict(SIDES, default=None, return_dtype=pl.String),
            "peer",
        ),
        communicator=pl.when(pl.col("identifier") != 0).then(pl.col("identifier").cast(pl.String)),
        message=pl.col("message").cast(pl.Int64, strict=False),
    )
    payload = pl.coalesce(pl.col("binaryData").bin.size(), pl.col("json").str.len_bytes()) > 0
    described = read.filter(payload, ~pl.col("name").str.contains("^nccl(Comm|Group)"))
    if described.height and not described["message"].count():
        return None
    return _scoped(read.rename({"globalTid": "thread"}).sort("start"))


def _scoped(calls: pl.DataFrame) -> pl.DataFrame:
    """Calls with `scope`; the end of a group that began before the capture has its own."""
    step = (
        pl.when(pl.col("name") == "ncclGroupStart")
        .then(1)
        .when(pl.col("name") == "ncclGroupEnd")
        .then(-1)
        .otherwise(0)
    )
    depth = calls.with_columns(step=step).with_columns(
        depth=pl.col("step").cum_sum().over("thread")
    )
    low = pl.min_horizontal(pl.col("depth").cum_min(), 0)
    torn = low < low.shift(1, fill_value=0)
    outside = (pl.col("depth") - low - pl.col("step") == 0) | torn
    return depth.with_columns(
        scope=pl.struct("thread", nth=outside.cum_sum().over("thread")).rank("dense")
    )


def _number(at: pl.Expr, length: int) -> pl.Expr:
    """A little-endian number of 4 or 8 bytes in `binaryData`; null where its bytes are too few."""
    piece = pl.col("binaryData").bin.slice(at, length)
    whole = pl.when(piece.bin.size() == length).then(piece)
    return whole.bin.reinterpret(dtype=pl.UInt64 if length == 8 else pl.UInt32, endianness="little")

"""NCCL's description of its kernels in Nsight Systems exports: communicator, sequence, size.

NCCL describes its calls in payloads of its NVTX ranges (NVIDIA/nccl: src/collectives.cc and
src/include/nvtx_payload_schemas.h, where the fields below have their names). Exports show them,
if at all, in one of two ways: as JSON in `NVTX_EVENTS.jsonText`; or, since 2026 and only with
`nsys export --include-blobs=true`, as bytes in `NVTX_EVENTS.binaryData`: a header of 32 bytes, then
what `NVTX_PAYLOAD_SCHEMAS` and `NVTX_PAYLOAD_SCHEMA_ENTRIES` lay out (GindaChen/nsys-ai:
nsys_ai/skills/builtins/nccl_payload_breakdown.py, for reports of nsys 2026.2).

Tables of NCCL's operations are not in exports themselves: nsys's recipes derive them from such
events, with the columns that Nsight Systems' Analysis Guide gives ("Recipe Composite Tables").
"""

import re

import polars as pl

from rankscope.model.schema import DEVICE_WORK, OPERATION, conform
from rankscope.sources.columns.request import Columns
from rankscope.sources.conventions import known, stated_operations
from rankscope.sources.nsys.common import PROCESS
from rankscope.sources.nsys.nvtx import Nvtx

TABLES = ("NCCL_GPU_OPERATIONS_COLLECTIVE", "NCCL_GPU_OPERATIONS")
"""Tables of NCCL's operations: of collectives, and of all."""

COMMUNICATOR, SEQUENCE, SPELLED = "commHash", "seqNumber", "text"
"""Columns of these tables; the second is in the first one only."""

SCHEMAS, ENTRIES = "NVTX_PAYLOAD_SCHEMAS", "NVTX_PAYLOAD_SCHEMA_ENTRIES"

IDENTIFIER, MESSAGE = "NCCL communicator ID", "Message size [bytes]"
"""Fields of NCCL's payloads, 8 bytes each; the first is the same on every rank."""

HEADER, SCHEMA_AT, SIZE_AT = 32, 8, 16
"""Bytes before a payload; offsets in them of the schema's id (4 bytes) and the size (8 bytes)."""

LARGEST = 2**20
"""A payload of more bytes is not NCCL's."""

FACTS = pl.Schema(
    {
        "communicator": pl.String(),
        "sequence": pl.Int64(),
        "message": pl.Int64(),
        "operation": OPERATION,
    }
)
"""Columns with which NCCL describes a kernel."""

UNREAD = "NCCL's description of its communicators has an unknown layout and is not used: {}"


OF_NCCL = pl.col("name").cat.starts_with("nccl") | pl.col("name").cat.starts_with("rccl")
"""Operations that are NCCL's, or RCCL's."""


def tells(file: Columns, nvtx: Nvtx) -> bool:
    """Whether the export holds any description by NCCL."""
    return any(map(file.has, TABLES)) or not nvtx.of_nccl.is_empty()


def with_nccl(
    file: Columns, work: pl.DataFrame, nvtx: Nvtx
) -> tuple[pl.DataFrame, tuple[str, ...]]:
    """DEVICE_WORK with NCCL's description of its kernels, and a message per unreadable source.

    Nothing is guessed: a kernel without a consistent description stays as it is.

    Args:
        work: DEVICE_WORK.
        nvtx: the export's NVTX events.
    """
    if not tells(file, nvtx):
        return work, ()
    kernels = work.with_row_index("row").filter(OF_NCCL)
    if kernels.is_empty():
        return work, ()
    by_source = {f"table {table}": _by_table(file, table, kernels) for table in TABLES}
    by_source["NVTX payloads"] = _by_calls(file, kernels, nvtx)
    described = work.with_row_index("row")
    for facts in by_source.values():
        if facts is not None and not facts.is_empty():
            described = (
                described.join(facts, on="row", how="left", maintain_order="left", suffix="_nccl")
                .with_columns(
                    pl.coalesce("communicator", "communicator_nccl"),
                    pl.coalesce("sequence", "sequence_nccl"),
                    operation=known("operation", "operation_nccl"),
                    bytes=pl.coalesce("message", "bytes"),
                )
                .select("row", *DEVICE_WORK)
            )
    unread = tuple(UNREAD.format(where) for where, facts in by_source.items() if facts is None)
    return conform(described.drop("row"), DEVICE_WORK), unread


def _nothing() -> pl.DataFrame:
    return pl.DataFrame(schema={"row": pl.get_index_type(), **FACTS})


def _by_table(file: Columns, table: str, kernels: pl.DataFrame) -> pl.DataFrame | None:
    """row and FACTS by a table of operations; None where its columns are not the known ones.

    An operation belongs to the NCCL kernel of its process that starts nearest to it, if they
    overlap. A kernel that runs several (a group) has no sequence number of its own.
    """
    if not file.has(table):
        return _nothing()
    owners = ["globalTid", "globalPid"]
    owned = any(file.has(table, owner) for owner in owners)
    processes = kernels["process"].unique()
    if not file.has(table, "start", "end", COMMUNICATOR) or not (owned or len(processes) == 1):
        return None
    rows = file.read(table, ["start", "end", *owners, COMMUNICATOR, SEQUENCE], [SPELLED])
    spelled = file.read(table, [], [COMMUNICATOR]).to_series()  # a number, or written out
    operations = (
        rows.with_columns(
            process=pl.coalesce(owners) // PROCESS if owned else pl.lit(processes[0], pl.Int64),
            communicator=pl.coalesce(spelled, pl.col(COMMUNICATOR).cast(pl.String)),
            operation=stated_operations(rows[SPELLED].str.replace("(?i)^nccl", "")),
        )
        .drop_nulls(["start", "end", "process"])
        .select("start", "process", "communicator", "operation", until="end", sequence=SEQUENCE)
        .sort("start")
    )
    nearest = operations.join_asof(
        kernels.sort("start").select("row", "process", "end", "start", begin="start"),
        on="start",
        by="process",
        strategy="nearest",
        check_sortedness=False,
    ).filter((pl.col("start") < pl.col("end")) & (pl.col("begin") < pl.col("until")))
    return nearest.group_by("row").agg(
        _only("communicator"),
        pl.when(pl.len() == 1).then(pl.col("sequence").first()),
        _only("operation"),
        message=pl.lit(None, pl.Int64),
    )


def _by_calls(file: Columns, kernels: pl.DataFrame, nvtx: Nvtx) -> pl.DataFrame | None:
    """row and FACTS by the host calls that launched them; None where payloads are not as known.

    A call launches its kernel before it returns; the calls of a group launch theirs when it ends.
    They give the communicator if they have only one, and the size if they are of one kind and
    launched a single kernel.
    """
    if nvtx.of_nccl.is_empty():
        return _nothing()
    calls = _calls(file, nvtx)
    if calls is None:
        return None
    scopes = (
        calls.drop_nulls("message")
        .group_by("scope")
        .agg(
            _only("communicator"),
            pl.when(pl.col("name").n_unique() == 1).then(pl.col("message").sum()),
        )
    )
    launches = kernels.drop_nulls(["launch", "launch_thread"]).sort("launch")
    return (
        launches.select("row", "launch", "launch_thread")
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
        .select(
            "row",
            "communicator",
            sequence=pl.lit(None, pl.Int64),
            message=pl.when(pl.len().over("scope") == 1).then("message"),
            operation=pl.lit(None, OPERATION),
        )
    )


def _only(column: str) -> pl.Expr:
    """The value of a group that has only one."""
    return pl.when(pl.col(column).n_unique() == 1).then(pl.col(column).first())


def _layouts(file: Columns) -> pl.DataFrame:
    """domainId, schemaId, payloadSize, and where in such payloads NCCL's two fields stand."""
    keys, places = ["domainId", "schemaId"], ["identifier_at", "message_at"]
    if not (file.has(SCHEMAS, *keys, "payloadSize") and file.has(ENTRIES, *keys, "offset", "name")):
        return pl.DataFrame(schema=dict.fromkeys([*keys, *places, "payloadSize"], pl.Int64))
    entries = file.read(ENTRIES, [*keys, "offset"], ["name"])
    offset = pl.col("offset").fill_null(0)
    fields = entries.group_by(keys).agg(
        offset.filter(pl.col("name") == name).first().alias(place)
        for place, name in zip(places, (IDENTIFIER, MESSAGE), strict=True)
    )
    sizes = file.read(SCHEMAS, [*keys, "payloadSize"]).unique(keys)
    within = pl.col(places).is_between(0, pl.col("payloadSize") - 8).fill_null(True)
    return (
        fields.drop_nulls("message_at")  # other calls begin or end communicators
        .join(sizes.drop_nulls(), on=keys)
        .filter(pl.all_horizontal(within), pl.col("payloadSize") < LARGEST)
    )


def _calls(file: Columns, nvtx: Nvtx) -> pl.DataFrame | None:
    """NCCL's host calls in order: thread, start, end, name, communicator, message and scope.

    None where they have payloads, but none as known. Calls of one group have one scope, others a
    scope each.
    """
    layouts = _layouts(file)
    domains = pl.concat([layouts["domainId"], nvtx.nccl_domains])
    calls = (
        nvtx.of_nccl.filter(pl.col("domainId").is_in(domains.implode()))
        .with_columns(schemaId=_number(pl.lit(SCHEMA_AT), pl.UInt32).cast(pl.Int64))
        .join(layouts, on=["domainId", "schemaId"], how="left")
    )
    whole = (_number(pl.lit(SIZE_AT), pl.UInt64) == pl.col("payloadSize")) & (
        pl.col("binaryData").bin.size() >= HEADER + pl.col("payloadSize")
    )
    read = calls.with_columns(
        pl.coalesce(
            _number(pl.when(whole).then(HEADER + pl.col(f"{field}_at")), pl.UInt64),
            pl.col("json")
            .str.extract(rf'"{re.escape(name)}"\s*:\s*"?(\d{{1,20}})\b')
            .cast(pl.UInt64, strict=False),
        ).alias(field)
        for field, name in (("identifier", IDENTIFIER), ("message", MESSAGE))
    ).with_columns(
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


def _number(at: pl.Expr, kind: type[pl.DataType]) -> pl.Expr:
    """A little-endian number somewhere in `binaryData`; null where its bytes are too few."""
    length = 8 if kind == pl.UInt64 else 4
    piece = pl.col("binaryData").bin.slice(at, length)
    whole = pl.when(piece.bin.size() == length).then(piece)
    return whole.bin.reinterpret(dtype=kind, endianness="little")

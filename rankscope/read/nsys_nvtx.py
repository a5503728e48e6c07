"""NVTX events of Nsight Systems exports: ranges, names of threads, and what NCCL says in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import polars as pl

from rankscope.events import Events, Few, Held, Reread
from rankscope.read.nsys_columns import PROCESS, RANGE_TYPES, Columns, Strings, require
from rankscope.schema import RANGES, conform, empty

EVENTS = "NVTX_EVENTS"

THREAD_NAME, DOMAIN = 39, 75
"""NVTX event types that name things (ENUM_NSYS_EVENT_TYPE)."""

COLUMNS = ["start", "end", "eventType", "globalTid", "domainId", "textId", "jsonTextId"]
PAYLOADS = ["int64Value", "uint64Value", "int32Value", "uint32Value"]

SAME_DOMAIN = ["process", "domainId"]
"""Numbers of domains are private to a process."""

CALLS = pl.Schema(
    {
        "start": pl.Int64,
        "end": pl.Int64,
        "globalTid": pl.Int64,
        "domainId": pl.Int64,
        "name": pl.String,
        "json": pl.String,
        "binaryData": pl.Binary,
    }
)
"""Ranges named like functions of NCCL, with what describes the call."""

DESCRIBING = ["json", "binaryData"]

IS_RANGE = (
    pl.col("eventType").is_in(RANGE_TYPES)
    & pl.col("end").is_not_null()
    & (pl.col("end") >= pl.col("start"))
)


@dataclass(frozen=True, slots=True)
class Nvtx:
    """The NVTX events of an export."""

    ranges: Events  # RANGES
    thread_names: pl.DataFrame  # globalTid, text
    of_nccl: pl.DataFrame  # CALLS, or none if nothing describes them
    nccl_domains: pl.Series  # numbers of NCCL's domains
    events: int
    broken: int  # rows left out


def nvtx(file: Columns, pool: Strings) -> Nvtx:
    """The NVTX events, held where they are few.

    Args:
        file: the export.
        pool: its strings.
    """
    if not file.has(EVENTS):
        names = pl.DataFrame(schema={"globalTid": pl.Int64, "text": pl.String})
        nowhere = pl.Series(dtype=pl.Int64)
        return Nvtx(Held(empty(RANGES)), names, empty(CALLS), nowhere, 0, 0)
    require(file, EVENTS, "start", "end", "eventType", "globalTid")
    look, few = _Look(), Few()
    for part, broken in _pieces(file, pool, described=True):
        look.at(part, broken)
        few.add(part.drop(DESCRIBING))
    created = pl.concat(look.domains)
    naming = _Naming(_domains(created, pl.concat(look.told_by_names)), look.payloads)

    def read() -> Iterator[pl.DataFrame]:
        return (naming.ranges(part) for part, _ in _pieces(file, pool))

    held = few.parts
    return Nvtx(
        ranges=Reread(read) if held is None else Held(pl.concat(map(naming.ranges, held))),
        thread_names=pl.concat(look.thread_names),
        of_nccl=look.described(),
        nccl_domains=created.filter(domain="NCCL")["domainId"],
        events=look.events,
        broken=look.broken,
    )


class _Look:
    """What must be known of all events before any is a range: taken in piece by piece."""

    def __init__(self) -> None:
        self.events = self.broken = 0
        self.payloads: list[str] = []
        self.domains: list[pl.DataFrame] = []
        self.told_by_names: list[pl.DataFrame] = []
        self.thread_names: list[pl.DataFrame] = []
        self._calls: list[pl.DataFrame] = []

    def at(self, part: pl.DataFrame, broken: int) -> None:
        """Take in a piece of `_pieces`."""
        self.events += part.height
        self.broken += broken
        self.payloads = [name for name in PAYLOADS if name in self.payloads or _tells(part, name)]
        kind = pl.col("eventType")
        self.thread_names.append(part.filter(kind == THREAD_NAME).select("globalTid", "text"))
        self.domains.append(
            part.filter(kind == DOMAIN).select(
                process=pl.col("globalTid") // PROCESS, domainId="domainId", domain="text"
            )
        )
        ranges = part.filter(IS_RANGE)
        self.told_by_names.append(_told_by_names(ranges))
        called = ranges.filter(pl.col("text").str.starts_with("nccl"))
        self._calls.append(conform(called.rename({"text": "name"}), CALLS))

    def described(self) -> pl.DataFrame:
        """CALLS if any of them is described."""
        calls = pl.concat(self._calls)
        told = pl.coalesce(pl.col("binaryData").bin.size(), pl.col("json").str.len_bytes()) > 0
        return calls if calls.select(told.any()).item() else calls.clear()


@dataclass(frozen=True, slots=True)
class _Naming:
    """How events become RANGES."""

    domains: pl.DataFrame  # process, domainId, domain
    payloads: list[str]  # columns that tell something

    def ranges(self, part: pl.DataFrame) -> pl.DataFrame:
        """Push/pop and start/end ranges of a piece."""
        values = [pl.col(name) for name in self.payloads if name in part.columns]
        ranges = part.filter(IS_RANGE).select(
            "start",
            "end",
            "domainId",
            process=pl.col("globalTid") // PROCESS,
            thread="globalTid",
            name=pl.col("text").fill_null(""),
            payload=pl.coalesce(*values, pl.lit(None, pl.Int64)),
        )
        named = ranges.select(SAME_DOMAIN).join(
            self.domains, on=SAME_DOMAIN, how="left", maintain_order="left"
        )
        return conform(ranges.with_columns(named["domain"]), RANGES)


def _domains(created: pl.DataFrame, told_by_names: pl.DataFrame) -> pl.DataFrame:
    """process, domainId, domain: told by their ranges if created before the capture began.

    Args:
        created: process, domainId, domain of those created in it.
        told_by_names: what `_told_by_names` gave of all pieces.
    """
    first = created.unique(SAME_DOMAIN, keep="first", maintain_order=True)
    own = pl.col("domainId") != 0
    return (
        told_by_names.group_by(SAME_DOMAIN)
        .agg(pl.col("nccl", "mpi").all())
        .join(first, on=SAME_DOMAIN, how="left")
        .select(
            *SAME_DOMAIN,
            domain=pl.coalesce(
                "domain",
                pl.when(own & pl.col("nccl")).then(pl.lit("NCCL")),
                pl.when(own & pl.col("mpi")).then(pl.lit("MPI")),
                pl.lit(""),
            ),
        )
    )


def _told_by_names(ranges: pl.DataFrame) -> pl.DataFrame:
    """process, domainId, and whether all ranges are named like NCCL's, like MPI's."""
    name = pl.col("text").fill_null("")
    return ranges.group_by(process=pl.col("globalTid") // PROCESS, domainId="domainId").agg(
        nccl=name.str.contains("^nccl[A-Z]").all(), mpi=name.str.contains("^MPI_[A-Z]").all()
    )


def _pieces(
    file: Columns, pool: Strings, described: bool = False
) -> Iterator[tuple[pl.DataFrame, int]]:
    """Events with their names looked up, and how many rows were broken.

    With `DESCRIBING` if `described`; without the payload columns that have no value.
    """
    kinds = ("eventType", [*RANGE_TYPES, THREAD_NAME, DOMAIN])
    columns, texts, raw = COLUMNS + PAYLOADS, ["text", "jsonText"], ["binaryData"]
    if not described:
        columns, texts, raw = [c for c in columns if c != "jsonTextId"], ["text"], []
    for piece in file.pieces(EVENTS, columns, texts, kinds, raw):
        whole = piece.drop_nulls(["start", "globalTid"])
        blank = [name for name in PAYLOADS if whole[name].null_count() == whole.height]
        named = whole.drop(blank).with_columns(
            _plain_name(pool.of(whole["textId"])), pl.col("domainId").fill_null(0)
        )
        if described:
            json = pl.coalesce("jsonText", pool.of(whole["jsonTextId"]))
            named = named.with_columns(json=json).drop("jsonText", "jsonTextId")
        yield named.drop("textId"), piece.height - whole.height


def _tells(part: pl.DataFrame, payload: str) -> bool:
    """Whether a payload column has a value: the oldest exports write 0 throughout for "none"."""
    return payload in part.columns and bool((part[payload] != 0).any())


def _plain_name(looked_up: pl.Series) -> pl.Expr:
    """Texts of events; those of ranges without what torch's emit_nvtx makes unique to a call."""
    details = r", (seq|op_id|sizes|input_op_ids) = .*$"
    text = pl.coalesce("text", looked_up)
    named = pl.col("eventType").is_in(RANGE_TYPES)
    return pl.when(named).then(text.str.replace(details, "")).otherwise(text).alias("text")

"""NVTX events of Nsight Systems exports: ranges, names of threads, and NCCL's payloads."""

import math
from collections.abc import Iterator
from functools import reduce

import numpy as np
import polars as pl
from msgspec import Struct

from rankscope.errors import UnreadableReport
from rankscope.model.arrays import filled, holds, is_null, known_or, rows_of
from rankscope.model.events import BoundedBuffer, InMemoryEvents, StreamedEvents
from rankscope.model.frames import framed, stacked, with_series
from rankscope.model.ranges import Ranges
from rankscope.model.schema import GLOO, MOMENTS, OPERATORS, RANGES, SIGNATURES, conform, empty
from rankscope.sources.columns.request import Columns
from rankscope.sources.conventions import Vocabulary
from rankscope.sources.nsys.common import PROCESS, RANGE_TYPES, Strings, require, without_nulls
from rankscope.sources.nsys.signatures import Signatures, without_suffix
from rankscope.util.numbers import NEVER

EVENTS = "NVTX_EVENTS"

THREAD_NAME, DOMAIN = 39, 75
"""NVTX event types that name things (ENUM_NSYS_EVENT_TYPE)."""

COLUMNS = ["start", "end", "eventType", "globalTid", "domainId", "textId", "jsonTextId"]
PAYLOADS = ["int64Value", "uint64Value", "int32Value", "uint32Value"]

SAME_DOMAIN = ["process", "domainId"]
"""Key of a domain, since its number is unique within its process only."""

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
"""Ranges named like functions of NCCL, with the payload that describes the call."""

NAMES = pl.Schema(
    {"process": pl.Int64, "thread": pl.Int64, "domainId": pl.Int64, "name": pl.String}
)
"""SIGNATURES before domains have names."""

OF_DOMAIN = {"NCCL": "^nccl[A-Z]", "MPI": "^MPI_[A-Z]"}
"""Domain → pattern that all its names fit."""

THREADS = pl.Schema({"globalTid": pl.Int64, "text": pl.String})
"""Names of threads."""

OTHERS = {domain: f"{domain} of NVTX" for domain in (OPERATORS, GLOO)}
"""Domains that NVTX happens to call like what other profilers mark."""

CREATED = pl.Schema({"process": pl.Int64, "domainId": pl.Int64, "domain": pl.String})
"""Domains created in the capture."""


class Nvtx(Struct, frozen=True):
    """The NVTX events of an export."""

    ranges: Ranges
    thread_names: pl.DataFrame  # THREADS
    of_nccl: pl.DataFrame  # CALLS; empty if they tell nothing of the kernels
    nccl_domains: pl.Series  # numbers of NCCL's domains
    events: int
    broken: int  # rows left out


def nvtx(file: Columns, pool: Strings, words: Vocabulary | None) -> Nvtx:
    """The NVTX events, in memory if they are few.

    Args:
        words: the conventions; None: no range counts as an operator.
    """
    if not file.has(EVENTS):
        nowhere = pl.Series(dtype=pl.Int64)
        return Nvtx(Ranges.of(empty(RANGES)), empty(THREADS), empty(CALLS), nowhere, 0, 0)
    require(file, EVENTS, "start", "end", "eventType", "globalTid")
    survey = _Survey(pool, words, file.limits.signatures)
    few, kept = BoundedBuffer(most=file.limits.held), BoundedBuffer(most=file.limits.kept)
    if words is not None:
        most = math.inf if words.asks_for_all else file.limits.held
        few = BoundedBuffer(survey.of_note, most=most)
    for nth, (piece, broken) in enumerate(_pieces(file, described=True)):
        ranges = survey.add(nth, piece, broken)
        few.add(ranges)
        kept.add(ranges)
    created = stacked(survey.domains)

    def read() -> Iterator[pl.DataFrame]:
        if kept.parts is not None:
            yield from (_moments(part, survey.payloads) for part in kept.parts)
            return
        for nth, (piece, _) in enumerate(_pieces(file)):
            ranges = survey.ranges(nth, piece)
            if survey.has_unnamed:
                raise UnreadableReport(
                    f"{file.path}: changed while it was read",
                    hint="ingest it again when it is completely written",
                )
            yield _moments(ranges, survey.payloads)

    held = None
    if few.parts is not None:
        held = InMemoryEvents(stacked(_moments(part, survey.payloads) for part in few.parts))
    return Nvtx(
        ranges=Ranges(
            StreamedEvents(read) if held is None or few.sifted else held,
            _named_domains(survey.final_names(), created),
            of_note=held,
        ),
        thread_names=stacked(survey.thread_names),
        of_nccl=survey.described(),
        nccl_domains=created["domainId"].filter(created["domain"] == "NCCL"),
        events=survey.events,
        broken=survey.broken,
    )


class _Survey:
    """Collects what ranges need to know of all events, chunk by chunk."""

    def __init__(self, pool: Strings, words: Vocabulary | None, most_signatures: int) -> None:
        self.events = self.broken = 0
        self.payloads: list[str] = []
        self.domains = [empty(CREATED)]
        self.thread_names = [empty(THREADS)]
        self.names = empty(NAMES)  # by the number of the signature
        self._signatures = Signatures()
        self._operators = pl.Series(dtype=pl.Boolean)  # whether the first signatures are
        self._pool = pool
        self._words = words
        self._room = self._most_signatures = most_signatures
        self._full: list[int] = []  # pieces before which there was no more room
        self._calls = [empty(CALLS)]

    def add(self, nth: int, piece: pl.DataFrame, broken: int) -> pl.DataFrame:
        """Add the n-th chunk of `_pieces`; returns its ranges, as `_moments` needs them."""
        self.events += piece.height
        self.broken += broken
        self.payloads = [name for name in PAYLOADS if name in self.payloads or _tells(piece, name)]
        self._take_names(piece)
        if self.names.height >= self._room:
            self._full.append(nth)
            self._room = self.names.height + self._most_signatures
        ranges = self.ranges(nth, piece)
        self._take_signatures()
        self._take_calls(ranges)
        return ranges[["start", "end", "signature", *_present(ranges)]]

    def ranges(self, nth: int, piece: pl.DataFrame) -> pl.DataFrame:
        """The push/pop and start/end ranges of the n-th chunk, with their signatures' numbers."""
        ended = filled(piece["end"], -NEVER) >= piece["start"].to_numpy()
        ranges = rows_of(piece, ended & np.isin(piece["eventType"].to_numpy(), RANGE_TYPES))
        full = sum(border <= nth for border in self._full)
        if full and self._words is not None:
            text = _lumped(without_suffix(ranges["text"]), self._words, full)
            ranges = with_series(ranges, text.alias("text"))
        return with_series(ranges, self._signatures.of(ranges).alias("signature"))

    def of_note(self, ranges: pl.DataFrame) -> pl.DataFrame:
        """Ranges except known operators; names are looked up when their number has doubled."""
        seen = len(self._operators)
        if self._words is not None and self.names.height > 2 * seen:
            fresh = self._words.operators(self.names["name"].slice(seen))
            self._operators = self._operators.append(fresh)
        known = np.append(holds(self._operators), False)  # of new signatures it is not
        number = np.minimum(ranges["signature"].to_numpy(), len(self._operators))
        return rows_of(ranges, ~known[number])

    def final_names(self) -> pl.DataFrame:
        """NAMES, with the early names merged in the same way as the later ones."""
        if not self._full or self._words is None:
            return self.names
        name = _lumped(self.names["name"], self._words, len(self._full))
        return self.names.with_columns(name=name)

    @property
    def has_unnamed(self) -> bool:
        """Whether there are signatures that the survey did not see."""
        return not self._signatures.known(self.names.height).is_empty()

    def described(self) -> pl.DataFrame:
        """CALLS, empty if no payload describes any of them and none sends."""
        calls = stacked(self._calls)
        size = known_or(calls["binaryData"].bin.size(), calls["json"].str.len_bytes())
        return calls if (size > 0).any() or "ncclSend" in calls["name"] else calls.clear()

    def _take_names(self, events: pl.DataFrame) -> None:
        """Add the names that events give to threads and domains."""
        for kind, kept in ((THREAD_NAME, self.thread_names), (DOMAIN, self.domains)):
            own = (events["eventType"] == kind).to_numpy()
            if own.any():
                named = rows_of(events, own)
                text = known_or(named["text"], self._pool.of(named["textId"]))
                process = pl.Series("process", named["globalTid"].to_numpy() // PROCESS)
                whole = with_series(named, text, text.alias("domain"), process)
                kept.append(whole[kept[0].columns])

    def _take_signatures(self) -> None:
        """Add the names of new signatures."""
        fresh = self._signatures.known(self.names.height)
        by_number = without_suffix(self._pool.of(fresh["textId"]))
        names = {
            "process": fresh["globalTid"].to_numpy() // PROCESS,
            "thread": fresh["globalTid"],
            "domainId": fresh["domainId"],
            "name": known_or(known_or(fresh["text"], by_number), ""),
        }
        self.names = stacked([self.names, framed(names)])

    def _take_calls(self, ranges: pl.DataFrame) -> None:
        """Add ranges named like functions of NCCL."""
        by_nccl = self.names["name"].str.starts_with("nccl")
        if not by_nccl.any():
            return
        calls = rows_of(ranges, by_nccl[ranges["signature"]].to_numpy())
        json = known_or(calls["jsonText"], self._pool.of(calls["jsonTextId"])).alias("json")
        whole = with_series(calls, json, self.names["name"][calls["signature"]])
        described = ("binaryData",)  # a column that not every export has
        self._calls.append(conform(whole, CALLS, optional=described, drop_others=True))


def _lumped(names: pl.Series, words: Vocabulary, full: int) -> pl.Series:
    """Names; those without a meaning lose their digits, or become "" if `full` > 1."""
    tells = words.tell(names) | names.str.contains("|".join(OF_DOMAIN.values()))
    rough = names.str.replace_all(r"\d+", "#")
    return names.zip_with(tells.fill_null(False), rough if full == 1 else rough.set(~tells, ""))


def _moments(ranges: pl.DataFrame, payloads: list[str]) -> pl.DataFrame:
    """MOMENTS of ranges; `payloads`: the columns that have values."""
    values = (ranges[name] for name in _present(ranges) if name in payloads)
    unknown = pl.Series("payload", [None], pl.Int64).new_from_index(0, ranges.height)
    return conform(
        with_series(ranges, reduce(known_or, values, unknown)), MOMENTS, drop_others=True
    )


def _present(events: pl.DataFrame) -> list[str]:
    """The payload columns that some events have."""
    return [name for name in PAYLOADS if name in events.columns]


def _named_domains(names: pl.DataFrame, created: pl.DataFrame) -> pl.DataFrame:
    """SIGNATURES; a domain that was created before the capture is inferred from its ranges.

    Args:
        names: NAMES.
        created: CREATED.
    """
    called: dict[tuple[object, ...], str] = {}
    for *key, domain in created.iter_rows():
        called.setdefault(tuple(key), OTHERS.get(domain, domain))
    domains = [called.get(key) for key in names[SAME_DOMAIN].iter_rows()]
    named = with_series(names, pl.Series("domain", domains, pl.String))
    name, own = pl.col("name"), pl.col("domainId") != 0
    if (is_null(named["domain"]) & (named["domainId"] != 0).to_numpy()).any():
        inferred = (
            pl.when(own & name.str.contains(pattern).all().over(SAME_DOMAIN)).then(pl.lit(domain))
            for domain, pattern in OF_DOMAIN.items()
        )
        named = named.with_columns(domain=pl.coalesce("domain", *inferred))
    return with_series(named[SIGNATURES.names()], known_or(named["domain"], ""))


def _pieces(file: Columns, described: bool = False) -> Iterator[tuple[pl.DataFrame, int]]:
    """Chunks of events, with the number of broken rows in each.

    They have the columns that describe calls if `described`, and no payload column without values.
    """
    kinds = ("eventType", [*RANGE_TYPES, THREAD_NAME, DOMAIN])
    columns, texts, raw = COLUMNS + PAYLOADS, ["text", "jsonText"], ["binaryData"]
    if not described:
        columns, texts, raw = [c for c in columns if c != "jsonTextId"], ["text"], []
    for piece in file.pieces(EVENTS, columns, texts, kinds, raw):
        whole = without_nulls(piece, "start", "globalTid")
        kept = [
            each for each in whole if each.name not in PAYLOADS or each.null_count() < len(each)
        ]
        domain = pl.Series("domainId", filled(whole["domainId"], 0))
        yield with_series(framed(kept), domain), piece.height - whole.height


def _tells(part: pl.DataFrame, payload: str) -> bool:
    """Whether a payload column has a value: the oldest exports write 0 in all rows for "none"."""
    return payload in part.columns and bool((part[payload] != 0).any())

"""A PyTorch profiler (Kineto) file, decoded in chunks of events, and the facts around them.

The file is read once. A chunk is cut at a border between two events. Decoding proves that the
border is not text inside a name: with a wrong border, brackets or quotes stay open. Only the
fields of `Event` and `About` become objects.
"""

import gzip
import re
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from io import BufferedIOBase
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rankscope.errors import UnreadableReport
from rankscope.sources.kineto.limits import LIMITS, Limits
from rankscope.sources.report_format import COPY_HINT, not_opened
from rankscope.util.wording import counted

CONTROL = bytes(each if each >= 0x20 else 0x20 for each in range(256))
NO_NUMBER = re.compile(rb"([:\[,]\s*)[-+]?(?:nan|inf(?:inity)?|N/A)\b", re.IGNORECASE)
BACKSLASH = re.compile(rb'(\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))|\\')
LAST_COMMA = re.compile(rb",(\s*\])")


def repaired(data: bytes) -> bytes:
    """`data` without the known faults of Kineto's versions.

    They are control characters and lone backslashes in names, text that is not UTF-8, `inf` for a
    number, a comma after the last event.
    """
    data = NO_NUMBER.sub(rb"\1null", data.translate(CONTROL))
    data = BACKSLASH.sub(_escaped, data)
    return LAST_COMMA.sub(rb"\1", data).decode("utf-8", "replace").encode()


def _escaped(backslash: re.Match[bytes]) -> bytes:
    """An escape as it is, a lone backslash doubled."""
    return backslash[1] or rb"\\"


HEAD_BYTES, LONGEST_NAME = 2**16, 64
OPENING = re.compile(rb'"traceEvents"\s*:\s*\[')
BORDER = re.compile(rb"\}\s*(,)\s*\{")
TRIES = 3
"""Number of borders that are tried before more of the file is read."""

MOST_DAMAGED = 0.01
"""Events that may be damaged, as a share of the valid ones."""

NAME_HINT = "name a trace of torch.profiler: prof.export_chrome_trace or tensorboard_trace_handler"

Number = int | float | str | bool | None
"""Numbers that some versions write as text."""

FAULTS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding bytes that are not JSON, or are nested too deeply."""

T = TypeVar("T")


class Args(msgspec.Struct, gc=False):
    """The fields of an event's `args` that are used."""

    correlation: Number = None
    device: Number = None
    context: Number = None
    stream: Number = None
    bytes: Number = None
    grid: list[float] | None = None
    external: Number = msgspec.field(default=None, name="External id")
    older_external: Number = msgspec.field(default=None, name="external id")
    collective: str | None = msgspec.field(default=None, name="Collective name")
    elements: Number = msgspec.field(default=None, name="In msg nelems")
    element: str | None = msgspec.field(default=None, name="dtype")
    group: Number = msgspec.field(default=None, name="Process Group Name")
    members: str | list[int] | None = msgspec.field(default=None, name="Process Group Ranks")
    sequence: Number = msgspec.field(default=None, name="Seq")
    source: Number = msgspec.field(default=None, name="Src Rank")
    destination: Number = msgspec.field(default=None, name="Dst Rank")
    rank: Any = None  # in traces that a tool merged from those of several ranks
    name: Any = None  # of a process, in an event that names it


class Event(msgspec.Struct, gc=False):
    """One event; `ts` and `dur` as written, since a float cannot hold all their digits."""

    ph: str = ""
    cat: str = ""
    name: str = ""
    pid: Number = None
    tid: Number = None
    ts: msgspec.Raw = msgspec.Raw(b"")
    dur: msgspec.Raw = msgspec.Raw(b"")
    args: Args | None = None


class About(msgspec.Struct):
    """The fields beside the events that are used; no other field is ever kept."""

    distributed: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="distributedInfo")
    base_time: Any = msgspec.field(default=None, name="baseTimeNanoseconds")
    host: Any = msgspec.field(default=None, name="host_name")
    devices: msgspec.Raw = msgspec.field(default=msgspec.Raw(b""), name="deviceProperties")
    cuda: Any = msgspec.field(default=None, name="cuda_runtime_version")


class Tail(About):
    """The last events and what follows them."""

    events: list[msgspec.Raw] = msgspec.field(default_factory=list, name="traceEvents")


class Whole(About):
    """The same, decoded at once."""

    events: list[Event] = msgspec.field(default_factory=list, name="traceEvents")


EVENT, EVENTS = msgspec.json.Decoder(Event), msgspec.json.Decoder(list[Event])
RAW_EVENTS = msgspec.json.Decoder(list[msgspec.Raw])
WHOLE, TAIL = msgspec.json.Decoder(Whole), msgspec.json.Decoder(Tail)
ABOUT = msgspec.json.Decoder(About)


class Malformed(Exception):
    """Bytes that are not JSON, even after Kineto's known faults are repaired."""


class EventFile:
    """Iterates over chunks of events; `about`, `broken` and `is_cut` are final after the last.

    Events that are not valid are left out and counted in `broken`. A file that ends amid its
    events `is_cut`: those before are read.
    """

    def __init__(self, path: Path, limits: Limits = LIMITS) -> None:
        self.path = path
        self.limits = limits
        self.about: list[About] = []
        self.events = 0
        self.broken = 0
        self.strange: Counter[str] = Counter()  # unknown category → its events
        self._begun: dict[tuple[Number, Number], list[Event]] = {}  # by thread, without an end
        self.is_cut = False
        self._unpacked = self._bytes = 0

    def head(self, most: int | None = None) -> list[About]:
        """The fields before the events, if these begin in so many bytes; no events are read.

        Args:
            most: bytes; None: those that are read first.
        """
        with _opened(self.path) as file:
            self._skip_head(self._read(file, most or self.limits.first_bytes))
        return self.about

    def beginning(self) -> list[Event]:
        """The first events: those in a small part at the beginning of the file."""
        with _opened(self.path) as file:
            data = self._read(file, HEAD_BYTES)
        _, start = self._skip_head(data)
        return self._batch(data[start:])[0] or []

    def ended(self, event: Event) -> Event | None:
        """The whole event that an event of its end (`E`) completes; None of a begin (`B`)."""
        stack = self._begun.setdefault((event.pid, event.tid), [])
        if event.ph == "B":
            stack.append(event)
        elif stack:
            whole = stack.pop()
            begin, end = (str(each.ts, "ascii", "replace").strip('" ') for each in (whole, event))
            with suppress(ArithmeticError):  # no number, or one that is too large
                whole.dur = msgspec.Raw(str(Decimal(end) - Decimal(begin)).encode())
            return whole
        else:
            self.broken += 1
        return None

    def texts(self) -> Iterator[bytes]:
        """The unpacked bytes in chunks, each with the end of the one before it."""
        with _opened(self.path) as file:
            before = b""
            while data := self._read(file, self.limits.chunk_bytes):
                yield before + data
                before = data[-LONGEST_NAME:]

    def __iter__(self) -> Iterator[list[Event]]:
        """Chunks of events in the file's order.

        Raises:
            UnreadableReport: it is truncated, damaged or not a trace.
        """
        with _opened(self.path) as file:
            pending = self._read(file, self.limits.first_bytes)
            listed, start = self._skip_head(pending)
            pending = pending[start:]
            while more := self._read(file, self.limits.chunk_bytes):
                self._check_bounds()
                pending += more
                batch, pending = self._batch(pending)
                if batch:
                    self.events += len(batch)
                    yield batch
                elif len(pending) > self.limits.largest_bytes:
                    batch, pending = self._salvaged(pending)
                    if not batch:
                        raise self._damaged()
                    self.events += len(batch)
                    yield batch
            last = self._last(pending, listed)
            self.events += len(last)
            yield last
            self.broken += sum(map(len, self._begun.values()))

    def _check_bounds(self) -> None:
        """Raise `UnreadableReport` for a small file that unpacks to far more than a trace does."""
        self._bytes = self._bytes or self.path.stat().st_size
        if self._unpacked > self.limits.most_bytes + self.limits.most_times * self._bytes:
            raise self._swollen(f"{self._unpacked / 1e6:,.0f} MB")
        if self.events > self.limits.most_events + self._bytes:
            raise self._swollen(counted(self.events, "event"))

    def _swollen(self, amount: str) -> UnreadableReport:
        return UnreadableReport(
            f"{self.path}: is no profiler trace: its {self._bytes:,} bytes unpack to more than "
            f"{amount}",
            hint=NAME_HINT,
        )

    def _read(self, file: BufferedIOBase, count: int) -> bytes:
        data = bytearray()
        try:
            while len(data) < count and (more := file.read1(count - len(data))):
                data += more  # of packed data these are few
        except EOFError:
            self.is_cut = not data  # packed data that end early; what precedes is read
        except (OSError, zlib.error) as error:
            reason = getattr(error, "strerror", None) or "damaged gzip data"
            raise UnreadableReport(
                f"{self.path}: cannot be read ({reason})",
                hint="check its permissions, or copy it again",
            ) from error
        self._unpacked += len(data)
        return bytes(data)

    def _skip_head(self, data: bytes) -> tuple[bool, int]:
        """Whether the file is a bare list, and the offset of its events."""
        if self.is_cut or not data.strip():
            empty = UnreadableReport(f"{self.path}: is empty", hint=COPY_HINT)
            raise self.truncated() if self.is_cut else empty
        data = data.replace(BOM_UTF8, b"   ", 1) if data.startswith(BOM_UTF8) else data
        for opening in islice(OPENING.finditer(data), TRIES):
            try:
                self.about.append(_decoded(ABOUT, data[: opening.end()] + b"]}"))
            except (Malformed, msgspec.ValidationError):
                continue
            return False, opening.end()
        if data.lstrip()[:1] == b"[":
            return True, data.index(b"[") + 1
        raise self._no_trace(data)

    def _no_trace(self, data: bytes) -> UnreadableReport:
        if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            return UnreadableReport(
                f"{self.path}: is text in UTF-16, which JSON is not",
                hint="convert it: iconv -f UTF-16 -t UTF-8 TRACE > NEW",
            )
        if data.lstrip()[:1] != b"{":
            return UnreadableReport(f"{self.path}: is not JSON", hint=NAME_HINT)
        if b'"nodes"' in data and b'"rf_id"' in data:
            return UnreadableReport(
                f"{self.path}: is a PyTorch execution trace, which has dependencies but no times",
                hint="profile with torch.profiler.profile(...) and name the trace it exports",
            )
        if b'"rocprofiler' in data:
            return UnreadableReport(
                f"{self.path}: is a profile of rocprofiler, which rankscope does not read",
                hint="profile with torch.profiler: its ProfilerActivity.CUDA records AMD devices, "
                "too; of jobs without PyTorch, only those on NVIDIA devices can be recorded (nsys)",
            )
        return UnreadableReport(f"{self.path}: is JSON, but not a profiler trace", hint=NAME_HINT)

    def _batch(self, data: bytes) -> tuple[list[Event] | None, bytes]:
        """The complete events at the front of `data`, and the rest; None without a border."""
        for nth, border in enumerate(_last_borders(data)):
            try:
                events = self._events(b"[" + data[:border] + b"]", repair=nth == 0)
                return events, data[border + 1 :]
            except Malformed:
                continue
        return None, data

    def _last(self, data: bytes, listed: bool) -> list[Event]:
        """The events up to the end of the file; keeps the fields after them."""
        if self.is_cut or data.rstrip()[-1:] not in (b"]", b"}"):
            return self._of_cut(data)
        try:
            if listed:
                return self._events(b"[" + data)
            whole = b'{"traceEvents":[' + data
            try:
                last = _decoded(WHOLE, whole)
                self.about.append(last)
                return last.events
            except msgspec.ValidationError:
                tail = _decoded(TAIL, whole)
                self.about.append(tail)
                return self._one_by_one(tail.events)
        except (Malformed, msgspec.ValidationError):
            return self._amid_damage(data, listed)

    def _of_cut(self, data: bytes) -> list[Event]:
        """The complete events of a file that ends amid them."""
        self.is_cut = True
        events, _ = self._salvaged(data)
        if not self.events and not events:
            raise self.truncated()
        return events

    def _amid_damage(self, data: bytes, listed: bool) -> list[Event]:
        """The valid events up to the end of a file some of whose events are not valid."""
        ends = [match.start(1) for match in re.finditer(rb"\}\s*(\])", data)]
        for end in ends[-TRIES:]:
            try:
                about = None if listed else _decoded(WHOLE, b'{"traceEvents":[' + data[end:])
            except (Malformed, msgspec.ValidationError):
                continue
            if about is not None:
                self.about.append(about)
            events, unread = self._salvaged(data[:end] + b",{")
            if unread.strip() != b"{":
                break
            return events
        else:  # whatever follows the events is lost
            if ends:
                return self._of_cut(data)
        raise self._damaged()

    def _salvaged(self, data: bytes) -> tuple[list[Event], bytes]:
        """The valid events at the front of `data`, one by one, and the rest.

        Text up to the next border that is no event is left out and counted.

        Raises:
            UnreadableReport: most of it is not valid.
        """
        borders = [match.start(1) for match in BORDER.finditer(data)]
        events: list[Event] = []
        begin = broken = at = 0
        while at < len(borders):
            for further in range(at, min(at + TRIES, len(borders))):
                try:
                    piece = b"[" + data[begin : borders[further]] + b"]"
                    events += self._events(piece, repair=further == at)
                    at = further
                    break
                except Malformed:
                    continue
            else:
                broken += 1
            begin = borders[at] + 1
            at += 1
        too_many = broken > max(MOST_DAMAGED * len(events), 1)
        if too_many or (broken and not self.events and not events):
            raise self._damaged()
        self.broken += broken
        return events, data[begin:]

    def _events(self, data: bytes, repair: bool = True) -> list[Event]:
        try:
            return _decoded(EVENTS, data, repair)
        except msgspec.ValidationError:
            try:
                return self._one_by_one(_decoded(RAW_EVENTS, data, repair))
            except msgspec.ValidationError as error:
                raise Malformed from error

    def _one_by_one(self, raw: list[msgspec.Raw]) -> list[Event]:
        """The valid events of a chunk; the others are left out and counted."""
        events: list[Event] = []
        for each in raw:
            try:
                events.append(EVENT.decode(each))
            except FAULTS:
                self.broken += 1
        return events

    def truncated(self) -> UnreadableReport:
        """The error of a file that ends amid its first events."""
        text = f"{self.path}: is truncated: it ends amid its first events"
        return UnreadableReport(text, hint=COPY_HINT)

    def _damaged(self) -> UnreadableReport:
        return UnreadableReport(
            f"{self.path}: is damaged or truncated after its first {counted(self.events, 'event')}",
            hint=COPY_HINT,
        )


def _opened(path: Path) -> BufferedIOBase:
    """The file's bytes, decompressed if they are gzip, for any file name."""
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        return gzip.open(path) if packed else path.open("rb")
    except OSError as error:
        raise not_opened(path, error) from error


def _last_borders(data: bytes) -> list[int]:
    """Offsets of the last commas between objects, the last one first."""
    window = 2**16
    while True:
        borders = [match.start(1) for match in BORDER.finditer(data, max(0, len(data) - window))]
        if len(borders) >= TRIES or window >= len(data):
            return borders[: -TRIES - 1 : -1]
        window *= 16


def _decoded(decoder: msgspec.json.Decoder[T], data: bytes, repair: bool = True) -> T:
    """Raises `Malformed`, or `ValidationError` if it is JSON of another shape."""
    try:
        return decoder.decode(data)
    except msgspec.ValidationError:
        raise
    except FAULTS as error:
        if not repair:
            raise Malformed from error
    return _decoded(decoder, repaired(data), repair=False)

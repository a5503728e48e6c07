"""The head of a `.nsys-rep` or `.qdrep`: rank and host without nsys.

A report starts with a line of text, then a protobuf message without schema: field 9 is the host,
field 26 the launched process with repeated field 30 for its environment (1 name, 2 value), field 77
the id of the session. It
ends with `[END]`. This is undocumented, but the same in every version seen (2022.4 to 2023.4).
"""

import re
from collections.abc import Iterator
from pathlib import Path

from rankscope.errors import UnreadableReport
from rankscope.model.reports import CaptureFacts
from rankscope.sources.environment import claims_of, local_rank_of
from rankscope.sources.report_format import COPY_HINT, not_opened

MAGIC = b"NVIDIA Tegra Profiler Report "
END = b"[END]"
VERSION = re.compile(r"\d+(@\d+)+")
"""2023.4 and later write their version in the first line; older ones write `1`."""

UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")

HEAD_BYTES = 2**20
"""The head is read up to this size, in bytes, since environments are large."""

HOST, PROCESS, SESSION, VARIABLE, NAME, VALUE = 9, 26, 77, 30, 1, 2
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def head_facts(path: Path) -> CaptureFacts:
    """Host and rank evidence; times are unknown until the report is exported.

    Raises:
        UnreadableReport: it is truncated or not a report.
    """
    version, head = _checked_head(path)
    host: str | None = None
    variables: list[str] = []
    for field, value in _fields(head):
        if field == HOST and host is None:
            host = value.decode("utf-8", "replace")
        elif field == PROCESS and not variables:
            variables = [_variable(each) for number, each in _fields(value) if number == VARIABLE]
    return CaptureFacts(
        host=host,
        utc_start_ns=None,
        duration_ns=None,
        environment=claims_of(variables),
        local_rank=local_rank_of(variables),
        exporter=version,
    )


def session(path: Path) -> str | None:
    """The id of the session, which its windows share; raises `UnreadableReport`."""
    fields = (value for field, value in _fields(_checked_head(path)[1]) if field == SESSION)
    text = next(fields, b"").decode("ascii", "replace")
    return text if UUID.fullmatch(text) else None


def _checked_head(path: Path) -> tuple[str | None, bytes]:
    """The version in the first line, and the bytes after it; raises `UnreadableReport`."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            if not head:
                raise UnreadableReport(f"{path}: is empty", hint=COPY_HINT)
            if not head.startswith(MAGIC):
                raise UnreadableReport(
                    f"{path}: is not an Nsight Systems report",
                    hint="only its name says so; copy it again, or record it again",
                )
            file.seek(max(0, path.stat().st_size - len(END)))
            if file.read() != END:
                raise UnreadableReport(f"{path}: is truncated", hint=COPY_HINT)
    except OSError as error:
        raise not_opened(path, error) from error
    dot = head.find(b".", len(MAGIC))
    if not 0 < dot < 200:
        return None, b""
    version = VERSION.match(head[len(MAGIC) : dot].decode("ascii", "replace"))
    return None if version is None else version[0].replace("@", "."), head[dot + 1 :]


def _variable(message: bytes) -> str:
    parts = dict(_fields(message))
    return f"{parts.get(NAME, b'').decode('utf-8', 'replace')}=" + parts.get(VALUE, b"").decode(
        "utf-8", "replace"
    )


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and contents of the length-delimited fields, up to the first invalid byte."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == VARINT:
            _, at = _varint(message, at)
        elif kind == FIXED64:
            at += 8
        elif kind == FIXED32:
            at += 4
        elif kind == BYTES:
            length, at = _varint(message, at)
            if length > len(message) - at:
                return
            yield key >> 3, message[at : at + length]
            at += length
        else:
            return


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    return 0, len(message)

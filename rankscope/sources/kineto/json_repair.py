"""The known faults of the JSON that versions of Kineto write, repaired."""

from __future__ import annotations

import re

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

"""Names from reports, made harmless where people read them."""

import re
import unicodedata

LONGEST_NAME = 80

UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Categories of characters that a terminal does not show, or obeys."""


def sanitized(text: str, longest: int = LONGEST_NAME) -> str:
    """A name that came from a report, safe for a terminal.

    Control characters, escapes and direction overrides become visible code points; what is too
    long is cut.
    """
    shown = "".join(
        f"<U+{ord(char):04X}>" if unicodedata.category(char) in UNSEEN
        else char
        for char in text[: longest + 1]
    )  # fmt: skip
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"


def literal(text: str) -> str:
    """A regular expression that fits `text`, for a command that a terminal shows."""
    return "".join(
        r"\s" if char.isspace()
        else "." if unicodedata.category(char) in UNSEEN
        else re.escape(char)
        for char in text
    )  # fmt: skip

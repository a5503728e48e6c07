"""Names from reports, made harmless where people read them."""

import unicodedata

LONGEST_NAME = 80


def sanitized(text: str, longest: int = LONGEST_NAME) -> str:
    """A name that came from a report, safe for a terminal.

    Control characters, escapes and direction overrides become visible code points; what is too
    long is cut.
    """
    shown = "".join(
        f"<U+{ord(char):04X}>" if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        else char
        for char in text[: longest + 1]
    )  # fmt: skip
    return shown if len(shown) <= longest else shown[: longest - 1] + "…"

"""Numbers in sentences: with nouns that agree with them, with units, as ranges and percentages."""

from collections.abc import Iterable, Sequence

UNKNOWN = "–"
"""The text for an unknown number."""

MOST_LISTED = 8
"""Most numbers, or ranges of them, that a sentence names."""


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """A number with its noun: `1 report`, `1,024 reports`."""
    return f"{count:,} {agreeing(count, noun, plural)}"


def agreeing(count: int, noun: str, plural: str | None = None) -> str:
    """The word that agrees with a number: `report` of 1, `reports` of any other."""
    return noun if count == 1 else plural or noun + "s"


def span(numbers: tuple[int, ...] | list[int], most: int | None = None) -> str:
    """Ascending numbers as `0-3, 7`; of more than `most` parts the rest is left out: `…`."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    shown = [str(low) if low == high else f"{low}-{high}" for low, high in parts[:most]]
    return ", ".join([*shown, *["…"][: len(parts) - len(shown)]])


def ranks_text(ranks: Iterable[int], most: int | None = None) -> str:
    """`rank 3`, `ranks 0-3, 7`; of more than `most` ranges the rest is left out: `…`.

    An empty set is `no rank`.
    """
    numbers = sorted(ranks)
    if not numbers:
        return "no rank"
    return f"{agreeing(len(numbers), 'rank')} {span(numbers, most)}"


def listed(numbers: Iterable[int], most: int = MOST_LISTED) -> str:
    """`1, 2, 3, …`."""
    shown = list(numbers)
    return ", ".join(map(str, shown[:most])) + (", …" if len(shown) > most else "")


def and_more(texts: Sequence[str], most: int, between: str = ", ") -> str:
    """`a, b and 4 more`; between `; ` it is `a; b; and 4 more`."""
    left, end = len(texts) - most, between.rstrip(", ")
    return between.join(texts[:most]) + (f"{end} and {left} more" if left > 0 else "")


def percent(share: float | None) -> str:
    """A fraction of 1 as `12 %`, below 10 % as `1.2 %`."""
    return UNKNOWN if share is None else f"{share * 100:.{1 if abs(share) < 0.0995 else 0}f} %"


def signed_percent(change: float | None) -> str:
    """A relative change as `+1.2 %`."""
    return UNKNOWN if change is None else f"{change * 100:+.1f} %"


FACTOR = 2.0
"""From this factor on, increases are given as factors, not as percentages."""


def relative(change: float | None) -> str:
    """A relative change as `+1.2 %`, from twice the value on as a factor."""
    if change is None or 1 + change < FACTOR:
        return signed_percent(change)
    return f"×{1 + change:,.1f}"


def interval(low: float, high: float) -> str:
    """The bounds of a relative change: `-8.5 % to +12.0 %`, large increases as factors."""
    return f"{relative(low)} to {relative(high)}"


def slower_or_faster(change: float) -> str:
    """A relative change of a time: `21.0 % slower`, `4.1 times as fast`, `2.3 times as slow`."""
    word = "slower" if change > 0 else "faster"
    factor = max(1 + change, 1 / (1 + change)) if change > -1 else 0.0
    if factor < FACTOR:
        return f"{signed_percent(abs(change))[1:]} {word}"
    return f"{factor:,.1f} times as {word.removesuffix('er')}"


def milliseconds(nanoseconds: float | None) -> str:
    """A time in ms without its unit: `12.3`, below 10 ms `1.23`."""
    if nanoseconds is None:
        return UNKNOWN
    value = nanoseconds / 1e6
    return f"{value:,.{2 if abs(value) < 9.995 else 1}f}"


def ms(nanoseconds: float) -> str:
    """A time of ns with its unit: `12.3 ms`, `1.23 ms`."""
    return f"{milliseconds(nanoseconds)} ms"


def gigabytes(bandwidth: float) -> str:
    """Bytes per second in GB/s without the unit: `0.0244`, `12.3`, `1,230`."""
    value = bandwidth / 1e9
    return f"{value:.3g}" if value < 999.5 else f"{value:,.0f}"


def size(count: int) -> str:
    """A number of bytes as `2.1 MB`."""
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"


def duration(nanoseconds: int) -> str:
    """A time with its unit: `12.3 ms`, from one second on `219.9 s`."""
    return ms(nanoseconds) if nanoseconds < 10**9 else f"{nanoseconds / 1e9:,.1f} s"

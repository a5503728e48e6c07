"""Signatures of NVTX ranges have the numbers that one gives them event by event."""

import re

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankscope.sources.nsys.signatures import KEYS, Signatures, _cut_early

DETAILED = [
    "aten::mm",
    "aten::mm, seq = 7",
    "aten::mm, seq = 8, op_id = 9",
    "aten::mm, op_id = 9, sizes = [[1, 2], [3]]",
    "aten::mm, sequence = 7",
    "aten::mm, seq =7",
    "aten::mm, seq",
    "two, seq = 1\nlines, seq = 2",
    "two, seq = 1\nlines",
    ", seq = 5",
    "",
]

TEXTS = st.one_of(
    st.none(),
    st.sampled_from(DETAILED),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.lists(st.sampled_from(["é" * 7, ", seq = ", "\n", ",", ", input_op_ids = "])).map("".join),
)
SUFFIX = re.compile(r", (seq|op_id|sizes|input_op_ids) = [^\n]*\Z")

EVENTS = st.lists(st.tuples(*[st.integers(-1, 2)] * 2, st.none() | st.integers(0, 2), TEXTS))


def expected(pieces: list[list[tuple[object, ...]]]) -> tuple[list[list[int]], list[object]]:
    """Numbers and signatures, one event after the other."""
    known: dict[tuple[object, ...], int] = {}
    numbers = []
    for rows in pieces:
        keys = [(*who, SUFFIX.sub("", str(text or "")) or None) for *who, text in rows]
        numbers.append([known.setdefault(key, len(known)) for key in keys])
    return numbers, [*known]


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(EVENTS, max_size=4))
def test_signatures_are_numbered_as_they_first_come(
    pieces: list[list[tuple[object, ...]]],
) -> None:
    signatures = Signatures()
    frames = [pl.DataFrame(rows, KEYS, orient="row") for rows in pieces]
    numbers, known = expected(pieces)
    assert [signatures.of(frame).to_list() for frame in frames] == numbers
    assert signatures.known().rows() == known
    assert signatures.known(2).rows() == known[2:]


def test_many_signatures_and_texts_of_any_length() -> None:
    texts = [f"{'x' * (number % 37)} {number % 5000}" for number in range(20_000)]
    events = pl.DataFrame(
        {"globalTid": 1, "domainId": 0, "textId": None, "text": texts}, {**KEYS}, strict=False
    )
    signatures = Signatures()
    seen: list[int] = []
    for piece in (events.slice(first, 3_000) for first in range(0, 20_000, 3_000)):
        seen.extend(signatures.of(piece))
    known = signatures.known()
    assert known["text"].gather(seen).to_list() == texts
    assert known.height == len({*texts})


def test_details_of_calls_are_no_part_of_a_name() -> None:
    events = pl.DataFrame({"text": DETAILED}).with_columns(globalTid=1, domainId=0, textId=None)
    signatures = Signatures()
    numbers = signatures.of(events.select(pl.col(name).cast(KEYS[name]) for name in KEYS))
    assert signatures.known()["text"].gather(numbers).to_list() == [
        *["aten::mm"] * 4,
        *DETAILED[4:7],
        "two, seq = 1\nlines",
        "two, seq = 1\nlines",
        None,
        None,
    ]


def test_a_text_of_several_lines_leaves_the_others_cut() -> None:
    """Else each call of its chunk would be a signature of its own until later."""
    texts = ["aten::mm, seq = 7", "two\nlines, seq = 8", "aten::mm, sizes = [[1]]", None]
    cut = _cut_early(pl.DataFrame({"text": texts}))["text"].to_list()
    assert cut == ["aten::mm", texts[1], "aten::mm", None]

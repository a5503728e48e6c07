"""Signatures of NVTX ranges: the compiled numbering tells the same of any events as polars."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from rankscope.sources.columns.sqlite_pages import loader
from rankscope.sources.nsys.signatures import KEYS, Signatures

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
EVENTS = st.lists(st.tuples(*[st.integers(-1, 2)] * 2, st.none() | st.integers(0, 2), TEXTS))


@settings(deadline=None)
@given(st.lists(EVENTS, max_size=4))
def test_compiled_or_not_the_numbers_are_the_same(pieces: list[list[tuple[object, ...]]]) -> None:
    numbers, known = [], []
    for least in (0, 10**18):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loader, "WORTH_BYTES", least)
            signatures = Signatures()
            frames = [pl.DataFrame(rows, KEYS, orient="row") for rows in pieces]
            numbers.append([signatures.of(frame).to_list() for frame in frames])
            known.append((signatures.known(), signatures.known(2)))
    assert numbers[0] == numbers[1]
    for one, other in zip(*known, strict=True):
        assert_frame_equal(one, other)


@pytest.mark.parametrize("least", [0, 10**18])
def test_many_signatures_and_texts_of_any_length(
    least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loader, "WORTH_BYTES", least)
    texts = [f"{'x' * (number % 37)} {number % 5000}" for number in range(20_000)]
    events = pl.DataFrame(
        {"globalTid": 1, "domainId": 0, "textId": None, "text": texts}, {**KEYS}, strict=False
    )
    signatures = Signatures()
    seen: list[int] = []
    for piece in (events.slice(first, 3_000) for first in range(0, 20_000, 3_000)):
        seen.extend(signatures.of(piece))  # a slice: its texts begin inside Arrow's buffers
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

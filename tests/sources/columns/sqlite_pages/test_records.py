"""Rows of SQLite's pages whose headers are known from others: the same frames, or none."""

import random
from pathlib import Path

import numpy as np
import pytest

from rankscope.model.limits import Limits
from rankscope.sources.columns.sqlite_pages.frames import most_cells
from rankscope.sources.columns.sqlite_pages.shapes import entry_of
from tests.sources.tables import PAGES, Row, agreed, both, made


def drawn(draw: random.Random, width: int) -> int:
    """An integer that SQLite stores in so many bytes, or fewer."""
    return draw.randrange(-(2 ** (8 * width - 1)), 2 ** (8 * width - 1))


@pytest.mark.parametrize("page", PAGES)
def test_headers_that_change_from_row_to_row(page: int, tmp_path: Path) -> None:
    """More of them than are remembered, and of the same place in one page."""
    draw = random.Random(page)
    sizes = [1, 2, 3, 4, 6, 8]
    rows: list[Row] = [
        (
            draw.choice([None, 0, 1, drawn(draw, draw.choice(sizes))]),
            draw.choice([None, "é" * draw.randrange(60)]),
            drawn(draw, draw.choice(sizes)),
            draw.choice([None, "y" * draw.randrange(60)]),
        )
        for _ in range(3000)
    ]
    path = made(tmp_path / "a", rows, page, "a integer, b text, c integer, d text")
    for only in (None, ("a", [0, 1])):
        assert agreed(path, ["c", "a"], ["d", "b"], only) is not None


def test_headers_that_differ_at_their_begin_are_remembered_together() -> None:
    """Start and end are a table's first columns, and need more bytes the later they are."""
    widths = [(start, end) for start in (4, 5, 6) for end in (4, 5, 6)]
    headers = [bytes([30, *first, *[1] * 27]) for first in widths]
    entries = {int(entry_of(np.frombuffer(each, np.uint8), 0, 30)) for each in headers}
    assert len(entries) == len(headers)


@pytest.mark.parametrize("blank", [None, ""])
@pytest.mark.parametrize("borders", [(0, 3000), (2999, 3000), (1500, 1501), (700, 2000), (9, 9)])
def test_columns_that_have_few_values(
    blank: str | None, borders: tuple[int, int], tmp_path: Path
) -> None:
    within = range(*borders)
    rows = [
        (i, *((i << 20, "z" * (i % 40)) if i in within else (None, blank))) for i in range(3000)
    ]
    path = made(tmp_path / "a", rows, columns="key integer primary key, a integer, b text")
    for only in (None, ("a", [1500 << 20])):
        assert agreed(path, ["key", "a"], ["b"], only, Limits(piece_bytes=16384)) is not None


def test_texts_of_any_length(tmp_path: Path) -> None:
    rows = [(i, bytes(range(48, 48 + i % 70)).decode()) for i in range(1000)]
    assert agreed(made(tmp_path / "a", rows), ["a"], ["b"]) is not None


def test_a_page_of_as_many_rows_as_it_can_hold(tmp_path: Path) -> None:
    most = most_cells(512)
    path = made(tmp_path / "a", [(None,)] * most, 512, "a integer")
    content = bytearray(path.read_bytes())
    assert len(content) == 2 * 512, "one page of rows, behind that of the schema"
    paged = agreed(path, ["a"], [])
    assert paged is not None
    assert paged.height == most == 84
    content[512 + 3 : 512 + 5] = (most + 1).to_bytes(2)
    path.write_bytes(content)
    assert agreed(path, ["a"], []) is None


def test_very_many_columns_are_left_to_the_library(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(130)]
    rows = [tuple(range(row, row + 130)) for row in range(200)]
    path = made(tmp_path / "a", rows, columns=", ".join(f"{name} integer" for name in names))
    for wanted in (names, names[:2]):
        paged, library = both(path, wanted, [])
        assert paged is None
        assert library is not None


def leaf(path: Path) -> tuple[bytearray, int, list[int]]:
    """A file, where its last page begins (a leaf), and places of that page's cells in the file."""
    content = bytearray(path.read_bytes())
    page = len(content) - 4096
    assert content[page] == 13
    cells = int.from_bytes(content[page + 3 : page + 5])
    pointers = [page + 8 + 2 * cell for cell in range(cells)]
    return content, page, [page + int.from_bytes(content[at : at + 2]) for at in pointers]


def repeated(path: Path) -> Path:
    """Rows of the very same header: 70 bytes of text each, 2 of the rowid, as many of `a`."""
    return made(path, [(1000 + i, f"{i:070}") for i in range(2000)])


def test_a_known_header_with_another_length(tmp_path: Path) -> None:
    path = repeated(tmp_path / "a")
    content, _, cells = leaf(path)
    for length in (content[cells[5]] - 1, content[cells[5]] + 1, 3, 127):
        content[cells[5]] = length
        path.write_bytes(content)
        assert agreed(path, ["a"], ["b"]) is None


@pytest.mark.parametrize("left", [1, 2, 3, 4, 5, 6, 7, 8, 20, 77, 78])
def test_a_known_header_cut_at_the_end_of_its_page(left: int, tmp_path: Path) -> None:
    path = repeated(tmp_path / "a")
    content, page, cells = leaf(path)
    size = content[cells[5]] + 3  # with its length and the rowid
    assert size == 79
    content[page + 4096 - left :] = content[cells[5] : cells[5] + left]
    content[page + 18 : page + 20] = (4096 - left).to_bytes(2)  # the sixth cell
    path.write_bytes(content)
    assert agreed(path, ["a"], ["b"]) is None


def test_rows_that_share_their_bytes(tmp_path: Path) -> None:
    """As much text as its page could never hold."""
    path = made(tmp_path / "a", [(i, "x" * 3000 if i % 9 == 8 else "") for i in range(18)])
    content, page, cells = leaf(path)
    long = max(cells, key=lambda at: content[at])
    content[page + 3 : page + 5] = (400).to_bytes(2)
    content[page + 8 : page + 808] = (long - page).to_bytes(2) * 400
    path.write_bytes(content)
    agreed(path, ["a"], ["b"])


@pytest.mark.parametrize("seed", range(4))
def test_damage_among_rows_of_known_headers(seed: int, tmp_path: Path) -> None:
    draw = random.Random(seed)
    path = repeated(tmp_path / "a")
    source = path.read_bytes()
    for _ in range(25):
        content = bytearray(source)
        _, page, cells = leaf(path)
        for _ in range(draw.choice([1, 1, 5])):
            at = draw.choice([draw.choice(cells) + draw.randrange(7), page + draw.randrange(60)])
            content[at] = draw.choice([0, 1, 127, 128, 255, draw.randrange(256)])
        damage = tmp_path / "damaged"
        damage.write_bytes(content)
        agreed(damage, ["a"], ["b"], draw.choice([None, ("a", [1005, 2990])]))

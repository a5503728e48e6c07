"""Whether a table of a file holds what such a table can hold.

A file may come from anybody, and may be damaged where no checksum tells. What reads its tables
relies on their columns, on the values in them, and on what they say of each other. So each table is
checked before the first rows of it are given, or of some iterations those rows, in one pass of
DuckDB, which takes little memory.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import duckdb
import msgspec
import polars as pl

from rankscope.model.columns import LONGEST_TEXT, Column, Table
from rankscope.store.ddl import SQL_TYPES, quoted
from rankscope.store.tables import fetched, one_of
from rankscope.util.sanitize import sanitized

LONGEST_SHOWN = 60
"""Most characters of a wrong value in an error."""

MOST_ROWS = 2**29
"""Rows of a table. No machine compares a run with as many; a file of a few MB may claim them."""


KEYS_AT_ONCE = 2**25
"""Keys that are compared together; their hashes take 0.27 GB."""


class BadContents(Exception):
    """The file holds what no rankscope writes; the text says where and what."""


class TooMuch(Exception):
    """A table has more than `MOST_ROWS` rows; the text says which."""


def check_columns(name: str, table: Table, present: Mapping[str, str]) -> list[str]:
    """The columns of a table that a file lacks and that may be null.

    Args:
        present: column → SQL type, of the file.

    Raises:
        BadContents: a column is missing that may not be null, or one has another type.
    """
    missing = []
    for column, described in table.columns.items():
        if column not in present:
            if not described.is_nullable:
                raise BadContents(f"{name}.{column} is missing")
            missing.append(column)
        elif present[column] != SQL_TYPES[described.dtype]:
            raise BadContents(f"{name}.{column} of type {SQL_TYPES[described.dtype]} is missing")
    return missing


def check_rows(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    table: Table,
    iterations: Collection[int] | None = None,
) -> None:
    """Check the rows of a table whose columns are checked.

    Args:
        connection: to the file; tables that this one refers to are there.
        iterations: only rows of these; None: all.

    Raises:
        BadContents: a row cannot be, or contradicts others.
        TooMuch: there are too many.
    """
    [rows] = _first(connection, f'select count(*) from "{name}"') or (0,)
    if rows > MOST_ROWS:
        raise TooMuch(f"{name} has {rows:,} rows")
    some = "true" if iterations is None else one_of("iteration", iterations)
    faults = [*_faults(table)]
    references = [*((name, *each, some) for each in table.refers.items())]
    references += [(other, name, (column,), "true") for other, column in table.complete.items()]
    wrong = " or ".join(f"({condition})" for condition, _, _ in faults)
    asked = [f'exists(select 1 from "{name}" where {some} and ({wrong}))']
    found = _first(connection, f"select {', '.join((*asked, *map(_exists, references)))}") or ()
    if found[0]:
        raise BadContents(_fault(connection, name, faults, some))
    for reference, is_there in zip(references, found[1:], strict=True):
        if is_there:
            this, other, columns, _ = reference
            values = _first(connection, f"{_lacking(*reference)} limit 1") or ()
            raise BadContents(f"{this} has {_named(columns, values)}, which {other} lacks")
    for column, described in table.columns.items():
        if described.json is not None:
            _check_json(connection, name, column, described.json)
    if table.key:
        _check_key(connection, name, table.key, some, rows)


def _exists(reference: tuple[str, str, tuple[str, ...], str]) -> str:
    """Whether there is something that `_lacking` gives."""
    return f"exists({_lacking(*reference)})"


def _fault(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    faults: Sequence[tuple[str, str, str]],
    some: str,
) -> str:
    """What is said of the first of the faults that some rows of a table have."""
    for condition, column, text in faults:
        where = f"{some} and ({condition})"
        found = _first(connection, f'select "{column}" from "{name}" where {where} limit 1')
        if found is not None:
            return f"{name}.{column} {text.format(_shown(found[0]))}"
    return name


def _faults(table: Table) -> Iterator[tuple[str, str, str]]:
    """What no row may be: the condition in SQL, its column, and what is said of the column."""
    for name, column in table.columns.items():
        own = f'"{name}"'
        if not column.is_nullable:
            yield f"{own} is null", name, "is null"
        for condition, text in _of_values(own, column):
            yield condition, name, text
    for low, high in table.ordered:
        yield f'"{low}" > "{high}"', low, f"is larger than its {high}"
    for one, other in table.joint:
        yield f'("{one}" is null) <> ("{other}" is null)', one, f"and {other}: one is null"


def _of_values(own: str, column: Column) -> Iterator[tuple[str, str]]:
    """What no value of a column may be, in SQL and in words."""
    if column.dtype.is_nested():
        if not column.items_nullable:
            yield f"list_count({own}) < len({own})", "has an item that is null"
        if column.most_items is not None:
            yield f"len({own}) > {column.most_items}", f"has more than {column.most_items} items"
        if column.limits is not None:
            low, high = column.limits
            yield f"list_min({own}) < {low} or list_max({own}) > {high}", "is {}"
        return
    if column.limits is not None:
        low, high = column.limits
        # as nan is larger than any number
        yield f"not ({own} between {low} and {high})", "is {}"
    if column.names:
        listed = ", ".join(quoted(each) for each in column.names)
        yield f"{own} not in ({listed})", "is {}"
    if column.is_path:
        yield f"{own} = '' or contains({own}, chr(0))", "is no path"
    if column.dtype == pl.String():
        yield f"strlen({own}) > {LONGEST_TEXT}", f"has a text of more than {LONGEST_TEXT} bytes"


def _check_json(connection: duckdb.DuckDBPyConnection, name: str, column: str, type_: Any) -> None:
    """Raises `BadContents` if a text is not JSON of a type."""
    texts = f'select distinct "{column}" from "{name}" where "{column}" is not null'
    for (text,) in connection.execute(texts).fetchall():
        try:
            msgspec.json.decode(text, type=type_)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadContents(f"{name}.{column} is {_shown(text)}: {error}") from error


def _lacking(name: str, other: str, columns: tuple[str, ...], some: str) -> str:
    """The query of what some rows of `name` refer to and `other` lacks."""
    listed = ", ".join(f'"{each}"' for each in columns)
    there = some if "iteration" in columns else "true"
    these, those = (
        f'(select {listed} from "{table}" where {where})'
        for table, where in ((name, some), (other, there))
    )
    return f"select {listed} from {these} anti join {those} using ({listed})"


def _check_key(
    connection: duckdb.DuckDBPyConnection, name: str, key: tuple[str, ...], some: str, rows: int
) -> None:
    """Raises `BadContents` if two of some rows have the same key.

    Their hashes are compared, which takes half of the time that grouping the rows takes.
    """
    if rows < 2:
        return
    listed = ", ".join(f'"{each}"' for each in key)
    parts = rows // KEYS_AT_ONCE + 1
    hashes = f'select hash({listed}) as hashed from "{name}" where {some}'
    for part in range(parts):
        of_part = f" where hashed % {parts} = {part}" if parts > 1 else ""
        found = fetched(connection.sql(f"from ({hashes}){of_part}"))["hashed"]
        if found.n_unique() < len(found):
            break
    else:
        return
    grouped = f'select {listed} from "{name}" where {some} group by {listed}'
    double = _first(connection, f"{grouped} having count(*) > 1 limit 1")
    if double:  # else two keys have the same hash
        raise BadContents(f"{name} has {_named(key, double)} twice")


def _named(columns: tuple[str, ...], values: tuple[Any, ...]) -> str:
    """Columns with their values."""
    pairs = zip(columns, values, strict=True)
    return ", ".join(f"{each} {_shown(value)}" for each, value in pairs)


def _first(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...] | None:
    """The first row of a query that gives few."""
    rows = connection.execute(sql).fetchall()
    return rows[0] if rows else None


def _shown(value: object) -> str:
    return sanitized(str(value), LONGEST_SHOWN)

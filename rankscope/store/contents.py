"""Checks of the columns, rows and references of a table of a database file.

A file may come from anybody, and may be damaged where no checksum tells. Its readers rely on the
columns of its tables, on their values, and on the references between them. So the rows that a
reader requests are checked before it gets them: the whole table, or some iterations of it. The
checks run in DuckDB and need little memory.
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
"""Most rows of a table. No machine compares a run with more, yet a few MB may claim them."""

MANY_ROWS = 10**6
"""Rows from which on each condition is tested by itself: of most, DuckDB's statistics tell that no
row meets them. Not so where iterations with gaps are selected."""

KEYS_AT_ONCE = 2**25
"""Keys whose hashes are compared in one pass; the hashes take 0.27 GB."""


class BadContents(Exception):
    """The file holds something that no rankscope writes; the text says where and what."""


class TooMuch(Exception):
    """A table has more than `MOST_ROWS` rows; the text names it."""


def check_columns(name: str, table: Table, present: Mapping[str, str]) -> list[str]:
    """The nullable columns of a table that a file lacks.

    Args:
        present: column → SQL type, in the file.

    Raises:
        BadContents: a column that may not be null is missing, or a column has another type.
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
        connection: to the file, which has the tables that this one refers to.
        iterations: only rows of these; None: all.

    Raises:
        BadContents: a row has an impossible value, or contradicts other rows.
        TooMuch: the table has too many rows.
    """
    [rows] = _first(connection, f'select count(*) from "{name}"') or (0,)
    if rows > MOST_ROWS:
        raise TooMuch(f"{name} has {rows:,} rows")
    selection = "true" if iterations is None else one_of("iteration", iterations)
    faults = [*_row_faults(table)]
    references = [*((name, *each, selection) for each in table.refers.items())]
    references += [(other, name, (column,), "true") for other, column in table.complete.items()]
    conditions = [f"({condition})" for condition, _, _ in faults]
    missing_from = _perhaps_missing
    if rows < MANY_ROWS or " in " in selection:
        conditions, missing_from = [" or ".join(conditions)], _missing_references
    checks = [f'from "{name}" where {selection} and ({each})' for each in conditions]
    checks += [missing_from(*reference) for reference in references]
    found = _first(connection, f"select {', '.join(f'exists({each})' for each in checks)}") or ()
    if any(found[: len(conditions)]):
        raise BadContents(_first_fault(connection, name, faults, selection))
    for reference, is_there in zip(references, found[len(conditions) :], strict=True):
        this, other, columns, _ = reference
        missing = f"{_missing_references(*reference)} limit 1"
        values = _first(connection, missing) if is_there else None
        if values is not None:
            raise BadContents(f"{this} has {_key_text(columns, values)}, which {other} lacks")
    for column, described in table.columns.items():
        if described.json is not None:
            _check_json(connection, name, column, described.json)
    if table.key:
        _check_key(connection, name, table.key, selection, rows)


def _first_fault(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    faults: Sequence[tuple[str, str, str]],
    selection: str,
) -> str:
    """The message about the first of the faults that a selected row has."""
    for condition, column, text in faults:
        where = f"{selection} and ({condition})"
        row = _first(connection, f'select "{column}" from "{name}" where {where} limit 1')
        if row is not None:
            return f"{name}.{column} {text.format(_shown(row[0]))}"
    return name


def _row_faults(table: Table) -> Iterator[tuple[str, str, str]]:
    """The faults of a row: the condition in SQL, the column, and the message about the column."""
    for name, column in table.columns.items():
        field = f'"{name}"'
        if not column.is_nullable:
            yield f"{field} is null", name, "is null"
        for condition, text in _value_faults(field, column):
            yield condition, name, text
    for low, high in table.ordered:
        yield f'"{low}" > "{high}"', low, f"is larger than its {high}"
    for one, other in table.joint:
        yield f'("{one}" is null) <> ("{other}" is null)', one, f"and {other}: one is null"


def _value_faults(field: str, column: Column) -> Iterator[tuple[str, str]]:
    """The faults of a column's values: the condition in SQL, and the message."""
    if column.dtype.is_nested():
        if not column.items_nullable:
            yield f"list_count({field}) < len({field})", "has an item that is null"
        if column.most_items is not None:
            yield f"len({field}) > {column.most_items}", f"has more than {column.most_items} items"
        if column.limits is not None:
            low, high = column.limits
            yield f"list_min({field}) < {low} or list_max({field}) > {high}", "is {}"
        return
    if column.limits is not None:
        low, high = column.limits
        # `not between` is true of nan, too: DuckDB sorts it above all numbers
        yield f"not ({field} between {low} and {high})", "is {}"
    if column.names:
        listed = ", ".join(quoted(each) for each in column.names)
        yield f"{field} not in ({listed})", "is {}"
    if column.is_path:
        yield f"{field} = '' or contains({field}, chr(0))", "is no path"
    if column.dtype == pl.String():
        yield f"strlen({field}) > {LONGEST_TEXT}", f"has a text of more than {LONGEST_TEXT} bytes"


def _check_json(connection: duckdb.DuckDBPyConnection, name: str, column: str, type_: Any) -> None:
    """Raises `BadContents` if a text is not JSON of the type."""
    texts = f'select distinct "{column}" from "{name}" where "{column}" is not null'
    for (text,) in connection.execute(texts).fetchall():
        try:
            msgspec.json.decode(text, type=type_)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise BadContents(f"{name}.{column} is {_shown(text)}: {error}") from error


def _missing_references(name: str, other: str, columns: tuple[str, ...], selection: str) -> str:
    """The query for the references of the selected rows of `name` that `other` lacks."""
    listed = ", ".join(f'"{each}"' for each in columns)
    other_selection = selection if "iteration" in columns else "true"
    these, those = (
        f'(select {listed} from "{table}" where {where})'
        for table, where in ((name, selection), (other, other_selection))
    )
    return f"select {listed} from {these} anti join {those} using ({listed})"


def _perhaps_missing(name: str, other: str, columns: tuple[str, ...], selection: str) -> str:
    """A query that has rows if `_missing_references` has some, and takes less time.

    It compares what is least and greatest, if `other` has all numbers in between.
    """
    if columns[1:] != ("iteration",):
        return _missing_references(name, other, columns, selection)
    key, number = columns
    these, those = (
        f"(select {key}, min({number}) as least, max({number}) as most, count(*) as rows "
        f'from "{table}" where {selection} group by {key})'
        for table in (name, other)
    )
    fits = "those.least <= these.least and these.most <= those.most"
    dense = "those.most - those.least < those.rows"
    return (
        f"from {these} as these left join {those} as those using ({key}) "
        f"where not coalesce({fits} and {dense}, false)"
    )


def _check_key(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    key: tuple[str, ...],
    selection: str,
    rows: int,
) -> None:
    """Raises `BadContents` if two selected rows have the same key.

    Comparing the hashes of the keys takes half as long as grouping the rows.
    """
    if rows < 2:
        return
    listed = ", ".join(f'"{each}"' for each in key)
    parts = rows // KEYS_AT_ONCE + 1
    hash_query = f'select hash({listed}) as hashed from "{name}" where {selection}'
    for part in range(parts):
        of_part = f" where hashed % {parts} = {part}" if parts > 1 else ""
        hashes = fetched(connection.sql(f"from ({hash_query}){of_part}"))["hashed"]
        if hashes.n_unique() < len(hashes):
            break
    else:
        return
    grouped = f'select {listed} from "{name}" where {selection} group by {listed}'
    double = _first(connection, f"{grouped} having count(*) > 1 limit 1")
    if double:  # else two different keys have the same hash
        raise BadContents(f"{name} has {_key_text(key, double)} twice")


def _key_text(columns: tuple[str, ...], values: tuple[Any, ...]) -> str:
    """A key in words: its columns with their values."""
    pairs = zip(columns, values, strict=True)
    return ", ".join(f"{each} {_shown(value)}" for each, value in pairs)


def _first(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[Any, ...] | None:
    """The first row of a query that has few rows; None without any."""
    rows = connection.execute(sql).fetchall()
    return rows[0] if rows else None


def _shown(value: object) -> str:
    return sanitized(str(value), LONGEST_SHOWN)

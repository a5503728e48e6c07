"""Checks of a file before its rows are read: first its schema, then each table that is needed."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import duckdb
from msgspec import Struct

from rankscope.errors import DatabaseError
from rankscope.model.columns import Table
from rankscope.model.compared_tables import COMPARED_TABLES
from rankscope.model.tables import TABLES
from rankscope.store.connection import (
    NOT_OURS,
    OTHER_FILE_HINT,
    REBUILD_HINT,
    first_line,
    is_damage,
)
from rankscope.store.contents import BadContents, TooMuch, check_columns, check_rows
from rankscope.store.migrations import (
    SCHEMA_VERSION,
    add_columns,
    foreign_sql,
    missing_columns,
    present_columns,
    show_columns,
)
from rankscope.util.sanitize import sanitized

LONGEST_PATH = 300

NAMED_REPORTS = 3
"""Most reports that an error names."""

MOST_FACTS = 1000
"""Most rows of `meta` that are read; rankscope writes far fewer."""

UNTRUSTED_HINT = "do not trust the file; " + REBUILD_HINT

LESS_HINT = "compare it on a machine with more memory, or ingest fewer ranks: --ranks"


@contextmanager
def clear_errors(path: Path, hint: str = REBUILD_HINT) -> Iterator[None]:
    """Turn errors of contents, memory and damage into a `DatabaseError` that names the file."""
    try:
        yield
    except BadContents as error:
        raise DatabaseError(f"{path}: is damaged ({error})", hint=hint) from error
    except TooMuch as error:
        raise DatabaseError(f"{path}: is too large to compare ({error})", hint=LESS_HINT) from error
    except duckdb.OutOfMemoryException as error:
        raise DatabaseError(
            f"{path}: needs more memory than there is ({first_line(error)})", hint=LESS_HINT
        ) from error
    except duckdb.Error as error:
        if is_damage(error):
            raise damaged(path, error, hint) from error
        raise


def damaged(path: Path, error: duckdb.Error, hint: str = REBUILD_HINT) -> DatabaseError:
    """The error of a file that DuckDB calls damaged."""
    return DatabaseError(
        f"{path}: is damaged or no rankscope database ({first_line(error)})", hint=hint
    )


class Known(Struct, frozen=True):
    """What was checked of a file; valid as long as the file does not change.

    `missing`: table → columns of the schema that the file lacks. `checked`: table → the iterations
    whose rows were checked; None: all rows. `present`: (table, column) → SQL type, in the file;
    empty until it is needed. `file`: its `identity` before it was opened.
    """

    missing: Mapping[str, Sequence[str]] = {}
    checked: dict[str, frozenset[int] | None] = {}
    present: dict[tuple[str, str], str] = {}
    file: str = ""


def facts(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """The table `meta`: key → value."""
    rows = connection.execute(f"select key, value from meta limit {MOST_FACTS}").fetchall()
    return {str(key): str(value) for key, value in rows if value is not None}


def is_run(tables: Iterable[str]) -> bool:
    """Whether tables are those of a run, which `--rebuild` may replace."""
    return not {"rank_iterations", "reports"}.isdisjoint(tables)


def enter(connection: duckdb.DuckDBPyConnection, path: Path, *, write: bool) -> Known:
    """Check the schema of a file, and add what it lacks. See `migrations`.

    Args:
        write: add it to the file itself, within the caller's transaction; else as temporary views.

    Raises:
        DatabaseError: the file is of another version, or no rankscope database.
        BadContents: the file lacks a table or column that every rankscope database has.
    """
    if foreign := foreign_sql(connection, write=write):
        raise DatabaseError(f"{path}: {NOT_OURS} ({foreign})", hint=UNTRUSTED_HINT)
    present = present_columns(connection)
    if not {("meta", "key"), ("meta", "value")} <= {*present}:
        hint = REBUILD_HINT if is_run(table for table, _ in present) else OTHER_FILE_HINT
        raise DatabaseError(f"{path}: {NOT_OURS}", hint=hint)
    version = facts(connection).get("schema_version", "")
    if version != str(SCHEMA_VERSION):
        raise _of_another_version(connection, path, version)
    missing = missing_columns(present)
    if not missing:
        return Known(present=present)
    if write:
        add_columns(connection, missing)
        return Known()
    show_columns(connection, missing)
    return Known(missing)


def enter_again(connection: duckdb.DuckDBPyConnection, known: Known) -> None:
    """As `enter`, for a file that was checked before and has not changed since."""
    if known.missing:
        show_columns(connection, known.missing)


def check_table(
    connection: duckdb.DuckDBPyConnection,
    name: str,
    known: Known,
    iterations: Collection[int] | None = None,
    columns: Collection[str] | None = None,
) -> None:
    """Check the contents of a table before rows of it are read.

    Args:
        iterations: only rows of these will be read; None: any.
        columns: only the distinct values of these will be read; None: whole rows.

    Raises:
        BadContents: the table holds something that no rankscope writes.
    """
    seen = known.checked.get(name, frozenset())
    if seen is None or (iterations is not None and name in known.checked and seen >= {*iterations}):
        return
    if not known.present:
        known.present.update(present_columns(connection))
    columns_of_file = known.present
    table = TABLES.get(name)
    if table is None:
        table = COMPARED_TABLES[name]
        present = {
            column: kind for (owner, column), kind in columns_of_file.items() if owner == name
        }
        if missing := check_columns(name, table, present):
            raise BadContents(f"{name}.{missing[0]} is missing")
    if columns is not None:
        values = {column: table.columns[column] for column in columns}
        check_rows(connection, name, Table(table.meaning, values))
        return
    if "iterations" in table.refers:  # which in turn refers to `ranks`
        check_table(connection, "iterations", known)
    needed = [(other, each) for other, columns in table.refers.items() for each in columns]
    for other, column in (*needed, *table.complete.items()):
        if (other, column) not in columns_of_file:
            raise BadContents(f"{other}.{column} is missing")
    check_rows(connection, name, table, iterations)
    known.checked[name] = None if iterations is None else seen.union(iterations)


def _of_another_version(
    connection: duckdb.DuckDBPyConnection, path: Path, version: str
) -> DatabaseError:
    """The error of a newer file, or of an older one, whose reports must be read again."""
    shown = sanitized(version)
    text = f"{path}: has schema version {shown}, this rankscope uses {SCHEMA_VERSION}"
    number = int(version) if version.isascii() and version.isdigit() and len(version) < 9 else 0
    if number > SCHEMA_VERSION:
        return DatabaseError(text, hint="use a newer rankscope")
    return DatabaseError(f"{text}{_reports_to_read(connection)}", hint=REBUILD_HINT)


def _reports_to_read(connection: duckdb.DuckDBPyConnection) -> str:
    """The names of the reports in an older database, for an error."""
    if ("reports", "path") not in present_columns(connection):
        return ""
    [count] = connection.execute("select count(*) from reports").fetchall()[0]
    rows = connection.execute(
        f"select path from reports order by path limit {NAMED_REPORTS}"
    ).fetchall()
    named = ", ".join(sanitized(str(path), LONGEST_PATH) for (path,) in rows)
    more = f" and {count - NAMED_REPORTS} more" if count > NAMED_REPORTS else ""
    return f"; its reports must be read again: {named}{more}" if rows else ""

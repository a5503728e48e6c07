"""Spoiled reports: bit flips, cuts, swapped and dropped tables, wrong types, hostile names."""

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

from tests.sources.exports import as_export

FORMATS = ("sqlite", "parquetdir", "arrowdir")

HOSTILE = (
    "\x1b]0;owned\x07\x1b[2J",
    "'; drop table NVTX_EVENTS; --",
    "<script>alert(1)</script>",
    "../../etc/passwd",
    "nul\x00inside",
    b"\xff\xfe broken",
    "step 99999999999999999999999999",
    "step -1",
    "x" * 100_000,
    "(" * 5_000,
    "",
)
NUMBERS = (0, -1, 2**31, 2**63 - 1, -(2**63), "text", b"\x00\xff", 1.5, float("inf"), None)


def mutant(source: Path, kind: str, seed: int, folder: Path) -> tuple[Path, str]:
    """A spoiled copy of a SQLite export as another file or folder, and what was done to it."""
    draw = random.Random(f"{kind}/{seed}")
    work = Path(shutil.copy(source, folder / "report_rank_0.sqlite"))
    damage = draw.choice([_rows, _rows, _names, _tables, None, None])
    done = [] if damage is None else [damage(work, draw)]
    files = [work]
    path = work
    if kind != "sqlite":
        path = as_export(work, kind, folder, rows=1000)
        work.unlink()
        files = sorted(path.iterdir())
    if damage is None or draw.random() < 0.2:
        done.append(_bytes(files, draw))
    return path, f"{kind} {seed}: {', '.join(done)}"


def _bytes(files: list[Path], draw: random.Random) -> str:
    """Damage to the bytes of one file."""
    large = [file for file in files if "NVTX" in file.name or "KERNEL" in file.name]
    file = draw.choice(large or files) if draw.random() < 0.5 else draw.choice(files)
    content = bytearray(file.read_bytes())
    how = draw.choice(["flip", "flip", "flip", "cut", "zero", "head", "swap", "empty"])
    if how == "flip":
        for _ in range(draw.choice([1, 8, 64, 512])):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif how == "cut":
        del content[draw.randrange(len(content)) :]
    elif how == "zero":
        at = draw.randrange(len(content))
        content[at : at + 4096] = bytes(len(content[at : at + 4096]))
    elif how == "head":
        for at in range(16, min(len(content), 200)):
            if draw.random() < 0.1:
                content[at] = draw.randrange(256)
    elif how == "swap":
        other = draw.choice(files)
        swapped = other.read_bytes()
        other.write_bytes(content)
        content = bytearray(swapped[::-1] if other == file else swapped)
    else:
        content.clear()
    file.write_bytes(content)
    return f"{how} {file.name}"


def _columns(connection: sqlite3.Connection, draw: random.Random) -> tuple[str, list[str]]:
    tables = [
        str(name)
        for (name,) in connection.execute("select name from sqlite_master where type = 'table'")
    ]
    table = draw.choice(tables)
    return table, [str(row[1]) for row in connection.execute(f"pragma table_info({table})")]


def _edited(path: Path, edit: Callable[[sqlite3.Connection], str]) -> str:
    connection = sqlite3.connect(path)
    with connection:
        done = edit(connection)
    connection.close()
    return done


def _loose(connection: sqlite3.Connection, table: str) -> None:
    """A table without constraints, so that anything may stand in it."""
    connection.execute(f"create table loose as select * from {table}")
    connection.execute(f"drop table {table}")
    connection.execute(f"alter table loose rename to {table}")


def _rows(path: Path, draw: random.Random) -> str:
    """Wrong values in one column, in some rows or all."""

    def edit(connection: sqlite3.Connection) -> str:
        table, columns = _columns(connection, draw)
        column, value = draw.choice(columns), draw.choice(NUMBERS)
        _loose(connection, table)
        every = draw.choice([1, 2, 100])
        connection.execute(f'update {table} set "{column}" = ? where rowid % ? = 0', (value, every))
        return f"{table}.{column} = {value!r} in one of {every}"

    return _edited(path, edit)


def _names(path: Path, draw: random.Random) -> str:
    """A hostile name for ranges, kernels, hosts or variables."""

    def edit(connection: sqlite3.Connection) -> str:
        name = draw.choice(HOSTILE)
        where = draw.choice(
            [
                "update NVTX_EVENTS set text = ? where rowid % 3 = 0",
                "update StringIds set value = ?",
                "update TARGET_INFO_SYSTEM_ENV set value = ?",
                "update NVTX_EVENTS set text = 'step ' || ?",
            ]
        )
        connection.execute(where, (name,))
        return f"{where} {name[:20]!r}"

    return _edited(path, edit)


def _tables(path: Path, draw: random.Random) -> str:
    """A table dropped, emptied, doubled, or under another's name; a column gone."""

    def edit(connection: sqlite3.Connection) -> str:
        table, columns = _columns(connection, draw)
        other, _ = _columns(connection, draw)
        how = draw.choice(["drop", "empty", "double", "swap", "column"])
        if how == "drop":
            connection.execute(f"drop table {table}")
        elif how == "empty":
            connection.execute(f"delete from {table}")
        elif how == "double":
            _loose(connection, table)
            connection.execute(f"insert into {table} select * from {table}")
        elif how == "swap" and table != other:
            connection.execute(f"alter table {table} rename to swapped")
            connection.execute(f"alter table {other} rename to {table}")
            connection.execute(f"alter table swapped rename to {other}")
        elif how == "column" and len(columns) > 1:
            _loose(connection, table)
            column = draw.choice(columns)
            connection.execute(f'alter table {table} drop column "{column}"')
            return f"{table} without {column}"
        return f"{how} {table} {other if how == 'swap' else ''}"

    return _edited(path, edit)

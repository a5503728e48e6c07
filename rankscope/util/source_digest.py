"""A hash of rankscope's own source files, which changes with every edit of them."""

import hashlib
from functools import cache
from pathlib import Path

SUFFIXES = (".py", ".toml")
"""Endings of files with code, and of tables that code reads."""

OF_ANSWERS = ("compare", "judge", "match", "model", "store", "util")
"""Packages whose source files shape the answers; those that read reports shape the tables."""


@cache
def source_digest(package: Path, names: tuple[str, ...]) -> str:
    """Hash of all source files in some packages."""
    digest = hashlib.sha256()
    paths = (path for name in names for path in (package / name).rglob("*"))
    for path in sorted(path for path in paths if path.suffix in SUFFIXES):
        digest.update(path.relative_to(package).as_posix().encode() + b"\0")
        digest.update(path.read_bytes() + b"\0")
    return digest.hexdigest()

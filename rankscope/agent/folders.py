"""The folders that an assistant may name paths in; links that lead out of them are refused."""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rankscope.errors import UsageError

DATABASE = ".duckdb"
"""Ending of the name of a database: a tool can neither read nor write another file as one."""


class Folders:
    """Folders, and what lies below them. Relative paths begin at the first one.

    They do not protect against links that are changed while a tool runs.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        """Resolve the folders.

        Raises:
            UsageError: one of them is no folder.
        """
        for each in folders:
            if not each.is_dir():
                raise UsageError(f"{each}: is not a folder", hint="name folders with reports")
        self._folders = tuple(each.resolve() for each in folders)

    def __str__(self) -> str:
        return ", ".join(map(str, self._folders))

    def path(self, text: str) -> Path:
        """A path, resolved.

        Raises:
            UsageError: outside the folders.
        """
        if "\0" in text:
            raise self._outside(text.replace("\0", ""))
        try:
            path = (self._folders[0] / text).resolve()
        except (OSError, RuntimeError) as error:  # a link to itself
            raise UsageError(f"{text}: cannot be followed", hint="check its links") from error
        if not self.holds(path):
            raise self._outside(text)
        return path

    def holds(self, path: Path) -> bool:
        """Whether a resolved path lies in one of the folders."""
        return any(path.is_relative_to(folder) for folder in self._folders)

    def database(self, text: str) -> Path:
        """The path of a database, resolved; it need not exist.

        Raises:
            UsageError: outside the folders, or its name is not that of a database.
        """
        path = self.path(text)
        if path.suffix != DATABASE:
            raise UsageError(
                f"{text}: the name of a database ends in {DATABASE}", hint=f"db {text}{DATABASE}"
            )
        return path

    def reports(self, texts: Iterable[str]) -> list[Path]:
        """The paths of reports, folders of reports and patterns, resolved.

        Raises:
            UsageError: one of them, or a link below them, leads outside the folders.
        """
        reports = [path for text in texts for path in self._matches(text)]
        for path in reports:
            self._look_below(path)
        return reports

    def _matches(self, text: str) -> Iterator[Path]:
        path = self.path(text)
        if os.path.lexists(path) or not glob.has_magic(text):
            yield path  # a missing one has an error of its own
            return
        matches = sorted(glob.glob(str(path), recursive=True))
        if not matches:
            raise UsageError(f"{text}: no file has such a name", hint="check the pattern")
        for match in matches:
            yield self.path(match)

    def _look_below(self, start: Path) -> None:
        """Refuse a link below a folder that leads outside."""
        seen: set[Path] = set()
        waiting = [start] if start.is_dir() else []
        while waiting:
            folder = waiting.pop()
            if folder in seen:
                continue
            seen.add(folder)
            try:
                entries = [*os.scandir(folder)]
            except OSError:  # its reader says why
                continue
            for entry in entries:
                if not entry.is_symlink():
                    waiting += [Path(entry.path)] if entry.is_dir() else []
                elif (path := self.path(entry.path)).is_dir():
                    waiting.append(path)

    def _outside(self, text: str) -> UsageError:
        linked = self.holds(Path(os.path.normpath(self._folders[0] / text)))
        return UsageError(
            f"{text}: {'is a link that leads' if linked else 'lies'} outside the folders of this "
            "server",
            hint=f"it may read below {self}; rankscope mcp FOLDER... names others",
        )

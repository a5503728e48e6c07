"""Every error rankscope raises on purpose.

Each carries a one-line message that names the file or option, and a one-line hint that says what
to do. Anything else that escapes from rankscope is a bug.
"""

import re


class RankscopeError(Exception):
    """Base of all errors a user can cause and mend; `hint` says how."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    @property
    def code(self) -> str:
        """The name of the error in JSON: that of its class, as `several-runs`."""
        return re.sub(r"(?<!^)(?=[A-Z])", "-", type(self).__name__).lower()

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint))


def _rebuild(kind: type[RankscopeError], message: str, hint: str) -> RankscopeError:
    """Restore an error that crossed a process border with its keyword-only hint."""
    return kind(message, hint=hint)


class UsageError(RankscopeError):
    """An option or argument that cannot be meant as written."""


class ReportError(RankscopeError):
    """A report, or a set of reports, that cannot be used."""


class UnreadableReport(ReportError):
    """Not a report, or an empty, truncated or damaged one."""


class NoIterations(ReportError):
    """Nothing in the report is named like an iteration."""


class UnlikeOthers(NoIterations):
    """Most reports of the run name their iterations: this one is left out."""


class UnknownRank(ReportError):
    """No evidence says which rank wrote the report."""


class RankConflict(ReportError):
    """Two reports claim one rank, or one report's evidence contradicts itself."""


class Unpaired(ReportError):
    """Iterations without numbers cannot be paired across ranks."""


class ForeignRun(ReportError):
    """A report that belongs to another job than the database holds."""


class ReportBug(ReportError):
    """rankscope itself failed on one report; `details` is the traceback."""

    def __init__(self, message: str, *, hint: str, details: str = "") -> None:
        super().__init__(message, hint=hint)
        self.details = details

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint), {"details": self.details})


class SeveralRuns(ForeignRun):
    """Reports of several runs; `lines` has one text per run, with the command that reads it."""

    def __init__(self, message: str, *, hint: str, lines: tuple[str, ...] = ()) -> None:
        super().__init__(message, hint=hint)
        self.lines = lines

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.message, self.hint), {"lines": self.lines})


class DatabaseError(RankscopeError):
    """The database is missing, locked, damaged or of another version."""


class DatabaseChanged(DatabaseError):
    """Somebody wrote to the database after it was opened."""


class ToolError(RankscopeError):
    """An outside program is missing or failed."""

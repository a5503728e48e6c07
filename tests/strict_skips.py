"""A pytest plugin: with `--strict-skips`, or `CI=true`, an unexpected skip fails the run.

A test that is skipped on the CI machine checks nothing, and nobody notices. The reasons that CI
accepts stand in `allowed_skips.txt`, a pattern each (`*` is any text).
"""

import os
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ALLOWED = Path(__file__).with_name("allowed_skips.txt")


def allowed(text: str | None = None) -> list[str]:
    """The patterns of `allowed_skips.txt` (or of a text like it)."""
    lines = (ALLOWED.read_text(encoding="utf-8") if text is None else text).splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def unexpected(skips: Sequence[tuple[str, str]], patterns: Sequence[str]) -> list[str]:
    """`test: reason` of the skips, (test, reason), whose reason no pattern allows."""
    return [
        f"{test}: {reason}"
        for test, reason in skips
        if not any(fnmatchcase(reason, pattern) for pattern in patterns)
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option; the default is the environment's `CI`."""
    parser.addoption(
        "--strict-skips",
        action="store_true",
        default=os.environ.get("CI") == "true",
        help="fail if a test is skipped for a reason that tests/allowed_skips.txt does not list",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Counts in the process that reports: xdist's workers send theirs there."""
    if config.getoption("--strict-skips") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(StrictSkips(), "strict-skips")


class StrictSkips:
    """Collects skips and fails the run at its end."""

    def __init__(self) -> None:
        self._skips: list[tuple[str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test, or its setup, was skipped."""
        self._add(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A whole module was skipped."""
        self._add(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that would pass."""
        if self._unexpected() and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    # the oldest pytest that is supported keeps this class elsewhere
    def pytest_terminal_summary(self, terminalreporter: "pytest.TerminalReporter") -> None:
        """Say which skips nobody expected."""
        if lines := self._unexpected():
            terminalreporter.section("unexpected skips", red=True)
            terminalreporter.write_line("\n".join(lines))
            terminalreporter.write_line(f"install what they need, or list the reason in {ALLOWED}")

    def _add(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            self._skips.append((report.nodeid, str(reason).removeprefix("Skipped: ")))

    def _unexpected(self) -> list[str]:
        return unexpected(sorted({*self._skips}), allowed())

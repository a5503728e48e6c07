"""A cause: the row that a detector's module adds to the registry."""

from collections.abc import Callable, Iterable
from enum import IntEnum

from msgspec import Struct

from rankscope.judge.causes.context import CauseContext
from rankscope.model.kinds import CauseKind, HostState
from rankscope.model.results import Finding
from rankscope.sources.recorders import Record


class Precedence(IntEnum):
    """Order in which findings are reported, before their size."""

    EXPLANATION = 1  # says why; other findings measure its effect
    ACTIVITY = 2
    SURROUNDING = 3  # a range that contains the activities of other findings
    REST = 4  # what nothing explains; only where others leave most of the excess open


class Detector(Struct, frozen=True):
    """One cause: how it is found in the tables of a run, and how it is reported.

    A detector is silent where one of its tables is missing; `capture` then says how a run has to
    be captured so that the detector can speak.
    """

    kind: CauseKind
    findings: Callable[[CauseContext], Iterable[Finding]]
    """The findings to report, in any order: together they explain LEAST_SHARE of the excess."""
    sentence: Callable[[Finding], str]
    """One finding as a clause of the verdict's sentence; names go through `sanitized`."""
    tables: tuple[str, ...] = ("activities",)
    alternatives: tuple[str, ...] = ()  # any of these does as well as all of `tables`
    kinds: tuple[str, ...] = ()  # of `activities`: without any of them it cannot speak
    states: tuple[HostState, ...] = ()  # of `host_states`: without any of them it cannot speak
    capture: Record = Record.DEVICE
    precedence: Precedence = Precedence.ACTIVITY

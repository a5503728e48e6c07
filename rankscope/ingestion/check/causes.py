"""One report → which causes it can tell, and how to capture what the others need."""

from __future__ import annotations

import polars as pl

from rankscope.judge.causes.detector import Detector
from rankscope.judge.causes.host import TABLE as HOST_TABLE
from rankscope.judge.causes.registry import DETECTORS
from rankscope.model.kinds import CauseKind
from rankscope.model.reports import CauseAbility, RankRows, ReportRows
from rankscope.sources.recorders import Record, Recorder, advice, recorder_of


def causes(rows: ReportRows) -> tuple[CauseAbility, ...]:
    """Every cause in the order of `CauseKind`: whether all ranks of the report can tell it."""
    detectors = {each.kind: each for each in DETECTORS}
    recorder = recorder_of([rows.file.kind])
    return tuple(
        CauseAbility(
            str(kind),
            all(_tells(detectors[kind], part) for part in rows.ranks),
            advice(_needed(detectors[kind], recorder), recorder),
        )
        for kind in CauseKind
        if kind != CauseKind.UNEXPLAINED
    )


def _needed(detector: Detector, recorder: Recorder) -> Record:
    """What must be recorded; the PyTorch profiler never records what threads do on the host."""
    only_host = detector.tables == (HOST_TABLE,)
    return Record.HOST if only_host and recorder is Recorder.PYTORCH else detector.capture


def _tells(detector: Detector, part: RankRows) -> bool:
    """Whether a rank has the tables of a detector, and knows the states that it looks at."""
    tables = {"activities": part.activities, "host_states": part.host_states}

    def has(name: str) -> bool:
        return name in tables and not tables[name].is_empty()

    known = all(map(has, detector.tables)) or any(map(has, detector.alternatives))
    recorded = part.rank.has_device and detector.capture is Record.DEVICE
    if known and detector.kinds and not recorded:  # a device that was recorded lacks none of them
        kinds = [str(kind) for kind in detector.kinds]
        known = not part.activities.filter(pl.col("kind").is_in(kinds)).is_empty()
    if known and detector.states:
        states = [str(state) for state in detector.states]
        known = not part.host_states.filter(pl.col("state").is_in(states)).is_empty()
    return known

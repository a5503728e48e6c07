"""Cause: kernels are slower only while collectives overlap them and share the device."""

from __future__ import annotations

from rankscope.compare.causes.context import CauseContext
from rankscope.compare.causes.detector import Blame, Detector
from rankscope.compare.causes.kernels import (
    kernel_findings,
    more_work,
    only_beside_collectives,
    taking_longer,
)
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding


def _findings(context: CauseContext) -> list[Finding]:
    which = ~more_work() & only_beside_collectives()
    return kernel_findings(context, CauseKind.CONTENTION, which)


def _sentence(finding: Finding) -> str:
    return f"{taking_longer(finding)} while collectives overlap: contention, not a cause by itself"


DETECTOR = Detector(
    kind=CauseKind.CONTENTION,
    findings=_findings,
    sentence=_sentence,
    remedy="compare a run without overlap, or with fewer channels for collectives "
    "(NCCL_MAX_NCHANNELS); check the device's memory clock",
    blame=Blame.CONTENTION,
)

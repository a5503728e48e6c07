"""Training jobs played event by event, with right answers that follow from physics.

Written from the definitions of the method alone: the engine shares no code with the package, nor
with `tests.forge`, but the form of reports. `SCENES` lists what can go wrong; `play` plays a job,
`write` writes its reports.
"""

from __future__ import annotations

from tests.jobs import scenes_data as scenes_data  # they put themselves on the list
from tests.jobs import scenes_parallel as scenes_parallel
from tests.jobs.job import Job, Plant
from tests.jobs.play import lengths, play
from tests.jobs.report import write
from tests.jobs.scene import SCENES, Answer, Culprit, Scene

__all__ = ["SCENES", "Answer", "Culprit", "Job", "Plant", "Scene", "lengths", "play", "write"]

"""A simulator of training jobs with planted faults: the ground truth of the tests.

`forge(job, folder)` runs a job, writes a report per rank as `nsys export` would, and gives what
really happened. It shares no code with the package under test.
"""

from pathlib import Path

from tests.forge.job import (
    Clock,
    Contention,
    Export,
    Host,
    Job,
    Lengths,
    Markers,
    Network,
    Noise,
    Plant,
    Work,
    without_plants,
)
from tests.forge.scenes import SCENES, scene
from tests.forge.simulate import Simulation, simulate
from tests.forge.sqlite_export import export
from tests.forge.truth import Truth

__all__ = [
    "SCENES",
    "Clock",
    "Contention",
    "Export",
    "Host",
    "Job",
    "Lengths",
    "Markers",
    "Network",
    "Noise",
    "Plant",
    "Simulation",
    "Truth",
    "Work",
    "export",
    "forge",
    "scene",
    "simulate",
    "without_plants",
]


def forge(job: Job, out_dir: Path | str) -> Truth:
    """Simulate a job, write its reports and truth files into a folder, and give the truth."""
    folder = Path(out_dir)
    folder.mkdir(parents=True, exist_ok=True)
    result = simulate(job)
    for record in result.records:
        export(job, record, folder)
    result.truth.write(folder)
    return result.truth

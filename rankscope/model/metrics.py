"""The metrics, by name (method section 5)."""

from __future__ import annotations

from rankscope.errors import UsageError

METRICS = {
    "iteration": "length of the iteration's window",
    "load": "fetching data and copying it to the device",
    "forward": "forward pass",
    "backward": "backward pass, without waiting for others",
    "optimizer": "optimizer step",
    "other": "the rest of the window",
    "exposed_communication": "communication that no work of the rank covers",
    "work": "iteration less exposed communication: what the rank itself needed",
    "wait": "part of the exposed communication spent waiting for other ranks",
    "time_to_all_reduce": "window start to arrival at the last gradient reduction, less exposed "
    "communication before it",
    "time_to_first_all_reduce": "the same to the first gradient reduction",
    "compute": "union of computation on the device",
    "communication": "union of communication on the device",
    "idle": "window less all device work",
    "collective_wait": "waiting for others in collectives, overlapped or not",
    "collective_transfer": "collectives' time once all had arrived, overlapped or not",
}
"""Name → meaning."""

PHASE_METRICS = ("load", "forward", "backward", "optimizer", "other")


def check_metrics(names: list[str]) -> list[str]:
    """`names`, or the error that lists what there is."""
    for name in names:
        if name not in METRICS:
            raise UsageError(
                f"--metric {name}: there is no such metric", hint=f"one of {', '.join(METRICS)}"
            )
    return names

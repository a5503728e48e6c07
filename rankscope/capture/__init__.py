"""Launch wrappers that make the next profile complete.

The scripts are data: one `.sh` file per scheduler finds the rank, and `profile.sh` runs nsys.
`pytorch.json` names the functions to annotate in code that cannot be edited, `snippet.txt` the
ranges to add to code that can.
"""

from rankscope.capture.wrapper import (
    CaptureConfig,
    Scheduler,
    default_trace,
    functions_trace,
    save,
    snippet,
    usage,
    wrapper,
)

__all__ = [
    "CaptureConfig",
    "Scheduler",
    "default_trace",
    "functions_trace",
    "save",
    "snippet",
    "usage",
    "wrapper",
]

"""What to put between launcher and training command so that the next profile is right.

The scripts are data: a `.sh` file a scheduler, which says which rank this is, and `profile.sh`,
which runs nsys; `pytorch.json` names the functions to annotate in code that cannot be edited, and
`snippet.txt` the ranges to write in code that can.
"""

from rankscope.capture.wrapper import (
    SCHEDULERS,
    CaptureConfig,
    functions_trace,
    save,
    snippet,
    usage,
    wrapper,
)

__all__ = ["SCHEDULERS", "CaptureConfig", "functions_trace", "save", "snippet", "usage", "wrapper"]

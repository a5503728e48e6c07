"""The document of `capture`."""

from typing import Annotated

from msgspec import field

from rankscope.compare.next_capture import NextCapture
from rankscope.output.documents.common import Answer
from rankscope.util.meaning import says


class Capture(Answer, kw_only=True, tag="rankscope/capture/1"):
    """The launch wrapper for the next profile."""

    script: Annotated[str, says("the script, or the ranges of `--snippet`")]
    output: Annotated[str | None, says("the file that it was written to")]
    start: Annotated[str | None, says("the line that starts the job with it")]
    need: Annotated[NextCapture | None, says("what `--for` found necessary; null without it")] = (
        field(name="for")
    )


def capture(
    script: str, output: str | None, start: str | None, following: NextCapture | None
) -> Capture:
    """The document of `capture`."""
    return Capture(run=None, warnings=(), script=script, output=output, start=start, need=following)

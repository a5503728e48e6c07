"""The document of `capture`."""

from typing import Annotated

from msgspec import Struct, field

from rankscope.compare import next_capture
from rankscope.output.documents.common import Answer, struct_of
from rankscope.util.meaning import says


class RecordedRank(Struct, kw_only=True):
    """A rank that the next capture records."""

    label: Annotated[str, says("`slow`, `median`, `fast` (`culprit` in 0.1.0)")]
    rank: Annotated[int, says("a rank that is recorded")]
    host: Annotated[str | None, says("its host")]


class RecordedIterations(Struct, kw_only=True):
    """The iterations that the next capture records."""

    first: Annotated[int, says("the first iteration that is recorded")]
    last: Annotated[int, says("the last iteration that is recorded")]


class NextCapture(Struct, kw_only=True):
    """What the next capture records, and why."""

    sentence: Annotated[str, says("what the run left open")]
    ranks: Annotated[tuple[RecordedRank, ...], says("the ranks that are recorded")]
    iterations: Annotated[RecordedIterations, says("the iterations that are recorded")]
    delay_s: Annotated[
        float | None, says("seconds from the start to the beginning of the recording; null: none")
    ]
    duration_s: Annotated[float | None, says("seconds of the recording")]
    options: Annotated[tuple[next_capture.Needed, ...], says("the options that are needed")]


class Capture(Answer, kw_only=True, tag="rankscope/capture/1"):
    """The launch wrapper for the next profile."""

    script: Annotated[str, says("the script, or the ranges of `--snippet`")]
    output: Annotated[str | None, says("the file that it was written to")]
    start: Annotated[str | None, says("the line that starts the job with it")]
    need: Annotated[NextCapture | None, says("what `--for` found necessary; null without it")] = (
        field(name="for")
    )


def capture(
    script: str, output: str | None, start: str | None, following: next_capture.NextCapture | None
) -> Capture:
    """The document of `capture`."""
    need = None
    if following is not None:
        ranks = (
            RecordedRank(label=label, rank=rank, host=host) for label, rank, host in following.ranks
        )
        first, last = following.iterations
        need = struct_of(
            NextCapture,
            following,
            ranks=tuple(ranks),
            iterations=RecordedIterations(first=first, last=last),
            options=following.needed,
        )
    return Capture(run=None, warnings=(), script=script, output=output, start=start, need=need)

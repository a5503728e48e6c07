"""The structs that JSON documents share, and their conversion to text.

Times are integers in ns, unknown is null. A key that a document may lack is `UNSET`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import UNSET, Struct, UnsetType

from rankscope.model.kinds import Clock
from rankscope.model.reports import RunWarning
from rankscope.util.meaning import says

if TYPE_CHECKING:
    from rankscope.model import results

Document = dict[str, Any]
"""A JSON object."""

S = TypeVar("S", bound=Struct)


class SelectedIterations(Struct, kw_only=True):
    """The selected iterations."""

    first: Annotated[int, says("the first of the selected iterations")]
    last: Annotated[int, says("the last of the selected iterations")]
    count: Annotated[int, says("number of the selected iterations")]
    excluded_warmup: Annotated[
        tuple[int, ...],
        says(
            "iterations left out as warm-up; empty with `--iter-range` and `--include-warmup`",
        ),
    ]
    included_warmup: Annotated[
        tuple[int, ...], says("warm-up that is among the selected iterations")
    ]
    matched_by: Annotated[
        Literal["number", "ordinal"], says("how iterations of ranks belong together")
    ]


class Clocks(Struct, kw_only=True):
    """How the clocks of the ranks are tied together."""

    aligned: Annotated[bool, says("whether all clocks are tied together")]
    method: Annotated[str | None, says("by what the clocks are tied together")]
    residual_ns: Annotated[int | None, says("the largest error of a tied clock")]
    offsets_ns: Annotated[
        dict[str, int],
        says(
            "by rank: added to its own UTC (session start + event time), at the middle of the "
            "run, to get the time of the lowest rank"
        ),
    ]
    drift_ppm: Annotated[
        dict[str, float], says("by rank: how much faster that offset grows, in µs per second")
    ]


class Run(Struct, kw_only=True):
    """The run that a document is about."""

    db: Annotated[str, says("the database")]
    name: Annotated[str, says("the name of the run")]
    ranks: Annotated[tuple[int, ...], says("ranks with a report")]
    world_size: Annotated[int | None, says("ranks of the job")]
    missing_ranks: Annotated[tuple[int, ...], says("ranks of the job without a report")]
    reports: Annotated[int, says("number of reports")]
    clock: Annotated[Clock, says("the clock of the times: of the device's work, or of the host")]
    clock_reason: Annotated[str, says("why this clock")]
    iterations: Annotated[SelectedIterations, says("the selected iterations")]
    clocks: Annotated[Clocks, says("how the clocks of the ranks are tied together")]


class Answer(Struct, kw_only=True, tag_field="format", tag="rankscope/<command>/1"):
    """What every document has except for errors; `format` is the tag of its class."""

    run: Annotated[Run | None, says("the run; null where a document is not about one")]
    warnings: Annotated[tuple[RunWarning, ...], says("missing or weak evidence")]
    left_out: Annotated[
        dict[str, int] | UnsetType,
        says(
            "of `rankscope mcp` only: by key, how many of its elements were left out because they "
            "are more than `most`; absent where nothing was"
        ),
    ] = UNSET


class Failure(Struct, kw_only=True):
    """Why there is no result."""

    code: Annotated[str, says("the name of the error")]
    message: Annotated[str, says("what is wrong")]
    hint: Annotated[str, says("what to do")]
    lines: Annotated[
        tuple[str, ...] | UnsetType, says("what the message lists, an element each")
    ] = UNSET


class Error(Struct, kw_only=True):
    """Instead of a result, with an exit code above 0."""

    format: Annotated[str, says("`rankscope/<command>/1`")]
    error: Annotated[Failure, says("why there is no result")]


def dumps(document: Struct | Document) -> str:
    """The document as JSON text, in ASCII, so that names cannot control a terminal."""
    return msgspec.json.format(one_line(document), indent=1)


def one_line(document: Struct | Document) -> str:
    """The document as JSON text on one line, in ASCII."""
    # without `indent`, `json` uses its compiled encoder
    return json.dumps(plain(document), allow_nan=False)


def plain(value: Any) -> Any:
    """A struct, or a container of structs, as values that `json` can write."""
    return msgspec.to_builtins(value, enc_hook=_number)


def _number(value: object) -> float:
    """A NumPy number that is a subclass of `float`."""
    if isinstance(value, float):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not a value of JSON")


def struct_of(shape: type[S], source: object, **others: object) -> S:
    """A struct whose fields are the attributes of `source`, except for `others`."""
    names = shape.__struct_fields__
    return shape(**{name: getattr(source, name) for name in names if name not in others}, **others)


def run_of(db: Path | None, facts: results.RunFacts | None) -> Run | None:
    """`run`; null without facts."""
    if facts is None:
        return None
    chosen = facts.iterations
    return struct_of(
        Run,
        facts,
        db=str(db),
        iterations=struct_of(
            SelectedIterations,
            facts,
            first=chosen[0],
            last=chosen[-1],
            count=len(chosen),
            excluded_warmup=facts.warmup,
            included_warmup=facts.settling,
        ),
        clocks=Clocks(
            aligned=facts.clocks_aligned,
            method=facts.clock_method if facts.offsets_ns else None,
            residual_ns=facts.residual_ns,
            offsets_ns={str(rank): offset for rank, offset in facts.offsets_ns.items()},
            drift_ppm={str(rank): drift for rank, drift in facts.drift_ppm.items()},
        ),
    )

"""Options that a command takes together, as one parameter."""

from collections.abc import Callable
from enum import StrEnum
from functools import partial, wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

import typer
from msgspec import Struct

from rankscope.model.kinds import OPERATIONS, PHASES, Clock, Statistic
from rankscope.model.options import Options, ShapingOptions
from rankscope_cli.help import CHOICE, NAMES
from rankscope_cli.options import Version


class ClockChoice(StrEnum):
    """The clock of the times; `auto` selects gpu if all ranks have enough device work."""

    AUTO = "auto"
    GPU = Clock.GPU.value
    HOST = Clock.HOST.value


_chosen = partial(typer.Option, rich_help_panel=CHOICE)
_named = partial(typer.Option, rich_help_panel=NAMES)


class Bundle(Struct, frozen=True):
    """The annotation of a parameter that stands for several options.

    Attributes:
        value: makes the value of the parameter; its own parameters are the options.
        without: options that a command does not have.
    """

    value: Callable[..., object]
    without: tuple[str, ...] = ()

    @property
    def options(self) -> dict[str, Parameter]:
        """The options by name, in the order of the help."""
        hints = get_type_hints(self.value, include_extras=True)
        return {
            name: each.replace(annotation=hints[name])
            for name, each in signature(self.value).parameters.items()
            if name not in self.without
        }


def _analysis(
    *,
    iter_range: Annotated[
        str | None,
        _chosen(
            "--iter-range",
            metavar="A:B",
            help="Iterations to compare, as a Python slice of their numbers: 10:50 (10 to 49), "
            "10:, or -20: (the last 20). Default: all.",
        ),
    ] = None,
    statistic: Annotated[
        Statistic,
        _chosen(
            "--statistic",
            metavar="|".join(Statistic),
            help="Statistic over the iterations of a rank that is its score.",
        ),
    ] = Statistic.MEAN,
    clock: Annotated[
        ClockChoice,
        _chosen(
            "--clock",
            metavar="|".join(ClockChoice),
            help="Take times from the device's work (gpu) or from the host's ranges (host); auto: "
            "gpu if at least 90 % of the iterations of every rank have device work.",
        ),
    ] = ClockChoice.AUTO,
    include_warmup: Annotated[
        bool,
        _chosen(
            "--include-warmup",
            help="Include the first iterations, which are left out until their times are stable.",
        ),
    ] = False,
    roles: Annotated[
        str | None,
        _chosen(
            "--roles",
            metavar="SPEC",
            help="Ranks are compared within roles: tp=2,pp=4,dp=8 (the fastest-varying first), or "
            "a CSV file with the columns rank,role. Default: detected.",
        ),
    ] = None,
) -> Options:
    """The options of a comparison."""
    from rankscope.match.selection import parse_range

    selected = None if iter_range is None else parse_range(iter_range)
    return Options(
        selected,
        clock=clock.value,
        statistic=statistic.value,
        roles=roles,
        include_warmup=include_warmup,
    )


def _shaping(
    *,
    iteration: Annotated[
        str | None,
        _named(
            "--iteration",
            metavar="REGEX|auto|whole",
            help="Pattern of the names of iteration ranges; its first group, else what counts up, "
            "is the number. 'auto': detect steps in repeating events; 'whole': each capture is one "
            "iteration. Default: known names, else auto if it is certain on every rank, else "
            "whole.",
        ),
    ] = None,
    phase: Annotated[
        list[str] | None,
        _named(
            "--phase",
            metavar="NAME=REGEX",
            help="Pattern of the names of a phase's ranges (repeatable). Phases: "
            f"{', '.join(PHASES)}.",
        ),
    ] = None,
    collective: Annotated[
        list[str] | None,
        _named(
            "--collective",
            metavar="NAME=REGEX",
            help="Pattern of the names of kernels that communicate (repeatable). Names: "
            f"{', '.join(OPERATIONS)}.",
        ),
    ] = None,
    rank_pattern: Annotated[
        str | None,
        _named(
            "--rank-pattern",
            metavar="REGEX",
            help="Pattern that finds the rank in the path of a report, as group 'rank'.",
        ),
    ] = None,
    rank: Annotated[
        int | None,
        _named(
            "--rank",
            metavar="N",
            min=0,
            help="The rank of the only report. Default: what the report or its name says, else 0.",
        ),
    ] = None,
) -> ShapingOptions:
    """How reports become rows."""
    phases = _patterns("--phase", phase or [], "forward='fprop'")
    kernels = _patterns("--collective", collective or [], "all_reduce='my_reduce_kernel'")
    return ShapingOptions.of(iteration, phases, rank_pattern, rank, kernels)


def _patterns(option: str, texts: list[str], example: str) -> dict[str, str]:
    """Name → pattern, from texts `NAME=REGEX`; several patterns of a name are alternatives.

    Raises:
        UsageError: a text has another form.
    """
    from rankscope.errors import UsageError

    patterns: dict[str, str] = {}
    for text in texts:
        name, equals, pattern = text.partition("=")
        if not equals or not pattern:
            raise UsageError(f"{option} {text!r} is not NAME=REGEX", hint=f"{option} {example}")
        patterns[name] = f"{patterns[name]}|{pattern}" if name in patterns else pattern
    return patterns


Analysis = Annotated[Options, Bundle(_analysis)]
"""How to compare ranks."""

MeanAnalysis = Annotated[Options, Bundle(_analysis, without=("statistic",))]
"""`Analysis` of commands that show iterations instead of scores."""

Shaping = Annotated[ShapingOptions, Bundle(_shaping)]
"""How reports become rows."""

ShapingOfSeveral = Annotated[ShapingOptions, Bundle(_shaping, without=("rank",))]
"""`Shaping` of commands that are for several reports."""


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer needs it: with the options of its bundles, and with `--version`."""
    hints = get_type_hints(command, include_extras=True)
    bundles: dict[str, Bundle] = {}
    parameters: list[Parameter] = []
    for name, each in signature(command).parameters.items():
        bundle = next(iter(getattr(hints[name], "__metadata__", ())), None)
        if isinstance(bundle, Bundle):
            bundles[name] = bundle
            parameters += bundle.options.values()
        else:
            kind = Parameter.KEYWORD_ONLY
            parameters.append(each.replace(kind=kind, annotation=hints[name]))
    kind = Parameter.KEYWORD_ONLY
    parameters.append(Parameter("version", kind, default=False, annotation=Version))

    @wraps(command)
    def run(*, version: bool, **arguments: Any) -> None:
        values = {
            name: bundle.value(**{each: arguments.pop(each) for each in bundle.options})
            for name, bundle in bundles.items()
        }
        command(**arguments, **values)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run

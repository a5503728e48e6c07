"""Options that a command takes together, as one parameter."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

import typer

from rankscope.model.kinds import OPERATIONS, PHASES, Clock, Statistic
from rankscope.model.options import Options, ShapingOptions
from rankscope_cli.help import CHOICE, NAMES
from rankscope_cli.options import Version


class ClockChoice(StrEnum):
    """The clock of the times; `auto` selects gpu if all ranks have enough device work."""

    AUTO = "auto"
    GPU = Clock.GPU.value
    HOST = Clock.HOST.value


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a bundle; `least`: the smallest number that it takes."""

    name: str
    kind: Any
    metavar: str | None
    meaning: str
    default: object = None
    least: int | None = None


@dataclass(frozen=True, slots=True)
class Bundle:
    """The annotation of a parameter that stands for several options.

    Attributes:
        options: the options, in the order of the help.
        group: their group in the help.
        value: makes the value of the parameter from the values of the options.
    """

    options: tuple[Option, ...]
    group: str
    value: Callable[..., object]

    def annotation(self, option: Option) -> Any:
        """The annotation of an option, for typer."""
        declared = typer.Option(
            f"--{option.name.replace('_', '-')}",
            metavar=option.metavar,
            help=option.meaning,
            min=option.least,
            rich_help_panel=self.group,
        )
        return Annotated[option.kind, declared]


def _analysis(iter_range: str | None = None, **others: Any) -> Options:
    """The options of a comparison, from those of a command."""
    from rankscope.match.selection import parse_range

    selected = None if iter_range is None else parse_range(iter_range)
    texts: dict[str, Any] = {
        name: each.value if isinstance(each, StrEnum) else each for name, each in others.items()
    }
    return Options(selected, **texts)


def _shaping(
    iteration: str | None,
    phase: list[str] | None,
    collective: list[str] | None,
    rank_pattern: str | None,
    rank: int | None = None,
) -> ShapingOptions:
    """How reports become rows, from the options of a command."""
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


_RANGE = Option(
    "iter_range",
    str | None,
    "A:B",
    "Iterations to compare, as a Python slice of their numbers: 10:50 (10 to 49), 10:, or -20: "
    "(the last 20). Default: all.",
)
_STATISTIC = Option(
    "statistic",
    Statistic,
    "|".join(Statistic),
    "Statistic over the iterations of a rank that is its score.",
    Statistic.MEAN,
)
_COMPARISON = (
    Option(
        "clock",
        ClockChoice,
        "|".join(ClockChoice),
        "Take times from the device's work (gpu) or from the host's ranges (host); auto: gpu if "
        "at least 90 % of the iterations of every rank have device work.",
        ClockChoice.AUTO,
    ),
    Option(
        "include_warmup",
        bool,
        None,
        "Include the first iterations, which are left out until their times are stable.",
        False,
    ),
    Option(
        "roles",
        str | None,
        "SPEC",
        "Ranks are compared within roles: tp=2,pp=4,dp=8 (the fastest-varying first), or a CSV "
        "file with the columns rank,role. Default: detected.",
    ),
)

Analysis = Annotated[Options, Bundle((_RANGE, _STATISTIC, *_COMPARISON), CHOICE, _analysis)]
"""How to compare ranks."""

MeanAnalysis = Annotated[Options, Bundle((_RANGE, *_COMPARISON), CHOICE, _analysis)]
"""`Analysis` of commands that show iterations instead of scores."""

_NAMES = (
    Option(
        "iteration",
        str | None,
        "REGEX|auto|whole",
        "Pattern of the names of iteration ranges; its first group, else what counts up, is the "
        "number. 'auto': detect steps in repeating events; 'whole': each capture is one iteration. "
        "Default: known names, else auto if it is certain on every rank, else whole.",
    ),
    Option(
        "phase",
        list[str] | None,
        "NAME=REGEX",
        f"Pattern of the names of a phase's ranges (repeatable). Phases: {', '.join(PHASES)}.",
    ),
    Option(
        "collective",
        list[str] | None,
        "NAME=REGEX",
        "Pattern of the names of kernels that communicate (repeatable). Names: "
        f"{', '.join(OPERATIONS)}.",
    ),
    Option(
        "rank_pattern",
        str | None,
        "REGEX",
        "Pattern that finds the rank in the path of a report, as group 'rank'.",
    ),
)
_RANK = Option(
    "rank",
    int | None,
    "N",
    "The rank of the only report. Default: what the report or its name says, else 0.",
    least=0,
)

Shaping = Annotated[ShapingOptions, Bundle((*_NAMES, _RANK), NAMES, _shaping)]
"""How reports become rows."""

ShapingOfSeveral = Annotated[ShapingOptions, Bundle(_NAMES, NAMES, _shaping)]
"""`Shaping` of commands that are for several reports."""


def expanded(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer needs it: with the options of its bundles, and with `--version`."""
    hints = get_type_hints(command, include_extras=True)
    bundles: dict[str, Bundle] = {}
    parameters: list[Parameter] = []

    def add(name: str, annotation: Any, default: object) -> None:
        kind = Parameter.KEYWORD_ONLY
        parameters.append(Parameter(name, kind, default=default, annotation=annotation))

    for each in signature(command).parameters.values():
        bundle = next(iter(getattr(hints[each.name], "__metadata__", ())), None)
        if isinstance(bundle, Bundle):
            bundles[each.name] = bundle
            for option in bundle.options:
                add(option.name, bundle.annotation(option), option.default)
        else:
            add(each.name, hints[each.name], each.default)
    add("version", Version, False)

    @wraps(command)
    def run(*, version: bool, **arguments: Any) -> None:
        values = {
            name: bundle.value(**{each.name: arguments.pop(each.name) for each in bundle.options})
            for name, bundle in bundles.items()
        }
        command(**arguments, **values)

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run

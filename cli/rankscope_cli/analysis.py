"""The options of a comparison, which a command takes as one parameter."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

import typer

from rankscope.model.kinds import Clock, Statistic
from rankscope.model.options import Options
from rankscope_cli.help import CHOICE


class ClockChoice(StrEnum):
    """The clock of the times; `auto` selects gpu if all ranks have enough device work."""

    AUTO = "auto"
    GPU = Clock.GPU.value
    HOST = Clock.HOST.value


IterRange = Annotated[
    str | None,
    typer.Option(
        "--iter-range",
        metavar="A:B",
        help="Iterations to compare, as a Python slice of their numbers: 10:50 (10 to 49), 10:, "
        "or -20: (the last 20). Default: all.",
        rich_help_panel=CHOICE,
    ),
]
ClockOption = Annotated[
    ClockChoice,
    typer.Option(
        "--clock",
        metavar="|".join(ClockChoice),
        help="Take times from the device's work (gpu) or from the host's ranges (host); auto: "
        "gpu if at least 90 % of the iterations of every rank have device work.",
        rich_help_panel=CHOICE,
    ),
]
StatisticOption = Annotated[
    Statistic,
    typer.Option(
        "--statistic",
        metavar="|".join(Statistic),
        help="Statistic over the iterations of a rank that is its score.",
        rich_help_panel=CHOICE,
    ),
]
IncludeWarmup = Annotated[
    bool,
    typer.Option(
        "--include-warmup",
        help="Include the first iterations, which are left out until their times are stable.",
        rich_help_panel=CHOICE,
    ),
]
RolesOption = Annotated[
    str | None,
    typer.Option(
        "--roles",
        metavar="SPEC",
        help="Ranks are compared within roles: tp=2,pp=4,dp=8 (the fastest-varying first), or a "
        "CSV file with the columns rank,role. Default: detected.",
        rich_help_panel=CHOICE,
    ),
]
ANALYSIS: dict[str, tuple[Any, object]] = {
    "iter_range": (IterRange, None),
    "statistic": (StatisticOption, Statistic.MEAN),
    "clock": (ClockOption, ClockChoice.AUTO),
    "include_warmup": (IncludeWarmup, False),
    "roles": (RolesOption, None),
}
"""The options of a comparison, each with its default."""


def with_analysis(command: Callable[..., None]) -> Callable[..., None]:
    """A command that has the options of a comparison in place of its parameter `analysis`."""
    return _bundled(command, [*ANALYSIS])


def with_mean_analysis(command: Callable[..., None]) -> Callable[..., None]:
    """The same without `--statistic`, for commands that show iterations and not scores."""
    return _bundled(command, [name for name in ANALYSIS if name != "statistic"])


def _bundled(command: Callable[..., None], names: list[str]) -> Callable[..., None]:
    """The command with parameters of these names in place of `analysis`, which takes them in."""
    hints = get_type_hints(command, include_extras=True)
    parameters: list[Parameter] = []
    for each in signature(command).parameters.values():
        if each.name == "analysis":
            bundle = [(name, *ANALYSIS[name]) for name in names]
        else:
            bundle = [(each.name, hints[each.name], each.default)]
        parameters += [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, kind, default in bundle
        ]

    @wraps(command)
    def run(**given: Any) -> None:
        chosen = {name: given.pop(name) for name in names if name in given}
        command(**given, analysis=_analysis(**chosen))

    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _analysis(iter_range: str | None = None, **others: Any) -> Options:
    """The options of a comparison, from those of a command."""
    from rankscope.match.selection import parse_range

    selected = None if iter_range is None else parse_range(iter_range)
    texts: dict[str, Any] = {
        name: each.value if isinstance(each, StrEnum) else each for name, each in others.items()
    }
    return Options(selected, **texts)

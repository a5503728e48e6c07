"""Options that change answers: how reports become rows, and how the rows are compared."""

from __future__ import annotations

import json

from msgspec import Struct
from msgspec.structs import asdict

MEASURE_VERSION = 18
"""Version of the rules by which a report becomes rows; raise it when they give other numbers."""

VERSION = "measure_version"
"""Its key among the options in JSON, which version 1 did not write."""

AUTO, WHOLE = "auto", "whole"
"""Values of `--iteration` that are not patterns: detected steps; each capture as one iteration."""


class ShapingOptions(Struct, frozen=True):
    """Options that decide which rows a report becomes; a change of them means reading again."""

    iteration: str | None = None
    phases: tuple[tuple[str, str], ...] = ()
    rank_pattern: str | None = None
    rank: int | None = None  # of one report, so it may differ from others'
    alone: bool = False  # the run has one report; not stored
    collectives: tuple[tuple[str, str], ...] = ()  # operation and pattern of kernels

    @classmethod
    def of(
        cls,
        iteration: str | None = None,
        phases: dict[str, str] | None = None,
        rank_pattern: str | None = None,
        rank: int | None = None,
        collectives: dict[str, str] | None = None,
    ) -> ShapingOptions:
        """The options, from phase → pattern and operation → pattern in any order."""
        named, kernels = (tuple(sorted((each or {}).items())) for each in (phases, collectives))
        return cls(iteration, named, rank_pattern, rank, collectives=kernels)

    def to_json(self) -> str:
        """As text that is the same for the same options and the same MEASURE_VERSION."""
        values = asdict(self)
        del values["alone"]
        if self.rank is None:
            del values["rank"]
        return json.dumps(values | {VERSION: MEASURE_VERSION}, sort_keys=True)

    def pattern(self) -> str | None:
        """The pattern of the names of iterations; None without one."""
        return None if self.iteration in (AUTO, WHOLE) else self.iteration

    @classmethod
    def from_json(cls, text: str) -> ShapingOptions:
        """The options that `to_json` wrote."""
        values = json.loads(text)
        values.pop(VERSION, None)
        for name in ("phases", "collectives"):  # the second is new in version 3
            values[name] = tuple((each, pattern) for each, pattern in values.get(name, ()))
        return cls(**values)


class StoredOptions(ShapingOptions, frozen=True):
    """What the JSON of a database says: the keys of `ShapingOptions.to_json`."""

    measure_version: int = 1


def measure_version(text: str) -> int:
    """The MEASURE_VERSION of the rankscope that wrote the text of `ShapingOptions.to_json`."""
    return int(json.loads(text).get(VERSION, 1))


class Options(Struct, frozen=True):
    """How to compare the ranks of a run; the defaults are those of the command line."""

    iter_range: slice | None = None
    clock: str = "auto"
    statistic: str = "mean"
    include_warmup: bool = False
    roles: str | None = None  # as the option --roles

"""Options that change answers: how reports become rows, and how the rows are compared."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

MEASURE_VERSION = 2
"""Version of the rules by which a report becomes rows; raise it when they give other numbers.

2: a device that starves beside a collective does not communicate.
"""


VERSION = "measure_version"
"""Its key among the options in JSON, which version 1 did not write."""


@dataclass(frozen=True, slots=True)
class ShapingOptions:
    """Options that decide which rows a report becomes; a change of them means reading again."""

    iteration: str | None = None
    phases: tuple[tuple[str, str], ...] = ()
    rank_pattern: str | None = None

    def to_json(self) -> str:
        """As text that is the same for the same options and the same MEASURE_VERSION."""
        return json.dumps(asdict(self) | {VERSION: MEASURE_VERSION}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ShapingOptions:
        """The options that `to_json` wrote."""
        values = json.loads(text)
        values.pop(VERSION, None)
        return cls(
            **(values | {"phases": tuple((name, names) for name, names in values["phases"])})
        )


def measure_version(text: str) -> int:
    """The MEASURE_VERSION of the rankscope that wrote the text of `ShapingOptions.to_json`."""
    return int(json.loads(text).get(VERSION, 1))


@dataclass(frozen=True, slots=True)
class Options:
    """How to look at a run; the defaults are those of the command line."""

    iter_range: slice | None = None
    clock: str = "auto"
    statistic: str = "mean"
    include_warmup: bool = False
    roles: str | None = None  # as the option --roles

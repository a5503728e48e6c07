"""Options that change answers: how reports become rows, and how the rows are compared."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class ShapingOptions:
    """Options that decide which rows a report becomes; a change of them means reading again."""

    iteration: str | None = None
    phases: tuple[tuple[str, str], ...] = ()
    rank_pattern: str | None = None

    def to_json(self) -> str:
        """As text that is the same for the same options."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> ShapingOptions:
        """The options that `to_json` wrote."""
        values = json.loads(text)
        return cls(
            **(values | {"phases": tuple((name, names) for name, names in values["phases"])})
        )


@dataclass(frozen=True, slots=True)
class Options:
    """How to look at a run; the defaults are those of the command line."""

    iter_range: slice | None = None
    clock: str = "auto"
    statistic: str = "mean"
    include_warmup: bool = False
    roles: str | None = None  # as the option --roles

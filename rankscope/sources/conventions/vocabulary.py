"""The conventions, compiled, with a user's patterns in front."""

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import polars as pl
from msgspec import Struct
from msgspec.structs import replace

from rankscope.errors import UsageError
from rankscope.model.arrays import codes, places, taken
from rankscope.model.kinds import NAMED_PHASES, PHASES
from rankscope.model.options import AUTO, WHOLE, ShapingOptions
from rankscope.model.schema import OPERATION, conform
from rankscope.sources.conventions import kernels
from rankscope.sources.conventions.data import SEPARATORS, SQUASHED, conventions
from rankscope.sources.conventions.kernels import KernelRule

MOST_REMEMBERED = 50_000
"""Number of names that stay cached between reports."""


class NameCache:
    """A table of names and their meanings that grows with every lookup."""

    def __init__(
        self,
        key: list[str],
        look_up: Callable[[pl.DataFrame], pl.DataFrame],
        most: int = MOST_REMEMBERED,
    ) -> None:
        """Cache the result of `look_up` for each distinct `key`, a frame with these columns.

        Args:
            key: names of the columns.
            look_up: adds the meanings to a frame of keys.
            most: number of names that stay cached.
        """
        self._most = most
        self._key = key
        self._look_up = look_up
        self._known: list[pl.DataFrame] = []
        self._places: dict[tuple[object, ...], int] = {}  # of the keys among the known

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The keys of a frame, row by row, with their meanings."""
        keys, known = frame[self._key], self._places
        place, first = places(codes(keys))  # of many rows, few become objects
        rows = [*taken(keys, first).iter_rows()]
        fresh = [each for each in rows if each not in known]
        if fresh or not self._known:
            asked = pl.DataFrame(fresh, keys.schema, orient="row")
            self._known = [pl.concat([*self._known, self._look_up(asked)])]
            learnt = self._known[0][self._key][len(known) :]
            known.update((each, nth) for nth, each in enumerate(learnt.iter_rows(), len(known)))
        at = np.array([known[each] for each in rows], np.uint32)
        meant = taken(self._known[0], at[place])
        if len(known) > self._most:
            self._known, self._places = [], {}
        return meant


OPERATORS = ("operator", "backward operator")
"""Meanings of the framework's operators, of which there may be too many for memory."""

MEANINGS = pl.Schema(
    {
        "domain": pl.String,
        "name": pl.String,
        "means": pl.String,  # as in conventions.toml; null for none
        "row": pl.Int64,  # which convention said so; user patterns come first
        "number": pl.Int64,  # iteration number in the name
        "fetch": pl.Boolean,
        "operation": pl.String,
        "blocking": pl.Boolean,
        "on_host": pl.Boolean,
    }
)

KNOWN_MEANINGS = (
    "iteration",
    *NAMED_PHASES,
    "collective",
    "background",
    *OPERATORS,
)
"""What a convention can say that a range means."""

NUMBER = r"\{?([0-9]+)\}?"

FILLER = (
    r"(?:[0-9.,=#/(){}\[\]]|pass|phase|stage|region|step|micro|mini|batch|mb|compute|computation|"
    "calculate|calculation|calc|inner|global|only|and|the|of|run|do|train|training|model|module|net|"
    "network|engine|ddp|fsdp|loss|fn|func|function|prop|propagation|time)*"
)
"""What may stand beside the word that tells the phase, in squashed names."""

ROWS_AT_ONCE = 4
"""Conventions that are tried together before each of them is."""

ANY = "^"
"""The pattern of conventions that apply to all names of a domain."""


class BadConvention(ValueError):
    """A row of conventions.toml is not valid: a mistake of a developer, not of a user."""


class Convention(Struct, frozen=True):
    """One convention: names that fit `patterns` (or, squashed, `squashed`) mean `means`."""

    framework: str
    means: str
    patterns: tuple[str, ...] = ()
    squashed: tuple[str, ...] = ()
    fetch: bool = False
    operation: str | None = None
    blocking: bool = False
    on_host: bool = False
    domain: str | None = None

    def number(self) -> pl.Expr:
        """The iteration number in the first pattern that has one; null without."""
        groups = [
            pl.col(column).str.extract(pattern, 1)
            for column, pattern in self.tests()
            if re.search(r"(?<!\\)\((?!\?)", pattern)
        ]
        text = pl.coalesce(groups) if groups else pl.lit(None, pl.String)
        return text.str.slice(0, 18).cast(pl.Int64, strict=False)

    def fits(self) -> pl.Expr:
        """Whether a name fits."""
        fit = pl.any_horizontal(
            pl.col(column).str.contains(pattern) for column, pattern in self.tests()
        )
        return fit if self.domain is None else fit & (pl.col("domain") == self.domain)

    def tests(self) -> list[tuple[str, str]]:
        """Pairs of column and pattern; one of them must fit."""
        return [
            *(("name", pattern) for pattern in self.patterns),
            *(("squashed", pattern) for pattern in self.squashed),
        ]

    @property
    def is_own(self) -> bool:
        """Whether a user gave it."""
        return self.framework.startswith("--")


class Vocabulary(Struct, frozen=True):
    """Conventions in order of precedence."""

    rows: tuple[Convention, ...]
    asks_for_all: bool = False  # operators, too, are needed to find iterations
    kernels: tuple[KernelRule, ...] = ()

    def operations(self, named: pl.DataFrame) -> pl.DataFrame:
        """The kernels of `named` (its columns name and full), row by row, with `operation`."""
        return _kernel_memory(self).of(named)

    def meanings(self, ranges: pl.DataFrame) -> pl.DataFrame:
        """The meaning of (domain, name) of each row of `ranges`: a frame of MEANINGS."""
        return _memory(self).of(ranges)

    def operators(self, names: pl.Series) -> pl.Series:
        """Boolean: whether ranges of these names are operators that compute, in every domain."""
        domains = pl.DataFrame({"domain": ["", *{row.domain for row in self.rows if row.domain}]})
        pairs = names.unique().alias("name").to_frame().join(domains, how="cross")
        communicates = pl.col("operation").is_not_null()  # that communicate
        surely = (pl.col("means").is_in(OPERATORS).fill_null(False) & ~communicates).all()
        by_name = self.meanings(pairs).group_by("name").agg(surely)
        in_order = names.alias("name").to_frame()
        return in_order.join(by_name, on="name", how="left", maintain_order="left")["means"]

    def tell(self, names: pl.Series) -> pl.Series:
        """Boolean: whether these names have a meaning in any domain."""
        by_name = [replace(row, domain=None) for row in self.rows if ANY not in row.patterns]
        frame = names.alias("name").to_frame().with_columns(SQUASHED)
        return frame.select(_fits_some(by_name)).to_series()

    def look_up(self, names: pl.DataFrame) -> pl.DataFrame:
        """MEANINGS of distinct names: every pattern is tried on names that fit any of them.

        Raises:
            BadConvention: a pattern of a row is not valid.
        """
        try:
            return self._looked_up(names)
        except pl.exceptions.ComputeError as error:
            # Compiling every pattern in advance would cost time at each start.
            if (mistake := _bad_pattern(self.rows)) is None:
                raise
            raise mistake from error

    def _looked_up(self, names: pl.DataFrame) -> pl.DataFrame:
        names = names.with_columns(SQUASHED).with_columns(tells=_fits_some(self.rows))
        strangers = names.filter(~pl.col("tells"))
        names = names.filter("tells")
        rows = _perhaps_fitting(self.rows, names)
        nothing = pl.lit(None, pl.Int64)
        fits = [pl.when(row.fits()).then(pl.lit(i, pl.Int64)) for i, row in rows]
        names = names.with_columns(row=pl.coalesce(*fits, nothing))
        says = ("means", "fetch", "operation", "blocking", "on_host")
        table = pl.DataFrame(
            [(i, *(getattr(row, each) for each in says)) for i, row in rows],
            schema={each: MEANINGS[each] for each in ("row", *says)},
            orient="row",
        )
        numbers = [
            pl.when(pl.col("row") == i).then(row.number())
            for i, row in rows
            if row.means == "iteration"
        ]
        known = names.with_columns(number=pl.coalesce(*numbers, nothing))
        known = known.join(table, on="row", how="left")
        return conform(pl.concat([known, strangers], how="diagonal"), MEANINGS, drop_others=True)

    def framework(self, row: int) -> str:
        """The framework that a convention comes from."""
        return self.rows[row].framework


def _perhaps_fitting(
    rows: Sequence[Convention], names: pl.DataFrame
) -> list[tuple[int, Convention]]:
    """The rows that some of `names` may fit, with their places: blocks that none fits are left out.

    To compile all patterns one by one takes longer than to try them.
    """
    numbered = [*enumerate(rows)]
    blocks = [numbered[low : low + ROWS_AT_ONCE] for low in range(0, len(rows), ROWS_AT_ONCE)]
    fit = names.select(
        _fits_some(row for _, row in block).any().alias(str(i)) for i, block in enumerate(blocks)
    )
    return [each for block, fits in zip(blocks, fit.row(0), strict=True) if fits for each in block]


def _fits_some(rows: Iterable[Convention]) -> pl.Expr:
    """Whether a name fits one of the rows; most patterns are tried as one alternation."""
    tests: list[pl.Expr] = []
    at_once: dict[tuple[str | None, str], list[str]] = {}
    for row in rows:
        if row.is_own:
            tests.append(row.fits())
            continue
        for column, pattern in row.tests():
            at_once.setdefault((row.domain, column), []).append(f"(?:{pattern})")
    for (domain, column), each in at_once.items():
        fits = pl.col(column).str.contains("|".join(each))
        tests.append(fits if domain is None else fits & (pl.col("domain") == domain))
    return pl.any_horizontal(tests).fill_null(False)


@lru_cache(8)
def _kernel_memory(vocabulary: Vocabulary) -> NameCache:
    return NameCache(["name", "full"], lambda named: kernels.operations(named, vocabulary.kernels))


@lru_cache(8)
def _memory(vocabulary: Vocabulary) -> NameCache:
    return NameCache(["domain", "name"], vocabulary.look_up)


def vocabulary(options: ShapingOptions) -> Vocabulary:
    """The conventions with the user's patterns in front.

    Raises:
        UsageError: a pattern that is not valid, or a phase that does not exist.
    """
    own: list[Convention] = []
    if (iteration := options.pattern()) is not None:
        _check("--iteration", iteration)
        own.append(Convention("--iteration", "iteration", (iteration,)))
    for phase, pattern in options.phases:
        if phase not in PHASES:
            raise UsageError(
                f"--phase {phase}={pattern}: there is no phase {phase!r}",
                hint=f"phases are {', '.join(PHASES)}",
            )
        _check("--phase", pattern)
        own.append(Convention("--phase", phase, (pattern,), fetch=phase == "load"))
    ours: list[KernelRule] = []
    for operation, pattern in options.collectives:
        if operation not in OPERATION.categories:
            raise UsageError(
                f"--collective {operation}={pattern}: there is no collective {operation!r}",
                hint=f"collectives are {', '.join(OPERATION.categories)}",
            )
        _check("--collective", pattern)
        ours.append(KernelRule(operation, (pattern,), own=True))
    shipped = _shipped()
    if iteration is not None:  # then only the user's ranges are iterations
        shipped = tuple(row for row in shipped if row.means != "iteration")
    return Vocabulary(
        (*own, *shipped),
        asks_for_all=options.iteration in (AUTO, WHOLE),
        kernels=(*ours, *kernels.shipped()),
    )


@cache
def _shipped() -> tuple[Convention, ...]:
    rows = conventions()["row"]
    for number, row in enumerate(rows, 1):
        if row["means"] not in KNOWN_MEANINGS:
            raise BadConvention(
                f"{_place(number, row['framework'])}: {row['means']!r} is not a meaning; one of "
                f"{', '.join(KNOWN_MEANINGS)}"
            )
    return tuple(map(_row, rows))


def _place(number: int, framework: str) -> str:
    """Where a row is: `conventions.toml, row 57 (toyframe)`."""
    return f"conventions.toml, row {number} ({framework})"


def _bad_pattern(rows: tuple[Convention, ...]) -> BadConvention | None:
    """The error for the first shipped row with a pattern that is not valid; None without one."""
    for row in rows:
        for _, pattern in row.tests():
            if not row.is_own and not _is_regex(pattern):
                number = [_row(data) for data in conventions()["row"]].index(row) + 1
                return BadConvention(
                    f"{_place(number, row.framework)}: {pattern!r} is not a regular expression in "
                    "Rust syntax: no look-around and no back-references"
                )
    return None


def _row(data: dict[str, Any]) -> Convention:
    return Convention(
        framework=data["framework"],
        means=data["means"],
        patterns=tuple(data.get("patterns", ())),
        squashed=(
            *map(_squashed, data.get("words", ())),
            # on the whole of a squashed name
            *(f"^(?:{x.replace('<filler>', FILLER)})$" for x in data.get("squashed", ())),
        ),
        fetch=data.get("fetch", False),
        operation=data.get("operation"),
        blocking=data.get("blocking", False),
        on_host=data.get("on_host", False),
        domain=data.get("domain"),
    )


def _squashed(words: str) -> str:
    """A spelling like `step N` as a pattern on squashed names."""
    parts = re.sub(SEPARATORS, "", words).split("N")
    return f"^{NUMBER.join(re.escape(part.lower()) for part in parts)}$"


def _check(option: str, pattern: str) -> None:
    if not _is_regex(pattern):
        raise UsageError(
            f"{option} '{pattern}' is not a regular expression",
            hint="Rust syntax: no look-around and no back-references; quote it for the shell",
        )


def _is_regex(pattern: str) -> bool:
    try:
        pl.Series([""]).str.contains(pattern)
    except pl.exceptions.ComputeError:
        return False
    return True

"""Kernel names, and the framework's names of collectives → the operations that they are."""

from functools import cache

import polars as pl
from msgspec import Struct

from rankscope.model.schema import OPERATION
from rankscope.sources.conventions.data import SQUASHED, conventions, squashed

HEAD = r"^([^<(]+)"
"""A name up to its template or its arguments."""

SEVERAL_WORDS = r"^(?:void )?([^\s:]+ [^\s:]+ [^:]+)$"
"""A name of three words or more, without a namespace."""

UNNAMED_SPACE = r"\(anonymous namespace\)::|<unnamed>::"
ENABLED = r"^std::enable_if<.*?>::type "


class KernelRule(Struct, frozen=True):
    """Kernels whose short name fits `patterns`, or whose qualified name fits `qualified`."""

    operation: str | None  # None: they compute
    patterns: tuple[str, ...] = ()
    qualified: tuple[str, ...] = ()
    own: bool = False  # a user's: its patterns are tried on the whole name as well

    def fits(self) -> pl.Expr:
        """Whether a kernel fits; reads `name` (short) and `full`."""
        tests = [("name", pattern) for pattern in self.patterns]
        if self.own:
            tests += (("full", pattern) for pattern in self.patterns)
        tests += (("qualified", pattern) for pattern in self.qualified)
        fitting = [pl.col(column).str.contains(pattern) for column, pattern in tests]
        return pl.any_horizontal(fitting).fill_null(False)


@cache
def shipped() -> tuple[KernelRule, ...]:
    """The rules of the data file, in order of precedence."""
    return tuple(
        KernelRule(
            row.get("operation"), tuple(row.get("patterns", ())), tuple(row.get("qualified", ()))
        )
        for row in conventions()["kernel"]
    )


def operations(kernels: pl.DataFrame, rules: tuple[KernelRule, ...]) -> pl.DataFrame:
    """`kernels` with the `operation` (OPERATION) of each, null for computation, and whether the
    user says so (`own`).

    Args:
        kernels: name (short) and full (null where the report has none), both strings.
        rules: in order of precedence.
    """
    plain = pl.col("full").str.replace_all(UNNAMED_SPACE, "").str.replace(ENABLED, "")
    named = kernels.with_columns(qualified=plain.str.extract(HEAD).str.strip_chars())
    first = pl.coalesce(
        *(pl.when(rule.fits()).then(pl.lit(i, pl.Int32)) for i, rule in enumerate(rules)),
        pl.lit(len(rules), pl.Int32),
    )
    by_rule = pl.Series([*(rule.operation for rule in rules), None], dtype=OPERATION)
    by_user = pl.Series([*(rule.own for rule in rules), False])
    fitting = named.select(first).to_series()
    return kernels.with_columns(operation=by_rule.gather(fitting), own=by_user.gather(fitting))


def known(first: str, second: str, own: str | None = None) -> pl.Expr:
    """The operation from columns: the first one, else the second.

    What is not known exactly (`grouped`) comes last; the second comes first where it is `own`, the
    user's.
    """
    exact = [pl.when(pl.col(each) != "grouped").then(each) for each in (first, second)]
    either = pl.coalesce(*exact, first, second)
    if own is None:
        return either
    return pl.when(pl.col(own).fill_null(False)).then(second).otherwise(either)


def short_name() -> pl.Expr:
    """A kernel's short name from `name`, as in nsys: no type, namespace, template or arguments.

    Names that are no C++ may have several words.
    """
    plain = pl.col("name").str.replace_all(UNNAMED_SPACE, "")
    head = plain.str.replace(ENABLED, "").str.extract(HEAD).str.strip_chars()
    words = head.str.extract(SEVERAL_WORDS)
    return pl.coalesce(words, head.str.extract(r"([^\s:]+)$"), "name").alias("name")


def stated_operations(collectives: pl.Series) -> pl.Series:
    """The operations (OPERATION) of what PyTorch calls collectives, `grouped` for an unknown one.

    Null for no or an empty text.
    """
    spelled = {
        squashed(words): row["operation"]
        for row in conventions()["collective"]
        for words in row["words"]
    }
    squashed_names = collectives.alias("name").to_frame().select(SQUASHED).to_series()
    operations = squashed_names.replace_strict(spelled, default="grouped", return_dtype=pl.String)
    stated = squashed_names.str.len_bytes() > 0
    return operations.set(~stated.fill_null(False), None).cast(OPERATION)

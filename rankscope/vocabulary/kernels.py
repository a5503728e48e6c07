"""Kernel names → what they communicate."""

from __future__ import annotations

import polars as pl

from rankscope.vocabulary.conventions import conventions


def kernel_operation() -> pl.Expr:
    """The collective operation of a column `name` of kernel names; null for computation."""
    return pl.coalesce(
        [
            pl.when(
                pl.any_horizontal([pl.col("name").str.contains(p) for p in row["patterns"]])
            ).then(pl.lit(row["operation"]))
            for row in conventions()["kernel"]
        ]
    )

"""Kernel names → what they communicate."""

from __future__ import annotations

import polars as pl

from rankscope.vocabulary.conventions import conventions
from rankscope.vocabulary.memory import Memory


def with_operation(device_work: pl.DataFrame) -> pl.DataFrame:
    """DEVICE_WORK with the collective `operation` of each kernel; null for computation."""
    return device_work.join(
        _memory.of(device_work), on="name", how="left", nulls_equal=True, maintain_order="left"
    )


def _look_up(names: pl.DataFrame) -> pl.DataFrame:
    return names.with_columns(
        operation=pl.coalesce(
            pl.when(
                pl.any_horizontal([pl.col("name").str.contains(p) for p in row["patterns"]])
            ).then(pl.lit(row["operation"]))
            for row in conventions()["kernel"]
        )
    )


_memory = Memory(["name"], _look_up)

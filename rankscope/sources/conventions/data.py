"""The data file of conventions, and how spellings are compared."""

import re
import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

import polars as pl

SEPARATORS = r"[\s_\-:]+"

SQUASHED = pl.col("name").str.to_lowercase().str.replace_all(SEPARATORS, "").alias("squashed")
"""`name` without case and separators."""


@cache
def conventions() -> dict[str, Any]:
    """The data file, parsed."""
    return tomllib.loads(files(__package__).joinpath("conventions.toml").read_text("utf-8"))


def squashed(words: str) -> str:
    """A spelling without case and separators."""
    return re.sub(SEPARATORS, "", words).lower()

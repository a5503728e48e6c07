"""The run on disk: one DuckDB file, its schema commented column by column."""

from rankscope.store.database import Database

__all__ = ["Database"]

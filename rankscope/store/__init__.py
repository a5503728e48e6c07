"""The run on disk: one DuckDB file, its schema commented column by column."""

from rankscope.store.database import Database
from rankscope.store.writer import Incoming, stored_path

__all__ = ["Database", "Incoming", "stored_path"]

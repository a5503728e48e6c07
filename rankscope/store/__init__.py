"""The run on disk: one DuckDB file, its schema commented column by column."""

from rankscope.store.database import Database
from rankscope.store.run_reader import DatabaseReader
from rankscope.store.writer import ReportWriter, stored_path

__all__ = ["Database", "DatabaseReader", "ReportWriter", "stored_path"]

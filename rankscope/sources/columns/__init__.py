"""Columns of a report's tables, whatever holds them: SQLite, folders of Parquet or Arrow files."""

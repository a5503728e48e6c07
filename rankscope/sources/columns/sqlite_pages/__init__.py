"""Columns read from the pages of a SQLite file, by compiled code: an optional, faster reader."""

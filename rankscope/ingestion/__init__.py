"""Many files become one database.

`job` is one ingest from start to end, `preflight` what is checked before any report is read,
`workers/` the processes that read reports, `existing` the database that is there before, and
`finalize` the one that is filled, with the comparison at its end. `check/` says what reports can
answer, before they are ingested.
"""

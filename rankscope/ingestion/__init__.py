"""Many files become one database.

`job` is one ingest from start to end, `preflight` what is checked before any report is read, with
`runs`, which tells runs apart. `workers/` are the processes that read reports, and
`iteration_defaults` finds iterations that all reports have.
`existing` is the database that is there before, `finalize` the one that is filled, with the
comparison at its end. `check/` says what reports can answer, before they are ingested; `kept_rows`
keeps what it has read.
"""

"""Reports into a database.

`job` is one ingest from start to end, `preflight` what is checked before any report is read,
`workers/` the processes that read reports, `finalize` the database and the comparison at the end.
"""

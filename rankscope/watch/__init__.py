"""Reports that arrive in a folder while a job runs, window by window. See WATCH.md.

`arrivals` says which reports are complete, `windows` which window of the job each one is of,
`watcher` takes them in and compares verdicts, `documents` writes what changed.
"""

"""Reports that arrive in a folder while a job runs, window by window. See WATCH.md.

`arrivals` finds the reports that are complete, `windows` the window of the job of each one,
`watcher` reads them and compares verdicts, `documents` writes the verdicts that changed.
"""

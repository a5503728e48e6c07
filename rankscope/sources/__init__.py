"""From a file to a `Trace`: reports are found, identified and read.

`discover` finds reports; `identify` says of which rank each is, by `environment` and
`name_numbers`; `same_job` says which belong together. `formats` is the registry of their formats;
`nsys/`, `kineto/` and `inspector/` hold the readers, `columns/` the access to tables that several
of them share, `conventions/` what names mean, `device_faults` what is missing or impossible.
`recorders` says how to record what reports lack.
"""

"""From a file to a `Trace`: reports are found, identified and read.

`formats` is the registry of report formats; `nsys/` and `kineto/` hold their readers, `columns/`
the access to tables that several of them share, `conventions/` what the names of ranges mean.
"""

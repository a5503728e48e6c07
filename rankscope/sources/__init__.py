"""A file becomes a `Trace`: found, identified, read.

`formats` is the registry of report formats; `nsys/` and `kineto/` hold their readers, `columns/`
the access to tables that several of them share, `conventions/` what the names of ranges mean.
"""

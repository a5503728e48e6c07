"""Reports into a database: which to read, worker processes that read them, the comparison last."""

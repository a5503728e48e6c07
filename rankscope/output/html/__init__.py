"""One self-contained page: what a browser shows of a run, from disk and without a network."""

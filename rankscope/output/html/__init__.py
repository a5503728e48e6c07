"""A run as one self-contained page, which a browser opens from disk without a network."""

"""The version of rankscope."""

__version__ = "0.1.0"

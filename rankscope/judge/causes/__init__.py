"""Causes: what in a phase made a rank slow. One detector per module, listed in `registry.py`.

To add a cause: a member of `CauseKind`, a module here with a `DETECTOR`, a row in `DETECTORS`.
"""

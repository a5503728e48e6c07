"""Causes: what in a phase made a rank slow. The detectors are listed in `registry.py`.

To add a cause: a member of `CauseKind`, a `Detector` in a module here, a row in `DETECTORS`.
"""

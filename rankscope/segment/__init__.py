"""Ranges → iterations and phase marks of one rank, on the host's time."""

from rankscope.segment.iterations import UNNAMED, Found, find_iterations, whole_capture
from rankscope.segment.labelled_ranges import Named, with_meanings
from rankscope.segment.phase_ranges import Marks, find_marks
from rankscope.segment.step_detection import SURE, Steps, find_steps

__all__ = [
    "SURE",
    "UNNAMED",
    "Found",
    "Marks",
    "Named",
    "Steps",
    "find_iterations",
    "find_marks",
    "find_steps",
    "whole_capture",
    "with_meanings",
]

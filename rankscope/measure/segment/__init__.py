"""Ranges → iterations and phase ranges of one rank, on the host clock.

`labelled_ranges` says what names mean. `choice` takes the iterations: `iterations` by their names,
or else `step_detection`, which finds what repeats (`periodicity`), where it begins (`step_borders`)
and whether it is a step (`step_confirmation`). `phase_ranges` finds the phases by their names, or
else by `operators`.
"""

from rankscope.measure.segment.choice import Chosen, choose_iterations
from rankscope.measure.segment.iteration_names import iteration_pattern
from rankscope.measure.segment.iterations import (
    UNNAMED,
    IterationRanges,
    find_iterations,
    whole_capture,
)
from rankscope.measure.segment.labelled_ranges import LabelledRanges, with_meanings
from rankscope.measure.segment.phase_ranges import PhaseRanges, find_marks
from rankscope.measure.segment.step_detection import SURE, DetectedSteps, find_steps

__all__ = [
    "SURE",
    "UNNAMED",
    "Chosen",
    "DetectedSteps",
    "IterationRanges",
    "LabelledRanges",
    "PhaseRanges",
    "choose_iterations",
    "find_iterations",
    "find_marks",
    "find_steps",
    "iteration_pattern",
    "whole_capture",
    "with_meanings",
]

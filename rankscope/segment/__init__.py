"""Ranges → iterations and phase marks of one rank, on the host's time."""

from rankscope.segment.iterations import Found, find_iterations, whole_capture
from rankscope.segment.marks import Marks, find_marks

__all__ = ["Found", "Marks", "find_iterations", "find_marks", "whole_capture"]

"""One rank's numbers: phases, work, device time, and its side of every collective.

`report.py` is one report from start to end; `rank.py` is one rank; `segment/` finds its iterations
and phases. See METHOD.md#host-clock, METHOD.md#gpu-clock and METHOD.md#metrics.
"""

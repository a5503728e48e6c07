"""One rank's numbers: phases, work, device time, and its side of every collective.

`report` is one report from start to end; `rank` is one rank; `segment/` finds its iterations and
phases. `attribution` gives device work the phase that launched it. `host` and `device` (with
`device_sweep` and `waiting`) are the two timelines, from which `metrics` follow. `activities`,
`host_states` and `file_accesses` say what phases are spent on, `collectives` (with `ordinals`) what
the rank has in common with others, `records` what is missing.

See METHOD.md#host-clock, METHOD.md#gpu-clock and METHOD.md#metrics.
"""

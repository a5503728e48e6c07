"""The levels that decide a verdict, all in one place. See METHOD.md#verdict for their reasons."""

ALPHA = 0.005
"""Probability that somebody is called slow in a run in which nobody in particular is."""

NOISE = 5.0
"""Robust deviations up to which a value is noise, and above which it is an event."""

LEAST_GAIN = 0.01
"""Share of the time that is worth a name."""

BY_NATURE = 0.02
"""Share of an iteration by which ranks differ for good, though none is slow."""

MUCH = 0.05
"""Share of the time from which imbalance is reported even if no rank can be named. Share of an
iteration that an event exceeds, and from which a time is shown as unusually long."""

MOST = 0.8
"""Share of an amount or gain that few words, ranks or iterations must hold: most of it."""

HALF = 0.5
"""Share of the largest or the usual amount from which on an amount is like it."""

FEW = 3
"""Fewest values that show a rule (a median, a period, a spell); most facts that are no rule."""

RARE = 0.1
"""Facts per iteration up to which they are no habit. Probability up to which it is no chance that
few ranks have them, that they have a period, or that the same ranks lead."""

LARGE_TRANSFER = 0.25
"""Share of the time from which on exposed transfers are a verdict of their own."""

TAIL = 20
"""Values that show how heavy a tail is: the estimate of its index then errs by a quarter."""

SHUFFLES = 999
"""Shuffles of a job: a probability of 0.005 is then estimated within a half."""

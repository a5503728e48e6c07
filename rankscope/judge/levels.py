"""The levels that decide a verdict, all in one place. See METHOD.md#verdict for their reasons."""

ALPHA = 0.005
"""Probability of calling ranks slow in a run in which no rank in particular is slow."""

LIKELY = 0.02
"""Probability up to which a rank belongs to a set that is slow beyond chance. Of three ranks, the
slowest of five iterations has 0.012."""

NOISE = 5.0
"""Robust deviations up to which a value is noise, and above which it is an event."""

LEAST_GAIN = 0.01
"""Share of the time from which on a gain is worth reporting."""

BY_NATURE = 0.02
"""Share of an iteration by which ranks differ permanently although none is slow."""

MUCH = 0.05
"""Share of the time from which imbalance is reported even if no rank can be named. Share of an
iteration that an event exceeds, and from which a time is shown as unusually long."""

MOST = 0.8
"""Share of an amount or gain that few words, ranks or iterations must hold: most of it."""

HALF = 0.5
"""Share of the largest, usual or whole amount from which on one is like it, or explains it."""

FEW = 3
"""Fewest values that show a regularity (a median, a period, a spell, the index of a tail); largest
number of facts that are named without one, and of iterations in which the spans between collectives
are tested."""

RARE = 0.1
"""Facts per iteration up to which they are not a habit. Probability up to which it is taken for no
chance that the same ranks lead, or that an event costs more than all that is left without it."""

LARGE_TRANSFER = 0.25
"""Share of the time from which on exposed transfers are a verdict of their own."""

SHUFFLES = 999
"""Number of random permutations. A probability of 0.005 then has a relative error of a half."""

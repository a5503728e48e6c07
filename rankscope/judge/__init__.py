"""The verdict: who is slow, when, in which phase, and what it costs; or why that is unknown.

`story` finds who is slow in the whole run and `claims` in the selected iterations, `decision`
prices them, `rules` decides, and `sentences` puts the verdict into words; `levels` holds all
thresholds. To add a class: a member of `VerdictKind`, a rule in `RULES`, an entry in `SENTENCES`.
"""

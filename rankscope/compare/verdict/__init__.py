"""The verdict: who is slow, when, in which phase, and what it costs; or why that is unknown.

`outliers` flags ranks and iterations, `temporal` finds when a rank is slow, `candidates` selects
the ranks that may be stragglers, `rules` decides, `sentences` puts the verdict into words. To add a
class: a member of `VerdictKind`, a rule in `RULES`, an entry in `SENTENCES`.
"""

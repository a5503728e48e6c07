"""Who is slow, when, in which phase, why, and at what price; or why that is unknown.

`story` finds who is slow in the whole run and in the selected iterations, `judgement`
prices them by playing the run again (`replay`), `rules` decides in words, `causes/` says why, and
`sentences` adds what holds for each class; `levels` holds all thresholds.
"""

"""Who is slow, when, in which phase, why, and at what price; or why that is unknown.

`inputs` is what is known of a run, and `excess` what each rank needs beyond its role. `story` finds
who is slow in the whole run (`chance`) and when (`timing`). `judgement` prices that by `healing`,
which plays the run again (`replay`). `preconditions` says what is unknown, `rules` decides in
words, `causes/` says why, and `sentences` adds what holds for each class. `levels` holds all
thresholds.
"""

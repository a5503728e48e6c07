"""Matching across ranks: iterations, collectives, clocks and roles, and who waits for whom.

`selection` gives the scope of a comparison: ranks, clock and iterations, whose numbers
`iteration_matching` and `step_numbers` make agree. `communication` leads from there to waits:
`calls` gathers the calls of all ranks, `communicators` tells who takes part, `collectives` matches
the calls, `clocks` aligns the ranks, `waits` and `wait_sums` say who waited for whom. `roles` says
which ranks do the same work.

See METHOD.md#clocks and METHOD.md#waits.
"""

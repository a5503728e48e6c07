"""The ranks of a run, compared with each other.

One comparison goes through stages, each of which takes the results of those before it:

    select    match.selection          the ranks, the clock, the iterations      → Scope
    match     match.communication      collectives, clocks, roles                → Matching, Roles
    waits     match.wait_sums          who waits for whom                        → Waits
    table     metric_table             every metric of every rank and iteration  → a frame
    outliers  judge.flags              who stands out in which iteration         → Outliers
    scores    scores                   one number for a rank                     → a frame
    verdict   judge.rules              who is slow, and why                      → Verdict
    what_if   scenarios                what a fix would save                     → Summary

`stages.compare(tables, options, reuse, until)` runs them in this order and returns a `Comparison`:
a frozen result without callables, which can be pickled. Three rules keep it fast and small:

- A command names the last stage that it needs (`until`). The properties of later stages raise
  LookupError.
- `reuse` is the comparison with the default options, which an ingest stores in the database
  (`cache`). Results that other options do not change are taken from it (`reuse`): with the default
  options all of them; with a range of iterations the matching of all iterations.
- Large frames are in no result unless they had to be computed. The metric table is read from the
  database (`Comparison.rows`), only the columns and ranks that are needed. The matched calls
  (`communication.RunCalls`) go from stage to stage, and are dropped as soon as no later stage needs
  them; `Comparison.collectives` matches those of some iterations again.

`picks`, `breakdowns`, `timeline`, `thread_states` and `next_capture` answer questions about a
comparison.
"""

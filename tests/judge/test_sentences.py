"""What verdicts say, word by word: the other tests compare what was judged.

Iterations take 100 ms, the last example's 40 of them, the others' 20.
"""

from collections.abc import Callable, Iterable

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from rankscope.judge.claims import Pattern, Slow, Story
from rankscope.judge.inputs import Began, VerdictInputs
from rankscope.judge.phrases import all_on
from rankscope.judge.rules import judge
from rankscope.model.kinds import VerdictKind
from rankscope.model.results import Holder, Verdict
from tests.judge.made import COUNT, RANKS, SUMMARY, Exact, inputs, kernel, of_kernels, wide_of
from tests.support import MS, inputs_of


def late_rows(
    ranks: Iterable[int], often: Callable[[int], bool], more_ms: float = 20
) -> pl.DataFrame:
    """Ranks need more in backward in some iterations."""
    rows = [
        (rank, i, more_ms * (rank in ranks and often(i))) for rank in range(RANKS)
        for i in range(COUNT)
    ]  # fmt: skip
    return wide_of(rows)


def late(ranks: Iterable[int], often: Callable[[int], bool], more_ms: float = 20) -> VerdictInputs:
    """The same, and no kernels are known."""
    return inputs_of(late_rows(ranks, often, more_ms), run=SUMMARY)


def always(_: int) -> bool:
    return True


def of_two() -> VerdictInputs:
    """There are only ranks 0 and 1, and rank 1 is always slow."""
    wide = late_rows((1,), always).filter(pl.col("rank") < 2)
    return inputs_of(wide, run=replace(SUMMARY, ranks=2))


def late_for_two_reasons(less_ms: int = 10) -> VerdictInputs:
    """Rank 1 is always slow in load, and has less to do in backward; rank 6 is slow in backward."""
    more = pl.col("rank").replace_strict({1: -less_ms, 6: 20}, default=0)
    slow, part = pl.col("rank") == 1, more * MS
    wide = late_rows((), always).with_columns(pl.col("backward_ns") + part)
    wide = wide.with_columns(load_ns=pl.when(slow).then(30 * MS).otherwise(0))
    wide = wide.with_columns(work_ns=pl.col("load_ns") + pl.col("backward_ns"))
    return inputs_of(wide, run=SUMMARY)


ALL = Pattern(VerdictKind.PERSISTENT, (*range(COUNT),), always=True)


def test_a_rank_that_is_not_slow_in_the_range_is_in_no_phase() -> None:
    """Rank 2, too, is slow in the run."""
    parts = late_for_two_reasons().by_phase(Slow((1, 2, 6), ALL, 0.001))
    assert [(phase, each.ranks) for phase, each in parts] == [("load", (1,)), ("backward", (6,))]


def test_a_gain_of_a_second_has_the_unit_of_the_time_that_it_is_a_part_of() -> None:
    said = judge(late((1,), always, 60)).sentence
    assert "would save at most 1.2 s, 60 % of the time (2.0 s);" in said


def test_less_work_of_one_rank_hides_no_phase_of_another() -> None:
    """Rank 1 needs 30 ms more in load, of which it saves 20 in backward; rank 6 needs 20 there."""
    claim = Slow((1, 6), ALL, 0.001)
    assert late_for_two_reasons(less_ms=20).extent(claim)[1:] == ("backward", pytest.approx(2 / 3))


def spiked() -> VerdictInputs:
    """Rank 3 is always slow, rank 1 once."""
    rows = [
        (rank, i, 20.0 * (rank == 3) + 80 * ((rank, i) == (1, 7)))
        for rank in range(RANKS)
        for i in range(COUNT)
    ]
    return inputs_of(wide_of(rows), run=SUMMARY)


def spiked_itself() -> VerdictInputs:
    """Rank 3 is slow in every 5th iteration, and once by more."""
    rows = [
        (rank, i, (40.0 * (i % 5 == 4) + 80 * (i == 8)) * (rank == 3))
        for rank in range(RANKS)
        for i in range(COUNT)
    ]
    return inputs_of(wide_of(rows), run=SUMMARY)


def in_turns() -> VerdictInputs:
    rows = [
        (rank, i, 20.0 * (rank == (3 * i + i // RANKS) % RANKS))
        for rank in range(RANKS)
        for i in range(2 * COUNT)
    ]
    return inputs_of(wide_of(rows), run=replace(SUMMARY, iterations=2 * COUNT))


def now_one_now_another() -> VerdictInputs:
    rows = [
        (rank, i, 60.0 * ((rank, i) in {(7, 3), (5, 8), (7, 12)}))
        for rank in range(RANKS)
        for i in range(COUNT)
    ]
    return inputs_of(wide_of(rows), run=SUMMARY)


def of_a_part(few: range) -> VerdictInputs:
    """The same run, of which some iterations are selected."""
    whole = now_one_now_another()
    wide = late_rows((), always).filter(pl.col("iteration").is_in(few))
    slow = (pl.col("rank") == 5) & (pl.col("iteration") == 8)
    more = pl.when(slow).then(60 * MS).otherwise(0)
    wide = wide.with_columns(pl.col("backward_ns", "work_ns") + more)
    return replace(inputs_of(wide), whole=whole.story)


def begun_apart(waited_ms: int, *, of_captures: bool = False) -> Verdict:
    run = replace(SUMMARY, began=Began(5, waited_ms * MS), of_captures=of_captures)
    return judge(replace(inputs(), run=run))


def late_by_unmatched(
    more_ms: int, first: int = 5, last: int = 5, *, stages: frozenset[tuple[int, ...]] = frozenset()
) -> Verdict:
    """Some ranks come last, and calls of their own that were not matched take longer."""
    late = (np.arange(RANKS) >= first) & (np.arange(RANKS) <= last)
    held = pl.DataFrame(
        {
            "rank": range(RANKS),
            "wait_ns": np.where(late, 0, 400 * MS),
            "unmatched_ns": 50 * MS + np.where(late, more_ms * MS, 0),
        }
    )
    return judge(replace(inputs(), held_up=held, stages=lambda: stages))


def all_at_once() -> VerdictInputs:
    """As after a pause of shared storage."""
    amounts = (-85, -30, -20, 0, 5, 30, 90, 160)
    rows = [(r, i, amounts[r] * (i == 7.0)) for r in range(RANKS) for i in range(COUNT)]
    return inputs_of(wide_of(rows), run=SUMMARY)


def with_transfers() -> Verdict:
    given = replace(inputs(), exposed_transfer_ns=40 * MS * COUNT)
    return judge(given, Exact(given.excess))


def with_waits() -> Verdict:
    held = pl.DataFrame({"rank": range(8), "wait_ns": 8 * MS * COUNT, "unmatched_ns": 0})
    given = replace(inputs(), exposed_transfer_ns=40 * MS * COUNT, held_up=held)
    return judge(given, Exact(given.excess))


def with_a_slow_pair(given: VerdictInputs, *parts: int) -> Verdict:
    """Ranks 1 and 3 reduce among themselves, more slowly than all ranks.

    Args:
        given: inputs without transfers.
        parts: which of both communicators are recorded, without sizes; none: both, with sizes.
    """
    rows = pl.DataFrame(
        {
            "communicator": ["named 5 [1,3]", "named 0 [0,1,2,3,4,5,6,7]"],
            "operation": "all_reduce",
            "ranks": [[1, 3], [*range(8)]],
            "count": COUNT,
            "exposed_ns": [30 * MS, 10 * MS],
            "bus_bandwidth": [2.44e7, 1.5e9],
        }
    )
    if parts:
        rows = rows[list(parts)].with_columns(bus_bandwidth=pl.lit(None, pl.Float64))
    given = replace(given, exposed_transfer_ns=40 * MS * COUNT, collectives=lambda: rows)
    return judge(given, Exact(given.excess))


def heavy_stage() -> VerdictInputs:
    """Ranks are stages of two; those of the last one need more."""
    wide = late_rows((6, 7), always)
    return inputs_of(wide.with_columns(role="pp=" + (pl.col("rank") // 2).cast(str)), run=SUMMARY)


def unmatched(ms: int) -> VerdictInputs:
    return replace(inputs(), unmatched_ns=ms * MS * COUNT)


def of_its_own_role() -> VerdictInputs:
    return replace(inputs(20, total_ns=40 * MS), run=replace(SUMMARY, own_roles=True))


def one_missing() -> VerdictInputs:
    return replace(inputs(20), run=replace(SUMMARY, missing_ranks=(8,)))


def led_with_one_missing() -> Verdict:
    whole = Story(0.03, (), Slow((3,), ALL, 0.05), COUNT)
    run = replace(SUMMARY, missing_ranks=(8,))
    return judge(replace(late((3,), always, 8), run=run, whole=whole))


EXAMPLES: dict[str, tuple[Callable[[], Verdict], str]] = {
    "a slow rank": (lambda: judge(inputs(20)), """
        Rank 3 (node0) is slow over all 20 iterations: it needs 20.0 ms more work than the median
        rank, 100 % of it in backward (kernel gemm takes 20.0 ms or 50 % longer for the same work:
        the device is slow). Fixing it would save at most 400.0 ms, 20 % of the time (2.0 s); all
        imbalance together costs at most 20 %; the run cannot be replayed, so gains are upper
        bounds."""),
    "two slow ranks": (lambda: judge(late((1, 6), always)), """
        Ranks 1, 6 are slow over all 20 iterations: they need 20.0 ms more work than the median
        rank, 100 % of it in backward. Fixing them would save at most 400.0 ms, 20 % of the time
        (2.0 s); all imbalance together costs at most 20 %; the run cannot be replayed, so gains
        are upper bounds."""),
    "two slow ranks, in two phases": (lambda: judge(late_for_two_reasons()), """
        Ranks 1, 6 are slow over all 20 iterations: they need 20.0 ms more work than the median
        rank, rank 1 mostly in load and rank 6 mostly in backward. Fixing them would save at most
        800.0 ms, 40 % of the time (2.0 s); all imbalance together costs at most 40 %; the run
        cannot be replayed, so gains are upper bounds."""),
    "a slow host": (lambda: judge(late((4, 5, 6, 7), always)), """
        Host node1 (ranks 4-7) is slow over all 20 iterations: it needs 20.0 ms more work
        than the median rank, 100 % of it in backward. Fixing it would save at most 400.0 ms, 20 %
        of the time (2.0 s); all imbalance together costs at most 20 %; they are half of the ranks
        of their role: the others may as well be unusually fast; the run cannot be replayed, so
        gains are upper bounds."""),
    "one of two ranks": (lambda: judge(of_two()), """
        Rank 1 (node0) is slow over all 20 iterations: it needs 20.0 ms more work than the median
        rank, 100 % of it in backward. Fixing it would save at most 400.0 ms, 20 % of the time (2.0
        s); all imbalance together costs at most 20 %; only one other rank does the same work, and
        it may as well be unusually fast; the run cannot be replayed, so gains are upper
        bounds."""),
    "now and then": (lambda: judge(late((3,), lambda i: i % 5 == 4, 40)), """
        Rank 3 (node0) is slow in every 5th iteration (4, 9, 14, 19): it needs 40.0 ms more work
        than the median rank then, 100 % of it in backward. Fixing it would save at most 160.0 ms,
        8.0 % of the time (2.0 s); all imbalance together costs at most 8.0 %; the run cannot be
        replayed, so gains are upper bounds."""),
    "from some time on": (lambda: judge(late((3,), lambda i: i >= 10, 40)), """
        Rank 3 (node0) is slow from iteration 10 on: it needs 40.0 ms more work than the median
        rank then, 100 % of it in backward. Fixing it would save at most 400.0 ms, 20 % of the time
        (2.0 s); all imbalance together costs at most 20 %; the run cannot be replayed, so gains
        are upper bounds."""),
    "two ranks in two ways": (lambda: judge(spiked()), """
        Rank 3 (node0) is slow over all 20 iterations: it needs 20.0 ms more work than the median
        rank, 100 % of it in backward. Fixing it would save at most 400.0 ms, 20 % of the time (2.0
        s); also rank 1 (node0) in iteration 7: 80.0 ms more, mostly in backward, at most 4.0 % of
        the time; all imbalance together costs at most 23 %; the run cannot be replayed, so gains
        are upper bounds."""),
    "one rank in two ways": (lambda: judge(spiked_itself()), """
        Rank 3 (node0) is slow in every 5th iteration (4, 9, 14, 19): it needs 40.0 ms more work
        than the median rank then, 100 % of it in backward. Fixing it would save at most 160.0 ms,
        8.0 % of the time (2.0 s); also in iteration 8: 80.0 ms more, mostly in backward, at most
        4.0 % of the time; all imbalance together costs at most 12 %; the run cannot be replayed, so
        gains are upper bounds."""),
    "missing reports": (lambda: judge(one_missing()), """
        Of the 8 ranks with a report, rank 3 (node0) is slow over all 20 iterations: it needs 20.0
        ms more work than the median rank, 100 % of it in backward (kernel gemm takes 20.0 ms or 50
        % longer for the same work: the device is slow). Fixing it would save at most 400.0 ms, 20
        % of the time (2.0 s); all imbalance together costs at most 20 %; 1 rank of the job (8) has
        no report, and may be slower."""),
    "missing reports, by chance": (led_with_one_missing, """
        Inconclusive: imbalance costs at most 8.0 % of the time over 20 iterations. Rank 3 (node0)
        leads: fixing it would save at most 160.0 ms, 8.0 % of the time, but chance alone does that
        in 5.0 % of such runs; 1 rank of the job (8) has no report, and may be slower."""),
    "more work": (lambda: judge(inputs(20, count=15, size=1_500)), """
        Rank 3 is given more work than the others over all 20 iterations: it takes 20.0 ms longer,
        100 % of it in backward (kernel gemm takes 20.0 ms or 50 % longer for more work); no rank is
        to blame. Giving all ranks the same would save at most 400.0 ms, 20 % of the time (2.0 s);
        all imbalance together costs at most 20 %; the run cannot be replayed, so gains are upper
        bounds."""),
    "more work of a role": (lambda: judge(heavy_stage()), """
        Ranks 6-7 (role 'pp=3') are given more work than the median role over all 20 iterations:
        it takes 20.0 ms longer, 100 % of it in backward; no rank is to blame. Giving all ranks the
        same would save at most 400.0 ms, 20 % of the time (2.0 s); all imbalance together costs at
        most 20 %; the run cannot be replayed, so gains are upper bounds."""),
    "more work or slow": (lambda: judge(of_its_own_role()), """
        Inconclusive: rank 3 (node0) needs more work than the others, at most 20 % of the time, but
        it is the only one of its role: it may be slow, or have more to do by design."""),
    "the network": (with_transfers, """
        No rank is late, and yet the network holds all ranks up for 40.0 ms an iteration: exposed
        transfers take 40 %. Without that the run would save at most 800.0 ms, 40 % of the time
        (2.0 s)."""),
    "the network beside waits": (with_waits, """
        No rank in particular is late (ranks wait 8.0 % of the time for each other), and yet the
        network holds all ranks up for 40.0 ms an iteration: exposed transfers take 40 %. Without
        that the run would save at most 800.0 ms, 40 % of the time (2.0 s)."""),
    "the network of two ranks": (lambda: with_a_slow_pair(inputs()), """
        No rank is late, and yet the network holds all ranks up for 40.0 ms an iteration: exposed
        transfers take 40 %, most in all_reduce among ranks 1, 3 at 0.0244 GB/s bus bandwidth.
        Without that the run would save at most 800.0 ms, 40 % of the time (2.0 s)."""),
    "the network of two ranks, of unknown speed": (lambda: with_a_slow_pair(inputs(), 0, 1), """
        No rank is late, and yet the network holds all ranks up for 40.0 ms an iteration: exposed
        transfers take 40 %, most in all_reduce among ranks 1, 3. Without that the run would save at
        most 800.0 ms, 40 % of the time (2.0 s)."""),
    "the network, of unknown speed": (lambda: with_a_slow_pair(inputs(), 1), """
        No rank is late, and yet the network holds all ranks up for 40.0 ms an iteration: exposed
        transfers take 40 %. Without that the run would save at most 800.0 ms, 40 % of the time (2.0
        s)."""),
    "the network beside a slow rank": (lambda: with_a_slow_pair(late({5}, always)), """
        Rank 5 (node1) is slow over all 20 iterations: it needs 20.0 ms more work than the median
        rank, 100 % of it in backward. Fixing it would save 400.0 ms, 20 % of the time (2.0 s); all
        imbalance together costs 20 %; exposed transfers take 40 %, most in all_reduce among ranks
        1, 3 at 0.0244 GB/s bus bandwidth; gains are estimated from 0 of the iterations."""),
    "communication, as far as is known": (lambda: judge(unmatched(40)), """
        No rank is known to be late, and yet communication holds all ranks up for 40.0 ms an
        iteration: communication that was not matched across ranks takes 40 %, and who waits in it
        is unknown. Without that the run would save at most 800.0 ms, 40 % of the time (2.0 s)."""),
    "nobody": (lambda: judge(inputs()), """
        Balanced: over 20 iterations of 8 ranks, all imbalance together costs at most 0.0 % of the
        time."""),
    "nobody, as far as is known": (lambda: judge(unmatched(20)), """
        Balanced: over 20 iterations of 8 ranks, all imbalance together costs at most 0.0 % of the
        time; communication that was not matched across ranks takes 20 %, and who waits in it is
        unknown."""),
    "all but two": (lambda: judge(late({*range(RANKS)} - {2, 5}, always)), """
        Balanced: over 20 iterations of 8 ranks, all imbalance together costs at most 0.0 % of the
        time; ranks 2, 5 need 20.0 ms less work than ranks 0-1, 3-4, 6-7, and if all needed as
        little the run would save at most 20 %."""),
    "most": (lambda: judge(late(range(5), always)), """
        Inconclusive: ranks 5-7 need 20.0 ms less work than ranks 0-4 in 20
        iterations: either the latter are slow, although they are the majority, or the former are
        unusually fast. If all were as fast, the run would save at most 400.0 ms, 20 % of the
        time."""),
    "everybody in turns": (lambda: judge(in_turns()), """
        No rank in particular is slow: 7 ranks (0-6) hold most of what imbalance costs, each in
        different iterations, mostly in backward. Without imbalance the run would save at most 800.0
        ms, 20 % of the time (4.0 s); the run cannot be replayed, so gains are upper bounds."""),
    "all at once": (lambda: judge(all_at_once()), """
        No rank in particular is slow: in the iterations that cost most, others lie as far from the
        median, mostly in backward. Without imbalance the run would save at most 160.0 ms, 8.0 % of
        the time (2.0 s); the run cannot be replayed, so gains are upper bounds."""),
    "too few to tell": (lambda: judge(now_one_now_another()), """
        No rank in particular is slow: rank 5 in iteration 8 and rank 7 in iterations 3, 12 hold
        most of what imbalance costs, mostly in backward. Without imbalance the run would save at
        most 180.0 ms, 9.0 % of the time (2.0 s); the run cannot be replayed, so gains are upper
        bounds."""),
    "too few to tell, of which one is selected": (lambda: judge(of_a_part(range(6, 10))), """
        No rank in particular is slow: rank 5 in iteration 8 holds most of what imbalance costs,
        mostly in backward. Without imbalance the run would save at most 60.0 ms, 15 % of the time
        (400.0 ms); the run cannot be replayed, so gains are upper bounds."""),
    "late for the first iteration": (lambda: begun_apart(100), """
        Inconclusive: no rank is slow beyond chance in what was recorded, but the others wait 100.0
        ms (5.0 % of the time) for rank 5, which began iteration 0 last: what it did before is in no
        report."""),
    "a late capture": (lambda: begun_apart(100, of_captures=True), """
        Inconclusive: no rank is slow beyond chance in what was recorded, but the others wait 100.0
        ms (5.0 % of the time) for rank 5, which began its capture last: what it did before is in no
        report."""),
    "late by calls without a match": (lambda: late_by_unmatched(390), """
        Inconclusive: no rank works longer beyond chance, but the others wait 400.0 ms (20 % of the
        time) for rank 5, which spends 390.0 ms more in communication that could not be matched
        across ranks: a link may be slow, or what they wait for there is late."""),
    "half of the ranks late by calls without a match": (lambda: late_by_unmatched(390, 4, 7), """
        Inconclusive: no rank works longer beyond chance, but the others wait 400.0 ms (20 % of the
        time) for ranks 4-7, which spend 390.0 ms more in communication that could not be matched
        across ranks: a link may be slow, or what they wait for there is late."""),
    "late, but hardly by calls without a match": (lambda: late_by_unmatched(199), """
        Balanced: over 20 iterations of 8 ranks, all imbalance together costs at most 0.0 % of the
        time."""),
    "late by calls without a match in a pipeline": (
        lambda: late_by_unmatched(390, stages=frozenset({(0, 1)})), """
        Balanced: over 20 iterations of 8 ranks, all imbalance together costs at most 0.0 % of the
        time."""),
    "hardly late for the first iteration": (lambda: begun_apart(99), """
        Balanced: over 20 iterations of 8 ranks, all imbalance together costs at most 0.0 % of the
        time."""),
}  # fmt: skip


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_verdict_in_words(name: str) -> None:
    verdict, words = EXAMPLES[name]
    assert verdict().sentence == " ".join(words.split())


def test_a_rank_that_holds_the_cost_of_a_part_of_a_run_is_no_trait_of_it() -> None:
    """It alone has an event in the part."""
    assert judge(of_a_part(range(6, 10))).holders == (Holder(5, (8,)),)
    whole = replace(of_a_part(range(6, 10)), whole=Story(0.03, (), None, 4))
    assert judge(whole).kind == "inconclusive", "of nothing else is known that it varies"


def test_where_all_load_slowly_or_differ_at_once_no_rank_holds_the_cost() -> None:
    given = replace(now_one_now_another(), whole=Story(0.03, (), None, COUNT, loaders_bind=True))
    for verdict in judge(given), judge(all_at_once()):
        assert (verdict.kind, verdict.holders) == ("rotating", ())


@pytest.mark.parametrize(
    ("more_ms", "chance", "next_rank", "kind"),
    [
        (3, 0.5, 5, "rotating"),
        (3, 0.05, 5, "inconclusive"),
        (3, 0.05, 6, "rotating"),
        (8, 0.5, 5, "inconclusive"),
    ],
)
def test_a_lead_of_small_cost_hides_nobody(
    more_ms: int, chance: float, next_rank: int, kind: str
) -> None:
    """Single iterations of changing ranks cost 9 % of the time beside it; rank 6 costs nothing."""
    rows = [
        (rank, i, 60.0 * ((rank, i) in {(7, 3), (5, 8), (7, 12)}) + more_ms * (rank == 0))
        for rank in range(RANKS)
        for i in range(COUNT)
    ]
    lead, second = Slow((0,), ALL, 0.05), Slow((next_rank,), ALL, chance)
    whole = Story(0.03, (), lead, COUNT, second=second)
    verdict = judge(replace(inputs_of(wide_of(rows), run=SUMMARY), whole=whole))
    assert verdict.kind == kind
    words = (
        "rank 0 (node0) may be slow, which costs at most 3.0 %, but chance alone does that in 5.0 %"
    )
    assert (words in verdict.sentence) == (kind == "rotating")


@pytest.mark.parametrize(("chance", "said"), [(0.02, True), (0.5, False)])
def test_balanced_says_who_may_be_slow(chance: float, said: bool) -> None:
    whole = Story(0.03, (), Slow((0,), ALL, chance), COUNT)
    verdict = judge(replace(late((0,), always, 3), whole=whole))
    assert (verdict.kind, verdict.leading is not None) == ("balanced", said)
    assert ("rank 0 (node0) may be slow, which costs at most 3.0 %" in verdict.sentence) == said
    nearly = judge(replace(late((0,), always, 0.5), whole=whole))
    assert nearly.leading is None


def test_of_several_kernels_that_may_wait_together_the_longest_is_an_example() -> None:
    given = inputs_of(wide_of([(r, i, 0.0) for r in range(RANKS) for i in range(COUNT)]))
    usual, rows = 100 * MS, list[tuple[int, str, int]]()
    for rank in range(RANKS):
        less, more = (usual // 2, usual) if rank == 3 else (0, 0)
        rows += [(rank, f"push_{rank}", 2 * usual - less), (rank, f"pull_{rank}", usual - less)]
        rows += [(rank, "gemm", usual + more)]
    table = pl.DataFrame(rows, ["rank", "name", "total_ns"], orient="row")
    table = table.with_columns(kind=pl.lit("kernel"), count=1)
    verdict = judge(replace(given, named_work=lambda: table, spent_ns=10 * usual))
    assert "work such as kernel push_3 may wait" in verdict.sentence
    assert "^push_[0-9]+$" in verdict.next


@pytest.mark.parametrize(
    ("slow", "words"),
    [
        (lambda i: i >= 6, "100.0 ms from iteration 6 on and 70.0 ms before"),
        (lambda i: i < 4, "130.0 ms up to iteration 3 and 100.0 ms after"),
    ],
)
def test_all_ranks_get_slow(slow: Callable[[int], bool], words: str) -> None:
    """The usual iteration takes 100 ms, and the others what the median rank works more or less."""
    sentence = judge(late(range(RANKS), slow, 30)).sentence
    assert f"on all ranks, iterations take {words}" in sentence


@pytest.mark.parametrize(
    ("count", "more_ms", "said"), [(14, 2, 1), (13, 2, 0), (14, 0.4, 0), (1_700, 0.02, 1)]
)
def test_all_ranks_get_slower_and_slower(count: int, more_ms: float, said: bool) -> None:
    """Each takes longer than the one before it; by chance 5 follow 4 so in 1 of 126 runs."""
    rows = [(rank, i, more_ms * i) for rank in range(RANKS) for i in range(count)]
    run = replace(SUMMARY, iterations=count)
    sentence = judge(inputs_of(wide_of(rows), run=run)).sentence
    assert ("on all ranks, iterations get slower: " in sentence) == said


def test_a_step_that_noise_blurs_is_not_called_steady_growth() -> None:
    noise = np.random.default_rng(1).normal(0, 1.5, 30)
    rows = [(r, i, 10.0 * (i >= 15) + noise[i]) for r in range(RANKS) for i in range(30)]
    run = replace(SUMMARY, iterations=30)
    sentence = judge(inputs_of(wide_of(rows), run=run)).sentence
    assert "on all ranks, iterations get slower: " in sentence


@pytest.mark.parametrize(
    ("longer", "transfer_ms", "looks"),
    [
        ({7: 300}, 5, "see why iteration 7 takes longer on all ranks: rankscope imbalance --by it"),
        ({7: 300, 12: 250, 13: 250}, 5, "see why iterations 7, 12-13 take longer on all ranks: "),
        ({7: 300}, 11, "--by collective"),  # costs more
        ({7: 140}, 0, "--by phase"),  # not half as long again
        ({7: 180}, 0, "--by phase"),  # 3.8 % of the time
    ],
)
def test_iterations_that_are_long_on_all_ranks_are_what_to_look_at(
    longer: dict[int, int], transfer_ms: int, looks: str
) -> None:
    wide = wide_of([(rank, i, 0.0) for rank in range(RANKS) for i in range(COUNT)])
    length = pl.col("iteration").replace_strict(longer, default=100) * MS
    given = inputs_of(wide.with_columns(iteration_ns=length), run=SUMMARY)
    given = replace(given, exposed_transfer_ns=transfer_ms * MS * COUNT)
    verdict = judge(given, Exact(given.excess))
    assert verdict.kind is VerdictKind.BALANCED
    assert looks in verdict.next


@pytest.mark.parametrize(("transfer_ms", "looks"), [(19, "both groups"), (21, "--by collective")])
def test_what_the_others_of_fast_ranks_lose_is_what_to_look_at(
    transfer_ms: int, looks: str
) -> None:
    """They need 20 ms more than ranks 2 and 5."""
    given = late({*range(RANKS)} - {2, 5}, always)
    verdict = judge(replace(given, exposed_transfer_ns=transfer_ms * MS * COUNT))
    assert (verdict.kind, looks in verdict.next) == (VerdictKind.BALANCED, True)


@pytest.mark.parametrize(
    ("waited", "looks"), [(0.11, "wait for each other, 11 % of"), (0.09, "the links can do")]
)
def test_waits_without_a_late_rank_are_what_to_look_at(waited: float, looks: str) -> None:
    """As of the stages of a pipeline; exposed transfers take 10 %."""
    held = pl.DataFrame({"rank": range(RANKS), "wait_ns": round(waited * 2000 * MS)})
    held = held.with_columns(unmatched_ns=pl.lit(0))
    given = replace(inputs(), held_up=held, exposed_transfer_ns=200 * MS)
    verdict = judge(given)
    assert verdict.kind is VerdictKind.BALANCED
    assert looks in verdict.next


def test_who_is_given_more_work_is_sent_to_what_may_be_divided_otherwise() -> None:
    more = inputs(20, count=15, size=1_500)
    assert "sequence lengths" in judge(more).next
    assert "layers per stage" in judge(replace(more, stages=lambda: frozenset({(3,)}))).next
    rows = [(rank, i, 20.0 * (rank == 3)) for rank in range(RANKS) for i in range(COUNT)]
    own = [kernel(3, i, 20, name="reduce") for i in range(COUNT)]
    alone = judge(of_kernels(wide_of(rows), [kernel(rank, i, 40) for rank, i, _ in rows] + own))
    assert alone.more_work_ranks == (3,)
    assert alone.next == "see what rank 3 alone runs: rankscope imbalance --by kernel"


def test_ranks_that_take_turns_are_sent_to_where_they_differ() -> None:
    assert judge(in_turns()).next.startswith("compare the reports: rankscope pick-reports; ")


@pytest.mark.parametrize(("held_up_ms", "share"), [(30, "30 %"), (4, None), (None, None)])
def test_how_long_ranks_without_a_report_may_hold_up_the_others(
    held_up_ms: int | None, share: str | None
) -> None:
    run, held_up = replace(SUMMARY, missing_ranks=(8, 9)), held_up_ms and held_up_ms * MS * COUNT
    verdict = judge(replace(inputs(), run=run, least_held_up_ns=held_up))
    words = f"the rank that waits least is in communication for {share} of the time"
    assert (words in verdict.sentence) == (share is not None)
    assert ("in communication" in verdict.sentence) == (share is not None)
    hedged = "waiting, perhaps for these" in verdict.sentence  # or for each other
    assert hedged == (share is not None)


def test_transfers_and_calls_without_a_match_hold_up_ranks_together() -> None:
    shares = {"exposed_transfer_ns": 18 * MS * COUNT, "unmatched_ns": 15 * MS * COUNT}
    verdict = judge(replace(inputs(), **shares))
    assert (verdict.kind, verdict.gain) == ("communication", 0.33)
    assert judge(replace(inputs(), exposed_transfer_ns=18 * MS * COUNT)).kind == "balanced"


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ((4, 5, 6), "(all on node1) hold most"),
        ((3, 5, 6), "12 hold most"),
        ((4, 5, 5), "hold most"),
    ],
)
def test_ranks_that_hold_most_of_the_cost_may_be_of_one_host(
    ranks: tuple[int, ...], words: str
) -> None:
    hits = {*zip(ranks, (3, 8, 12), strict=True)}
    rows = [(r, i, 60.0 * ((r, i) in hits)) for r in range(RANKS) for i in range(COUNT)]
    sentence = judge(inputs_of(wide_of(rows), run=SUMMARY)).sentence
    assert words in sentence
    assert ("node1" in sentence) == (ranks == (4, 5, 6))


@pytest.mark.parametrize(
    ("ranks", "says"), [((2, 3), "all on b"), ((4, 5), ""), ((4, 5, 6), "all on c"), ((8,), "")]
)
def test_ranks_are_all_on_a_host_if_they_are_several_or_all_of_its_ranks(
    ranks: tuple[int, ...], says: str
) -> None:
    hosts: dict[int, str | None] = dict(enumerate("aabbccccd"))
    assert all_on(ranks, hosts, 3) == says

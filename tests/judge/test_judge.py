"""The order of the rules, on runs made by hand: each case has what one rule looks for."""

from collections.abc import Iterable
from itertools import repeat

import numpy as np
import polars as pl
import pytest
from msgspec import structs
from msgspec.structs import replace

from rankscope.judge.claims import Pattern, Slow, Story
from rankscope.judge.inputs import RunSummary, VerdictInputs
from rankscope.judge.judgement import decide
from rankscope.judge.rules import judge
from rankscope.judge.sentences import finished
from rankscope.judge.transfers import SlowTransfers
from rankscope.model.intervals import Floats
from rankscope.model.kinds import VerdictKind
from tests.judge.made import COUNT, RANKS, SUMMARY, Exact, inputs, kernel, of_kernels, wide_of
from tests.support import MS, inputs_of


def test_contention_cancels_no_accusation() -> None:
    verdict = judge(inputs(20, clear_ns=20 * MS))
    assert (verdict.kind, verdict.ranks) == (VerdictKind.PERSISTENT, (3,))


def test_a_slow_rank_that_nobody_waits_for_is_not_accused() -> None:
    """Rank 1 of a light role is 10 ms slower; the other role needs 40 ms more than that."""
    work = [10, 20, 10, 10, 60, 60, 60, 60]
    rows = [(rank, i) for rank in range(RANKS) for i in range(COUNT)]
    wide = pl.DataFrame(
        {
            "rank": [rank for rank, _ in rows],
            "iteration": [i for _, i in rows],
            "role": ["light" if rank < 4 else "heavy" for rank, _ in rows],
            "backward_ns": [work[rank] * MS for rank, _ in rows],
        }
    ).with_columns(
        work_ns="backward_ns", iteration_ns=100 * MS,
        **{f"{name}_ns": pl.lit(0) for name in ("load", "forward", "optimizer", "other")},
    )  # fmt: skip
    verdict = judge(inputs_of(wide, run=SUMMARY))
    assert (verdict.ranks, verdict.also) == ((), ())


def test_an_excess_is_of_iterations_in_which_its_phase_is_known() -> None:
    """As loading, in the first iteration of a report."""
    rows = [(rank, i, 20.0 * (rank == 3 and i > 0)) for rank in range(RANKS) for i in range(COUNT)]
    known = pl.when(pl.col("iteration") > 0).then("backward_ns")
    verdict = judge(inputs_of(wide_of(rows).with_columns(backward_ns=known), run=SUMMARY))
    assert (verdict.ranks, verdict.since, verdict.iterations_share) == ((3,), None, 1.0)
    assert verdict.excess_ns == 20 * MS


def test_a_gain_at_most_is_a_bound() -> None:
    """Ranks that wait for each other after each phase wait for rank 3 and then for rank 5."""
    cells = [(rank, i) for rank in range(RANKS) for i in range(COUNT)]
    wide = wide_of([(rank, i, 12.0 * (rank == 5) - 30) for rank, i in cells])
    forward = pl.Series([(20 + 10 * (rank == 3)) * MS for rank, _ in cells])
    wide = wide.with_columns(forward_ns=forward, work_ns=pl.col("backward_ns") + forward)
    verdict = judge(inputs_of(wide, run=SUMMARY))
    assert (verdict.ranks, verdict.gain_is_bound) == ((3, 5), True)
    assert verdict.gain_ns == 22 * MS * COUNT, "12 ms if they wait for each other only once"
    assert verdict.gain_all_ns == 22 * MS * COUNT


BEFORE = [
    ({"ranks": 1}, "only one rank", "two ranks"),
    ({"blind_ranks": tuple(range(1, 8))}, "no communication is visible", "all-reduce"),
    ({"metric": None}, "include waits", "--trace=cuda,nvtx"),
    ({"metric": None, "has_device": True, "host_asked": True}, "include waits", "--clock gpu"),
]
AFTER = [
    ({"metric": "load"}, "loading is balanced", "--trace=cuda,nvtx"),
    ({"missing_ranks": (8,)}, "1 rank of the job has none", "missing ranks"),
    ({"missing_ranks": (8, 9)}, "2 ranks of the job have none", "missing ranks"),
    ({"blind_ranks": (1, 2)}, "the reports of 2 ranks", "the same on every rank"),
]


@pytest.mark.parametrize(("summary", "reason", "settle"), [*BEFORE, *AFTER])
def test_missing_evidence_about_ranks_that_look_alike(
    summary: dict[str, object], reason: str, settle: str
) -> None:
    verdict = judge(replace(inputs(), run=replace(SUMMARY, **summary)))
    assert (verdict.kind, verdict.ranks) == (VerdictKind.INCONCLUSIVE, ())
    assert reason in verdict.sentence
    assert settle in verdict.next


@pytest.mark.parametrize("summary", [summary for summary, *_ in BEFORE])
def test_preconditions_come_before_the_judgement(summary: dict[str, object]) -> None:
    run = replace(SUMMARY, **summary)
    assert judge(replace(inputs(20), run=run)) == judge(replace(inputs(), run=run))


@pytest.mark.parametrize("missing", [(), (8,), tuple(range(8, 64))])
def test_a_straggler_is_named_whatever_is_missing(missing: tuple[int, ...]) -> None:
    verdict = judge(replace(inputs(20), run=replace(SUMMARY, missing_ranks=missing)))
    assert (verdict.kind, verdict.ranks) == (VerdictKind.PERSISTENT, (3,))
    assert verdict.gain_is_bound


@pytest.mark.parametrize(
    ("activity", "kind", "ranks"),
    [({}, VerdictKind.PERSISTENT, (3,)), ({"count": 15, "size": 1_500}, VerdictKind.STRUCTURAL, ()),
     ({"total_ns": 40 * MS}, VerdictKind.INCONCLUSIVE, ())],
    ids=["slower kernels", "larger kernels", "the same kernels"],
)  # fmt: skip
def test_the_only_rank_of_its_role_is_judged_by_its_kernels(
    activity: dict[str, int], kind: VerdictKind, ranks: tuple[int, ...]
) -> None:
    """Stages of a pipeline run the same kernels: slower ones are no design."""
    given = inputs(20, **activity)
    verdict = judge(replace(given, run=replace(SUMMARY, own_roles=True)))
    assert (verdict.kind, verdict.ranks) == (kind, ranks)
    if kind is VerdictKind.INCONCLUSIVE:
        assert verdict.leading is not None
        assert verdict.leading.ranks == (3,)


def test_a_role_explains_no_event_and_no_change() -> None:
    rows = [(rank, i, 40.0 * (rank == 3 and i > 9)) for rank in range(RANKS) for i in range(COUNT)]
    alone = replace(SUMMARY, own_roles=True)
    verdict = judge(inputs_of(wide_of(rows), run=alone))
    assert (verdict.kind, verdict.ranks, verdict.since) == (VerdictKind.PERSISTENT, (3,), 10)
    assert judge(replace(inputs(), run=alone)).kind is VerdictKind.BALANCED


def varied(slower: float, longer: float = 1.0) -> VerdictInputs:
    """Sequences of random lengths, and kernels that take more than in proportion to them.

    Those of rank 3 are `longer`, and its device is `slower`.
    """
    random = np.random.default_rng(5)
    length = np.exp(random.normal(0, 0.3, (RANKS, COUNT)))
    length[3] *= longer
    taken = 40 * length**1.2 * np.exp(random.normal(0, 0.005, length.shape))
    taken[3] *= slower
    cells = [(rank, i) for rank in range(RANKS) for i in range(COUNT)]
    wide = wide_of([(rank, i, taken[rank, i] - 40) for rank, i in cells])
    kernels = [
        kernel(rank, i, taken[rank, i], size=round(1e6 * length[rank, i])) for rank, i in cells
    ]
    return of_kernels(wide, kernels)


def test_a_slow_device_among_random_lengths() -> None:
    """It is the latest now and then, as the others are; slower kernels are no more work."""
    verdict = judge(varied(1.4))
    assert (verdict.kind, verdict.ranks) == (VerdictKind.PERSISTENT, (3,))
    assert not verdict.more_work_ranks
    verdict = judge(varied(1.25))
    assert verdict.leading is not None, "20 iterations are too few to tell"
    assert verdict.leading.ranks == (3,)
    assert "kernel gemm" in verdict.sentence, "its kernels tell what times alone do not"


@pytest.mark.parametrize("longer", [1.0, 1.1])
def test_random_lengths_are_no_slow_device(longer: float) -> None:
    verdict = judge(varied(1.0, longer))
    assert verdict.kind is not VerdictKind.PERSISTENT
    assert verdict.ranks == ()


def test_a_whole_stage_of_a_pipeline_may_have_more_to_do() -> None:
    """Where every rank of it is as slow, hardware and design look alike."""
    rows = [(rank, i, 20.0 * (rank >= 6)) for rank in range(RANKS) for i in range(COUNT)]
    given = replace(inputs_of(wide_of(rows), run=SUMMARY), stages=lambda: frozenset({(6, 7)}))
    verdict = judge(given)
    assert (verdict.kind, verdict.ranks) == (VerdictKind.INCONCLUSIVE, ())
    assert verdict.leading is not None
    assert verdict.leading.ranks == (6, 7)
    assert verdict.leading.gain == pytest.approx(0.2)
    assert judge(replace(given, stages=frozenset)).ranks == (6, 7)


def test_a_rank_beside_those_that_have_more_to_do_is_priced_as_it_is() -> None:
    """Rank 3 has more to do for good: while it has, nobody waits for the slow rank 5."""
    more = {3: 20.0, 5: 8.0}
    cells = [(rank, i, more.get(rank, 0.0)) for rank in range(RANKS) for i in range(COUNT)]
    larger = {"count": 15, "size": 1_500}
    kernels = [kernel(r, i, 40 + ms, **(larger if r == 3 else {})) for r, i, ms in cells]
    given = of_kernels(wide_of(cells), kernels)
    verdict = judge(given, Exact(given.excess))
    assert (verdict.more_work_ranks, verdict.also) == ((3,), ())


@pytest.mark.parametrize("unnamed", [None, "forward", "optimizer"])
def test_a_validation_on_one_rank_is_a_task_of_its_own(unnamed: str | None) -> None:
    """It launches more kernels, but beside the phases of a step; else it may be a part of one."""
    more = {(3, i): 20.0 for i in range(3, COUNT, 4)}
    cells = [(rank, i, more.get((rank, i), 0.0)) for rank in range(RANKS) for i in range(COUNT)]
    kernels = [kernel(rank, i, 40) for rank, i, _ in cells]
    kernels += [
        kernel(rank, i, ms, phase="other", name="validate") for (rank, i), ms in more.items()
    ]
    beside = {"backward_ns": pl.lit(50 * MS), "other_ns": pl.col("work_ns") - 50 * MS}
    for phase in ("forward", "optimizer"):
        beside[f"{phase}_ns"] = pl.lit(10 * MS * (phase != unnamed))
    beside["work_ns"] = pl.col("work_ns") + 20 * MS
    verdict = judge(of_kernels(wide_of(cells).with_columns(**beside), kernels))
    kind = VerdictKind.STRUCTURAL if unnamed else VerdictKind.PERIODIC
    assert (verdict.kind, verdict.ranks) == (kind, () if unnamed else (3,))
    assert "more work" in verdict.sentence


@pytest.mark.parametrize(
    ("phase", "first", "says"),
    [
        ("load", 0, "others may load ahead while they wait"),
        ("load", COUNT // 2 - 1, "others may load ahead while they wait"),  # in most iterations
        ("load", COUNT // 2, None),
        ("forward", 0, None),
    ],
)
def test_loaders_of_others_may_not_keep_up(phase: str, first: int, says: str | None) -> None:
    """They wait in most iterations, and load ahead meanwhile."""
    cells = [(rank, i) for rank in range(RANKS) for i in range(COUNT)]
    late = pl.Series([20 * MS * (rank == 3 and i >= first) for rank, i in cells])
    wide = wide_of([(rank, i, 0.0) for rank, i in cells])
    wide = wide.with_columns(late.alias(f"{phase}_ns"), work_ns=pl.col("work_ns") + late)
    given = inputs_of(wide, run=SUMMARY)
    verdict = judge(given, Exact(given.excess))
    assert (verdict.ranks, verdict.gain_ns) == ((3,), 20 * MS * (COUNT - first))
    assert ("save at most" in verdict.sentence) == verdict.gain_is_bound == (says is not None)
    assert says is None or says in verdict.sentence
    given = of_kernels(
        wide, [kernel(r, i, 20 if r == 3 else 0.1, phase=phase, kind="copy") for r, i in cells]
    )
    assert not judge(given, Exact(given.excess)).gain_is_bound, "nobody copies ahead"


@pytest.mark.parametrize(("host_ms", "bound"), [(85, True), (75, False)])
def test_a_gain_that_the_host_of_another_rank_limits_is_a_bound(host_ms: int, bound: bool) -> None:
    """The host of a waiting rank needs this much of an iteration of 100 ms."""
    cells = [(rank, i, 20.0 * (rank == 3)) for rank in range(RANKS) for i in range(COUNT)]
    host = pl.when(pl.col("rank") == 1).then(host_ms).otherwise(20) * MS
    wide = wide_of(cells).with_columns(host_ns=host, wait_ns=70 * MS - pl.col("work_ns"))
    given = inputs_of(wide, run=SUMMARY)
    verdict = judge(given, Exact(given.excess))
    assert (verdict.ranks, verdict.gain_is_bound) == ((3,), bound)
    assert ("others may launch ahead while they wait" in verdict.sentence) == bound


@pytest.mark.parametrize(
    ("event_ms", "kind"), [(20, "rotating"), (180, "rotating"), (200, "transient")]
)
def test_an_event_is_a_detail_where_changing_ranks_cost_twice_as_much(
    event_ms: int, kind: str
) -> None:
    """They cost 380 ms."""
    rows = [(r, i, 20.0 * (r == i % RANKS)) for r in range(RANKS) for i in range(COUNT)]
    rows = [(r, i, event_ms if (r, i) == (3, 3) else more) for r, i, more in rows]
    fact = Slow((3,), Pattern(VerdictKind.TRANSIENT, (3,)), None)
    given = inputs_of(wide_of(rows), run=SUMMARY, whole=Story(0.03, (fact,), None, COUNT))
    verdict = judge(given, Exact(given.excess))
    assert verdict.kind == kind
    assert [each.ranks for each in verdict.also] == [(3,)] * (kind == "rotating")


@pytest.mark.parametrize(("turns", "kind"), [(20.0, "rotating"), (0.0, "structural")])
def test_roles_are_a_detail_where_changing_ranks_cost_more(turns: float, kind: str) -> None:
    """The last two of four roles need 2 ms more; in each iteration another rank needs 20."""
    rows = [
        (r, i, turns * (r == i % RANKS) + 2.0 * (r >= RANKS // 2))
        for r in range(RANKS)
        for i in range(COUNT)
    ]
    wide = wide_of(rows).with_columns(role=(pl.col("rank") // 2).cast(pl.String))
    given = inputs_of(wide, run=SUMMARY)
    assert judge(given, Exact(given.excess)).kind == kind


def test_most_ranks_may_be_slow() -> None:
    rows = [(rank, i, 20.0 if rank < 4 else 0.0) for rank in range(7) for i in range(COUNT)]
    run = RunSummary(7, COUNT, (7,), (), "work")
    verdict = judge(inputs_of(wide_of(rows), run=run))
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert verdict.leading is not None
    assert verdict.leading.ranks == (0, 1, 2, 3)
    assert "host node1 (ranks 4-6)" in verdict.sentence


def test_the_network_is_said_where_nobody_is_late() -> None:
    given = replace(inputs(), exposed_transfer_ns=40 * MS * COUNT)
    verdict = judge(given, Exact(given.excess))
    assert (verdict.kind, verdict.ranks) == (VerdictKind.COMMUNICATION, ())
    assert verdict.gain_is_bound, "no network is infinitely fast"
    slow = judge(replace(inputs(20), exposed_transfer_ns=40 * MS * COUNT))
    assert slow.ranks == (3,)
    less = judge(replace(given, exposed_transfer_ns=10 * MS * COUNT))
    assert less.kind is VerdictKind.BALANCED
    assert "--by collective" in less.next


@pytest.mark.parametrize(
    ("slow", "on_host", "kind"),
    [(12, True, "persistent"), (20, True, "communication"), (12, False, "communication")],
)
def test_a_collective_that_hosts_carry_out_is_work_of_its_members(
    slow: int, on_host: bool, kind: str
) -> None:
    """Its transfers are slow in `slow` iterations; rank 3 is slow in the first eight."""
    rows = [(r, i, 10.0 if r == 3 and i < 8 else 0.0) for r in range(RANKS) for i in range(COUNT)]
    given = of_kernels(wide_of(rows), [kernel(rank, i, 40 + more) for rank, i, more in rows])

    class Carried(Exact):
        def of(
            self, healed: Iterable[Floats], transfers: Iterable[bool] = repeat(False)
        ) -> list[int]:
            gains = super().of(healed)
            return [g + 400 * MS * usual for g, usual in zip(gains, transfers, strict=False)]

    transfers = pl.DataFrame(
        {
            "group": [0, 1], "operation": "all_reduce", "label": "world",
            "members": [[*range(RANKS)], [3, RANKS]], "excess_ns": [400 * MS, 300 * MS],
            "transfer_ns": 40 * MS, "usual_ns": 20 * MS, "iterations": [[*range(slow)]] * 2,
            "on_host": on_host, "per_iteration": 1 if on_host else 4,
            "sized": False,
        }
    )  # fmt: skip
    saved = np.array([400.0 * MS])
    prices = Carried(
        given.excess, slow=SlowTransfers(saved, (*range(COUNT),), np.zeros(COUNT), transfers)
    )
    verdict = judge(given, prices)
    assert verdict.kind == kind
    assert verdict.ranks == ((3,) if kind == "persistent" else ())
    words = "among ranks 0-7, one of 2 slow ones, all with rank 3, takes 40.0 ms"
    words += " once all have arrived" if on_host else " on average over 4 calls once all"
    assert (words in verdict.sentence) == (kind == "communication")
    assert verdict.members == ((3,) if kind == "communication" else ())


def slow_link(excess_ms: int, *, sized: bool = True) -> SlowTransfers:
    """Sends from rank 3 to rank 4 that are slow in every iteration."""
    rows = pl.DataFrame(
        {
            "group": [0], "operation": "point_to_point", "label": "rank 3 to 4",
            "members": [[3, 4]], "excess_ns": excess_ms * MS, "transfer_ns": 40 * MS,
            "usual_ns": 20 * MS, "iterations": [[*range(COUNT)]], "on_host": False,
            "per_iteration": 1, "sized": sized,
        }
    )  # fmt: skip
    return SlowTransfers(np.zeros(1), (*range(COUNT),), np.zeros(COUNT), rows)


@pytest.mark.parametrize("hosts", [1, 2])
def test_slow_sends_across_hosts_are_said_to_be(hosts: int) -> None:
    """They are compared with those within a host, which may be faster by nature."""
    given = replace(inputs(), hosts={rank: f"node{rank * hosts // RANKS}" for rank in range(RANKS)})

    class Saved(Exact):
        def of(
            self, healed: Iterable[Floats], transfers: Iterable[bool] = repeat(False)
        ) -> list[int]:
            return [400 * MS * usual for _, usual in zip(healed, transfers, strict=False)]

    verdict = judge(given, Saved(given.excess, slow=slow_link(400, sized=hosts == 1)))
    where = ", across hosts" if hosts == 2 else ""
    assert f"point_to_point (rank 3 to 4{where}) takes 40.0 ms once" in verdict.sentence
    assert ("if its messages are no larger" in verdict.sentence) == (hosts == 2)
    counters = "--nic-metrics" if hosts == 2 else "--gpu-metrics-devices"
    assert counters in verdict.next, "network adapters carry nothing inside a host"


def test_communication_that_was_not_matched_is_said() -> None:
    """All-to-alls that no report ties to those of other ranks may be most of the time."""
    for slow_ms in (0, 20):
        given = inputs(slow_ms)
        some = judge(replace(given, unmatched_ns=19 * MS * COUNT))
        none, little = judge(given), judge(replace(given, unmatched_ns=MS))
        assert little == none == structs.replace(some, sentence=none.sentence)
        assert ("19 %" in some.sentence) == (slow_ms == 0), "beside a named rank only if large"
        most = judge(replace(given, unmatched_ns=40 * MS * COUNT))
        assert "40 %" in most.sentence
        assert most.kind is (VerdictKind.PERSISTENT if slow_ms else VerdictKind.COMMUNICATION)


def test_work_outside_of_what_is_judged_is_said() -> None:
    """The first collective of a capture may wait for what a rank did before it."""
    given = inputs()
    for more_ms, kind in ((0.9, VerdictKind.BALANCED), (1.1, VerdictKind.INCONCLUSIVE)):
        more = [round(more_ms * MS * COUNT) * (rank == 3) for rank in range(RANKS)]
        outside = pl.DataFrame({"rank": range(RANKS), "role": "all", "outside_ns": more})
        some = replace(given, outside=outside)
        verdict = judge(some)
        assert (verdict.kind, verdict.ranks) == (kind, ())
        assert ("rank 3" in verdict.sentence) == (kind is VerdictKind.INCONCLUSIVE)
    network = judge(replace(some, exposed_transfer_ns=40 * MS * COUNT))
    assert network.kind is VerdictKind.COMMUNICATION, "40 % matter more than 1 %"


def test_a_rank_that_is_slow_at_no_cost_is_not_denied() -> None:
    class Free(Exact):
        def of(self, healed: Iterable[Floats], *_: object) -> list[int]:
            all_ns = int(np.nansum(self._excess.lengths)) // 50
            return [all_ns if each is self.everything else 0 for each in healed]

    given = inputs(20)
    verdict = judge(given, Free(given.excess))
    assert verdict.kind is VerdictKind.BALANCED
    assert "no rank is slow" not in verdict.sentence


def test_who_leads_by_chance_is_said_and_not_accused() -> None:
    """Rank 1 is slowest in six of seven iterations of three ranks, by what another has, too."""
    late = [16, 16, 15, 17, 0, 14, 16]
    rows = [(1, i, float(late[i])) for i in range(7)]
    rows += [(rank, i, 15.0 * (rank == 0 and i == 4)) for rank in (0, 2) for i in range(7)]
    summary = replace(SUMMARY, ranks=3, iterations=7)
    verdict = judge(inputs_of(wide_of(rows), run=summary))
    assert (verdict.kind, verdict.ranks) == (VerdictKind.INCONCLUSIVE, ())
    assert verdict.leading is not None
    assert verdict.leading.ranks == (1,)
    assert verdict.leading.chance is not None
    assert 0.005 < verdict.leading.chance <= 0.05
    assert verdict.settles is not None
    assert 7 < verdict.settles < 20
    assert "Rank 1 (node0)" in verdict.sentence
    captures = judge(inputs_of(wide_of(rows), run=replace(summary, of_captures=True)))
    assert captures.settles is None
    assert "--iteration" in captures.next


def test_single_events_of_a_rank_are_reported_once() -> None:
    """One is less than half of the other."""
    rows = [
        (rank, i, {(3, 4): 24.0, (3, 5): 60.0}.get((rank, i), 0.0))
        for rank in range(RANKS)
        for i in range(COUNT)
    ]
    verdict = judge(inputs_of(wide_of(rows), run=SUMMARY))
    assert (verdict.kind, verdict.ranks) == (VerdictKind.TRANSIENT, (3,))
    assert verdict.iterations == (4, 5)
    assert verdict.gain_ns == 84 * MS
    assert not verdict.also


def test_a_repaired_rank_varies_like_its_peers() -> None:
    """Its long loads stay when it computes as fast as they do."""
    count, said, true = 40, 0, 0.0
    cells = [(rank, i) for rank in range(RANKS) for i in range(count)]
    slower = wide_of([(rank, i, 8.0 * (rank == 3)) for rank, i in cells])
    for seed in range(10):
        load = 10 * np.random.default_rng(seed).lognormal(0, 0.5, (RANKS, count))
        wide = slower.with_columns(load_ns=pl.Series((load.ravel() * MS).round()).cast(pl.Int64))
        given = inputs_of(wide.with_columns(work_ns=pl.col("load_ns") + pl.col("backward_ns")))
        verdict = judge(given, Exact(given.excess))
        slow = load + 8.0 * (np.arange(RANKS) == 3)[:, None]
        assert verdict.ranks == (3,)
        said += verdict.gain_ns or 0
        true += (slow.max(0) - load.max(0)).sum() * MS
    assert said == pytest.approx(true, rel=0.15)


def test_larger_events_of_peers_are_not_added_to_a_repaired_rank() -> None:
    """Each of them has one, in another iteration."""
    cells = [(rank, i) for rank in range(RANKS) for i in range(40)]
    events = [(rank, i, 8.0 if rank == 3 else 20.0 * (rank == i)) for rank, i in cells]
    given = inputs_of(wide_of(events))
    [claim] = given.claims
    healed = given.healed(claim)[3].sum(axis=1)
    assert claim.ranks == (3,)
    assert sorted(healed / MS) == pytest.approx([0.0] + [8.0] * 39)


def test_who_leads_in_a_run_may_not_lead_in_a_part_of_it() -> None:
    """Of ranks whose times scatter, each is sometimes the latest."""
    late = np.random.default_rng(6).normal(0, 6, (RANKS, COUNT))
    rows = [(rank, i, float(late[rank, i])) for rank in range(RANKS) for i in range(COUNT)]
    wide = wide_of(rows)
    whole = inputs_of(wide, run=SUMMARY).story
    assert whole.lead is not None
    leading = set()
    for i in range(COUNT):
        part = inputs_of(wide.filter(iteration=i), run=replace(SUMMARY, iterations=1))
        verdict = judge(replace(part, whole=whole))
        assert verdict.leading is None or verdict.leading.gain >= 0.01
        leading |= set() if verdict.leading is None else {verdict.leading.ranks}
    assert leading > {whole.lead.ranks}  # others lead where it is not late


def test_what_repairs_leave_is_told_by_rank_and_iteration() -> None:
    """Rank 2 is always slower by 3 %; ranks 0 and 3 hold all up once, and twice."""
    late = np.random.default_rng(2).normal(0, 0.1, (16, 6))
    late[2] += 3
    late[0, 4] = 180
    late[3, [1, 3]] = 60, 70
    rows = [(rank, i, float(late[rank, i])) for rank in range(16) for i in range(6)]
    given = inputs_of(wide_of(rows), run=replace(SUMMARY, ranks=16, iterations=6))
    verdict = judge(given, Exact(given.excess))
    assert verdict.ranks == (2,)
    left = "mostly rank 0 in iteration 4 and rank 3 in iterations 1, 3"
    assert left in verdict.sentence
    judged, bare = decide(given, Exact(given.excess)), replace(verdict, sentence="Rank 2 is slow.")
    assert left in finished(bare, judged).sentence
    elsewhere = replace(judged, left_ns=3 * judged.left_ns)  # in transfers or other iterations
    assert "mostly" not in finished(bare, elsewhere).sentence


@pytest.mark.parametrize(("count", "more"), [(1, "capture more"), (COUNT, "compare the reports")])
def test_of_a_short_run_more_iterations_are_needed(count: int, more: str) -> None:
    given = inputs_of(
        wide_of([(rank, 0, 10.0 * (rank == 3)) for rank in range(RANKS)]), run=SUMMARY
    )
    assert judge(replace(given, whole=Story(0.03, (), None, count))).next.startswith(more)


@pytest.mark.parametrize("spans", [None, (RANKS, 12)])
def test_a_host_that_stops_in_a_step_is_not_denied(spans: tuple[int, int] | None) -> None:
    """Of two hosts one computes longer, which spans between collectives may not show."""
    wide = wide_of([(rank, 0, 40 * (rank >= 4) + rank / 10) for rank in range(RANKS)])
    wide = wide.with_columns(host=pl.format("node{}", pl.col("rank") // 4))
    even = None if spans is None else np.full(spans, 1.0 * MS)
    verdict = judge(inputs_of(wide, spans=even))
    assert verdict.kind is VerdictKind.INCONCLUSIVE
    assert verdict.leading is not None
    assert verdict.leading.ranks == (4, 5, 6, 7)
    assert verdict.leading.gain > 0.3


def test_who_leads_in_a_step_is_not_listed_again() -> None:
    """A fact of the run, where another rank is nearly as slow."""
    rows = [(rank, 0, {3: 20.0, 4: 14.0}.get(rank, 0.0)) for rank in range(RANKS)]
    fact = Slow((3,), Pattern(VerdictKind.TRANSIENT, (0,)), None)
    given = inputs_of(wide_of(rows), run=replace(SUMMARY, iterations=1))
    verdict = judge(replace(given, whole=Story(0.03, (fact,), None, COUNT)))
    assert verdict.leading is not None
    assert (verdict.leading.ranks, verdict.also) == ((3,), ())


@pytest.mark.parametrize(("saved_ms", "kind"), [(410, "communication"), (390, "persistent")])
def test_a_slow_rank_and_a_slow_link_explain_the_imbalance_together(
    saved_ms: int, kind: str
) -> None:
    """The first one costs less than all else; most of that is the second one."""
    given = inputs(20)

    class Saved(Exact):
        def of(
            self, healed: Iterable[Floats], transfers: Iterable[bool] = repeat(False)
        ) -> list[int]:
            gains = [
                gain + saved_ms * MS * usual
                for gain, usual in zip(super().of(healed), transfers, strict=False)
            ]
            return [gains[0] + 50 * MS * (len(gains) > 2), *gains[1:]]  # everything is the first

    verdict = judge(given, Saved(given.excess, slow=slow_link(saved_ms)))
    assert verdict.kind == kind
    assert "rank 3" in verdict.sentence.lower()


def test_who_is_given_more_work_has_no_slow_device() -> None:
    """In the phase that takes longer, the kernel has a fixed grid, which does not tell of it."""
    rows = [(r, i, 20.0 * (r == 3)) for r in range(RANKS) for i in range(COUNT)]
    kernels = [
        each
        for r, i, more in rows
        for each in (
            kernel(r, i, 20 + 0.6 * more, size=1_600 if r == 3 else 1_000, phase="forward"),
            kernel(r, i, 20 + 0.4 * more, name="persistent"),
        )
    ]
    verdict = judge(of_kernels(wide_of(rows), kernels))
    assert verdict.kind is VerdictKind.STRUCTURAL
    assert "slow" not in verdict.sentence


@pytest.mark.parametrize("own_ms", [10, 0])
def test_who_hides_less_of_the_same_transfers_makes_no_calls_without_a_match(own_ms: int) -> None:
    """Seven ranks hide 390 ms of transfers behind work, and wait for the one that hides none."""
    wait, unmatched = [400 * MS] * RANKS, [-390 * MS] * RANKS
    wait[5], unmatched[5] = 0, own_ms * MS
    held = pl.DataFrame({"rank": range(RANKS), "wait_ns": wait, "unmatched_ns": unmatched})
    sentence = judge(replace(inputs(), held_up=held)).sentence
    assert ("could not be matched" in sentence) == (own_ms > 0)

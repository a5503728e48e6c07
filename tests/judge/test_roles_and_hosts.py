"""Groups before ranks: pipelines, hosts, batches of random length; victims are not stragglers."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from rankscope.compare.verdict_inputs import JUDGED
from rankscope.judge.excess import excess_of
from rankscope.judge.healing import Prices
from rankscope.judge.phrases import whole_hosts
from rankscope.judge.replay import Healing
from rankscope.judge.rules import judge
from tests.forge import simulate, without_plants
from tests.judge.made import wide_of
from tests.support import MS, MakeStored, Stored, inputs_of, mostly_nightly

ROLES = "pp=4,dp=2"
WORKERS = [
    ("forward", "persistent", {}), ("device", "persistent", {}),
    ("backward", "periodic", {}), ("forward", "transient", {"extra_ms": 16.0, "iterations": 30}),
    ("optimizer", "persistent", {"rank": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("where", "kind", "more"), mostly_nightly(WORKERS))
@pytest.mark.slow
def test_a_slow_worker_of_a_pipeline_and_none_of_its_victims(
    stored: MakeStored, where: str, kind: str, more: dict[str, float]
) -> None:
    factor = {"factor": 1.5} if where == "device" else {}
    size = {"ranks": 8, "iterations": 16}
    job = stored("pipeline", **{**size, **factor, **more}, where=where, kind=kind)
    assert job.truth is not None
    (plant,) = job.truth.job.plants
    verdict = job.analysis(roles=ROLES).verdict
    assert (verdict.kind, verdict.ranks, verdict.roles) == (kind, plant.ranks, ())
    assert verdict.cause == ("backward" if where == "device" else where)
    assert verdict.period == (5 if kind == "periodic" else None)


@pytest.mark.slow
def test_a_slow_worker_that_nobody_waits_for_is_not_accused(stored: MakeStored) -> None:
    """The bubble hides its loading: without the plant the job takes as long."""
    job = stored("pipeline", ranks=8, iterations=16, where="load", kind="persistent")
    assert job.truth is not None
    healthy = simulate(without_plants(job.truth.job)).truth
    lengths = [
        sum(
            int(row["iteration_ns"] or 0)
            for row in truth.iterations
            if row["clock"] == "gpu" and row["iteration"] != 0
        )
        for truth in (job.truth, healthy)
    ]
    assert lengths[0] == pytest.approx(lengths[1], rel=1e-4)
    verdict = job.analysis(roles=ROLES).verdict
    assert (verdict.kind, verdict.ranks) == ("balanced", ()), verdict.sentence


@pytest.mark.slow
@pytest.mark.parametrize("roles", [ROLES, None])
def test_nobody_is_to_blame_for_the_bubble(stored: MakeStored, roles: str | None) -> None:
    job = stored("pipeline", ranks=8, iterations=16, slow="nobody")
    verdict = job.analysis(roles=roles).verdict
    assert (verdict.kind, verdict.ranks) == ("balanced", ()), verdict.sentence


@pytest.mark.slow
@pytest.mark.parametrize(("roles", "role"), [(ROLES, "pp=3"), (None, "like rank 3")])
def test_a_long_last_stage_is_by_design(stored: MakeStored, roles: str | None, role: str) -> None:
    job = stored("pipeline", ranks=8, slow="stage", factor=1.5)
    verdict = job.analysis(roles=roles).verdict
    assert (verdict.kind, verdict.ranks, verdict.roles) == ("structural", (), (role,))
    assert verdict.cause == "backward"
    assert verdict.more_work_ranks == (3, 7)
    assert verdict.gain is not None
    assert verdict.gain > 0.01


@pytest.mark.slow
@pytest.mark.parametrize("roles", mostly_nightly(["pp=4", None]))
def test_one_rank_a_stage(stored: MakeStored, roles: str | None) -> None:
    """No two ranks do the same, but their kernels are the same."""
    size = {"ranks": 4, "iterations": 16}
    verdict = stored("pipeline", **size, slow="nobody").analysis(roles=roles).verdict
    assert (verdict.kind, verdict.ranks) == ("balanced", ()), verdict.sentence
    slow = stored("pipeline", **size, factor=1.5, where="device", kind="persistent")
    assert slow.truth is not None
    verdict = slow.analysis(roles=roles).verdict
    assert (verdict.kind, verdict.ranks) == ("persistent", slow.truth.job.plants[0].ranks)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", mostly_nightly([8, 16]))
def test_a_slow_host_is_named_before_its_ranks(stored: MakeStored, ranks: int) -> None:
    """Half of the ranks may be slow: nothing but more work makes it a design."""
    verdict = stored("slow_host", ranks=ranks).analysis().verdict
    assert (verdict.kind, verdict.cause) == ("persistent", "load")
    assert (verdict.hosts, verdict.ranks) == (("node1",), (4, 5, 6, 7))
    assert verdict.next.startswith("open their reports beside a normal one")
    assert verdict.sentence.startswith("Host node1 (ranks 4-7)")


@pytest.mark.slow
@pytest.mark.parametrize(("ranks", "seed"), mostly_nightly([(8, 0), (8, 1)]))
def test_random_batch_lengths_rotate(stored: MakeStored, ranks: int, seed: int) -> None:
    verdict = stored("sequence_lengths", ranks=ranks, seed=seed).analysis().verdict
    assert (verdict.kind, verdict.ranks) == ("rotating", ()), verdict.sentence
    assert verdict.cause in ("forward", "backward")


def test_hosts_by_hand() -> None:
    hosts: dict[int, str | None] = {0: "a", 1: "a", 2: "b", 3: "b", 4: "c", 5: None}
    assert whole_hosts([2, 3], hosts) == ("b",)
    assert whole_hosts([0, 1, 2, 3], hosts) == ("a", "b")
    assert whole_hosts([2], hosts) == (), "one of two"
    assert whole_hosts([1, 2, 3], hosts) == ()
    assert whole_hosts([4], hosts) == (), "a host of one rank is that rank"
    assert whole_hosts([5], hosts) == (), "unknown"
    assert whole_hosts([0, 1], {0: "a", 1: "a"}) == (), "there is no other host"


def wide(work: dict[str, float], hold: float = 1.0, count: int = 20) -> pl.DataFrame:
    """Two ranks a role; each role needs its `work` (ms of 100) in a share of the iterations."""
    usual = min(work.values())
    rows = [
        (2 * place + twin, role, i, round((ms if i < hold * count else usual) * MS), 100 * MS)
        for place, (role, ms) in enumerate(work.items())
        for twin in (0, 1)
        for i in range(count)
    ]
    names = ["rank", "role", "iteration", "work_ns", "iteration_ns"]
    frame = pl.DataFrame(rows, schema=names, orient="row").with_columns(backward_ns="work_ns")
    return frame.with_columns(
        pl.lit(0).alias(f"{name}_ns") for name in ("load", "forward", "optimizer", "other")
    )


def test_the_heavy_role_by_hand() -> None:
    verdict = judge(inputs_of(wide({"a": 50, "b": 50, "c": 50, "d": 70})))
    assert (verdict.kind, verdict.roles, verdict.ranks) == ("structural", ("d",), ())
    assert verdict.more_work_ranks == (6, 7)
    assert (verdict.excess_ns, verdict.cause) == (20 * MS, "backward")
    assert verdict.gain_is_bound


@pytest.mark.parametrize(("more", "bound"), [(5.0, 10), (60.0, 100)])
def test_a_path_may_pass_through_a_slow_rank_of_each_stage(more: float, bound: float) -> None:
    """An iteration of 100 ms gets shorter by no more than that."""
    inputs = inputs_of(wide({"a": 80, "b": 80}))
    ms = np.where(np.arange(4) % 2, more, 0.0)[:, None]  # the second rank of each stage
    excess = inputs.excess
    healed = excess.saved(np.broadcast_to(ms * MS, (4, 20)), excess.spent)
    assert Prices(excess).most(healed, 0) == bound * MS * 20


@pytest.mark.parametrize(
    ("work", "hold"),
    [({"a": 50, "b": 50, "c": 50}, 1), ({"a": 50, "b": 50, "c": 50.5}, 1),
     ({"all": 50}, 1)],
    ids=["equal", "below 1 %", "one role"],
)  # fmt: skip
def test_no_role_is_heavy(work: dict[str, float], hold: float) -> None:
    assert judge(inputs_of(wide(work, hold))).roles == ()


def test_a_role_that_names_no_phases_has_no_more_work_for_it() -> None:
    """All its work is in `other`, of which the others have none."""
    unnamed = pl.col("role").is_in(["a", "b"])
    frame = wide({"a": 50, "b": 50, "c": 50, "d": 50}).with_columns(
        other_ns=pl.when(unnamed).then("work_ns").otherwise("other_ns"),
        **{
            f"{each}_ns": pl.when(~unnamed).then(f"{each}_ns")
            for each in ("load", "forward", "backward", "optimizer")
        },
    )
    verdict = judge(inputs_of(frame))
    assert (verdict.roles, verdict.gain_all_ns) == ((), 0)


def test_the_only_rank_of_a_heavy_role_cannot_be_judged() -> None:
    frame = wide({"a": 50, "b": 50, "c": 70}).filter(pl.col("rank") != 5)
    verdict = judge(inputs_of(frame))
    assert (verdict.kind, verdict.ranks, verdict.roles) == ("inconclusive", (), ())
    assert "rank 4" in verdict.sentence


def test_gains_are_bounds_where_ranks_cannot_be_compared_between_collectives() -> None:
    excess = inputs_of(wide_of([(rank, i, 0.0) for rank in range(4) for i in range(4)])).excess

    def why(size: int, *compared: bool) -> str | None:
        played: Any = SimpleNamespace(
            size=size, rows=pl.DataFrame({"iteration": [0]}), iterations=range(4), unsure_ns=0.0,
            compared=np.array(compared),
        )  # fmt: skip
        return Prices(excess, played).why_bound

    assert why(2, True, True, True, True, False) is None
    assert why(2, True, True, True, False) == "ranks do not call collectives equally often"
    assert why(1, False) is None, "they meet once"


def test_gains_are_bounds_where_broadcasts_take_long_after_all_they_wait_for_came() -> None:
    """A rank that is some broadcasts ahead of the next one of the chain waits for buffers."""
    excess = inputs_of(wide_of([(rank, i, 0.0) for rank in range(4) for i in range(4)])).excess

    def why(share: float) -> str | None:
        unsure_ns = share * np.nansum(excess.lengths)
        played: Any = SimpleNamespace(
            size=2, rows=pl.DataFrame({"iteration": [0]}), iterations=range(4),
            unsure_ns=unsure_ns, compared=np.ones(4),
        )  # fmt: skip
        return Prices(excess, played).why_bound

    assert why(0.049) is None
    assert why(0.05) == "ranks that broadcast or send may also wait for earlier calls of others"


class Played:
    """A replay in which each rank's work is the only thing that takes time."""

    iterations = range(10)

    def placed(self, *given: Any) -> Any:
        return given[-1]

    def gains_ns(self, healings: list[Healing], _: object) -> list[int]:
        return [int(np.sum(each.work)) for each in healings]


@pytest.mark.parametrize(
    ("host_ms", "healed", "gain_ms"),
    [
        (80, {3: 10}, 200),
        (80, {3: 4}, 80),  # in as many iterations
        (80, {3: 10, 1: 10}, 410),  # its host is then as usual
        (50, {3: 10}, 400),  # no longer than a device
        (97, {3: 10}, 400),  # it may wait unseen
    ],
)
def test_healing_leaves_as_much_time_as_the_slowest_other_host_needs(
    host_ms: int, healed: dict[int, int], gain_ms: int
) -> None:
    """Rank 3 works 40 ms more; while rank 1 waits for it, its host has launched all."""
    wide = wide_of([(rank, i, 40.0 * (rank == 3)) for rank in range(4) for i in range(10)])
    waits = pl.when(pl.col("rank") == 3).then(0).otherwise(45)
    in_most = pl.when(pl.col("iteration") > 1).then(5).otherwise(0)  # it waits unseen
    host = pl.when(pl.col("rank") == 1).then(host_ms + in_most).otherwise(20)
    excess = inputs_of(wide.with_columns(wait_ns=waits * MS, host_ns=host * MS)).excess
    less = np.zeros(excess.by_phase.shape)
    for rank, count in healed.items():
        less[rank, :count, excess.phases.index("backward")] = (40 if rank == 3 else 1) * MS
    prices = Prices(excess, cast(Any, Played()))
    assert prices.of([less]) == [gain_ms * MS]
    assert (prices.above_hosts(less.sum(axis=2)) == gain_ms * MS) == (gain_ms in (80, 200))


def test_what_ranks_of_a_host_share_is_known_from_their_reports(sample: Stored) -> None:
    analysis = sample.analysis()
    excess = excess_of(analysis.rows().select(JUDGED), "work")
    names = dict(analysis.tables.ranks.select("rank", "host").iter_rows())
    pairs = {(names[rank], host) for rank, host in zip(excess.ranks, excess.hosts, strict=True)}
    assert len(pairs) == len({*names.values()}) == 2

"""What mending would save, against the simulator run again without what was planted."""

from collections.abc import Collection
from typing import Any

import numpy as np
import polars as pl
import pytest

from rankscope.compare.comparison import Comparison
from rankscope.compare.scenarios import listed
from rankscope.judge.excess import excess_of
from rankscope.judge.replay import Healing, Replay
from tests.forge import Truth, simulate, without_plants
from tests.support import MakeStored, mostly_nightly, mostly_slow, replay_of

PLANTED = [
    ("persistent", "load"), ("transient", "forward"), ("periodic", "device"),
    ("persistent", "backward"), ("persistent", "device"), ("periodic", "forward"),
]  # fmt: skip
CASES: list[tuple[str, dict[str, Any], str | None]] = [
    *(("planted", {"kind": kind, "where": where}, None) for kind, where in PLANTED[:3]),
    ("tensor_parallel", {"ranks": 8}, None),
    ("pipeline", {"ranks": 16, "iterations": 12}, "pp=4,dp=4"),
    *(("planted", {"kind": kind, "where": where}, None) for kind, where in PLANTED[3:]),
    ("buffers", {}, None),
    ("buckets", {}, None),
    ("host_only", {}, None),
    ("load_between", {}, None),
]
SHORT = {"extra_ms": 20.0}
"""So that the two or so iterations of a transient plant outweigh the noise."""


def healing(
    analysis: Comparison,
    replay: Replay,
    rank: int | None = None,
    phase: str | None = None,
    iterations: Collection[int] | None = None,
) -> Healing:
    """Some or all ranks at their role's median, in some or all phases and iterations."""
    excess = excess_of(analysis.rows(), "work")
    saved = excess.saved(excess.total, excess.by_phase)
    ranks = np.ones(len(excess.ranks), np.bool_) if rank is None else excess.ranks == rank
    where = np.isin(excess.numbers, list(excess.numbers if iterations is None else iterations))
    saved = excess.only(saved, ranks[:, None] & where)
    if phase is not None:
        saved[:, :, [each != phase for each in excess.phases]] = 0
    return Healing(replay.placed(excess.ranks, excess.numbers, saved.sum(axis=2)))


def length(truth: Truth, clock: str, numbers: tuple[int, ...]) -> float:
    """How long those iterations took, the mean over ranks."""
    frame = pl.DataFrame(truth.iterations, infer_schema_length=None).filter(
        pl.col("iteration").is_in(numbers), clock=clock
    )
    return float(frame["iteration_ns"].sum()) / frame["rank"].n_unique()


@pytest.mark.parametrize(
    ("name", "parameters", "roles"),
    mostly_slow(CASES, slow=4),
    ids=["-".join(map(str, (name, *more.values()))) for name, more, _ in CASES],
)
def test_gains_are_what_the_plant_cost(
    stored: MakeStored, name: str, parameters: dict[str, object], roles: str | None
) -> None:
    more = SHORT if parameters.get("kind") == "transient" else {}
    job = stored(name, **parameters, **more)
    assert job.truth is not None
    healthy = simulate(without_plants(job.truth.job)).truth
    analysis = job.analysis(roles=roles)
    numbers, clock = analysis.selection.numbers, analysis.clock
    was = length(job.truth, clock, numbers)
    true = was - length(healthy, clock, numbers)
    replay = replay_of(analysis)
    assert replay is not None
    assert replay.times_ns([Healing()], numbers)[0].mean == pytest.approx(was, rel=0.001)
    verdict = analysis.verdict
    assert verdict.ranks == tuple(sorted({r for p in job.truth.job.plants for r in p.ranks}))
    assert verdict.gain_ns == pytest.approx(true, rel=0.05)
    assert verdict.gain == pytest.approx(true / was, rel=0.06)


@pytest.mark.slow
def test_a_replay_of_nothing_changed_changes_nothing(stored: MakeStored) -> None:
    for name in ("plain", "loss_all_reduce", "trailing_all_gather", "free_running", "mpi_like"):
        job = stored(name)
        assert job.truth is not None
        analysis = job.analysis()
        numbers = analysis.selection.numbers
        replay = replay_of(analysis)
        assert replay is not None
        true = length(job.truth, analysis.clock, numbers)
        assert replay.times_ns([Healing()], numbers)[0].mean == pytest.approx(true, rel=0.001), name
        nobody = [healing(analysis, replay, rank=-1), healing(analysis, replay, iterations=())]
        assert replay.gains_ns(nobody, numbers) == [0, 0]


def test_mending_more_gains_no_less(stored: MakeStored) -> None:
    job = stored("planted", kind="persistent", where="backward")
    analysis = job.analysis()
    replay, numbers = replay_of(analysis), analysis.selection.numbers
    assert replay is not None
    early = numbers[: len(numbers) // 2]
    one, rank, everything, half, elsewhere, another = replay.gains_ns(
        [
            healing(analysis, replay, 3, "backward"),
            healing(analysis, replay, 3),
            healing(analysis, replay),
            healing(analysis, replay, 3, iterations=early),
            healing(analysis, replay, 3, "load"),
            healing(analysis, replay, 0),
        ],
        numbers,
    )
    assert 0 < half < rank <= everything
    assert one == pytest.approx(rank, rel=0.1)
    assert max(elsewhere, another) < 0.1 * rank


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_nightly(["planted", "trailing_all_gather", "mpi_like"]))
def test_targets_played_together_gain_what_they_gain_alone(stored: MakeStored, name: str) -> None:
    analysis = stored(name).analysis()
    replay, numbers = replay_of(analysis), analysis.selection.numbers
    assert replay is not None
    some = [healing(analysis, replay, rank) for rank in range(4)]
    targets = [Healing(), healing(analysis, replay), *some, Healing()]
    together = replay.times_ns(targets, numbers)
    assert len({*together}) > 2
    for most in (0, 2 * replay.size):
        assert replay.times_ns(targets, numbers, most=most) == together


def test_the_table_of_scenarios(stored: MakeStored) -> None:
    analysis = stored("planted", kind="periodic", where="forward").analysis()
    output = analysis.imbalance().what_if
    assert output is not None
    assert output["gain_ns"].is_sorted(descending=True)
    assert (output["gain_ns"] >= 0).all()
    whole = {*(output["time_ns"] + output["gain_ns"])}
    assert max(whole) - min(whole) <= 2, "all are measured against one time"
    by_kind = {row["kind"]: row for row in output.sort("gain_ns").iter_rows(named=True)}
    assert by_kind.keys() >= {"all", "verdict", "phase", "rank", "iterations"}
    assert by_kind["verdict"]["gain_ns"] == pytest.approx(analysis.verdict.gain_ns, abs=2)
    assert by_kind["phase"]["name"] == "forward"
    assert by_kind["rank"]["name"] == "rank 3"
    assert by_kind["all"]["gain_ns"] >= by_kind["rank"]["gain_ns"]


@pytest.mark.slow
def test_a_role_can_be_what_is_mended(stored: MakeStored) -> None:
    """A long last stage, were it like the others: again by simulating.

    Its additional work is in forward and backward; what is taken out is from all its work alike.
    """
    job = stored("pipeline", ranks=8, slow="stage", factor=1.5)
    assert job.truth is not None
    analysis = job.analysis(roles="pp=4,dp=2")
    output = analysis.imbalance().what_if
    assert output is not None
    roles = output.filter(kind="role")
    assert {*roles["name"]} == {f"pp={stage}" for stage in range(4)}
    numbers, clock = analysis.selection.numbers, analysis.clock
    healthy = simulate(without_plants(job.truth.job)).truth
    true = length(job.truth, clock, numbers) - length(healthy, clock, numbers)
    assert roles.row(0, named=True)["name"] == "pp=3"
    assert roles["gain_ns"][0] == pytest.approx(true, rel=0.15)


def test_where_it_cannot_be_known_nothing_is_played(stored: MakeStored) -> None:
    analysis = stored("plain").analysis(clock="host")
    assert replay_of(analysis) is None
    assert analysis.imbalance().what_if is None


def test_successive_iterations_are_a_range() -> None:
    assert listed((18,)) == "iteration 18"
    assert listed((2, 7, *range(12, 30))) == "iterations 2, 7, 12-29"

"""What holds for every verdict: METHOD.md#verdict.

On matrices with hypothesis, on scenes, and on real captures: ranges tell one story, fewer reports
and another order of ranks change no names, and nothing that costs is denied.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from msgspec import structs

import rankscope
from rankscope.judge.inputs import RunSummary, VerdictInputs
from rankscope.judge.levels import MUCH
from rankscope.judge.rules import judge
from rankscope.model.intervals import Floats
from rankscope.model.kinds import VerdictKind
from tests.forge import SCENES
from tests.invariants import contradictions, mentioned, untold
from tests.support import MS, MakeStored, capture, inputs_of, mostly_slow, without_ranks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"),
    mostly_slow(
        [
            ("buckets", {}),
            ("planted", {"kind": "persistent", "where": "backward"}),
            ("planted", {"kind": "periodic", "where": "load"}),
            ("mpi_like", {}),
        ],
        1,
        1,
    ),
)
def test_half_of_the_run_has_the_same_leading_rank(
    stored: MakeStored, name: str, more: dict[str, str]
) -> None:
    job = stored(name, **more)
    whole = job.analysis()
    numbers = whole.selection.numbers
    middle = numbers[len(numbers) // 2]
    for part in (slice(None, middle), slice(middle, None)):
        assert job.analysis(iter_range=part).verdict.ranks == whole.verdict.ranks, part


@pytest.mark.slow
def test_a_narrower_range_of_a_capture_leads_with_the_same_rank(
    tmp_path: Path,
) -> None:
    """The line of the README: rank 1 is slow in every seventh iteration, rank 2 once."""
    run = rankscope.ingest([capture("captured/2022.4/ddp_a")], tmp_path / "run.duckdb")
    for part in (None, slice(10, 50)):
        verdict = run.imbalance(iter_range=part).verdict
        assert (verdict.kind, verdict.ranks, verdict.period) == ("periodic", (1,), 7)
        (also,) = verdict.also
        assert (also.ranks, also.iterations, also.cause) == ((2,), (20,), "backward")


@dataclass(frozen=True)
class Job:
    """A matrix of ms beyond the usual work, rank by iteration."""

    late: Floats
    slow: frozenset[int] = frozenset()  # ranks with more than noise

    def inputs(self, ranks: list[int] | None = None) -> VerdictInputs:
        """Of all iterations of some ranks, which keep their numbers."""
        some = ranks or [*range(len(self.late))]
        missing = tuple(set(range(len(self.late))) - {*some})
        summary = RunSummary(len(some), self.late.shape[1], missing, (), "work")
        rows = wide_of(self.late).filter(pl.col("rank").is_in(some))
        return inputs_of(rows, run=summary)

    def part(self, whole: VerdictInputs, first: int, after: int) -> VerdictInputs:
        """Of some iterations, with the story of all."""
        rows = wide_of(self.late).filter(
            pl.col("rank").is_in(whole.excess.ranks),
            pl.col("iteration").is_between(first, after - 1),
        )
        run = structs.replace(whole.run, iterations=after - first)
        return inputs_of(rows, run=run, whole=whole.story)


def wide_of(late: Floats) -> pl.DataFrame:
    """The metric table of iterations in which the median rank works 50 of 60 ms."""
    rank, number = np.indices(late.shape)
    work = ((50 + late) * MS).round().astype(np.int64)
    length = work.max(axis=0) + 10 * MS
    return pl.DataFrame(
        {"rank": rank.ravel(), "iteration": number.ravel(), "backward_ns": work.ravel()}
    ).with_columns(
        role=pl.lit("all"), work_ns="backward_ns", iteration_ns=length[number.ravel()],
        **{f"{name}_ns": pl.lit(0) for name in ("load", "forward", "optimizer", "other")},
    )  # fmt: skip


@st.composite
def jobs(draw: st.DrawFn) -> Job:
    """Jobs with noise and up to two slow ranks: always, in a part, at a period, or at random."""
    ranks, count = draw(st.integers(4, 12)), draw(st.integers(10, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    late = random.normal(0, draw(st.sampled_from([0.05, 0.3, 1.0])), (ranks, count))
    slow = draw(st.frozensets(st.integers(0, ranks - 1), max_size=2))
    for rank in slow:
        amount, kind = draw(st.sampled_from([4.0, 12.0, 40.0])), draw(st.integers(0, 3))
        at = np.zeros(count)
        if kind == 0:
            at[:] = 1
        elif kind == 1:
            at[draw(st.integers(0, count // 2)) :] = 1
        elif kind == 2:
            at[draw(st.integers(0, 4)) :: draw(st.integers(3, 5))] = 1
        else:
            at[random.random(count) < 0.3] = 1
        late[rank] += amount * at
    return Job(late, slow)


@given(jobs(), st.data())
@settings(max_examples=12, deadline=None)
def test_a_range_tells_the_story_of_the_run(job: Job, data: st.DataObject) -> None:
    whole, count = job.inputs(), job.late.shape[1]
    story = judge(whole)
    first = data.draw(st.integers(0, count - 3))
    part = job.part(whole, first, data.draw(st.integers(first + 3, count)))
    assert not [*untold(part, judge(part), mentioned(story))]


@pytest.mark.slow
@given(jobs(), st.data())
@settings(max_examples=12, deadline=None)
def test_fewer_reports_accuse_nobody_else(job: Job, data: st.DataObject) -> None:
    """While most are as they should be; who is on the border of chance may be undecided.

    Where a rank with events goes, those of another one may be facts that were chance before.
    """
    verdict = judge(job.inputs())
    ranks = [*range(len(job.late))]
    free = [rank for rank in ranks if rank not in mentioned(verdict) | job.slow]
    assume(len(free) > max(2, len(ranks) - len(free)))
    gone = data.draw(st.sampled_from(free))
    fewer = judge(job.inputs([rank for rank in ranks if rank != gone]))
    assert {*fewer.ranks} <= mentioned(verdict) | job.slow, (verdict, fewer)
    if verdict.ranks and fewer.kind is not VerdictKind.INCONCLUSIVE:
        assert {*verdict.ranks} <= mentioned(fewer), (verdict, fewer)


@pytest.mark.slow
@given(jobs(), st.data())
@settings(max_examples=12, deadline=None)
def test_the_order_of_ranks_changes_nothing(job: Job, data: st.DataObject) -> None:
    order = data.draw(st.permutations(range(len(job.late))))
    moved = Job(job.late[list(order)])
    before, after = judge(job.inputs()), judge(moved.inputs())
    assert (after.kind, after.iterations, after.gain) == (
        before.kind, before.iterations, before.gain
    )  # fmt: skip
    assert {order[rank] for rank in after.ranks} == {*before.ranks}


@pytest.mark.slow
@given(jobs())
@example(Job(np.array([[0.0] * 20, [0.0] * 20, [20.0, 18.0, 20.0, 20.0] * 5])))
@settings(max_examples=12, deadline=None)
def test_what_is_named_and_listed_is_most_of_the_cost_or_the_rest_is_said(job: Job) -> None:
    inputs = job.inputs()
    verdict = judge(inputs)
    if verdict.kind is VerdictKind.BALANCED:
        assert (verdict.gain_all or 0) < MUCH
    if not verdict.ranks:
        return
    listed = (verdict.gain_ns or 0) + sum(also.gain_ns or 0 for also in verdict.also)
    enough = 0.8 * (verdict.gain_all_ns or 0) - 0.01 * inputs.total_ns
    assert listed >= enough or "after these fixes it " in verdict.sentence, verdict
    assert (verdict.gain_ns or 0) <= (verdict.gain_all_ns or 0), "a part is no more than all"


def test_what_is_unsaid_is_found() -> None:
    """The check itself can fail."""
    late = np.zeros((4, 20))
    late[2] = 30.0
    inputs = Job(late).inputs()
    verdict = judge(inputs)
    assert verdict.ranks == (2,)
    denied = structs.replace(verdict, kind=VerdictKind.BALANCED, ranks=())
    assert [*untold(inputs, denied, {2})]


SOME_SCENES = ("planted", "tensor_parallel", "autograd", "mpi_like")


def over_scenes() -> list[object]:
    """Every scene; a few by day, the others at night."""
    night = [pytest.mark.slow, pytest.mark.nightly]
    return [
        pytest.param(name, marks=[pytest.mark.slow] if name in SOME_SCENES else night)
        for name in SCENES
    ]


@pytest.mark.parametrize("name", over_scenes())
def test_scenes_keep_their_story(stored: MakeStored, tmp_path: Path, name: str) -> None:
    """In each third of the run, and without a rank that nobody mentions."""
    job = stored(name, ranks=8)
    comparison = job.run.compare()
    verdict, numbers = comparison.verdict, comparison.selection.numbers
    third, turns = len(numbers) // 3, verdict.kind is VerdictKind.ROTATING
    for at in (0, third, 2 * third):
        part = job.analysis(iter_range=slice(numbers[at], numbers[at] + third))
        assert {*part.verdict.ranks} <= mentioned(verdict) or turns, part.verdict
    free = [rank for rank in range(8) if rank not in mentioned(verdict)]
    if verdict.ranks and len(free) > 2:
        fewer = rankscope.open_run(without_ranks(job.db, tmp_path / "fewer.duckdb", free[-1:]))
        again = fewer.compare().verdict
        assert {*again.ranks} <= mentioned(verdict), (verdict, again)
        assert {*verdict.ranks} <= mentioned(again), (verdict, again)


def test_contradictions_are_found(stored: MakeStored) -> None:
    """The check itself can fail."""
    found = stored("planted", kind="persistent", where="backward").analysis()
    for wrong in (
        {"ranks": (0,)},
        {"gain": 0.005},
        {"gain_all": 0.01},
        {"gain_all_ns": 5},
        {"gain_ns": 5},
    ):
        verdict = structs.replace(found.verdict, **wrong)
        assert list(contradictions(structs.replace(found, _verdict=verdict))), wrong

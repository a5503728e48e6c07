"""Transfers that take longer than those like them: METHOD.md#verdict."""

from collections.abc import Iterable
from itertools import repeat

import numpy as np
import polars as pl
import pytest

from rankscope.compare import stages
from rankscope.compare.comparison import Comparison
from rankscope.compare.stages import compare
from rankscope.judge import healing
from rankscope.judge.rules import judge
from rankscope.judge.transfers import SlowTransfers, slow_transfers
from rankscope.model.intervals import Floats
from rankscope.model.kinds import POINT_TO_POINT
from rankscope.model.options import Options
from tests.judge.made import COUNT, RANKS, SUMMARY, Exact, wide_of
from tests.support import MS, MakeStored, inputs_of

GROUPS = {0: [0, 1], 1: [2, 3], 2: [0, 2], 3: [1, 3]}
FRAME = pl.DataFrame({"group": [*GROUPS], "members": [*GROUPS.values()]}).with_columns(
    label=pl.lit("world"), on_host=pl.lit(False), ends_error_ns=pl.lit(0)
)


def instances(calls: dict[int, int], size: int | None = None, iterations: int = 10) -> pl.DataFrame:
    """Iterations with a number of all-reduces for each communicator: group → number."""
    return pl.DataFrame(
        [
            {"group": group, "operation": "all_reduce", "iteration": number, "ordinal": ordinal}
            for number in range(iterations)
            for group, count in calls.items()
            for ordinal in range(count)
        ]
    ).with_columns(bytes=pl.lit(size, pl.Int64), transfer=pl.lit(0, pl.Int64), hidden=False)


def slow_groups(calls: dict[int, int], slow: set[int]) -> list[int]:
    rows = instances(calls)
    service = np.where(rows["group"].is_in([*slow]), 2.0, 0.2) * MS
    found = slow_transfers(rows, service, range(10), FRAME, {})
    return [] if found is None else sorted(found.slow["group"])


def jitter(rows: pl.DataFrame) -> Floats:
    """One call in five takes ten times as long, as over sockets of a busy host."""
    draws = np.random.default_rng(3).random(rows.height)
    return np.where(draws < 0.2, 2.0, 0.2) * MS


def found_in(rows: pl.DataFrame, service: Floats) -> SlowTransfers | None:
    return slow_transfers(rows, service, range(10), FRAME, {})


def test_one_of_several_communicators_that_do_the_same() -> None:
    assert slow_groups(dict.fromkeys(GROUPS, 4), {3}) == [3]


PAIRS = [[0, 2], [1, 3], [2, 4], [3, 5]]
"""Who sends to whom in two pipelines."""


def slow_pairs(took_ms: list[float], hosts: dict[int, str | None]) -> list[list[int]]:
    """The pairs whose sends are slow; each sends in both directions, on a stream for each."""
    pairs = [*PAIRS, *PAIRS]
    groups = pl.DataFrame(
        {
            "group": range(8),
            "members": pairs,
            "label": [f"ranks {one} and {other}" for one, other in pairs],
            "on_host": False,
            "ends_error_ns": None,
        }
    )
    rows = instances(dict.fromkeys(range(8), 4))
    rows = rows.with_columns(operation=pl.lit(POINT_TO_POINT))
    service = np.array(took_ms * 2)[rows["group"].to_numpy()] * MS
    found = slow_transfers(rows, service, range(10), groups, hosts)
    return [] if found is None else found.slow["members"].unique().sort().to_list()


def test_sends_between_two_ranks_are_compared_with_those_of_others() -> None:
    assert slow_pairs([0.06, 0.06, 0.06, 2.4], {}) == [[3, 5]]
    assert slow_pairs([0.06, 0.06, 2.4, 2.4], {}) == [[2, 4], [3, 5]]


def test_sends_across_hosts_are_compared_with_each_other() -> None:
    """The network is slower than what links the devices of a host."""
    hosts: dict[int, str | None] = {rank: f"node{rank // 4}" for rank in range(6)}
    assert slow_pairs([0.06, 0.06, 0.4, 0.4], hosts) == []
    assert slow_pairs([0.06, 0.06, 0.4, 2.4], hosts) == [[3, 5]]
    lone: dict[int, str | None] = {**hosts, 4: "node0"}
    assert slow_pairs([0.06, 0.06, 0.06, 2.4], lone) == [[3, 5]], "it is the only one"


def test_of_groups_that_end_together_one_is_slow() -> None:
    """All others seem to be one, which is through before the last of its ranks comes."""
    groups = FRAME.head(2).with_columns(members=pl.Series([[*range(14)], [14, 15]]))
    rows = instances({0: 8, 1: 8}).with_columns(transfer=pl.lit(round(0.2 * MS)))
    service = np.where(rows["group"] == 1, 0.6, 0.0) * MS
    labels = groups.with_columns(label=pl.lit("device all_reduce*8 0"))
    found = slow_transfers(rows, service, range(10), labels, {})
    assert found is not None
    assert found.slow["members"].to_list() == [[14, 15]]
    assert found.slow["usual_ns"].to_list() == [round(0.2 * MS)]
    others = groups.with_columns(label=pl.Series(["one", "two"]))
    found = slow_transfers(rows, service, range(10), others, {})
    assert found is None, "they do different things"


@pytest.mark.parametrize(("scatter_ms", "is_slow"), [(0.5, False), (0.001, True)])
def test_ranks_that_do_not_end_together_may_be_of_several_groups(
    scatter_ms: float, is_slow: bool
) -> None:
    """The first ones are through before the last ones come, as in replicas without names."""
    groups = FRAME.head(2).with_columns(
        members=pl.Series([[*range(4)]] * 2), ends_error_ns=pl.Series([scatter_ms * MS, 0.0])
    )
    rows = instances({0: 1, 1: 1}).with_columns(transfer=pl.lit(round(1.2 * MS)))
    service = np.where(rows["group"] == 0, 0.0, 1.2) * MS
    found = slow_transfers(rows, service, range(10), groups, {})
    assert (found is not None) == is_slow


def test_communicators_that_are_called_differently_often_do_different_things() -> None:
    """Two replicas of two ranks: gradients are more than what a layer exchanges."""
    assert slow_groups({0: 8, 1: 8, 2: 4, 3: 4}, {2, 3}) == []


@pytest.mark.parametrize("size", [None, 1 << 20])
def test_single_calls_vary_by_chance(size: int | None) -> None:
    for calls in ({0: 12}, {0: 24, 1: 24, 2: 12, 3: 12}):
        rows = instances(calls, size)
        assert found_in(rows, jitter(rows)) is None


@pytest.mark.parametrize("seed", [227, 269, 312, 343, 368, 393])
def test_few_sums_may_scatter_less_than_their_calls(seed: int) -> None:
    """Of nine iterations one or two stand out; their calls scatter as those of the others do."""
    rows = instances({0: 8}, iterations=9)
    varying = np.random.default_rng(seed).lognormal(0, 0.5, rows.height) * MS
    assert found_in(rows, varying) is None


def test_calls_of_one_iteration_vary_by_chance() -> None:
    rows = instances(dict.fromkeys(GROUPS, 12), 1 << 20, iterations=1)
    assert found_in(rows, jitter(rows)) is None


@pytest.mark.parametrize("size", [None, 1 << 20])
def test_a_link_that_is_slow_at_times_beside_calls_that_vary(size: int | None) -> None:
    rows = instances({0: 12, 1: 12}, size)
    slow = (rows["iteration"].is_in([2, 5, 6]) & (rows["group"] == 1)).to_numpy()
    found = found_in(rows, jitter(rows) + 2.0 * MS * slow)
    assert found is not None
    assert found.slow.select("group", "iterations").rows() == [(1, [2, 5, 6])]
    each = found.slow.row(0, named=True)
    assert each["per_iteration"] == 12
    assert each["transfer_ns"] - each["usual_ns"] == pytest.approx(2.0 * MS, rel=0.2)
    assert found.saved.sum() == pytest.approx(each["excess_ns"], abs=1)
    assert not found.saved[~slow].any()
    assert each["excess_ns"] == pytest.approx(36 * 2.0 * MS, rel=0.2)


@pytest.mark.parametrize("size", [None, 1 << 20])
def test_a_link_that_is_always_slow_beside_calls_that_vary(size: int | None) -> None:
    """The faster one of two is usual."""
    rows = instances({0: 12, 1: 12}, size)
    found = found_in(rows, jitter(rows) * np.where(rows["group"] == 1, 4, 1))
    assert found is not None
    assert found.slow["group"].to_list() == [1]


@pytest.mark.parametrize("size", [None, 1 << 20])
def test_links_that_always_delay_short_and_long_calls_alike(size: int | None) -> None:
    """What a call usually takes on its own link is no scatter."""
    rows = instances(dict.fromkeys(GROUPS, 8), size)
    rows = rows.with_columns(bytes=pl.col("bytes") * (1 + 999 * (pl.col("ordinal") > 3)))
    usual = np.where(rows["ordinal"] > 3, 6.0, 0.3) * MS
    usual *= np.random.default_rng(0).lognormal(0, 0.1, rows.height)
    found = found_in(rows, usual + 2.0 * MS * (rows["group"] > 1).to_numpy())
    assert found is not None
    assert sorted(found.slow["group"]) == [2, 3]


def test_a_link_that_is_a_little_slower_is_not_slow() -> None:
    rows = instances(dict.fromkeys(GROUPS, 12))
    assert found_in(rows, np.where(rows["group"] == 2, 0.29, 0.2) * MS) is None


def test_a_link_that_is_slow_where_others_take_no_time() -> None:
    rows = instances({0: 4, 1: 4})
    found = found_in(rows, np.where(rows["group"] == 1, MS, 0.0))
    assert found is not None
    assert found.slow.select("group", "transfer_ns", "usual_ns").rows() == [(1, MS, 0)]


def test_what_hosts_carry_out_is_not_compared_with_what_devices_do() -> None:
    """As objects, which gloo gathers, beside NCCL's gathers of weights."""
    rows = instances({0: 1, 1: 1})
    service = np.where(rows["group"] == 1, 20.0, 1.0) * MS
    assert found_in(rows, service) is not None
    of_hosts = FRAME.with_columns(on_host=pl.col("group") == 1)
    assert slow_transfers(rows, service, range(10), of_hosts, {}) is None


def test_calls_that_are_never_quick_at_once_are_not_slow_when_none_is() -> None:
    """Of two calls, one or the other is usually quick; sometimes neither is."""
    rows = instances({0: 2}, iterations=20).with_columns(bytes=2 ** (10 * pl.col("ordinal")))
    service = np.array([[9, 1]] * 9 + [[1, 9]] * 9 + [[9, 9]] * 2) * 1.0 * MS
    assert slow_transfers(rows, service.ravel(), range(20), FRAME, {}) is None


def test_a_larger_group_takes_longer_than_smaller_ones_of_its_label() -> None:
    """Eight pairs, and groups of 8 ranks, of which an all-reduce takes 1.75 times as long."""
    members = [[2 * pair, 2 * pair + 1] for pair in range(8)]
    members += [[*range(first, first + 8)] for first in (16, 24, 32)]
    groups = pl.DataFrame({"group": range(11), "members": members}).with_columns(
        label=pl.lit("device all_reduce*8 0"), on_host=pl.lit(False), ends_error_ns=pl.lit(0)
    )
    for count, slow in ((9, []), (11, []), (11, [10])):
        rows = instances(dict.fromkeys(range(count), 8))
        long, faulty = rows["group"] >= 8, rows["group"].is_in(slow)
        service = np.where(long, 1.75, 1.0) * np.where(faulty, 3.0, 1.0) * MS
        found = slow_transfers(rows, service, range(10), groups.head(count), {})
        assert ([] if found is None else found.slow["group"].to_list()) == slow


@pytest.mark.parametrize("slow", [range(3, 10), range(7)])
def test_a_network_that_gets_slow_or_quick(slow: range) -> None:
    """Most iterations are slow, but the transfers are known to be quicker in the others."""
    rows = instances({0: 4})
    took = rows["iteration"].is_in(slow) + np.random.default_rng(0).uniform(1.0, 1.1, rows.height)
    found = found_in(rows, took * MS)
    assert found is not None
    assert found.slow["iterations"].to_list() == [[*slow]]
    assert found.slow["usual_ns"][0] == pytest.approx(1.05 * MS, rel=0.03)


def test_a_link_is_slow_in_a_run_that_cannot_be_replayed(
    stored: MakeStored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here because times are not exact. What it saves is a bound, at most what nobody works."""
    run = stored("slow_link", 8)
    exact = run.analysis().verdict
    assert not exact.gain_is_bound
    monkeypatch.setattr(Comparison, "times_unsure", True)
    comparison = compare(run.run.tables, Options())
    verdict = comparison.verdict
    assert (verdict.kind, verdict.members) == ("communication", exact.members)
    assert verdict.gain_is_bound
    work = (
        comparison.rows()
        .group_by("iteration")
        .agg(left=pl.col("iteration_ns").median() - pl.col("work_ns").max())
    )
    assert exact.gain_ns is not None
    assert verdict.gain_ns is not None
    assert exact.gain_ns <= verdict.gain_ns <= work["left"].sum()
    numbers = comparison.selection.numbers
    monkeypatch.setattr(stages, "MOST_CALLS", len(numbers))
    monkeypatch.setattr(stages, "iterations_to_play", lambda *_: (numbers[::2], numbers[::2]))
    part = compare(run.run.tables, Options()).verdict  # of the other iterations nothing is known
    assert part.iterations == tuple(verdict.iterations[::2])
    assert part.gain_ns == pytest.approx(verdict.gain_ns, rel=0.1)
    assert f"over all {len(part.iterations)} iterations looked at. " in part.sentence


def test_what_is_known_of_some_iterations_stands_for_all() -> None:
    """Those in between are interpolated; those that were chosen for their excess do not count."""
    rows = instances(dict.fromkeys(GROUPS, 4)).filter(pl.col("iteration").is_in([0, 6, 7, 9]))
    slow = (rows["group"] == 3) & (rows["iteration"] >= 6)
    service = np.where(slow, 2.0, 0.2) * MS
    found = slow_transfers(rows, service, range(10), FRAME, {}, spread=[0, 9])
    assert found is not None
    assert found.numbers == (0, 6, 7, 9)
    whole = found.most[9]
    assert found.most[[0, 6, 7]].tolist() == [0.0, whole, whole]
    assert found.most[[3, 8]] / whole == pytest.approx([3 / 9, 8 / 9])


def test_nothing_is_slow_in_iterations_without_a_transfer() -> None:
    """As of local SGD, where every fourth iteration reduces."""
    rows = instances(dict.fromkeys(GROUPS, 4), iterations=COUNT)
    rows = rows.filter(pl.col("iteration") % 4 == 0)
    slow = slow_transfers(
        rows, np.where(rows["group"] == 3, 2.0, 0.2) * MS, range(COUNT), FRAME, {}
    )
    assert slow is not None
    assert np.flatnonzero(slow.most).tolist() == [*range(0, COUNT, 4)]
    given = inputs_of(wide_of([(r, i, 0.0) for r in range(RANKS) for i in range(COUNT)]))
    verdict = judge(given, Exact(given.excess, slow=slow))
    assert verdict.kind == "communication"
    assert verdict.iterations_share == 1 / 4
    assert f", in {COUNT // 4} of {COUNT} iterations. " in verdict.sentence


def test_all_that_healing_saves_is_scaled_by_work_and_transfers(
    stored: MakeStored, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here one iteration with the most work would stand for all, though transfers cost more."""
    run = stored("slow_link", 8)
    exact = run.analysis().verdict
    monkeypatch.setattr(stages, "MOST_CALLS", 1)
    monkeypatch.setattr(healing, "LEAST_PLAYED", 4)
    part = compare(run.run.tables, Options()).verdict
    assert part.ranks == exact.ranks
    assert (part.gain, part.gain_all) == pytest.approx((exact.gain, exact.gain_all), rel=0.1)
    assert "gains are estimated from 4 of the iterations" in part.sentence


def test_roles_and_transfers_that_bind_by_turns_are_judged_together() -> None:
    """Each alone saves little: where one is healed, the other holds all ranks up."""
    rows = [(r, i, 6.0 * (r >= RANKS // 2)) for r in range(RANKS) for i in range(COUNT)]
    wide = wide_of(rows).with_columns(role=(pl.col("rank") // 4).cast(pl.String))
    given = inputs_of(wide, run=SUMMARY)
    calls = instances(dict.fromkeys(GROUPS, 4), iterations=COUNT)
    service = np.where(calls["group"] == 3, 2.0, 0.2) * MS

    class Binding(Exact):
        def of(
            self, healed: Iterable[Floats], transfers: Iterable[bool] = repeat(False)
        ) -> list[int]:
            of_roles = [bool(each.any()) for each in healed]
            return [
                COUNT * MS * (20 if roles and links else 3 * roles + 4 * links)
                for roles, links in zip(of_roles, transfers, strict=False)
            ]

    slow = slow_transfers(calls, service, range(COUNT), FRAME, {})
    verdict = judge(given, Binding(given.excess, slow=slow))
    assert (verdict.kind, verdict.gain_ns) == ("communication", 4 * COUNT * MS)
    assert verdict.gain_all_ns == 20 * COUNT * MS
    assert "after these fixes it still costs 16 %" in verdict.sentence

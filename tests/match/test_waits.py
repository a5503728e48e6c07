"""Who waited for whom: by hand, on clocks that agree, disagree, or are unknown."""

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace

from rankscope.match.collectives import Matched, match
from rankscope.match.wait_sums import Waits, sum_waits
from rankscope.match.waits import with_waits
from rankscope.match.warnings import communication_warnings
from rankscope.model.kinds import POINT_TO_POINT
from rankscope.model.schema import COLLECTIVES
from tests.frames import filled
from tests.match.worlds import all_exposed, both_ways, instances_of, plain

US, MS = 1_000, 1_000_000
PERIOD = 50 * MS
Call = tuple[int, int, list[int], int]
"""Moment, ordinal, arrival of each rank after it, and transfer; ns."""


def matched(
    calls: list[Call], *, count: int = 20, offsets: tuple[int, ...] = (), skew: tuple[int, ...] = ()
) -> tuple[Matched, dict[int, int | None]]:
    """The calls in every iteration; `skew` is how much later than the others a rank ends."""
    rows = []
    for i in range(count):
        for moment, ordinal, arrivals, transfer in calls:
            done = max(arrivals) + transfer
            for rank, arrival in enumerate(arrivals):
                begin = i * PERIOD + moment
                late = skew[rank] if skew else 0
                rows.append((rank, i, ordinal, begin + arrival, begin + done + late))
    names = ["rank", "iteration", "ordinal", "arrival_ns", "end_ns"]
    frame = pl.DataFrame(rows, schema=names, orient="row").with_columns(
        place=pl.lit("device"), communicator=pl.lit("named dp"), operation=pl.lit("all_reduce"),
        gradient=True, start_ns=pl.col("arrival_ns"),
    )  # fmt: skip
    ranks = len(calls[0][2])
    starts: dict[int, int | None] = {
        rank: 10**18 + (offsets[rank] if offsets else 0) for rank in range(ranks)
    }
    return match(filled(frame, COLLECTIVES), starts), starts


def waits(calls: list[Call], **how: object) -> tuple[pl.DataFrame, Waits]:
    found, starts = matched(calls, **how)
    waited = with_waits(found, starts)
    either = both_ways(found, starts).select("by_duration", "by_arrival")
    output = sum_waits(waited, all_exposed(instances_of(waited)), ("device",))
    return pl.concat([plain(instances_of(waited)), either], how="horizontal"), output


def test_a_call_by_hand() -> None:
    instances, output = waits([(0, 0, [0, 4 * MS, 1 * MS, 2 * MS], 2 * MS)])
    first = instances.filter(iteration=0).sort("rank")
    assert first["wait"].to_list() == [4 * MS, 0, 3 * MS, 2 * MS]
    assert first["by_arrival"].to_list() == [4 * MS, 0, 3 * MS, 2 * MS]
    assert {*first["transfer"]} == {2 * MS}
    assert {*first["last"]} == {1}
    by_rank = output.by_rank.sort("rank")
    assert by_rank["last_arriver_share"].to_list() == [0, 1, 0, 0]
    assert by_rank["cost_ns"].to_list() == [0, 20 * 9 * MS, 0, 0]
    assert by_rank["gain_ns"].to_list() == [0, 20 * 2 * MS, 0, 0], "then rank 3 would be last"


def test_sends_do_not_count_where_ranks_come_last() -> None:
    """Nobody comes last in them, and ranks that only send are not known to cost nothing."""
    found, starts = matched([(0, 0, [0, 4 * MS], MS), (20 * MS, 1, [0, 4 * MS], MS)])
    waited = with_waits(found, starts)
    for sends, share in ((pl.col("ordinal") == 1, [0, 1]), (pl.lit(value=True), [])):
        operation = pl.when(sends).then(pl.lit(POINT_TO_POINT)).otherwise("operation")
        shared = waited.shared.with_columns(
            operation=operation, last=pl.when(~sends).then("last").cast(pl.Int32)
        )
        only = replace(waited, shared=shared)
        output = sum_waits(only, all_exposed(instances_of(waited)), ("device",))
        assert output.by_rank["last_arriver_share"].to_list() == share


def test_a_transfer_begins_once_the_call_before_it_is_through() -> None:
    """The second call stands in the queue of the first one for 9 ms; the third one in none."""
    calls: list[Call] = [
        (0, 0, [0, 1 * MS, 0, 0], 10 * MS),
        (2 * MS, 1, [0, 0, 1 * MS, 0], 14 * MS),
        (30 * MS, 2, [0, 0, 1 * MS, 0], 5 * MS),
    ]
    instances, _ = waits(calls)
    first = instances.filter(iteration=1).unique("ordinal").sort("ordinal")
    assert first["transfer"].to_list() == [10 * MS, 6 * MS, 5 * MS]
    second = instances.filter(iteration=1, ordinal=1).sort("rank")
    assert second["wait"].to_list() == [1 * MS, 1 * MS, 0, 1 * MS]


def test_offsets_change_nothing() -> None:
    calls: list[Call] = [(0, 0, [0, 4 * MS, 1 * MS, 2 * MS], 2 * MS)]
    level, _ = waits(calls)
    apart, _ = waits(calls, offsets=(0, 5_000_000_000, -5_000_000_000, 123_456))
    for name in ("wait", "by_duration", "by_arrival", "transfer", "last"):
        assert level[name].to_list() == apart[name].to_list(), name


@pytest.mark.parametrize(("apart_us", "output"), [(40, False), (1_000, True)])
def test_nobody_is_last_when_the_two_last_come_too_close(apart_us: int, output: bool) -> None:
    """Ends scatter by 100 µs: who of two that came 40 µs apart was last cannot be said."""
    found, starts = matched([(0, 0, [0, 3 * MS, 3 * MS - apart_us * US, 1 * MS], 2 * MS)], count=60)
    jitter = (
        np.random.default_rng(0).normal(0, 100 * US, instances_of(found).height).astype(np.int64)
    )
    rows = instances_of(found).with_columns(
        end_ns=pl.col("end_ns") + pl.Series(jitter), start_ns="arrival_ns"
    )
    either = with_waits(match(filled(rows, COLLECTIVES), starts), starts)
    assert either.groups["ends_error_ns"][0] == pytest.approx(100 * US, rel=0.3)
    last = instances_of(either).unique("instance")["last"]
    if output:
        assert (last == 1).fill_null(False).mean() > 0.95
    else:
        assert last.null_count() > 0.3 * len(last)


def test_what_a_rank_always_does_is_its_clock() -> None:
    calls: list[Call] = [(0, 0, [0, 4 * MS, 1 * MS, 2 * MS], 2 * MS)]
    found, starts = matched(calls, skew=(0, 100 * US, -100 * US, 60 * US))
    groups = with_waits(found, starts).groups
    assert groups["ends_error_ns"][0] < US
    assert groups["clock_error_ns"][0] < US


def test_waits_that_overlap_count_once() -> None:
    """Queued collectives: a rank that waits in both at once waited once."""
    calls: list[Call] = [
        (0, 0, [0, 6 * MS], 1 * MS),
        (1 * MS, 1, [0, 6 * MS], 1 * MS),
    ]
    instances, output = waits(calls)
    waited = output.by_iteration.filter(rank=0)
    assert {*waited["collective_wait_ns"]} == {12 * MS}
    assert {*waited["wait_ns"]} == {7 * MS}
    assert instances["wait"].min() == 0


def test_only_exposed_waiting_costs() -> None:
    found, starts = matched([(0, 0, [0, 6 * MS], 1 * MS)])
    waited = with_waits(found, starts)
    output = sum_waits(waited, all_exposed(instances_of(waited), 3 * MS), ("device",))
    assert {*output.by_iteration.filter(rank=0)["wait_ns"]} == {2 * MS}
    assert {*output.by_iteration.filter(rank=0)["collective_wait_ns"]} == {6 * MS}
    assert output.by_rank.filter(rank=1)["cost_ns"].to_list() == [20 * 2 * MS]


def test_both_ways_are_kept_where_they_disagree() -> None:
    """A rank that leaves late now and then waited no longer, but by duration it did."""
    found, starts = matched([(0, 0, [0, 4 * MS, 1 * MS], 2 * MS)], count=40)
    late = (pl.col("rank") == 2) & (pl.col("iteration") % 3 == 0)
    rows = instances_of(found).with_columns(
        end_ns=pl.col("end_ns") + pl.when(late).then(9 * MS).otherwise(0), start_ns="arrival_ns"
    )
    again = match(filled(rows, COLLECTIVES), starts)
    groups = with_waits(again, starts).groups
    assert groups["clock_error_ns"][0] == pytest.approx(0, abs=US)
    own = both_ways(again, starts).filter(pl.col("iteration") % 3 == 0, rank=2)
    assert {*own["by_duration"]} == {12 * MS}
    assert {*own["by_arrival"]} == {3 * MS}
    assert not [*communication_warnings(again.summary, groups, [0, 1, 2])], "in most they agree"


def test_no_collectives_are_no_crash() -> None:
    nothing = match(pl.DataFrame(schema=COLLECTIVES), {0: None, 1: None})
    waited = with_waits(nothing, {0: None, 1: None})
    output = sum_waits(waited, all_exposed(instances_of(waited)), ("device",))
    assert output.by_rank.is_empty()
    assert waited.groups.is_empty()
    assert {*nothing.clocks.fits} == {0}


def test_a_rooted_call_by_hand() -> None:
    """Rank 0 sends, from rank to rank; rank 2 is late, so that rank 3 waits and rank 1 does not."""
    rows = []
    for i in range(20):
        for operation, arrivals, ends in (
            ("rooted", (1, 0, 6, 5), (2, 3, 7, 8)),
            ("rooted", (1, 0, 6, 5), (3, 4, 8, 9)),
            ("all_reduce", (10, 10, 10, 11), (20, 20, 20, 20)),
        ):
            for rank, (arrival, end) in enumerate(zip(arrivals, ends, strict=True)):
                ordinal = int(operation == "rooted" and ends[0] == 3)
                moments = (i * PERIOD + arrival * MS, i * PERIOD + end * MS)
                rows.append((rank, i, operation, ordinal, *moments))
    names = ["rank", "iteration", "operation", "ordinal", "arrival_ns", "end_ns"]
    frame = pl.DataFrame(rows, schema=names, orient="row").with_columns(
        place=pl.lit("device"), communicator=pl.lit("named dp"),
        gradient=False, start_ns=pl.col("arrival_ns"),
    )  # fmt: skip
    calls = filled(frame, COLLECTIVES)
    starts: dict[int, int | None] = dict.fromkeys(range(4), 10**18)
    found = match(calls, starts)
    instances = plain(instances_of(with_waits(found, starts))).filter(iteration=3)
    rooted = instances.filter(operation="rooted").sort("ordinal", "rank")
    assert rooted["wait"].to_list() == [0, 1 * MS, 0, 1 * MS] * 2
    assert {*rooted["last"]} == {2}
    assert rooted["transfer"].to_list() == [2 * MS] * 4 + [1 * MS] * 4, "queued behind the first"
    assert found.lost["lasted_ns"].sum() == 0


@pytest.mark.parametrize("apart", ["streams", "clocks"])
def test_rooted_calls_stay_unsplit_where_nothing_tells(apart: str) -> None:
    """Who communicates, and when by one clock, is known from other calls only."""
    rows = [
        (rank, i, operation, i * PERIOD, i * PERIOD + MS)
        for rank in range(2)
        for i in range(20)
        for operation in ("all_reduce", "rooted")
        if operation == "rooted" or apart == "streams" or rank == i
    ]
    names = ["rank", "iteration", "operation", "arrival_ns", "end_ns"]
    frame = pl.DataFrame(rows, schema=names, orient="row").with_columns(
        place=pl.lit("device"), ordinal=0, gradient=False, start_ns=pl.col("arrival_ns"),
        communicator=pl.lit("named dp") if apart == "clocks" else "named " + pl.col("operation"),
    )  # fmt: skip
    found = match(filled(frame, COLLECTIVES), dict.fromkeys(range(2), 10**18))
    assert "rooted" not in found.shared["operation"].to_list()
    lost = found.lost.filter(pl.col("iteration") > 1)
    assert lost["lasted_ns"].sum() == 2 * 18 * MS

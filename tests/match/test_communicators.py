"""Who shares a communicator, and what is left unmatched, with its reason."""

from dataclasses import replace

import polars as pl
import pytest

from rankscope.match.collectives import match
from rankscope.match.waits import with_waits
from rankscope.match.warnings import communication_warnings
from tests.match.worlds import World, instances_of, world
from tests.support import mostly_nightly


def groups(made: World) -> set[tuple[str, tuple[int, ...]]]:
    """(stream, members) of every group found."""
    output = match(made.collectives, made.utc_starts).streams
    members = output.group_by("communicator", "group").agg(pl.col("rank").sort())
    return {(stream, tuple(ranks)) for stream, _, ranks in members.iter_rows()}


def planted(ranks: int, tp: int) -> set[tuple[str, tuple[int, ...]]]:
    tensor = {("stream 7", tuple(range(low, low + tp))) for low in range(0, ranks, tp)}
    return tensor | {("stream 13", tuple(range(low, ranks, tp))) for low in range(tp)}


@pytest.mark.parametrize(("ranks", "tp"), mostly_nightly([(8, 2), (16, 8), (8, 4), (16, 2)], 2))
@pytest.mark.parametrize(
    ("late_ns", "skew_ns"),
    [(6_000, 1_000), (30_000, 5_000), (120_000, 20_000), (3_000_000, 1_000), (3_000_000, 20_000)],
)
def test_groups_are_those_planted(ranks: int, tp: int, late_ns: float, skew_ns: float) -> None:
    """Members leave a call together: lateness of six times the ends' scatter tells who they are."""
    for seed in range(3):
        made = world(ranks, 20, seed, tp=tp, late_ns=late_ns, skew_ns=skew_ns)
        assert groups(made) == planted(ranks, tp), seed


def test_three_calls_tell_groups_of_one_size_apart() -> None:
    """Of a capture of three steps, in each of which gradients are reduced once."""
    for seed in range(5):
        made = world(8, 3, seed, tp=2, calls="dt", late_ns=3_000_000, skew_ns=1_000)
        assert groups(made) == planted(8, 2), seed
        late = (pl.col("rank") == 5) & pl.col("gradient") & (pl.col("iteration") == 1)
        end = pl.col("end_ns") + pl.when(late).then(1_000_000).otherwise(0)
        once = replace(made, collectives=made.collectives.with_columns(end))
        unsure = ("stream 13", tuple(range(8)))
        assert unsure in groups(once), "groups of 4, 3 and 1"


def test_groups_that_only_do_the_same_wander_apart() -> None:
    """In one step, ends of tensor-parallel groups differ by little from call to call."""
    pairs = {each for each in planted(8, 2) if each[0] == "stream 7"}
    for seed in range(3):
        made = world(8, 1, seed, calls="t" * 64 + "d", late_ns=6_000, skew_ns=3_000,
                     compute_ns=200_000)  # fmt: skip
        assert pairs <= groups(made), seed


@pytest.mark.parametrize("sizes", [(1.0,), (1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 4.0)])
def test_ends_that_nearly_coincide_merge_nothing(sizes: tuple[float, ...]) -> None:
    """Ranks of a host reduce with other hosts, all waiting for the same late host."""
    for seed in range(3):
        made = world(64, 40, seed, tp=8, calls="ttttd" * 4, late_ns=100_000, per_clock=8,
                     slow_host_ns=2_000_000, sizes=sizes)  # fmt: skip
        assert groups(made) == planted(64, 8), seed
        assert match(made.collectives, made.utc_starts).unmatched.is_empty()


@pytest.mark.parametrize("seed", range(3))
def test_members_on_one_host_agree_better_than_the_others(seed: int) -> None:
    """Two members on each host end within 1 µs, those of different hosts within 30 µs."""
    made = world(16, 40, seed, tp=4, late_ns=400_000, skew_ns=500, host_skew_ns=30_000)
    assert groups(made) == planted(16, 4)


def test_messages_of_other_sizes_belong_to_other_communicators() -> None:
    """Two stages reduce at the same moment, but not as much."""
    made = world(8, 40, 0, tp=2, skew_ns=2_000)
    second = pl.col("gradient") & (pl.col("rank") % 2 == 1)
    moved = made.collectives.filter(pl.col("gradient")).with_columns(
        bytes=pl.when(second).then(4_096).otherwise(1_024).cast(pl.Int64)
    )
    same = moved.filter(rank=0).select("iteration", "ordinal", end="end_ns", late="arrival_ns")
    moved = moved.join(same, on=["iteration", "ordinal"]).with_columns(
        end_ns="end", arrival_ns="late", start_ns="late"
    )
    other = made.collectives.filter(~pl.col("gradient")).with_columns(bytes=pl.lit(None, pl.Int64))
    together = pl.concat([other, moved.select(other.columns)])
    assert groups(replace(made, collectives=together)) == planted(8, 2)


def test_named_communicators_are_taken_as_they_are() -> None:
    """Names from the metadata win over what the ends would tell."""
    made = world(8, 20, 0, tp=2, late_ns=0, skew_ns=1_000)
    tensor = pl.col("communicator") == "stream 7"
    named = made.collectives.with_columns(
        communicator=pl.when(tensor)
        .then(pl.format("named tp{}", pl.col("rank") // 2))
        .otherwise(pl.format("named dp{}", pl.col("rank") % 2))
    )
    output = match(named, made.utc_starts)
    members = instances_of(output).group_by("group").agg(pl.col("rank").unique().sort())
    labels = dict(output.groups.select("group", "label").iter_rows())
    assert {(labels[group], tuple(ranks)) for group, ranks in members.iter_rows()} == {
        *((f"named tp{low // 2}", (low, low + 1)) for low in range(0, 8, 2)),
        ("named dp0", (0, 2, 4, 6)),
        ("named dp1", (1, 3, 5, 7)),
    }
    assert output.unmatched.is_empty()


def test_message_sizes_that_differ_match_nothing() -> None:
    made = world(4, 20, 0, tp=2)
    odd = (pl.col("rank") == 1) & (pl.col("iteration") == 7) & pl.col("gradient")
    sizes = pl.when(odd).then(512).otherwise(1_024).cast(pl.Int64)
    sized = made.collectives.with_columns(bytes=sizes)
    output = match(sized, made.utc_starts)
    assert {*output.unmatched["reason"]} == {"message sizes differ"}
    assert output.unmatched.select("rank", "count").rows() == [(1, 2), (3, 2)]
    kept = instances_of(output).filter("gradient", pl.col("rank").is_in([1, 3]), iteration=7)
    assert kept.is_empty()
    rest = instances_of(output).height
    assert rest == sized.height - 4
    groups = with_waits(output, made.utc_starts).groups
    problems = [*communication_warnings(output.summary, groups, [0, 1, 2, 3])]
    assert [(each.code, each.ranks) for each in problems] == [("unmatched-collectives", (1, 3))]
    assert "message sizes differ" in problems[0].message
    assert "4 calls" in problems[0].message


def test_sizes_may_differ_where_they_do_by_nature() -> None:
    made = world(4, 20, 0, tp=2)
    uneven = made.collectives.with_columns(
        operation=pl.lit("all_to_all"), bytes=1_000 + pl.col("rank")
    )
    assert match(uneven, made.utc_starts).unmatched.is_empty()
    unknown = made.collectives.with_columns(
        bytes=pl.when(pl.col("rank") == 0).then(None).otherwise(1_024)
    )
    assert match(unknown, made.utc_starts).unmatched.is_empty(), "unknown differs from nothing"


def test_a_call_that_a_member_lacks_is_counted_not_forced() -> None:
    made = world(4, 20, 0, tp=2)
    last = (pl.col("rank") == 2) & (pl.col("iteration") == 9) & (pl.col("ordinal") == 1)
    output = match(made.collectives.filter(~(last & pl.col("gradient"))), made.utc_starts)
    assert output.unmatched.select("rank", "count", "reason").rows() == [
        (0, 1, "some members lack it")
    ]
    assert instances_of(output).height == made.collectives.height - 2


def test_a_rank_alone_on_a_stream_has_no_partner() -> None:
    made = world(4, 20, 0, tp=2)
    own = made.collectives.filter(rank=1).with_columns(communicator=pl.lit("named own"))
    output = match(pl.concat([made.collectives, own]), made.utc_starts)
    assert output.unmatched.select("rank", "label", "reason", "count").unique().rows() == [
        (1, "named own", "no partner", own.height)
    ]

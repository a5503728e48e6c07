"""Instances across ranks: who shares a communicator, who waited, which clocks that ties."""

import polars as pl
import pytest

from tests.match.worlds import instances_of, plain
from tests.support import MS, MakeStored, Stored, mostly_nightly, mostly_slow

KEY = ["rank", "operation", "end_ns"]


def told_and_true(job: Stored) -> pl.DataFrame:
    """Matched instances with the truth's communicator, wait and transfer."""
    assert job.truth is not None
    truth = pl.DataFrame(job.truth.collectives, infer_schema_length=None)
    output = plain(instances_of(job.matched()))
    output = output.with_columns(
        wait=pl.col("duration_ns") - pl.col("duration_ns").min().over("instance"),
        transfer=pl.col("duration_ns").min().over("instance"),
    )
    true = truth.select(
        "rank", "end_ns", "wait_ns", "transfer_ns", operation="op", true="communicator",
        true_ordinal="ordinal",
    )  # fmt: skip
    return output.join(true, on=KEY)


SCENES = [
    "buckets", "tensor_parallel", "free_running", "mpi_like", "offsets",
    "plain", "trailing_all_gather", "loss_all_reduce", "host_only",
]  # fmt: skip


@pytest.mark.parametrize("name", mostly_slow(SCENES, slow=4))
def test_waits_are_those_of_the_simulator(stored: MakeStored, name: str) -> None:
    """Within 2 %, or the ends' scatter where that is more: durations cannot tell better."""
    job = stored(name)
    both = told_and_true(job)
    assert both.height >= 4 * 29
    assert job.truth is not None
    scatter = 2 * job.truth.job.network.skew_ns
    off = (pl.col("wait") - pl.col("wait_ns")).abs()
    wrong = both.filter(off > pl.max_horizontal(0.02 * pl.col("wait_ns"), pl.lit(scatter)))
    assert wrong.is_empty(), wrong.select("rank", "iteration", "wait", "wait_ns")
    late = (pl.col("transfer") - pl.col("transfer_ns")).abs() > scatter
    assert both.filter(late).is_empty()


@pytest.mark.parametrize(
    "name", mostly_nightly(["tensor_parallel", "offsets", "plain", "trailing_all_gather"])
)
def test_ranks_are_grouped_by_communicator(stored: MakeStored, name: str) -> None:
    job = stored(name)
    both = told_and_true(job)
    assert job.truth is not None
    groups = job.truth.job.groups()
    by_instance = both.group_by("instance").agg(
        pl.col("rank").sort(), pl.col("true").unique(), pl.col("true_ordinal").unique()
    )
    for ranks, true, ordinals in by_instance.select("rank", "true", "true_ordinal").iter_rows():
        assert len(true) == len(ordinals) == 1, "one instance is one of the truth's"
        assert tuple(ranks) == groups[true[0]]
    assert {*both["true"]} == {*groups}


@pytest.mark.slow
def test_clock_offsets_do_not_change_waits(stored: MakeStored) -> None:
    columns = ["rank", "iteration", "wait_ns", "collective_wait_ns", "collective_transfer_ns"]
    skewed = stored("offsets").run.iterations().select(columns)
    level = stored("planted", kind="transient", where="backward").run.iterations().select(columns)
    for name in columns[2:]:
        assert ((skewed[name] - level[name]).abs() <= 0.001 * level[name] + 5_000).all(), name


def test_good_clocks_need_next_to_no_correction(stored: MakeStored) -> None:
    facts = stored("plain").analysis().facts
    assert {*facts.offsets_ns} == {0, 1, 2, 3}
    assert max(map(abs, facts.offsets_ns.values())) < 10_000
    assert {*facts.drift_ppm.values()} == {0.0}


def test_waits_stay_inside_exposed_communication(stored: MakeStored) -> None:
    for name in ("buckets", "tensor_parallel", "host_only"):
        frame = stored(name).run.iterations()
        assert (frame["wait_ns"] >= 0).all(), name
        assert (frame["wait_ns"] <= frame["exposed_communication_ns"]).all(), name
        assert (frame["collective_wait_ns"] >= frame["wait_ns"]).all(), name


@pytest.mark.slow
def test_hidden_waits_are_distinguished_from_exposed_ones(stored: MakeStored) -> None:
    """Buckets overlap backward: most of the waiting in them costs nothing."""
    frame = stored("buckets", ranks=8).run.iterations().filter(pl.col("iteration") % 5 == 2)
    others = frame.filter((pl.col("rank") != 1) & (pl.col("iteration") > 0))
    assert (others["collective_wait_ns"] > 2 * others["wait_ns"]).all()
    assert others["wait_ns"].median() == pytest.approx(5 * MS, rel=0.1)


def test_the_last_comer_is_the_planted_rank(stored: MakeStored) -> None:
    job = stored("planted", kind="persistent", where="forward")
    by_rank = job.analysis().waits().sort("rank")
    share = by_rank["last_arriver_share"].to_list()
    assert share[3] > 0.9
    assert max(share[:3]) < 0.1
    cost, gain = by_rank["cost_ns"].to_list(), by_rank["gain_ns"].to_list()
    assert cost[3] > 2 * gain[3] > 0, "what a rank cost the others is more than fixing it gains"

"""Suspects of simulated fleets; `python -m tests.bench.fleets` counts them over many seeds."""

import polars as pl
import pytest
from msgspec.structs import replace

from rankscope.history.fleet.collect import merged
from rankscope.history.fleet.fleet import Fleet, fleet_of
from tests.history.fleet.fleets import Plan, fleet
from tests.support import mostly_nightly


def found(answer: Fleet) -> set[tuple[str, str]]:
    return {(each.kind, each.id) for each in answer.suspects}


@pytest.mark.parametrize("seed", mostly_nightly([1, 2, 4]))
@pytest.mark.parametrize("culprit", ["card", "host", "moved", "slot"])
def test_the_culprit_is_the_suspect(culprit: str, seed: int) -> None:
    collected, truth = fleet(Plan(culprit, seed))
    assert truth.jobs >= 4
    answer = fleet_of(collected)
    assert found(answer) == truth.suspects
    [suspect] = answer.suspects
    assert suspect.id in answer.sentence
    assert suspect.id in answer.next
    follows = {"moved": "card", "slot": "slot"}.get(culprit)
    assert suspect.follows == follows
    row = answer.hardware.row(0, named=True)
    assert (row["id"], row["suspect"]) == (suspect.id, True)
    assert row["low"] <= row["rate"] <= row["high"]
    assert row["low"] > answer.hardware.filter(~pl.col("suspect"))["rate"].median()


@pytest.mark.parametrize("seed", mostly_nightly(range(5)))
def test_a_fleet_without_a_culprit_has_no_suspect(seed: int) -> None:
    answer = fleet_of(fleet(Plan("none", seed, noise=0.6))[0])
    assert not answer.suspects
    assert answer.sentence.startswith("Nobody beyond chance: ")
    assert answer.next.startswith("profile more runs")


def test_runs_in_which_no_rank_was_judged_are_counted_apart() -> None:
    collected, _ = fleet(Plan("none", noise=0.6))
    undecided = pl.col("run").is_in(collected.runs["run"][:2].to_list())
    evidence = collected.evidence.with_columns(
        iterations=pl.when(undecided).then(0).otherwise("iterations")
    )
    said = fleet_of(replace(collected, evidence=evidence)).sentence
    assert "in 28 runs on " in said
    assert said.endswith("; in 2 more no rank could be judged.")


def test_where_no_hardware_is_named_nothing_is_to_check() -> None:
    assert fleet_of(fleet(Plan("none", 1, noise=0))[0]).next.startswith("nothing to check")


def test_the_work_of_a_rank_is_no_fault_of_its_hardware() -> None:
    """Rank 0 is slow in every job, and runs on one host in half of them."""
    collected, _ = fleet(Plan("rank", 3, hosts=6, least_hosts=4, most_hosts=4, jobs=24, noise=0))
    lowest = collected.evidence.filter(rank=0)["host"].value_counts(sort=True)
    assert lowest["count"][0] >= 4
    assert not fleet_of(collected).suspects


def test_what_was_always_one_rank_is_reported() -> None:
    collected, _ = fleet(Plan("rank", 3, hosts=5, least_hosts=5, most_hosts=5, jobs=12, noise=0))
    fixed = collected.evidence.with_columns(
        (pl.lit("n") + (pl.col("rank") // 8).cast(pl.String)).alias("host"), gpu=None
    ).cast({"gpu": pl.String})
    answer = fleet_of(replace(collected, evidence=fixed))
    assert found(answer) == {("host", "n0")}
    assert "always rank 0" in answer.next


def test_when_it_began_and_that_it_gets_worse() -> None:
    collected, truth = fleet(Plan("later", 2, least_hosts=20, noise=0.1, seen=1))
    answer = fleet_of(collected)
    assert found(answer) == truth.suspects
    [suspect] = answer.suspects
    assert suspect.trend == "worse"
    starts = collected.runs["start_ns"].to_list()
    assert suspect.since_ns is not None
    assert suspect.since_ns >= starts[12]


def test_without_gpus_a_slow_card_is_its_host() -> None:
    collected, truth = fleet(Plan("card", 1, known_gpus=False, least_hosts=20))
    answer = fleet_of(collected)
    assert found(answer) == truth.suspects
    assert {each.code for each in answer.problems} == {"gpu-unknown"}


def test_cost_is_that_of_the_verdicts() -> None:
    collected, _ = fleet(Plan("card", 1))
    answer = fleet_of(collected)
    of_gpus = answer.hardware.filter(kind="gpu")["cost_ns"].sum()
    assert of_gpus == collected.evidence["cost_ns"].sum()
    assert answer.hardware.filter(kind="host")["cost_ns"].sum() == of_gpus


def test_a_role_of_its_own_is_no_peer() -> None:
    """Guilt of the only host of a pipeline stage says nothing about the host."""
    collected, _ = fleet(Plan("host", 1, least_hosts=16))
    [bad] = fleet_of(collected).suspects
    alone = collected.evidence.with_columns(
        role=pl.when(pl.col("host") == bad.id).then(pl.lit("stage 9")).otherwise("role")
    )
    assert not fleet_of(replace(collected, evidence=alone)).suspects


def test_a_network_adapter_that_moved_takes_its_guilt_along() -> None:
    collected, _ = fleet(Plan("none", 5, noise=0.1, least_hosts=12, jobs=24))
    order = collected.runs.select("run").with_row_index("order")
    rows = collected.evidence.join(order, on="run").with_columns(
        place=pl.when(pl.col("order") < 12).then(pl.lit("n07")).otherwise(pl.lit("n31"))
    )
    bad = pl.col("host") == pl.col("place")
    moved = rows.with_columns(
        adapters=pl.when(bad).then(pl.lit("0xbad 0x1")).otherwise("adapters"),
        guilty=pl.when(bad).then(80).otherwise("guilty"),
        cost_ns=pl.when(bad).then(10**12).otherwise("cost_ns"),
    ).drop("order", "place")
    answer = fleet_of(replace(collected, evidence=moved))
    assert ("nic", "0xbad") in found(answer)
    assert not {kind for kind, _ in found(answer)} & {"gpu"}
    [suspect] = [each for each in answer.suspects if each.id == "0xbad"]
    assert suspect.follows == "card"


def test_a_run_counts_once() -> None:
    collected, _ = fleet(Plan("card", 1))
    copies = collected.runs.with_columns(db=pl.lit("copy.duckdb"))
    twice = merged(
        pl.concat([collected.runs, copies]), pl.concat([collected.evidence, collected.evidence])
    )
    assert twice.evidence.height == collected.evidence.height
    assert [each.code for each in twice.problems] == ["same-run"]
    assert "left out: copy.duckdb, " in twice.problems[0].message
    assert fleet_of(twice).sentence == fleet_of(collected).sentence


def test_an_empty_fleet() -> None:
    collected, _ = fleet(Plan("none", 1, jobs=1))
    nothing = merged(collected.runs.clear(), collected.evidence.clear())
    answer = fleet_of(nothing)
    assert not answer.suspects
    assert answer.hardware.is_empty()

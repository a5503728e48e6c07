"""What is in the phase that made a rank slow, and whether somebody is to blame for it at all."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import rankscope
from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.registry import context_of, findings, findings_sentence, tables_of
from rankscope.model.results import Finding
from rankscope.model.schema import ACTIVITIES
from tests.forge import Job, Plant, forge, scene
from tests.frames import filled
from tests.support import MS, MakeStored, Stored, mostly_nightly, mostly_slow

ALIKE = dict.fromkeys(range(4), "all")


def activities(
    rank: int,
    name: str,
    total_ms: float,
    *,
    kind: str = "kernel",
    count: int = 10,
    size: int = 1_000,
    clear: float = 1.0,
    launches: list[float] | None = None,
) -> pl.DataFrame:
    """One activity of a rank's backward, the same in iterations 0 to 9.

    Its `launches`, in ms, are alike where nothing else is said.
    """
    numbers = pl.DataFrame({"iteration": range(10)})
    listed = [total_ms / count] * 4 if launches is None else launches
    columns = {
        "rank": rank, "phase": "backward", "kind": kind, "name": name, "count": count,
        "total_ns": round(total_ms * MS), "size": size, "clear_size": round(size * clear),
        "clear_ns": round(total_ms * clear * MS),
    }  # fmt: skip
    lengths = [[round(each * MS) for each in listed]] * 10
    frame = numbers.with_columns(
        **{key: pl.lit(value) for key, value in columns.items()},
        launches=pl.Series(lengths) if kind == "kernel" and name else None,
    )
    return filled(frame, ACTIVITIES)


def mixed(
    rank: int, beside: range, factor: float = 1.0, slowdown: float = 1.0, name: str = "gemm"
) -> pl.DataFrame:
    """Eight launches of 1 to 8 ms; some are `beside` collectives, which slow them down."""
    lengths = [
        -(at + 1) * factor * slowdown if at in beside else (at + 1) * factor for at in range(8)
    ]
    total, clear = sum(map(abs, lengths)), 1 - len(beside) / 8
    return activities(rank, name, total, count=8, size=800, clear=clear, launches=lengths)


def found(rows: list[pl.DataFrame], roles: dict[int, str] = ALIKE) -> tuple[Finding, ...]:
    """Findings on rank 3, which needs 6 ms more in iterations 2 and 5."""
    return findings(context(rows, roles))


def context(rows: list[pl.DataFrame], roles: dict[int, str] = ALIKE) -> CauseContext:
    more = [6 * MS, 6 * MS]
    columns = {"rank": [3, 3], "iteration": [2, 5], "excess_ns": more, "backward_excess": more}
    flagged = pl.DataFrame(columns)
    every = pl.concat(rows)

    def table(name: str, numbers: Collection[int]) -> pl.DataFrame | None:
        return every.filter(pl.col("iteration").is_in(numbers)) if name == "activities" else None

    return context_of(table, roles, flagged, "backward")


def others(name: str = "gemm", total_ms: float = 10.0, **how: object) -> list[pl.DataFrame]:
    return [activities(rank, name, total_ms, **how) for rank in range(3)]


def test_the_same_work_slower_is_the_device() -> None:
    (one,) = found([*others(), activities(3, "gemm", 16)])
    assert (one.activity, one.name, one.kind) == ("kernel", "gemm", "device_slower")
    assert one.excess_ns == 6 * MS
    assert one.share == pytest.approx(1)
    assert "the device" in findings_sentence([one])


@pytest.mark.parametrize("more", [{"count": 16}, {"size": 1_600}])
def test_other_work_is_the_data(more: dict[str, int]) -> None:
    (one,) = found([*others(), activities(3, "gemm", 16, **more)])
    assert one.suspect == one.kind == "more_work"
    (new,) = found([*others(), activities(3, "gemm", 10), activities(3, "embedding", 6)])
    assert (new.name, new.kind) == ("embedding", "more_work")


def test_peers_that_do_nothing_in_the_phase_have_none_of_it() -> None:
    elsewhere = [each.with_columns(phase=pl.lit("forward")) for each in others()]
    (one,) = found([*elsewhere, activities(3, "validate", 6)])
    assert (one.kind, one.excess_ns, one.usual_ns) == ("more_work", 6 * MS, 0)


@pytest.mark.parametrize(("norm_ms", "kind"), [(2.6, "more_work"), (3.4, "device_slower")])
def test_a_kernel_with_a_fixed_grid_follows_those_that_grow(norm_ms: float, kind: str) -> None:
    """Many kernels run on as many blocks as the device has processors, whatever they are given."""
    rows = [*others(), *others("norm", 2)]
    grown = activities(3, "norm", norm_ms, size=1_300)
    one, *_ = found([*rows, activities(3, "gemm", 13), grown])
    assert (one.name, one.kind) == ("gemm", kind)


USUAL = range(5, 8)
"""Launches beside collectives on all ranks but the last."""


@pytest.mark.parametrize("beside", [range(3), range(5, 8), range(1, 7), range(8)])
@pytest.mark.parametrize("slowdown", [1.0, 1.4])
def test_a_slow_device_is_one_however_its_launches_lie_to_collectives(
    beside: range, slowdown: float
) -> None:
    """Its launches shift against collectives: those that are clear are others than on its peers."""
    rows = [mixed(rank, USUAL, slowdown=slowdown) for rank in range(3)]
    (one,) = found([*rows, mixed(3, beside, factor=1.6, slowdown=slowdown)])
    assert (one.kind, one.name) == ("device_slower", "gemm")


@pytest.mark.parametrize("factor", [1.0, 100.0], ids=["of milliseconds", "of a second"])
def test_more_overlap_than_peers_have_is_contention(factor: float) -> None:
    rows = [mixed(rank, USUAL, factor, slowdown=1.4) for rank in range(3)]
    (one,) = found([*rows, mixed(3, range(1, 8), factor, slowdown=1.4)])
    assert (one.kind, one.name) == ("contention", "gemm")
    assert findings_sentence([one]).endswith("mostly beside collectives")


@pytest.mark.parametrize("factor", [1.0, 100.0], ids=["of milliseconds", "of a second"])
def test_slower_at_more_overlap_is_the_device(factor: float) -> None:
    rows = [mixed(rank, USUAL, factor) for rank in range(3)]
    assert found([*rows, mixed(3, range(4, 8), 1.4 * factor)])[0].kind == "device_slower"


def test_who_is_slower_only_beside_collectives_is_in_contention() -> None:
    rows = [mixed(rank, USUAL) for rank in range(3)]
    assert found([*rows, mixed(3, USUAL, slowdown=1.4)])[0].kind == "contention"
    # a device is slow whatever runs beside
    slow = mixed(3, USUAL, factor=1.4, slowdown=1.2)
    assert found([*rows, slow])[0].kind == "device_slower"


def test_launches_in_another_order_are_nothing() -> None:
    """Lengths under one name differ eightfold, and which of them overlap differs by rank."""
    assert found([mixed(rank, range(rank, 2 * rank + 2)) for rank in range(4)]) == ()


@pytest.mark.parametrize(("factor", "kind"), [(1.0, "contention"), (1.5, "device_slower")])
def test_where_all_launches_overlap_on_one_rank_its_other_kernels_tell(
    factor: float, kind: str
) -> None:
    rows = [
        mixed(rank, range(8 if rank == 3 else 0), factor if rank == 3 else 1, 1.5)
        for rank in range(4)
    ]
    rows += [mixed(rank, USUAL, factor if rank == 3 else 1, name="norm") for rank in range(4)]
    kinds = {each.name: each.kind for each in found(rows)}
    assert kinds["gemm"] == kind, kinds


def test_reports_without_a_sample_of_launches_have_no_contention() -> None:
    rows = [mixed(rank, range(1, 8) if rank == 3 else USUAL, slowdown=1.4) for rank in range(4)]
    old = [each.with_columns(launches=pl.lit(None, pl.List(pl.Int32))) for each in rows]
    assert found(old)[0].kind == "device_slower"


def test_little_more_work_does_not_excuse_a_slow_device() -> None:
    (one,) = found([*others(), activities(3, "gemm", 13, size=1_030)])
    assert one.kind == "device_slower"
    (less,) = found([*others(), activities(3, "gemm", 13, size=900, count=9)])
    assert less.kind == "device_slower"


def test_time_may_grow_with_the_square_of_more_work() -> None:
    (one,) = found([*others(), activities(3, "attention", 17.1, size=1_310),
                    *others("attention")])  # fmt: skip
    assert one.kind == "more_work"


def test_idling_copies_and_ranges_are_reported() -> None:
    (idle,) = found([*others("", 1, kind="idle"), activities(3, "", 7, kind="idle")])
    assert (idle.kind, idle.excess_ns) == ("starved", 6 * MS)
    (copy,) = found([*others("", 1, kind="copy"), activities(3, "", 7, kind="copy")])
    assert copy.kind == "copies"
    (span,) = found([*others(), activities(3, "gemm", 10), activities(3, "eval", 6, kind="range")])
    assert (span.name, span.kind) == ("eval", "range")


@pytest.mark.parametrize("name", ["gc.collect", "GC: generation 2", "garbage collection"])
def test_garbage_collection_is_reported_first(name: str) -> None:
    rows = [
        *others("", 1, kind="idle"), activities(3, "", 7, kind="idle"),
        activities(3, name, 5.9, kind="range"),
    ]  # fmt: skip
    first = found(rows)[0]
    assert (first.name, first.kind) == (name, "garbage_collection")


def test_names_that_only_contain_gc_are_no_garbage_collection() -> None:
    for name in ("gcn_forward", "igc", "bgcolor"):
        (one,) = found([*others(), activities(3, "gemm", 10), activities(3, name, 6, kind="range")])
        assert one.kind == "range", name


def test_little_explains_nothing() -> None:
    rows = [*others(), activities(3, "gemm", 10.5)]
    assert found(rows) == ()
    assert found([*others(), activities(3, "gemm", 8)]) == (), "faster than usual"


@pytest.mark.parametrize("kind", ["kernel", "range"])
def test_what_was_lumped_has_no_name_to_report(kind: str) -> None:
    assert found([*others("", kind=kind), activities(3, "", 16, kind=kind)]) == ()


def test_at_most_three_clauses_are_reported_the_largest_first() -> None:
    names = {"a": 1.2, "b": 1.8, "c": 1.0, "d": 1.5}
    rows = [frame for name in names for frame in others(name, kind="range")]
    rows += [activities(3, name, 10 + more, kind="range") for name, more in names.items()]
    assert [each.name for each in found(rows)] == ["b", "d", "a"]


def test_all_kernels_that_take_notably_longer_are_one_clause() -> None:
    """Smaller ones stand beside the large ones, and what varies by little does not."""
    names = {"a": 2.4, "b": 2.0, "c": 0.4, "d": 0.05, "e": -1.0}
    rows = [frame for name in names for frame in others(name)]
    rows += [activities(3, name, 10 + more) for name, more in names.items()]
    kernels = found(rows)
    assert [each.name for each in kernels] == ["a", "b", "c"]
    sentence = findings_sentence(kernels)
    assert all(part in sentence for part in ("3 kernels", "4.80 ms", "16 %"))
    assert ";" not in sentence


def many(slow_ms: float, clear: float = 1.0, slowdown: float = 1.0) -> tuple[Finding, ...]:
    """Twelve kernels of 1 ms, each of which takes longer on rank 3, where it may be less clear."""
    names = [f"kernel {number}" for number in range(12)]
    rows = [frame for name in names for frame in others(name, 1, launches=[0.1, 0.1, -0.2, -0.2])]
    lengths = [0.1 * slowdown, -0.2 * slowdown, -0.2 * slowdown, -0.2 * slowdown]
    slow = [activities(3, name, slow_ms, clear=clear, launches=lengths) for name in names]
    return found([*rows, *slow])


def test_many_kernels_with_little_each_are_reported_together() -> None:
    (one,) = many(1.5, slowdown=1.5)
    assert (one.activity, one.name, one.kind) == ("kernels", "12 smaller kernels", "device_slower")
    assert (one.excess_ns, one.share) == (6 * MS, pytest.approx(1))
    sentence = findings_sentence([one])
    assert all(part in sentence for part in ("12 smaller kernels", "6.00 ms", "50 %"))


def test_many_kernels_that_contend_are_contention() -> None:
    (one,) = many(1.5, clear=0.25)
    assert one.kind == "contention"


def test_many_kernels_that_vary_a_little_are_nothing() -> None:
    assert many(1.03) == ()


def test_of_two_ranks_of_a_role_the_other_is_what_is_usual() -> None:
    roles = {0: "pp=0", 1: "pp=1", 2: "pp=0", 3: "pp=1"}
    rows = [activities(rank, "gemm", 10 if rank % 2 else 40) for rank in range(3)]
    (one,) = found([*rows, activities(3, "gemm", 16)], roles)
    assert one.excess_ns == 6 * MS


def suspects(job: Stored) -> set[str]:
    return {each.kind for each in job.analysis().verdict.findings}


@pytest.mark.parametrize(
    ("where", "suspect"),
    mostly_slow(
        [("kernel", "device_slower"), ("data", "more_work"), ("device", "device_slower")], 2
    ),
)
def test_suspects_of_simulated_jobs(stored: MakeStored, where: str, suspect: str) -> None:
    job = stored("planted", where=where, factor=1.8 if where == "kernel" else 1.25)
    verdict = job.analysis().verdict
    ranks = verdict.more_work_ranks if suspect == "more_work" else verdict.ranks
    assert (ranks, verdict.cause) == ((3,), "backward")
    assert suspects(job) == {suspect}, verdict.sentence
    if where == "kernel":
        assert [each.name for each in verdict.findings] == ["ampere_sgemm_128x64_nt"]


@pytest.mark.slow
def test_a_pause_of_python_is_reported(stored: MakeStored) -> None:
    verdict = stored("garbage").analysis().verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("transient", (2,), "forward")
    assert verdict.findings[0].suspect == "garbage_collection"


@pytest.mark.slow
def test_a_slow_loader_is_reported(stored: MakeStored) -> None:
    assert suspects(stored("planted", where="load")) == {"loader"}


CONTENDED = scene("contention")
"""All ranks' kernels are slower beside collectives."""

ALL_BUT_5 = tuple(rank for rank in range(CONTENDED.ranks) if rank != 5)


def kinds_on(job: Job, rank: int, folder: Path) -> set[str]:
    """What is found in a rank's excess of backward, in all iterations."""
    forge(job, folder / "reports")
    comparison = rankscope.ingest([folder / "reports"], folder / "db").compare(rankscope.Options())
    usual = pl.col("backward_ns").quantile(0.5, "lower").over("iteration")
    flagged = (
        comparison.tables.table("measures")
        .filter(pl.col("clock") == "gpu", pl.col("iteration") > 2)
        .with_columns(excess_ns=pl.col("backward_ns") - usual)
        .filter(pl.col("rank") == rank)
        .select("rank", "iteration", "excess_ns")
    )
    roles, tables = comparison.roles.of, tables_of(comparison.tables)
    return {each.kind for each in findings(context_of(tables, roles, flagged, "backward"))}


@pytest.mark.parametrize(
    ("plants", "rank", "kind"),
    mostly_slow(
        [
            ([Plant("persistent", "device", (3,), factor=1.15)], 3, "device_slower"),
            ([Plant("persistent", "data", (3,), factor=1.31)], 3, "more_work"),
            # rank 5 waits for all others in its first bucket, and computes the rest beside it
            ([Plant("persistent", "forward", ALL_BUT_5, extra_ns=8 * MS)], 5, "contention"),
            (
                [
                    Plant("persistent", "forward", ALL_BUT_5, extra_ns=12 * MS),
                    Plant("persistent", "device", (5,), factor=1.2),
                ],
                5,
                "device_slower",
            ),
            ([Plant("persistent", "device", (3,), factor=1.2)], 3, "device_slower"),
        ],
        0,
        4,
    ),
)
@pytest.mark.parametrize("seed", mostly_nightly([0, 1]))
def test_causes_where_collectives_contend_on_every_rank(
    plants: list[Plant], rank: int, kind: str, seed: int, tmp_path: Path
) -> None:
    job = replace(CONTENDED, seed=seed, plants=tuple(plants))
    assert kinds_on(job, rank, tmp_path) == {kind}


@pytest.mark.slow
def test_who_alone_suffers_from_collectives_is_in_contention(tmp_path: Path) -> None:
    assert kinds_on(scene("contention", only=2), 2, tmp_path) == {"contention"}


@pytest.mark.slow
def test_who_makes_others_compute_beside_collectives_is(stored: MakeStored) -> None:
    verdict = stored("contention").analysis().verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("periodic", (1,), "forward")
    assert verdict.period == 5

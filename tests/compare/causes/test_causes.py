"""What is in the phase that made a rank slow, and whether somebody is to blame for it at all."""

from __future__ import annotations

from collections.abc import Callable, Collection

import polars as pl
import pytest

from rankscope.compare.causes.registry import context_of, finding_sentence, findings
from rankscope.model.results import Finding
from rankscope.model.schema import ACTIVITIES
from tests.frames import filled
from tests.support import MS, Stored

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
    clear_ms: float | None = None,
) -> pl.DataFrame:
    """One activity of a rank's backward, the same in iterations 0 to 9."""
    numbers = pl.DataFrame({"iteration": range(10)})
    columns = {
        "rank": rank, "phase": "backward", "kind": kind, "name": name, "count": count,
        "total_ns": round(total_ms * MS), "size": size, "clear_size": round(size * clear),
        "clear_ns": round((total_ms * clear if clear_ms is None else clear_ms) * MS),
    }  # fmt: skip
    frame = numbers.with_columns(**{key: pl.lit(value) for key, value in columns.items()})
    return filled(frame, ACTIVITIES)


def found(rows: list[pl.DataFrame], roles: dict[int, str] = ALIKE) -> tuple[Finding, ...]:
    """Findings on rank 3, which needs 6 ms more in iterations 2 and 5."""
    flagged = pl.DataFrame({"rank": [3, 3], "iteration": [2, 5], "excess_ns": [6 * MS, 6 * MS]})
    every = pl.concat(rows)

    def table(name: str, numbers: Collection[int]) -> pl.DataFrame | None:
        return every.filter(pl.col("iteration").is_in(numbers)) if name == "activities" else None

    return findings(context_of(table, roles, flagged, "backward"))


def others(name: str = "gemm", total_ms: float = 10.0, **how: object) -> list[pl.DataFrame]:
    return [activities(rank, name, total_ms, **how) for rank in range(3)]


def test_the_same_work_slower_is_the_device() -> None:
    (one,) = found([*others(), activities(3, "gemm", 16)])
    assert (one.kind, one.name, one.suspect) == ("kernel", "gemm", "device")
    assert one.excess_ns == 6 * MS
    assert one.share == pytest.approx(1)
    assert "the device" in finding_sentence(one)


@pytest.mark.parametrize("more", [{"count": 16}, {"size": 1_600}])
def test_other_work_is_the_data(more: dict[str, int]) -> None:
    (one,) = found([*others(), activities(3, "gemm", 16, **more)])
    assert one.suspect == "data"
    (new,) = found([*others(), activities(3, "gemm", 10), activities(3, "embedding", 6)])
    assert (new.name, new.suspect) == ("embedding", "data")


def test_slower_only_beside_collectives_is_contention() -> None:
    rows = [*others(clear=0.5), activities(3, "gemm", 16, clear=0.5, clear_ms=5)]
    (one,) = found(rows)
    assert one.suspect == "contention"
    also_alone = [*others(clear=0.5), activities(3, "gemm", 16, clear=0.5, clear_ms=8)]
    assert found(also_alone)[0].suspect == "device"


def test_idling_copies_and_ranges_are_reported() -> None:
    (idle,) = found([*others("", 1, kind="idle"), activities(3, "", 7, kind="idle")])
    assert (idle.suspect, idle.excess_ns) == ("starving", 6 * MS)
    (copy,) = found([*others("", 1, kind="copy"), activities(3, "", 7, kind="copy")])
    assert copy.suspect == "copies"
    (span,) = found([*others(), activities(3, "gemm", 10), activities(3, "eval", 6, kind="range")])
    assert (span.name, span.suspect) == ("eval", "range")


@pytest.mark.parametrize("name", ["gc.collect", "GC: generation 2", "garbage collection"])
def test_garbage_collection_is_reported_first(name: str) -> None:
    rows = [
        *others("", 1, kind="idle"), activities(3, "", 7, kind="idle"),
        activities(3, name, 5.9, kind="range"),
    ]  # fmt: skip
    first = found(rows)[0]
    assert (first.name, first.suspect) == (name, "garbage collection")


def test_names_that_only_contain_gc_are_no_garbage_collection() -> None:
    for name in ("gcn_forward", "igc", "bgcolor"):
        (one,) = found([*others(), activities(3, "gemm", 10), activities(3, name, 6, kind="range")])
        assert one.suspect == "range", name


def test_little_explains_nothing() -> None:
    rows = [*others(), activities(3, "gemm", 10.5)]
    assert found(rows) == ()
    assert found([*others(), activities(3, "gemm", 8)]) == (), "faster than usual"


@pytest.mark.parametrize("kind", ["kernel", "range"])
def test_what_was_lumped_has_no_name_to_report(kind: str) -> None:
    assert found([*others("", kind=kind), activities(3, "", 16, kind=kind)]) == ()


def test_at_most_three_are_reported_the_largest_first() -> None:
    names = {"a": 1.2, "b": 1.8, "c": 1.0, "d": 1.5}
    rows = [frame for name in names for frame in others(name)]
    rows += [activities(3, name, 10 + more) for name, more in names.items()]
    assert [each.name for each in found(rows)] == ["b", "d", "a"]


def many(slow_ms: float, **how: float) -> tuple[Finding, ...]:
    """Twelve kernels of 1 ms, each of which takes longer on rank 3."""
    names = [f"kernel {number}" for number in range(12)]
    rows = [frame for name in names for frame in others(name, 1, **{"clear": how["clear"]})]
    return found([*rows, *(activities(3, name, slow_ms, **how) for name in names)])


def test_many_kernels_with_little_each_are_reported_together() -> None:
    (one,) = many(1.5, clear=1.0)
    assert (one.kind, one.name, one.suspect) == ("kernels", "12 smaller kernels", "device")
    assert (one.excess_ns, one.share) == (6 * MS, pytest.approx(1))
    sentence = finding_sentence(one)
    assert sentence.startswith("12 smaller kernels take 6.0 ms longer for the same work")


def test_many_kernels_that_contend_are_contention() -> None:
    (one,) = many(1.5, clear=0.5, clear_ms=0.5)
    assert one.suspect == "contention"


def test_many_kernels_that_vary_a_little_are_nothing() -> None:
    assert many(1.03, clear=1.0) == ()


def test_of_two_ranks_of_a_role_the_other_is_what_is_usual() -> None:
    roles = {0: "pp=0", 1: "pp=1", 2: "pp=0", 3: "pp=1"}
    rows = [activities(rank, "gemm", 10 if rank % 2 else 40) for rank in range(3)]
    (one,) = found([*rows, activities(3, "gemm", 16)], roles)
    assert one.excess_ns == 6 * MS


def suspects(job: Stored) -> set[str]:
    return {each.suspect for each in job.analysis().verdict.findings}


@pytest.mark.parametrize(
    ("where", "suspect"), [("kernel", "device"), ("device", "device"), ("data", "data")]
)
def test_suspects_of_simulated_jobs(
    stored: Callable[..., Stored], where: str, suspect: str
) -> None:
    job = stored("planted", where=where, factor=1.8 if where == "kernel" else 1.25)
    verdict = job.analysis().verdict
    assert (verdict.ranks, verdict.cause) == ((3,), "backward")
    assert suspects(job) == {suspect}, verdict.sentence
    if where == "kernel":
        assert [each.name for each in verdict.findings] == ["ampere_sgemm_128x64_nt"]


def test_a_pause_of_python_is_reported(stored: Callable[..., Stored]) -> None:
    verdict = stored("garbage").analysis().verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("transient", (2,), "forward")
    assert verdict.findings[0].suspect == "garbage collection"
    assert "garbage collection (gc.collect)" in verdict.sentence


def test_a_slow_loader_is_reported(stored: Callable[..., Stored]) -> None:
    assert suspects(stored("planted", where="load")) == {"loader"}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_rank_that_suffers_from_collectives_is_not_named(
    stored: Callable[..., Stored], seed: int
) -> None:
    verdict = stored("contention", only=2, seed=seed).analysis().verdict
    assert verdict.ranks == ()
    assert verdict.hosts == ()


def test_who_makes_others_compute_beside_collectives_is(stored: Callable[..., Stored]) -> None:
    verdict = stored("contention").analysis().verdict
    assert (verdict.kind, verdict.ranks, verdict.cause) == ("periodic", (1,), "forward")
    assert verdict.period == 5

"""A new cause is a kind and a detector: nothing else has to know it."""

from collections.abc import Callable, Collection, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, cast

import polars as pl
import pytest

from rankscope.judge.causes import registry
from rankscope.judge.causes.context import CauseContext
from rankscope.judge.causes.detector import Detector, Precedence
from rankscope.model.kinds import CauseKind
from rankscope.model.results import Finding
from tests.support import Cli, MakeStored


class Dummy(StrEnum):
    THROTTLING = "throttling"


THROTTLING = cast(CauseKind, Dummy.THROTTLING)
MS = 1_000_000
ONE_FLAG = pl.DataFrame({"rank": [1], "iteration": [4], "excess_ns": [100]})


def throttled(context: CauseContext) -> Iterator[Finding]:
    """All of the excess, on a clock that is named after the table's phase."""
    assert all(context.table(name) is not None for name in THROTTLED.tables)
    yield context.finding(THROTTLING, "clock", f"sm <{context.phase}>", context.total_ns)


THROTTLED = Detector(
    kind=THROTTLING,
    findings=throttled,
    sentence=lambda finding: f"clock {finding.name} was low",
    tables=("measures",),
    precedence=Precedence.EXPLANATION,
)


@pytest.fixture
def detectors(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Adds detectors; only after an ingest, which stores what they find."""

    def add(*more: Detector) -> None:
        monkeypatch.setattr(registry, "DETECTORS", (*registry.DETECTORS, *more))

    return add


@pytest.mark.slow
def test_a_new_cause_is_seen_in_every_output(
    stored: MakeStored, cli: Cli, detectors: Callable[..., None]
) -> None:
    """With `--iter-range`, for which no answer is cached."""
    look = ("--db", stored("planted", where="load").db, "--iter-range", "3:20")
    detectors(THROTTLED)
    verdict = cli("imbalance", *look, "--format", "json").document["verdict"]
    assert "(clock sm <load> was low; the device idles" in verdict["sentence"]
    first, idle = verdict["findings"]
    assert (first["kind"], first["name"], first["suspect"]) == (
        "throttling",
        "sm <load>",
        "throttling",
    )
    assert (first["activity"], first["phase"]) == ("clock", "load")
    assert (first["excess_ns"], first["share"]) == (verdict["excess_ns"], 1)
    assert idle["suspect"] == "loader"
    assert "clock sm <load> was low" in " ".join(cli("imbalance", *look).out.split())
    assert cli("report", *look, "-o", "page.html").code == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert '"Contents of the excess"' in page
    assert '"throttling"' in page


def test_a_detector_without_its_table_is_silent_and_says_how_to_capture_it(
    stored: MakeStored, detectors: Callable[..., None]
) -> None:
    analysis = stored("planted").analysis()
    blind = Detector(
        kind=THROTTLING,
        findings=throttled,
        sentence=lambda _: "never said",
        tables=("activities", "clock_samples"),
        capture="--gpu-metrics-devices=all",
    )
    detectors(blind)
    tables = registry.tables_of(analysis.tables)
    flags = analysis.flags()
    assert flags is not None
    context = registry.context_of(tables, analysis.roles.of, flags.filter("flagged"), None)
    assert registry.findings(context)
    assert THROTTLING not in {each.kind for each in registry.findings(context)}


def test_without_tables_every_detector_is_silent() -> None:
    context = registry.context_of(lambda *_: None, {1: "all"}, ONE_FLAG, None)
    assert registry.findings(context) == ()


def test_a_table_is_read_once_and_only_in_the_flagged_iterations() -> None:
    read = []

    def table(name: str, iterations: Collection[int]) -> pl.DataFrame | None:
        read.append((name, [*iterations]))
        return None

    context = registry.context_of(table, {1: "all"}, ONE_FLAG, None)
    registry.findings(context)
    asked = {name for each in registry.DETECTORS for name in each.tables}
    assert sorted(read) == [(name, [4]) for name in sorted({"activities", *asked})]


def test_slow_ranks_are_compared_with_a_sample_of_their_role() -> None:
    """Of 500 ranks of two roles; where many are slow, most of those compared are not."""
    roles = {rank: "odd" if rank % 2 else "even" for rank in range(500)}
    few = registry.compared_with(roles, [7])
    assert few[7] == "odd"
    assert {*few.values()} == {"odd"}
    assert len(few) == 1 + registry.MOST_PEERS
    many = registry.compared_with(roles, range(1, 41, 2))
    assert len(many) == 20 + 20 * registry.PEERS_OF_EACH
    assert registry.compared_with({0: "all", 1: "all", 2: "other"}, [1]) == {0: "all", 1: "all"}


def test_every_cause_has_one_detector_with_all_that_users_need() -> None:
    assert sorted(each.kind for each in registry.DETECTORS) == sorted(CauseKind)
    for detector in registry.DETECTORS:
        assert detector.capture, detector.kind
        finding = Finding(detector.kind, "a\x1bname", 6_000_000, 0.5, "kernel")
        assert "6.00 ms" in detector.sentence(finding)
        assert "\x1b" not in detector.sentence(finding)


def test_a_cause_without_a_detector_is_an_error_that_says_where() -> None:
    with pytest.raises(LookupError, match=r"'throttling'.*DETECTORS"):
        registry.findings_sentence([Finding(THROTTLING, "sm", 1, 1.0, "clock")])


def test_findings_of_one_cause_in_work_that_adds_up_are_one_clause() -> None:
    def kernel(name: str, excess: int, usual: int | None, cause: CauseKind, **more: Any) -> Finding:
        found = {"activity": "kernel"} | more
        return Finding(cause, name, excess * MS, 0.2, usual_ns=usual and usual * MS, **found)

    slow = CauseKind.DEVICE_SLOWER
    alike = [kernel("gemm", 2, 4, slow), kernel("softmax", 1, 4, slow)]
    small = kernel("12 smaller kernels", 1, 2, slow, activity="kernels", count=12)
    other = kernel("attention", 1, 2, CauseKind.MORE_WORK)
    said = registry.findings_sentence([*alike, small, other]).split("; ")
    assert said[0] == "14 kernels take 4.00 ms or 40 % longer for the same work: the device is slow"
    assert len(said) == 2
    assert "kernel attention takes 1.00 ms or 50 % longer" in said[1]
    most = kernel("attention", 5, 2, CauseKind.MORE_WORK)
    assert registry.findings_sentence([most]) == (
        "kernel attention takes 3.5 times as long or 5.00 ms longer for more work"
    )
    unknown = registry.findings_sentence([alike[0], kernel("softmax", 1, None, slow)])
    assert unknown.startswith("2 kernels take 3.00 ms longer for"), "a part of an unknown whole"
    copies = [kernel(name, 2, None, CauseKind.COPIES, activity=name) for name in ("copy", "set")]
    assert registry.findings_sentence(copies) == "copies take 4.00 ms longer"
    parts = [Finding(CauseKind.RANGE, name, MS, 0.2, "range") for name in "ab"]
    assert "; " in registry.findings_sentence(parts), "a range may contain the other"


def test_findings_of_different_ranks_are_clauses_of_their_own() -> None:
    found = [Finding(CauseKind.STARVED, "", MS, 1.0, "idle", ranks=(rank,)) for rank in (4, 5)]
    assert registry.findings_sentence(found).count("the device idles 1.00 ms longer") == 2

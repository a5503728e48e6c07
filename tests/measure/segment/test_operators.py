"""Forward and backward from operators, where no ranges name them."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import rankscope
from rankscope.measure.segment import find_marks
from tests.frames import AUTOGRAD, PROCESS, found, named, ranges
from tests.support import MS, captured, edit, unpacked

STEP = (0, 100, "step 0")
FORWARD = [(10, 14, "aten::linear"), (11, 13, "aten::addmm"), (15, 19, "aten::relu")]
BACKWARD = [
    (30, 36, "autograd::engine::evaluate_function: ReluBackward0", AUTOGRAD),
    (31, 35, "ReluBackward0", AUTOGRAD),
    (32, 34, "aten::mm", AUTOGRAD),
    (40, 48, "autograd::engine::evaluate_function: AddmmBackward0", AUTOGRAD),
]
OPTIMIZER = [(60, 64, "aten::add_"), (65, 69, "aten::mul_")]


def marks(*rows: tuple[object, ...]) -> tuple[list[tuple[object, ...]], frozenset[str]]:
    frame = named(ranges(*rows))
    none = np.empty(0, dtype=np.int64)
    result = find_marks(PROCESS, frame, found(*rows), lambda: True, lambda _: none)
    return result.frame.select("label", "start", "end").sort("start").rows(), result.derived


def test_what_precedes_autograds_operators_is_forward() -> None:
    assert marks(STEP, *FORWARD, *BACKWARD, *OPTIMIZER) == (
        [("forward", 10, 19), ("backward", 30, 48)],
        {"forward", "backward"},
    )


def test_backward_on_the_training_thread_holds_the_operators_it_calls() -> None:
    own = [(start, end, name) for start, end, name, *_ in BACKWARD]
    assert marks(STEP, *FORWARD, *own)[0] == [("forward", 10, 19), ("backward", 30, 48)]


def test_accumulation_has_several_of_each() -> None:
    later = [
        (start + 40, end + 40, name, *rest) for start, end, name, *rest in [*FORWARD, *BACKWARD]
    ]
    assert [label for label, *_ in marks(STEP, *FORWARD, *BACKWARD, *later)[0]] == [
        *("forward", "backward", "forward", "backward"),
    ]


def test_explicit_ranges_are_never_overridden() -> None:
    explicit = [(9, 21, "forward"), (29, 50, "backward")]
    assert marks(STEP, *explicit, *FORWARD, *BACKWARD)[1] == frozenset()
    found_marks, derived = marks(STEP, explicit[0], *FORWARD, *BACKWARD)
    assert found_marks == [("forward", 9, 21), ("backward", 30, 48)]
    assert derived == {"backward"}


def test_operators_of_explicit_ranges_are_theirs() -> None:
    load = [(1, 9, "load"), (2, 4, "aten::stack"), (5, 8, "aten::to")]
    assert marks(STEP, *load, *FORWARD, *BACKWARD)[0][:2] == [("load", 1, 9), ("forward", 10, 19)]


def test_without_backward_operators_nothing_is_reported() -> None:
    assert marks(STEP, *FORWARD) == ([], frozenset())


@pytest.mark.slow
def test_real_operators_find_the_phases_that_ranges_name(tmp_path: Path) -> None:
    """emit_nvtx inside a DDP job: its own ranges for forward and backward, then without them."""
    reports = unpacked(captured("2022.4/ddp_b"), tmp_path / "reports")
    explicit = rankscope.ingest([reports], tmp_path / "explicit.duckdb")
    for report in reports.iterdir():
        edit(report, "delete from NVTX_EVENTS where text in ('Forward Pass', 'Backward Pass')")
    derived = rankscope.ingest([reports], tmp_path / "derived.duckdb")
    assert "phases-from-operators" in {each.code for each in derived.compare().warnings}
    assert "phases-from-operators" not in {each.code for each in explicit.compare().warnings}
    both = derived.iterations().join(explicit.iterations(), on=["rank", "iteration"], suffix="_of")
    for phase in ("forward", "backward"):
        off = (pl.col(f"{phase}_ns") - pl.col(f"{phase}_ns_of")).abs()
        assert both.select(off.median()).item() < 0.5 * MS, phase
    verdict = derived.imbalance().verdict
    assert (verdict.ranks, verdict.period) == ((1,), 7)
    [slow] = derived.iterations().filter(iteration=20, rank=2)["backward_ns"]
    assert slow > 50 * MS

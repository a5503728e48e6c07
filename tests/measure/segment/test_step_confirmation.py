"""What repeats is a step only if phases, lengths and ranges agree."""

from collections.abc import Iterable

import numpy as np
import polars as pl
import pytest

from rankscope.measure.segment.step_confirmation import are_steps

Range = tuple[int, int, str | None]
ENDS = np.arange(0, 1100, 100)


def confirmed(
    ranges: list[Range],
    ends: np.ndarray = ENDS,
    backward: tuple[int, ...] = (),
    kernels: Iterable[tuple[int, str]] = (),
    device: Iterable[int] | None = None,
) -> bool:
    """Whether repeats are steps; kernels end at once, or when `device` says."""
    schema = {"start": pl.Int64, "end": pl.Int64, "means": pl.String}
    frame = pl.DataFrame(ranges, schema, orient="row").sort("start")
    work = pl.DataFrame([*kernels], {"host": pl.Int64, "name": pl.String}, orient="row")
    end = pl.col("host") if device is None else pl.Series(device, dtype=pl.Int64)
    return are_steps(frame, ends, np.array(backward), work.sort("host").with_columns(end=end))


def phases(count: int, *offsets: int) -> list[Range]:
    return [(i * 100 + at, i * 100 + at + 5, "forward") for i in range(count) for at in offsets]


def test_each_step_has_each_phase() -> None:
    assert confirmed(phases(10, 10))
    assert confirmed(phases(10, 10, 40, 70))  # micro-batches
    assert not confirmed([(0, 900, "forward")])  # its layers repeat
    assert not confirmed([*phases(10, 10), (300, 700, "backward")])
    assert not confirmed(phases(3, 10))


def test_lengths_are_alike_where_no_phase_is_named() -> None:
    assert confirmed([])
    assert not confirmed([], np.array([0, 10, 20, 30, 40, 1000]))
    assert not confirmed([], np.cumsum([0, 10, 50, 3, 40, 200, 7]))


def test_steps_of_other_lengths_launch_the_same_kernels() -> None:
    stalled = np.cumsum([0, 100, 900, 100, 100, 400, 100])
    layer = [(at + 1, name) for at in stalled[:-1] for name in ("gemm", "gemm", "norm")]
    assert not confirmed([], stalled)
    assert confirmed([], stalled, kernels=layer)
    rest = [(at, "adam") for at in (500, 1300)]  # the rest of a step, with the last of its layers
    assert not confirmed([], stalled, kernels=[*layer, *rest])
    assert not confirmed([], stalled, kernels=[*layer, (1000, "gemm")]), "one more is other work"
    first = np.cumsum([0, 900, 100, 100, 100, 100, 100])
    layer = [(at + 1, name) for at in first[:-1] for name in ("gemm", "norm")]
    assert confirmed([], first, kernels=layer[1:]), "the first is cut"
    assert not confirmed([], first, kernels=[*layer, (500, "adam")])
    for nth in range(20):  # whichever of the three comes first
        few = [(850, f"{nth}"), (950, f"{nth + 100}"), (1050, f"{nth + 200}")]
        assert not confirmed([], np.array([0, 900, 1000, 1100]), kernels=few), "each is other work"


def test_lengths_are_those_of_the_device_where_kernels_are_known() -> None:
    """A host launches ahead, and waits in the last steps; each step has other kernels."""
    ahead = np.cumsum([0, 10, 10, 10, 10, 300, 160])
    kernels = [(at, f"{at}") for at in ahead[1:]]
    assert not confirmed([], ahead)
    assert confirmed([], ahead, kernels=kernels, device=range(100, 700, 100))
    assert not confirmed([], ENDS, kernels=[(at, f"{at}") for at in ENDS[1:]], device=[
        *range(10, 90, 10), 500, 1000])  # fmt: skip


def test_each_step_has_a_backward_pass_where_operators_tell_it() -> None:
    assert confirmed([], backward=tuple(range(50, 1050, 100)))
    assert not confirmed([], backward=tuple(range(500, 1000, 10))), "half a step's layers"


@pytest.mark.parametrize(("means", "steps"), [(None, False), ("operator", True)])
def test_no_range_holds_several_steps(means: str | None, steps: bool) -> None:
    assert confirmed([(-5, 1005, means)]) is steps
    assert confirmed([(i * 100 + 1, i * 100 + 99, means) for i in range(10)])

"""What kernels communicate, whatever codes their names have and however many are remembered."""

from __future__ import annotations

import subprocess
import sys

import polars as pl
import pytest

from rankscope.sources.conventions import kernels, with_operation

NAMES = {
    "ncclDevKernel_SendRecv": "point_to_point",
    "gemm": None,
    "ncclDevKernel_Generic": "grouped",
}


REPORTS = """
import polars as pl
from rankscope.sources.conventions import kernels, with_operation

def operations(names, dtype):
    return with_operation(pl.DataFrame({"name": pl.Series(names, dtype=dtype)}))["operation"]

for kernels.MOST_REMEMBERED in (10**6, 3, 0):
    for dtype in (pl.String(), pl.Categorical()):
        for first in range(3):
            names = [*NAMES][first:] + [None, f"kernel {first}"]
            told = operations(names, dtype).to_list()
            assert told == [NAMES.get(name) for name in names], (names, told)
"""


def test_names_of_reports_that_are_gone() -> None:
    # Categories that nobody has any more leave their codes to others; here somebody has some.
    subprocess.run([sys.executable, "-c", f"NAMES = {NAMES}\n{REPORTS}"], check=True)


def test_names_are_looked_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def look_up(names: pl.Series) -> kernels.Places:
        asked.extend(names.to_list())
        return look(names)

    look = kernels._look_up
    monkeypatch.setattr(kernels, "_look_up", look_up)
    monkeypatch.setattr(kernels, "_memory", kernels._Memory())
    for _ in range(2):
        with_operation(pl.DataFrame({"name": [*NAMES, "gemm"]}))
    assert sorted(asked) == sorted(NAMES)

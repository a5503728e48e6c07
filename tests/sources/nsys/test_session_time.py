"""Exports whose times nsys shifted: read as if it had not."""

import shutil
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal

import rankscope
from rankscope.errors import UnreadableReport
from rankscope.sources.nsys import exports
from tests.sources.exports import KINDS, as_export
from tests.support import (
    ROOT,
    SAMPLE,
    asked,
    captured,
    edit,
    mostly_nightly,
    sqlite_tables,
    with_table,
)

DEVICES = ROOT / "sample_reports" / "gpu_simulated_4ranks"


def shifted(report: Path, into: Path, shift_ns: int | None) -> Path:
    """A copy of an export as `nsys export --ts-shift` makes it; by UTC with None."""
    copy = Path(shutil.copy(report, into))
    if shift_ns is None:
        [(shift_ns,)] = asked(copy, "select utcEpochNs from TARGET_INFO_SESSION_START_TIME")
    for table in sqlite_tables(copy):
        columns = {name for _, name, *_ in asked(copy, f'pragma table_info("{table}")')}
        for column in columns & {"start", "end"}:
            edit(copy, f'update "{table}" set "{column}" = "{column}" + ?', shift_ns)
    row = ("EXPORT_CONFIG_TIME_SHIFT", str(shift_ns))
    return with_table(copy, "META_DATA_EXPORT", "name text, value text", row)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shift_ns", [None, -5_000_000_000, 0])
def test_a_shift_is_taken_off(kind: str, shift_ns: int | None, tmp_path: Path) -> None:
    report = DEVICES / "report_rank_1.sqlite"
    moved = shifted(report, tmp_path, shift_ns)
    if kind != "sqlite":
        moved = as_export(moved, kind, tmp_path / "out", rows=2_000)
    before, after = exports.read(report), exports.read(moved)
    assert_frame_equal(before.ranges.whole, after.ranges.whole)
    assert_frame_equal(before.device_work.whole, after.device_work.whole)
    assert after.facts.utc_start_ns == before.facts.utc_start_ns
    assert after.facts.duration_ns == before.facts.duration_ns


@pytest.mark.slow
@pytest.mark.parametrize("folder", mostly_nightly(["2023.4/ddp_a", ""]))
def test_clocks_of_exports_by_utc(folder: str, tmp_path: Path) -> None:
    """Four ranks of one host: their UTC counts once, though their times hold it already."""
    reports = sorted((captured(folder) if folder else SAMPLE).glob("*.sqlite"))
    offsets = []
    for name, shift_ns in (("as is", 0), ("by utc", None)):
        (tmp_path / name).mkdir()
        some = [shifted(report, tmp_path / name, shift_ns) for report in reports]
        run = rankscope.ingest(some, tmp_path / f"{name}.duckdb")
        offsets.append(run.compare().facts.offsets_ns)
    assert offsets[0] == offsets[1]
    assert max(map(abs, offsets[1].values())) < 1_000_000


def test_a_shift_that_is_no_number(tmp_path: Path) -> None:
    moved = shifted(DEVICES / "report_rank_0.sqlite", tmp_path, 0)
    edit(moved, "update META_DATA_EXPORT set value = '1e9 s'")
    with pytest.raises(UnreadableReport, match="EXPORT_CONFIG_TIME_SHIFT is '1e9 s'"):
        exports.read(moved)

"""Database and reports that were moved together keep working."""

import shutil
from pathlib import Path

import pytest

import rankscope
from rankscope.errors import ReportError
from rankscope.sources.moved import located
from tests.support import Cli, MakeForged, copied, mostly_nightly

pytestmark = pytest.mark.slow  # robustness: each starts processes or reads many odd inputs

LAYOUTS = {"beside": "run.duckdb", "above": "profiles/run.duckdb", "apart": "out/run.duckdb"}


@pytest.mark.parametrize("layout", mostly_nightly(LAYOUTS))
def test_moved_together(forged: MakeForged, cli: Cli, tmp_path: Path, layout: str) -> None:
    old, new = tmp_path / "old", tmp_path / "new" / "place"
    reports = copied(forged("plain", iterations=12).reports, old / "profiles")
    (old / "out").mkdir()
    before = rankscope.ingest(reports, old / LAYOUTS[layout])
    drawn = before.timeline([1], [5]).operations
    shutil.copytree(old, new, copy_function=shutil.copyfile)  # with new times
    shutil.rmtree(old)
    run = rankscope.open_run(new / LAYOUTS[layout])
    assert run.timeline([1], [5]).operations.equals(drawn)
    assert all(each.report.is_relative_to(new) for each in run.pick_reports().picks)
    output = cli("pick-reports", "--db", run.db, "--format", "json").document
    assert all(Path(each["report"]).exists() for each in output["picks"])


def test_a_changed_report_is_another(forged: MakeForged, tmp_path: Path) -> None:
    reports = copied(forged("plain", iterations=12).reports, tmp_path / "old" / "profiles")
    rankscope.ingest(reports, tmp_path / "old" / "run.duckdb")
    shutil.move(tmp_path / "old", tmp_path / "new")
    with (tmp_path / "new" / "profiles" / reports[1].name).open("ab") as file:
        file.write(b"more")
    run = rankscope.open_run(tmp_path / "new" / "run.duckdb")
    assert run.timeline([0], [5]).iterations == (5,)
    with pytest.raises(ReportError, match="has changed"):
        run.timeline([1], [5])


def test_the_longest_end_of_the_path_counts(tmp_path: Path) -> None:
    for name in ("a/r_0", "r_0", "b/a/r_0"):
        (tmp_path / "db" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "db" / name).touch()
    (tmp_path / "r_1").touch()
    database = tmp_path / "db" / "run.duckdb"
    assert located(Path("/gone/b/a/r_0"), database) == tmp_path / "db/b/a/r_0"
    assert located(Path("/gone/c/r_0"), database) == tmp_path / "db/r_0"
    unlike = Path("/gone/c/r_1")
    assert located(unlike, database) == unlike, "a name alone is not enough above the database"

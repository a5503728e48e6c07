"""Reports that older rules measured are said to be so, and read again by the next ingest."""

import json
from pathlib import Path

import duckdb
import pytest

import rankscope
from rankscope.ingestion.job import ingest_reports
from rankscope.model.options import MEASURE_VERSION, ShapingOptions, measure_version
from tests.forge import forge, scene


def as_before(db: Path, names: list[str]) -> None:
    """Turn the reports of some names into such as version 1 stored."""
    with duckdb.connect(str(db)) as connection:
        for path, text in connection.execute("select path, options from reports").fetchall():
            if Path(path).name in names:
                options = json.loads(text)
                assert options.pop("measure_version") == MEASURE_VERSION
                written = json.dumps(options, sort_keys=True)
                connection.execute("update reports set options = ? where path = ?", [written, path])


def codes(run: rankscope.Run) -> dict[str, tuple[int, ...]]:
    return {problem.code: problem.ranks for problem in run.compare().warnings}


@pytest.mark.slow
def test_reports_of_older_rules_are_read_again(tmp_path: Path) -> None:
    forge(scene("plain", ranks=4, iterations=8), tmp_path)
    reports, db = sorted(tmp_path.glob("*.sqlite")), tmp_path / "run.duckdb"
    rankscope.ingest(reports, db=db)
    assert "measured-before" not in codes(rankscope.open_run(db))
    older = [path.name for path in reports[1:3]]
    as_before(db, older)
    with duckdb.connect(str(db)) as connection:
        copy = "insert into problems select path, ?, 'its words', [1] from reports limit 1"
        for code in ("phases-recur", "no-utc"):
            connection.execute(copy, [code])
    output = codes(rankscope.open_run(db))
    assert output["measured-before"] == (1, 2)
    assert "options-differ" not in output, "the user's options are the same"
    assert "no-utc" in output
    assert "phases-recur" not in output, "no rule gives it any more, and nothing explains it"
    before = rankscope.open_run(db).iterations()
    again = ingest_reports(reports, db)
    assert {each.path.name: each.status for each in again.outcomes} == {
        path.name: "read" if path.name in older else "unchanged" for path in reports
    }
    run = rankscope.open_run(db)
    assert "measured-before" not in codes(run)
    assert run.iterations().equals(before)


def test_options_survive_the_version() -> None:
    options = ShapingOptions("step (.*)", (("forward", "fwd"),), None)
    assert ShapingOptions.from_json(options.to_json()) == options
    assert measure_version(options.to_json()) == MEASURE_VERSION
    older = '{"iteration": null, "phases": [], "rank_pattern": null}'
    assert ShapingOptions.from_json(older) == ShapingOptions()
    assert measure_version(older) == 1

"""`rankscope export`: traces and tables that hold the database's rows, whole or not at all."""

import errno
import gzip
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rankscope_cli.commands.export import bounded

import rankscope
from rankscope.compare.timeline import timelines
from rankscope.errors import UsageError
from rankscope.measure.report import ReportDetail, details
from rankscope.model.kinds import PARTS
from rankscope.model.options import ShapingOptions
from rankscope.model.reports import ReportFile
from rankscope.output.palette import part_name
from rankscope.util.atomic_io import written_whole
from tests.support import Cli, MakeStored, Stored, edit, mostly_nightly, mostly_slow


def events(path: Path) -> list[dict[str, Any]]:
    content = path.read_bytes()
    text = gzip.decompress(content) if path.suffix == ".gz" else content
    return [each for each in json.loads(text)["traceEvents"] if each["ph"] == "X"]


def exported(cli: Cli, job: Stored, name: str, ranks: str, iterations: str) -> dict[str, Any]:
    """What is said of a file of some ranks and iterations."""
    chosen = ("--db", job.db, "--ranks", ranks, "--iter-range", iterations)
    return cli("export", "-o", name, *chosen, "--format", "json").document


def rows_of(db: Path, query: str) -> int:
    return int(rankscope.open_run(db).sql(query).item())


@pytest.mark.slow
def test_a_trace_of_the_picks(cli: Cli, sample: Stored) -> None:
    answer = cli("export", "-o", "picks.json.gz", "--db", sample.db, "--format", "json").document
    assert answer["format"] == "rankscope/export/1"
    assert answer.keys() >= {"run", "warnings", "output", "kind", "rows", "ranks", "iterations"}
    assert (answer["output"], answer["kind"]) == ("picks.json.gz", "trace")
    found = sample.run.pick_reports()
    picks = found.picks
    assert answer["ranks"] == sorted(each.rank for each in picks)
    assert {picks[0].worst.iteration, picks[0].typical.iteration} <= {*answer["iterations"]}
    assert len(answer["iterations"]) <= 3 * len(found.looks)
    content = Path("picks.json.gz").read_bytes()
    assert answer["bytes"] == len(content)
    whole = json.loads(gzip.decompress(content))
    assert whole["otherData"]["verdict"].startswith("Rank 2 (node1)")
    assert {each["pid"] for each in whole["traceEvents"]} == {*answer["ranks"]}
    events = whole["traceEvents"]
    why = {e["pid"]: e["args"]["labels"] for e in events if e["name"] == "process_labels"}
    assert why == {each.rank: each.title for each in picks}, "as pick-reports says"


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_slow(["sample", "buckets"]))
def test_its_slices_are_the_rows_of_the_database(
    cli: Cli, stored: MakeStored, sample: Stored, name: str
) -> None:
    job = sample if name == "sample" else stored(name)
    cli("export", "-o", "all.json", "--db", job.db, "--iter-range", ":", "--include-warmup")
    answer = pl.DataFrame(
        [
            {
                "rank": each["pid"],
                "iteration": each["args"]["iteration"],
                "category": each["cat"],
                "name": each["name"],
                "ns": round(each["dur"] * 1000),
            }
            for each in events(Path("all.json"))
        ]
    )
    ranks = ", ".join(map(str, {*answer["rank"]}))
    among = f"rank in ({ranks})"
    collectives = answer.filter(pl.col("category") == "collective")
    assert collectives.height == rows_of(job.db, f"select count(*) from collectives where {among}")
    kept = job.run.sql(
        "select rank, iteration, sum(end_ns - start_ns)::bigint as ns from collectives "
        f"where {among} group by all order by all"
    )
    drifting = [rank for rank, ppm in job.analysis().facts.drift_ppm.items() if ppm]
    straight = ~pl.col("rank").is_in(drifting)
    summed = collectives.group_by("rank", "iteration").agg(pl.col("ns").sum())
    assert summed.sort("rank", "iteration").filter(straight).equals(kept.filter(straight))
    # Phases on both clocks lie in the trace; the stored ones are those of measures.
    measures = job.run.sql(f"select * from measures where {among}")
    lengths = answer.filter(pl.col("category") == "phase").group_by("name").agg(pl.col("ns").sum())
    by_name = dict(lengths.rows())
    if not drifting:
        for part in PARTS:
            known = measures[f"{part}_ns"]
            if not known.null_count():
                assert by_name.get(part_name(part), 0) == known.sum(), part
    windows = measures["iteration_ns"].count()
    spans = answer.filter(pl.col("name").str.starts_with("iteration "))
    assert spans.height == windows


@pytest.mark.slow
def test_ranks_and_iterations_that_are_named(cli: Cli, sample: Stored) -> None:
    answer = exported(cli, sample, "some.json", "3,0:2", "4:6")
    assert answer["ranks"] == [0, 1, 3]
    assert answer["iterations"] == [4, 5]
    assert {each["args"]["iteration"] for each in events(Path("some.json"))} == {4, 5}


@pytest.mark.slow
def test_a_trace_of_all_ranks(cli: Cli, sample: Stored) -> None:
    answer = exported(cli, sample, "all.json.gz", "all", "6:8")
    assert (answer["ranks"], answer["iterations"]) == ([0, 1, 2, 3], [6, 7])
    assert answer["bytes"] == Path("all.json.gz").stat().st_size
    among = f"select count(*) from collectives where iteration in {(*answer['iterations'],)}"
    slices = [
        each["cat"]
        for each in events(Path("all.json.gz"))
        if not each["name"].startswith("iteration ")
    ]
    assert slices.count("collective") == rows_of(sample.db, among) > 0
    assert answer["rows"] == sum(slices.count(name) for name in ("phase", "thread", "collective"))


@pytest.mark.slow
def test_a_trace_that_no_viewer_opens_is_not_begun(
    cli: Cli, sample: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ("export", "-o", "all.json", "--db", sample.db, "--ranks", "all")
    assert cli(*given, "--iter-range", "2:12").code == 0
    whole = Path("all.json").stat().st_size
    Path("all.json").write_text("old")
    monkeypatch.setattr("rankscope.output.perfetto.MOST_BYTES", whole // 2)
    made: list[object] = []
    monkeypatch.setattr("rankscope.util.atomic_io.scratch_beside", made.append)
    refused = cli(*given, "--iter-range", "2:12")
    refused.refused(2, "4 ranks and 10 iterations", "kB")
    [hint] = re.findall(r"--iter-range 2:(\d+)", refused.err)
    assert 5 <= int(hint) <= 7, "almost half of the iterations"
    assert Path("all.json").read_text() == "old"
    assert not made, "no file was begun"
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("rankscope.output.perfetto.MOST_BYTES", whole // 2)
    assert cli(*given, "--iter-range", f"2:{hint}").code == 0, "the hint fits"
    monkeypatch.setattr("rankscope.output.perfetto.MOST_BYTES", 99)
    cli(*given, "--iter-range", "2:3").refused(2, "fewer ranks")


def test_a_report_that_cannot_be_opened_is_no_fault_of_the_file(
    cli: Cli, sample: Stored, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []

    def failing(file: ReportFile, options: ShapingOptions) -> ReportDetail:
        read.append(file)
        if len(read) > 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return details(file, options)

    monkeypatch.setattr("rankscope.compare.timeline.details", failing)
    done = cli("export", "-o", "all.json", "--db", sample.db, "--ranks", "all")
    done.refused(5, "files")
    assert "all.json" not in done.err
    assert not [*Path().iterdir()]


def test_a_trace_that_grows_too_large_leaves_no_file(sample: Stored, tmp_path: Path) -> None:
    """Later ranks may have more events than the first ones promise."""
    first = next(timelines(sample.analysis(), range(4), [5]))
    pieces = bounded(iter([b"x" * 10, b"x" * 500]), first, range(4), most=100)
    with pytest.raises(UsageError, match="has about 510 B"), written_whole(tmp_path / "x") as path:
        path.write_bytes(b"".join(pieces))
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_the_wide_table(cli: Cli, sample: Stored, ending: str) -> None:
    result = cli("export", "-o", f"run{ending}", "--db", sample.db)
    assert result.code == 0
    expected = sample.run.iterations()
    if ending == ".parquet":
        assert pl.read_parquet("run.parquet").equals(expected)
    else:
        answer = pl.read_csv("run.csv", infer_schema_length=None)
        assert answer.columns == expected.columns
        assert answer["work_ns"].equals(expected["work_ns"])
    assert f"{expected.height} rows of rank_iterations" in result.out
    some = exported(cli, sample, f"some{ending}", "2", "3:5")
    assert (some["rows"], some["ranks"], some["iterations"]) == (2, [2], [3, 4])


@pytest.mark.parametrize("output", mostly_nightly(["table", "markdown", "csv"]))
def test_what_it_says(cli: Cli, sample: Stored, output: str) -> None:
    result = cli("export", "-o", "picks.json", "--db", sample.db, "--format", output, "--verbose")
    assert result.code == 0
    assert "picks.json" in result.out
    assert "host clock" in result.err
    if output == "table":
        assert ", around those of pick-reports\n" in result.out
        assert "https://ui.perfetto.dev" in result.out


def test_names_that_cannot_be_written(cli: Cli, sample: Stored, tmp_path: Path) -> None:
    db = ("--db", sample.db)
    for name in ("picks.txt", "picks", "json"):
        cli("export", "-o", name, *db).refused(2, name, ".json.gz", ".parquet", ".csv")
    cli("export", "-o", "nowhere/picks.json", *db).refused(2, "nowhere/picks.json", "no folder")
    (tmp_path / "folder.json").mkdir()
    cli("export", "-o", "folder.json", *db).refused(2, "folder.json", "is a folder")
    cli("export", *db).refused(2, "--output")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--ranks", "0,9"), "rank 9"),
        (("--ranks", "one"), "--ranks 'one'"),
        (("--iter-range", "900:"), "selects nothing"),
        (("--metric", "nonsense"), "nonsense"),
        (("--metric", "idle"), "idle"),
    ],
)
def test_what_the_run_has_not(
    cli: Cli, sample: Stored, arguments: tuple[str, ...], words: str
) -> None:
    cli("export", "-o", "picks.json", "--db", sample.db, *arguments).refused(2, words)
    assert not Path("picks.json").exists()


def test_ranks_of_the_wide_table_that_are_not_there(cli: Cli, sample: Stored) -> None:
    cli("export", "-o", "run.csv", "--db", sample.db, "--ranks", "9").refused(2, "rank 9")


@pytest.mark.slow
def test_a_file_is_replaced_whole_or_stays(
    cli: Cli, sample_reports: list[Path], tmp_path: Path
) -> None:
    cli("ingest", *sample_reports)
    Path("picks.json").write_text("old")
    assert cli("export", "-o", "picks.json").code == 0
    before = Path("picks.json").read_bytes()
    assert len(before) > 1000
    edit(sample_reports[2], "create table more (i int)")
    cli("export", "-o", "picks.json").refused(3, "report_rank_2.sqlite", "has changed")
    sample_reports[2].unlink()
    cli("export", "-o", "picks.json").refused(3, "report_rank_2.sqlite", "is gone")
    assert Path("picks.json").read_bytes() == before
    assert cli("export", "-o", "run.csv").code == 0, "the wide table needs no report"
    assert not [*tmp_path.glob(".*partial")]


@pytest.mark.slow
def test_the_same_again_is_the_same_file(cli: Cli, sample: Stored) -> None:
    for name in ("one.json.gz", "two.json.gz"):
        cli("export", "-o", name, "--db", sample.db)
    assert Path("one.json.gz").read_bytes() == Path("two.json.gz").read_bytes()

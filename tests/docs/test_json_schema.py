"""Real documents fit the structs, of which the published JSON Schema is made."""

import json
from typing import Any

import msgspec
import pytest
from rankscope_cli.main import COMMANDS

from rankscope.history.diff import shifts
from rankscope.model import reports, results
from rankscope.output import explain
from rankscope.output.documents import diff, imbalance
from rankscope.output.documents import reports as report_documents
from rankscope.output.documents.common import Error, one_line
from rankscope.output.documents.imbalance import Imbalance
from rankscope.output.documents.reports import IngestRuns
from tests import json_schema
from tests.reference import help_of
from tests.support import SAMPLE, Cli, MakeStored, Stored, mostly_slow


def named(shape: type[msgspec.Struct]) -> str:
    """The name of a document: its command, but for two."""
    others = {Error: "error", IngestRuns: "ingest-runs"}
    return others.get(shape) or str(shape.__struct_config__.tag).split("/")[1]


NAMES = {named(each): each for each in json_schema.DOCUMENTS}
"""Kinds of documents."""


def fits(document: dict[str, Any]) -> str:
    """The document is one of those of the schema, whose name is returned."""
    name = document["format"].split("/")[1]
    if name == "ingest" and {*document} == {"format", "runs"}:
        name = "ingest-runs"
    name = "error" if "error" in document else name
    read = msgspec.convert(document, NAMES[name])
    assert json.loads(one_line(read)) == document, "keys that the struct does not have"
    return name


def test_the_published_schema_is_that_of_the_structs() -> None:
    published = json.loads(json_schema.FILE.read_text("utf-8"))
    assert published == json_schema.schema(), "run: python -m tests.readme"


def test_every_key_is_explained() -> None:
    terms = [each.term for each in explain.fields()]
    assert {"run.clocks.drift_ppm", "verdict.also[].class", "looks[].windows[].rank"} <= {*terms}
    assert terms.count("verdict.findings[].kind") == 1  # not again for watch and diff
    shapes = json_schema.schema()["$defs"].values()
    keys = [each for shape in shapes for each in shape.get("properties", {}).items()]
    assert not [name for name, key in keys if "description" not in key]


@pytest.mark.parametrize(
    ("result", "shape", "own"),
    [
        (results.MetricSummary, imbalance.Metric, ("lost", "lost_ns", "unit")),
        (shifts.Change, diff.RankChange, ("before", "after")),
        (shifts.Change, diff.Change, ("before", "after", "rank")),
        (reports.ReportOutcome, report_documents.Ingested, ()),
    ],
)
def test_a_result_is_published_as_a_whole(
    result: type[msgspec.Struct], shape: type[msgspec.Struct], own: tuple[str, ...]
) -> None:
    there = {*result.__struct_fields__}
    assert there - {*own} == {*shape.__struct_fields__} - {*own}


@pytest.mark.slow
def test_documents_of_all_commands_fit(cli: Cli, sample: Stored) -> None:
    db, other = ("--db", sample.db), ("--format", "json")
    made = [
        cli("ingest", SAMPLE, "--db", "new.duckdb", *other),
        cli("watch", SAMPLE, "--once", "--settle", 0, "--db", "watched.duckdb", *other),
        cli("imbalance", *db, *other),
        *(cli("imbalance", *db, "--by", by, *other) for by in ("host", "iteration", "collective")),
        cli("imbalance", *db, "--metric", "load", *other),
        cli("pick-reports", *db, "--view", "x.nsys-view", *other),
        cli("diff", sample.db, sample.db, *other),
        cli("check", SAMPLE, *other),
        cli("check", *db, *other),
        cli("plot", "heatmap", *db, *other),
        cli("report", *db, "-o", "x.html", *other),
        cli("export", *db, "-o", "x.json.gz", *other),
        cli("explain", "wait", *other),
        cli("explain", *other),
        cli("fleet", sample.db, *other),
        cli("capture", "slurm", *other),
        cli("capture", "mpirun", "-o", "profile.sh", *other),
        cli("capture", "--snippet", *other),
    ]
    tried = {fits(json.loads(each.out)) for each in made}
    assert tried == {*NAMES} - {"error", "ingest-runs", "timeline"}  # the last is of `mcp` only
    assert tried == {each for each in COMMANDS if "--format" in help_of(each)}


@pytest.mark.parametrize(
    "wrong",
    ["imbalance --db absent.duckdb", "imbalance --clock sundial", "ingest nowhere", "ingest",
     "fleet", "watch nowhere", "capture", "explain nonsense"],
)  # fmt: skip
def test_errors_fit(cli: Cli, wrong: str) -> None:
    plain = cli(*wrong.split())
    plain.refused(plain.code)
    for option in (["--format", "json"], ["--format=json"]):
        refused = cli(*wrong.split(), *option)
        assert (refused.code, refused.err) == (plain.code, plain.err)
        document = json.loads(refused.out)
        assert fits(document) == "error"
        assert document["format"] == f"rankscope/{wrong.split(maxsplit=1)[0]}/1"
        assert document["error"]["message"] in refused.err
        assert document["error"]["hint"] in refused.err


@pytest.mark.parametrize(
    ("scene", "parameters"),
    mostly_slow(
        [
            ("planted", {"kind": "persistent", "where": "device"}),
            ("plain", {"ranks": 1}),
            ("planted", {"kind": "structural", "where": "data", "factor": 1.5}),
            ("sequence_lengths", {}),
        ],
    ),
)
def test_verdicts_of_every_kind_fit(
    cli: Cli, stored: MakeStored, scene: str, parameters: dict[str, Any]
) -> None:
    db = stored(scene, **{"ranks": 4} | parameters).db
    fits(cli("imbalance", "--db", db, "--format", "json").document)
    fits(cli("imbalance", "--db", db, "--by", "kernel", "--format", "json").document)


def test_a_verdict_with_ranks_that_lead_fits(cli: Cli, stored: MakeStored) -> None:
    weak = {"kind": "persistent", "where": "device", "factor": 1.15, "noise": 0.15}
    db = stored("planted", ranks=2, iterations=8, **weak).db
    document = cli("imbalance", "--db", db, "--format", "json").document
    fits(document)
    assert {*document["verdict"]["leading"]} == {"ranks", "gain_ns", "gain", "chance"}
    assert document["verdict"]["settles"] > 7


def test_what_does_not_fit_is_found(cli: Cli, sample: Stored) -> None:
    document = cli("imbalance", "--db", sample.db, "--format", "json").document
    verdict = document["verdict"]
    for wrong in (
        {"verdict": verdict | {"class": "slow"}},
        {"verdict": verdict | {"excess_ns": "30 ms"}},
        {"verdict": verdict | {"ranks": [True]}},
        {"verdict": {key: value for key, value in verdict.items() if key != "sentence"}},
        {"verdict": verdict | {"more": 1}},
        {"format": "rankscope/imbalance/2"},
        {"more": 1},
    ):
        with pytest.raises((msgspec.ValidationError, AssertionError)):
            fits(document | wrong)
    assert msgspec.convert(document, Imbalance).verdict.sentence == verdict["sentence"]

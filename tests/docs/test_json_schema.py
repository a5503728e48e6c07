"""The published JSON Schema fits real documents, and names every key of theirs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rankscope_cli.main import COMMANDS

import rankscope
from rankscope.model.kinds import VerdictKind
from tests.reference import help_of
from tests.support import SAMPLE, Result, Stored, mostly_slow

Cli = Callable[..., Result]

SCHEMA = json.loads(
    (Path(rankscope.__file__).parent / "docs/json-schema/rankscope.schema.json").read_text("utf-8")
)
KINDS = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
    "integer": int, "number": (int, float),
}  # fmt: skip
KNOWN = {
    "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "items",
    "properties", "required", "type",
}  # fmt: skip
"""Keywords that `faults` understands."""


def faults(value: Any, schema: dict[str, Any], path: str = "$") -> Iterator[str]:
    """Where a value does not fit a schema, or has a key that the schema does not name."""
    assert {*schema} <= KNOWN, f"{path}: this test cannot check { ({*schema} - KNOWN) }"
    if "$ref" in schema:
        yield from faults(value, SCHEMA["$defs"][schema["$ref"].removeprefix("#/$defs/")], path)
        return
    if "anyOf" in schema:
        found = [[*faults(value, each, path)] for each in schema["anyOf"]]
        yield from min(found, key=len)
        return
    if "const" in schema and value != schema["const"]:
        yield f"{path}: {value!r}"
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    allowed = schema.get("type", [*KINDS])
    names = [allowed] if isinstance(allowed, str) else allowed
    if not any(_is(value, name) for name in names):
        yield f"{path}: {value!r} is not of type {names}"
    elif isinstance(value, dict):
        yield from _faults_of_object(value, schema, path)
    elif isinstance(value, list) and "items" in schema:
        for place, each in enumerate(value):
            yield from faults(each, schema["items"], f"{path}[{place}]")


def _is(value: Any, name: str) -> bool:
    number = name in ("integer", "number")
    return isinstance(value, KINDS[name]) and not (number and isinstance(value, bool))


def _faults_of_object(value: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[str]:
    named = schema.get("properties")
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}: lacks {name}"
    for name, inner in value.items():
        if named is not None and name in named:
            yield from faults(inner, named[name], f"{path}.{name}")
        elif "additionalProperties" in schema:
            yield from faults(inner, schema["additionalProperties"], f"{path}.{name}")
        elif named is not None:
            yield f"{path}.{name}: is not in the schema"


NAMES = [each["$ref"].removeprefix("#/$defs/") for each in SCHEMA["oneOf"]]
"""Kinds of documents."""


def fits(document: dict[str, Any]) -> str:
    """The document is one of those of the schema, whose name is returned."""
    found = {name: [*faults(document, SCHEMA["$defs"][name])] for name in NAMES}
    fitting = [name for name, wrong in found.items() if not wrong]
    assert len(fitting) == 1, found[document["format"].split("/")[1]]
    return fitting[0]


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
    assert tried == {*NAMES} - {"error", "ingest-runs"}
    assert tried == {each for each in COMMANDS if "--format" in help_of(each)}


@pytest.mark.parametrize(
    "wrong",
    [
        ("imbalance", "--db", "absent.duckdb"),
        ("imbalance", "--clock", "sundial"),
        ("ingest", "nowhere"),
        ("ingest",),
        ("fleet",),
        ("watch", "nowhere"),
        ("capture",),
        ("explain", "nonsense"),
    ],
)
def test_errors_fit(cli: Cli, wrong: tuple[str, ...]) -> None:
    refused = cli(*wrong, "--format", "json")
    assert refused.code > 0
    document = json.loads(refused.out)
    assert fits(document) == "error"
    assert document["format"] == f"rankscope/{wrong[0]}/1"


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
    cli: Cli, stored: Callable[..., Stored], scene: str, parameters: dict[str, Any]
) -> None:
    db = stored(scene, **{"ranks": 4} | parameters).db
    fits(cli("imbalance", "--db", db, "--format", "json").document)
    fits(cli("imbalance", "--db", db, "--by", "kernel", "--format", "json").document)


def test_a_verdict_with_ranks_that_lead_fits(cli: Cli, stored: Callable[..., Stored]) -> None:
    weak = {"kind": "persistent", "where": "device", "factor": 1.15, "noise": 0.15}
    db = stored("planted", ranks=2, iterations=8, **weak).db
    document = cli("imbalance", "--db", db, "--format", "json").document
    fits(document)
    assert {*document["verdict"]["leading"]} == {"ranks", "gain_ns", "gain", "chance"}
    assert document["verdict"]["settles"] > 7


def test_the_schema_refuses_what_does_not_fit(cli: Cli, sample: Stored) -> None:
    document = cli("imbalance", "--db", sample.db, "--format", "json").document
    schema = SCHEMA["$defs"]["imbalance"]
    verdict = document["verdict"]
    for wrong in (
        {"verdict": verdict | {"class": "slow"}},
        {"verdict": verdict | {"excess_ns": "30 ms"}},
        {"verdict": verdict | {"ranks": [True]}},
        {"verdict": {key: value for key, value in verdict.items() if key != "sentence"}},
        {"format": "rankscope/imbalance/2"},
        {"more": 1},
    ):
        assert [*faults(document | wrong, schema)], wrong
    assert {*SCHEMA["$defs"]["verdict"]["properties"]["class"]["enum"]} == {*VerdictKind}

"""The JSON Schema of all documents, made of the structs in `rankscope/output/documents/`.

`python -m tests.readme` writes the file.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

import rankscope
from rankscope.output.documents.capture import Capture
from rankscope.output.documents.common import Answer, Error
from rankscope.output.documents.diff import Diff
from rankscope.output.documents.explain import Explain
from rankscope.output.documents.fleet import Fleet
from rankscope.output.documents.imbalance import Imbalance
from rankscope.output.documents.pick_reports import PickReports
from rankscope.output.documents.reports import Check, Ingest, IngestRuns
from rankscope.output.documents.timeline import Timeline
from rankscope.output.documents.written import Export, Plot, Report
from rankscope.watch.documents import Watch

FILE = Path(rankscope.__file__).parent / "docs/json-schema/rankscope.schema.json"

DOCUMENTS = (
    Imbalance, PickReports, Diff, Ingest, IngestRuns, Check, Plot, Report, Export, Explain,
    Capture, Fleet, Watch, Timeline, Error,
)  # fmt: skip

FORMAT = "`rankscope/<command>/1`"
"""The description of a tag, which a struct cannot give."""


def schema() -> dict[str, Any]:
    """The schema (2020-12)."""
    references, shapes = msgspec.json.schema_components(
        (*DOCUMENTS, Answer), ref_template="#/$defs/{name}"
    )
    for shape in shapes.values():
        _always_there(shape)
        if "format" in shape.get("properties", {}):
            shape["properties"]["format"]["description"] = FORMAT
    shapes["Answer"]["properties"]["format"] = {"type": "string", "description": FORMAT}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Documents of rankscope --format json",
        "description": "Times end in _ns and are integers in ns; shares are fractions of 1; null "
        "is unknown. Keys may be added without a new number in format.",
        "oneOf": list(references[:-1]),
        "$defs": _null_last(shapes),
    }


def _always_there(shape: dict[str, Any]) -> None:
    """Require the keys that have a default in Python: a document always has them."""
    keys = shape.get("properties", {})
    given = {name for name, key in keys.items() if key.pop("default", UNSET) is not UNSET}
    if given:
        shape["required"] = [name for name in keys if name in given | {*shape.get("required", ())}]


def _null_last(value: Any) -> Any:
    """The same with null after what else is possible: versions of msgspec differ in the order."""
    if isinstance(value, dict):
        found = {name: _null_last(each) for name, each in value.items()}
        if "anyOf" in found:
            found["anyOf"] = sorted(found["anyOf"], key=lambda each: each == {"type": "null"})
        return found
    return [_null_last(each) for each in value] if isinstance(value, list) else value


def text() -> str:
    """The content of the file."""
    return json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"

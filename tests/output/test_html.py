"""The page's content: whole, compact, and without a way out of being text."""

import base64
import hashlib
import json
import re
import zlib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from rankscope.api import picks_of
from rankscope.output.html.columns import EXACT_CELLS, UNKNOWN, cells, packed, unit_of
from rankscope.output.html.page import safe
from rankscope.output.phase_shares import phase_shares
from rankscope.output.text_tables import LEAST_SAVED
from tests.support import SAMPLE, Cli, MakeStored, Stored, copied, renamed

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "a\u2028b\u202ec\x1b[31m",
    "<b>{{data}}</b>&lt;" + "x" * 500,
]


class Page(HTMLParser):
    """Elements of a page, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts.append(data)

    @property
    def data(self) -> dict[str, Any]:
        return json.loads(self.scripts[0].replace(r"\u00a0", " "))


def made(cli: Cli, db: Path, *options: object) -> str:
    """The page of a database, made once."""
    key = (db, options)
    if key not in _pages:
        assert cli("report", "--db", db, "-o", "page.html", *options).code == 0
        _pages[key] = Path("page.html").read_text("utf-8")
    return _pages[key]


_pages: dict[tuple[Path, tuple[object, ...]], str] = {}


def unpacked(text: str) -> list[int | None]:
    planes = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8).reshape(4, -1)
    values = np.ascontiguousarray(planes.T).view("<i4").ravel()
    return [None if value == UNKNOWN else int(value) for value in values]


def test_columns_come_back_as_they_were() -> None:
    values = pl.Series([0, 1_499, None, -2_000_000, 2_000_000_000_000], dtype=pl.Int64)
    assert unpacked(packed(values, 1000)) == [0, 1, None, -2000, 2_000_000_000]


def test_units_fit_the_longest_iteration_and_many_cells_are_coarser() -> None:
    assert unit_of(pl.Series([40_000_000] * 10)) == 1000
    assert unit_of(pl.Series([40_000_000] * (EXACT_CELLS + 1))) == 8000
    assert unit_of(pl.Series([40_000_000, 10**13])) == 5000  # else int32 runs over
    assert unit_of(pl.Series([], dtype=pl.Int64)) == 1000


def test_cells_are_a_full_grid_and_equal_columns_are_there_once() -> None:
    wide = pl.DataFrame(
        {
            "rank": [3, 3, 5], "iteration": [1, 2, 2], "role": "all", "flagged": False,
            "cause": None, "iteration_ns": [5000, 6000, 7000],
            "work_ns": [5000, 6000, 7000], "load_ns": [1000, None, 3000], "idle_ns": [None] * 3,
        },
        schema_overrides={"idle_ns": pl.Int64},
    )  # fmt: skip
    found = cells(wide, [3, 5], [1, 2], ["iteration", "work", "load", "idle"])
    assert found["columns"] == {"iteration": 0, "work": 0, "load": 1}
    assert [unpacked(each) for each in found["packed"]] == [[5, 6, None, 7], [1, None, None, 3]]
    assert [unpacked(each) for each in found["medians"]] == [[5, 6], [1, 3]]
    alone = cells(wide.filter(rank=3), [3], [1, 2], ["work"])
    assert [unpacked(each) for each in alone["medians"]] == [[5, 5]], "as the picture has it"


def test_the_page_says_what_the_commands_say(cli: Cli, sample: Stored) -> None:
    page = Page(made(cli, sample.db))
    assert r"23\u00a0% of the time (746.0\u00a0ms)" in page.scripts[0], "on one line"
    output, analysis = page.data, sample.analysis()
    assert output["verdict"]["sentence"] == analysis.verdict.sentence
    work = unpacked(output["cells"]["packed"][output["cells"]["columns"]["work"]])
    known = analysis.rows().sort("rank", "iteration")["work_ns"]
    assert work == [round(value / 1000) for value in known]
    assert output["first"] == {"rank": 2, "iteration": 2}
    by_id = {table["id"]: table for table in output["tables"]}
    assert by_id.keys() >= {"metrics", "ranks", "flagged", "iterations", "clocks", "reports"}
    bars = phase_shares(analysis)
    for part in (*bars.phases, *bars.communication):
        means = bars.frame.sort("rank")[f"{part}_ns"] / 1e6
        assert output["phase_means"]["parts"][part] == means.to_list()
    what_if = sample.run.imbalance().what_if
    assert what_if is not None
    some = what_if.filter(pl.col("gain") >= LEAST_SAVED)
    assert by_id["whatif"]["values"][2] == some["gain_ns"].to_list()
    assert [*by_id["also"]["values"][0]] == [1], "the other slow rank of the sample"
    assert [*by_id["also"]["values"][1]] == ["node0"]
    figures = {term: (value, note) for term, value, note in output["figures"]}
    assert figures["Parallel efficiency"][0] == "38 %"
    assert figures["Fixing it saves"] == ("172.8 ms", "23 % of the time (746.0 ms)")
    assert figures["Iteration"] == ("26.1 ms", "mean over ranks, mean over 29 iterations")
    assert len({len(column) for column in by_id["ranks"]["values"]}) == 1
    picks = [each.rank for each in picks_of(analysis, None).picks]
    assert {lane["rank"] for lane in output["timeline"]["lanes"]} >= {*picks}
    shown = output["timeline"]
    assert shown["caption"].startswith(f"Iteration {shown['iteration']}: ")
    title = re.search("<title>(.*?)</title>", made(cli, sample.db))
    assert title is not None
    assert title[1].startswith("Rank 2 (node1)")
    lines = dict(output["commands"])
    assert lines["Make this page"] == f"rankscope report --db {sample.db} -o page.html"
    options = ("--metric=load", "--ranks=0,2")
    again = dict(Page(made(cli, sample.db, *options)).data["commands"])
    picked = f"--db {sample.db} {' '.join(options)}"
    assert again["Make this page"] == f"rankscope report {picked} -o page.html"
    assert again["Name the reports to open side by side"] == f"rankscope pick-reports {picked}"


def test_reasons_rest_on_tables(cli: Cli, stored: MakeStored) -> None:
    """`evidence` is that of a rank."""
    page = Page(made(cli, stored("planted", kind="persistent", where="backward", gpu=True).db)).data
    table = next(each for each in page["tables"] if each["id"] == "findings")
    values = dict(zip((each["name"] for each in table["columns"]), table["values"], strict=True))
    assert ({*values["ranks"]}, {*values["tables"]}) == ({"3"}, {"activities"})


@pytest.mark.slow
def test_options_are_looked_through_and_reported(cli: Cli, sample: Stored) -> None:
    output = Page(made(cli, sample.db, "--iter-range", "5:15", "--clock", "host")).data
    assert output["cells"]["iterations"] == [*range(5, 15)]
    line = dict(output["commands"])["Show the verdict in the terminal"]
    assert line == f"rankscope imbalance --db {sample.db} --iter-range=5:15 --clock host"
    shown = cli(*line.split()[1:])
    assert shown.out.startswith(output["verdict"]["sentence"])


def test_it_is_small_and_only_its_own_scripts_may_run(cli: Cli, sample: Stored) -> None:
    text = made(cli, sample.db)
    assert len(text.encode()) < 2_000_000
    page = Page(text)
    policy = next(
        str(attrs["content"])
        for tag, attrs in page.tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    hashes = [
        f"'sha256-{base64.b64encode(hashlib.sha256(each.encode()).digest()).decode()}'"
        for each in page.scripts[1:]
    ]
    assert rules["script-src"].split() == hashes
    assert not [attrs for _, attrs in page.tags if {"src", "srcset", "onclick"} & {*attrs}]
    links = [str(attrs["href"]) for _, attrs in page.tags if "href" in attrs]
    assert all(link.startswith("#") for link in links)


def test_no_name_gets_out_of_being_text(cli: Cli, tmp_path: Path, sample: Stored) -> None:
    reports = copied(sorted(SAMPLE.glob("*.sqlite")), tmp_path / "<img src=x onerror=alert(1)>")
    for report, name in zip(reports, HOSTILE, strict=True):
        renamed(report, name)
    assert cli("ingest", *reports, "--db", "run.duckdb").code == 0
    page = Page(made(cli, tmp_path / "run.duckdb"))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in Page(made(cli, sample.db)).tags]
    assert not [tag for tag, _ in page.tags if tag in ("img", "b", "iframe", "object", "link")]
    assert len(page.scripts) == 3
    assert not re.search(r"[<>&\u2028\u202e\x1b]", page.scripts[0])
    ranks = next(table for table in page.data["tables"] if table["id"] == "ranks")
    hosts = ranks["values"][[each["name"] for each in ranks["columns"]].index("host")]
    assert hosts[:2] == HOSTILE[:2]
    assert not re.search(r"[\u2028\u202e\x1b]", hosts[2])
    assert hosts[3].startswith("<b>{{data}}</b>&lt;xxx")
    assert len(hosts[3]) <= 500


@pytest.mark.slow
def test_reports_that_are_gone_cost_only_the_timeline(cli: Cli, sample_reports: list[Path]) -> None:
    assert cli("ingest", *sample_reports, "--db", "run.duckdb").code == 0
    for report in sample_reports:
        report.unlink()
    result = cli("report", "--db", "run.duckdb", "-o", "page.html")
    assert result.code == 0
    assert "no timeline" in result.err
    output = Page(Path("page.html").read_text("utf-8")).data
    assert output["timeline"]["lanes"] == []
    assert "is gone" in output["timeline"]["caption"]


@pytest.mark.parametrize("target", ["page.txt", "page", "nowhere/page.html"])
def test_what_cannot_be_written_is_refused_before_the_work(
    cli: Cli, sample: Stored, target: str
) -> None:
    cli("report", "--db", sample.db, "-o", target).refused(2, target)
    assert not Path(target).exists()


def test_a_page_replaces_the_old_one_and_is_reported_in_json(cli: Cli, sample: Stored) -> None:
    Path("page.html").write_text("old")
    output = cli("report", "--db", sample.db, "-o", "page.html", "--format", "json").document
    assert output["format"] == "rankscope/report/1"
    assert output["bytes"] == Path("page.html").stat().st_size
    assert [path.name for path in Path().iterdir()] == ["page.html"]


def test_a_long_verdict_is_never_cut(stored: MakeStored) -> None:
    sentence = f"Rank 3 is slow (kernel {'gemm_' * 200}takes longer). {'And so on; ' * 60}end."
    output = safe({"verdict": {"sentence": sentence, "roles": ["x" * 900]}, "next": sentence})
    assert output["verdict"]["sentence"] == output["next"] == sentence
    assert len(output["verdict"]["roles"][0]) < 900, "names are"


def test_only_prose_is_bound_to_its_units() -> None:
    """What is copied, such as a command with a path, stays as it is."""
    text = "rankscope view --db '5 ms'"
    output = safe({"verdict": {"sentence": text}, "figures": [[text]], "next": text, "db": text})
    bound = text.replace("5 ms", "5\N{NO-BREAK SPACE}ms")
    assert output == {
        "verdict": {"sentence": bound},
        "figures": [[bound]],
        "next": text,
        "db": text,
    }

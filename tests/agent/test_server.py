"""The server, as a client of the SDK sees it over real pipes."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rankscope.agent.server import RESOURCES
from rankscope.agent.tools import INSTRUCTIONS, TOOLS
from rankscope.output.explain import FOLDER
from tests.docs.test_json_schema import fits
from tests.support import SAMPLE, Cli, Stored, mostly_nightly

mcp = pytest.importorskip("mcp")
stdio = pytest.importorskip("mcp.client.stdio")
pytestmark = pytest.mark.slow  # each starts a server

COMMAND = [sys.executable, "-m", "rankscope", "mcp"]


@pytest.fixture
def folder(tmp_path: Path, sample: Stored) -> Path:
    """A folder with reports and their database."""
    shutil.copytree(SAMPLE, tmp_path / "run" / "profiles")
    shutil.copy(sample.db, tmp_path / "run" / "rankscope.duckdb")
    return tmp_path / "run"


def served(
    folder: Path, questions: Callable[[Any], Awaitable[None]], mode: str = "auto", **variables: str
) -> None:
    """Ask a server that is started for it."""
    server = stdio.StdioServerParameters(
        command=COMMAND[0],
        args=[*COMMAND[1:], str(folder)],
        env={**os.environ, **variables},
        cwd=folder.parent,
    )

    async def ask() -> None:
        pipes = stdio.stdio_client(server)
        async with mcp.Client(pipes, mode=mode, read_timeout_seconds=120) as client:
            await questions(client)

    asyncio.run(ask())


@pytest.mark.parametrize("mode", mostly_nightly(["auto", "legacy"]))
def test_an_assistant_lists_tools_and_resources_and_asks(folder: Path, mode: str) -> None:
    """Also one that still begins with a handshake."""

    async def questions(client: Any) -> None:
        assert client.instructions == INSTRUCTIONS
        tools = (await client.list_tools()).tools
        assert [each.name for each in tools] == [*TOOLS]
        writing = [each.name for each in tools if not each.annotations.read_only_hint]
        assert writing == ["ingest"]
        output = await client.call_tool("imbalance", {"most": 2})
        assert not output.is_error
        assert fits(output.structured_content) == "imbalance"
        assert output.structured_content["verdict"]["ranks"] == [2]
        [content] = output.content
        assert json.loads(content.text) == output.structured_content
        assert content.text.isascii(), "nothing in it is invisible"
        for resource in (await client.list_resources()).resources:
            [page] = (await client.read_resource(resource.uri)).contents
            assert page.text == (FOLDER / resource.name).read_text("utf-8")
        refused = await client.call_tool("imbalance", {"db": "../x.duckdb"})
        assert refused.is_error
        assert fits(refused.structured_content) == "error"
        for wrong in (client.call_tool("rm", {}), client.read_resource("file:///etc/passwd")):
            with pytest.raises(mcp.MCPError):
                await wrong

    served(folder, questions, mode)
    assert len(RESOURCES) == 2


def test_reports_are_ingested_with_progress(folder: Path) -> None:
    """Worker processes and their messages do not disturb the protocol."""
    steps: list[tuple[float, float | None]] = []

    async def progress(done: float, total: float | None, _: str | None) -> None:
        steps.append((done, total))

    async def questions(client: Any) -> None:
        arguments = {"paths": ["profiles"], "db": "new.duckdb"}
        output = await client.call_tool("ingest", arguments, progress_callback=progress)
        assert [each["status"] for each in output.structured_content["reports"]] == ["read"] * 4
        both = await asyncio.gather(  # asked at once, answered one after the other
            client.call_tool("imbalance", {"db": "new.duckdb"}),
            client.call_tool("check", {"paths": ["profiles"]}),
        )
        assert [fits(each.structured_content) for each in both] == ["imbalance", "check"]

    served(folder, questions)
    assert steps[-1] == (4, 4)
    assert (folder / "new.duckdb").is_file()


def test_nothing_but_the_protocol_is_on_stdout(folder: Path) -> None:
    """Even where the library, a child process or polars prints."""
    (folder / "sitecustomize.py").write_text(
        "import os, rankscope.api as api\n"
        "def noisy(*given, before=api.reading, **options):\n"
        "    print('printed', flush=True); os.system('echo shouted'); os.write(1, b'written\\n')\n"
        "    return before(*given, **options)\n"
        "api.reading = noisy\n"
    )
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-06-18", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
         "params": {"name": "imbalance", "arguments": {}}},
    ]  # fmt: skip
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        [*COMMAND, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        server.stdin.write("".join(f"{json.dumps(each)}\n" for each in lines))
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(2)]
        server.stdin.close()
        assert server.stdout.read() == ""
        said = server.stderr.read()
    assert [each["id"] for each in answers] == [1, 2]
    assert server.returncode == 0
    assert {"printed", "shouted", "written"} <= {*said.split()}


@pytest.mark.parametrize("number", mostly_nightly([signal.SIGTERM, signal.SIGINT]))
def test_a_signal_ends_it_although_nobody_closed_stdin(folder: Path, number: int) -> None:
    with subprocess.Popen(
        [*COMMAND, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stderr is not None
        assert "answering" in server.stderr.readline()
        server.send_signal(number)
        assert server.wait(20) == 128 + number
        assert "Traceback" not in server.stderr.read()


def test_without_the_package_one_line_says_how_to_install_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("mcp_types", "mcp"):
        monkeypatch.setitem(sys.modules, name, None)
    refused = cli("mcp", tmp_path)
    assert len(refused.err.splitlines()) == 2
    refused.refused(5, "needs the package mcp", "pip install 'rankscope[mcp]'")

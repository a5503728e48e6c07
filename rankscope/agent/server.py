"""The Model Context Protocol on stdin and stdout, by the official SDK, the package `mcp`.

A thread speaks the protocol; the main thread answers, one question after the other, so that a
signal ends an answer as it ends any other command. While the server runs, the SDK turns the file
descriptor of stdout away: what a library or a worker process prints goes to stderr.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rankscope._version import __version__
from rankscope.agent.answers import Answers, Progress
from rankscope.agent.folders import Folders
from rankscope.agent.tools import INSTRUCTIONS, TOOLS, Tool, input_schema, output_schema
from rankscope.errors import RankscopeError, ToolError
from rankscope.output import explain
from rankscope.output.documents.common import Document, Error, Failure, one_line, plain
from rankscope.util import bug_log
from rankscope.util.sanitize import sanitized
from rankscope.util.wording import counted

if TYPE_CHECKING:
    import mcp_types as types
    from mcp.server.context import ServerRequestContext

LOG = logging.getLogger("rankscope.mcp")

RESOURCES = {
    "rankscope://docs/METHOD.md": "Definitions, formulas and constants behind every number",
    "rankscope://docs/GLOSSARY.md": "One word per concept",
}
"""Documents that can be read, and what they hold."""

MARKDOWN = "text/markdown"

POLL_S = 0.2
"""Longest time (s) until a signal ends an idle server."""


def serve(folders: Sequence[Path], started: Callable[[], None] = lambda: None) -> None:
    """Answer an assistant until it closes stdin.

    Raises:
        ToolError: the package `mcp` is missing.
        UsageError: one of them is not a folder.
    """
    answers = Answers(Folders(folders))
    calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
    protocol = _Protocol(calls)
    threading.Thread(target=protocol.run, name="mcp", daemon=True).start()
    started()
    while (question := _next(calls)) is not None:
        question.answer(answers)
    if protocol.failed is not None:
        raise protocol.failed


def _next(calls: queue.SimpleQueue[_Call | None]) -> _Call | None:
    """Wait for the next question.

    polars handles Ctrl-C itself and lets system calls continue. Python notices it only when a wait
    ends, so the waits are short.
    """
    while True:
        with suppress(queue.Empty):
            return calls.get(timeout=POLL_S)


class _Call:
    """A call of a tool that waits for the main thread."""

    def __init__(self, tool: Tool, arguments: Document, progress: Progress) -> None:
        self._tool, self._arguments, self._progress = tool, arguments, progress
        self.answered: Future[tuple[Document, bool]] = Future()  # a document, whether an error

    def answer(self, answers: Answers) -> None:
        """Answer, unless the call was cancelled."""
        if not self.answered.set_running_or_notify_cancel():
            return
        self.answered.set_result(answered(answers, self._tool, self._arguments, self._progress))


def answered(
    answers: Answers, tool: Tool, arguments: Document, progress: Progress
) -> tuple[Document, bool]:
    """The document that a tool answers, and whether it is an error."""
    lines: tuple[str, ...] = ()
    try:
        question = msgspec.convert(arguments, tool.takes)
        return shortened(tool.answer(answers, question, progress), question.most), False
    except msgspec.ValidationError as error:
        code, message, hint = "usage-error", str(error), "see the input schema of the tool"
    except RankscopeError as error:
        code, message, hint = error.code, error.message, error.hint
        lines = getattr(error, "lines", ())
    except KeyboardInterrupt:
        raise
    except BaseException:  # polars raises no Exception where Rust panics
        details = traceback.format_exc()
        LOG.error("%s", details)
        code, message, hint = "bug", "rankscope failed on this question", bug_log.hint(details)
    failure = Failure(code=code, message=message, hint=hint, lines=lines or msgspec.UNSET)
    document = Error(format=f"rankscope/{tool.command}/1", error=failure)
    return shortened(document, len(lines) or 1), True


class _Protocol:
    """The protocol with the assistant, in a thread that computes nothing."""

    def __init__(self, calls: queue.SimpleQueue[_Call | None]) -> None:
        """Load the SDK.

        Raises:
            ToolError: it is missing, or too old.
        """
        try:
            import mcp_types
            from mcp.server.lowlevel import Server
        except ImportError as error:
            raise ToolError(
                f"rankscope mcp needs the package mcp, version 2 or newer ({error})",
                hint="pip install 'rankscope[mcp]'",
            ) from error
        self._types = mcp_types
        self._calls = calls
        self.failed: BaseException | None = None
        self._server: Server[Any] = Server(
            "rankscope",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self._tools,
            on_call_tool=self._call,
            on_list_resources=self._resources,
            on_read_resource=self._read,
        )

    def run(self) -> None:
        """Speak the protocol until stdin is closed, which ends the questions."""
        try:
            asyncio.run(self._speak())
        except BaseException as error:
            self.failed = error
        finally:
            self._calls.put(None)

    async def _speak(self) -> None:
        from mcp.server.stdio import stdio_server

        async with stdio_server() as (read, write):
            await self._server.run(read, write, self._server.create_initialization_options())

    async def _tools(self, _context: ServerRequestContext[Any], _: Any) -> types.ListToolsResult:
        return self._types.ListToolsResult(
            tools=[
                self._types.Tool(
                    name=tool.name,
                    title=tool.title,
                    description=tool.description,
                    input_schema=input_schema(tool),
                    output_schema=output_schema(tool),
                    annotations=self._types.ToolAnnotations(
                        read_only_hint=not tool.writes,
                        destructive_hint=False,
                        idempotent_hint=True,
                        open_world_hint=False,
                    ),
                )
                for tool in TOOLS.values()
            ]
        )

    async def _call(
        self, context: ServerRequestContext[Any], asked: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """The answer of the main thread, as structure and as the same in JSON."""
        if asked.name not in TOOLS:
            raise self._unknown(f"there is no tool {asked.name!r}")
        question = _Call(
            TOOLS[asked.name],
            asked.arguments or {},
            _progress_of(asyncio.get_running_loop(), context),
        )
        self._calls.put(question)
        document, is_error = await asyncio.wrap_future(question.answered)
        return self._types.CallToolResult(
            content=[self._types.TextContent(type="text", text=one_line(document))],
            structured_content=document,
            is_error=is_error,
        )

    async def _resources(
        self, _context: ServerRequestContext[Any], _: Any
    ) -> types.ListResourcesResult:
        return self._types.ListResourcesResult(
            resources=[
                self._types.Resource(
                    uri=uri,
                    name=uri.rpartition("/")[2],
                    description=meaning,
                    mime_type=MARKDOWN,
                    size=_page(uri).stat().st_size,
                )
                for uri, meaning in RESOURCES.items()
            ]
        )

    async def _read(
        self, _context: ServerRequestContext[Any], asked: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(asked.uri)
        if uri not in RESOURCES:
            raise self._unknown(f"there is no resource {uri!r}")
        return self._types.ReadResourceResult(
            contents=[
                self._types.TextResourceContents(
                    uri=uri, mime_type=MARKDOWN, text=_page(uri).read_text("utf-8")
                )
            ]
        )

    def _unknown(self, message: str) -> Exception:
        from mcp.shared.exceptions import MCPError

        error: Exception = MCPError(code=self._types.INVALID_PARAMS, message=message)
        return error


def _page(uri: str) -> Path:
    """The file of a resource."""
    return explain.FOLDER / uri.rpartition("/")[2]


def _progress_of(
    loop: asyncio.AbstractEventLoop, context: ServerRequestContext[Any]
) -> Callable[[int, int], None]:
    """A function that reports progress from the main thread, if the assistant requested it."""

    def report(done: int, count: int) -> None:
        if loop.is_closed():  # the assistant has left, but the database is worth finishing
            return
        text = f"{done} of {counted(count, 'report')}"
        message = context.session.report_progress(done, count, text)
        asyncio.run_coroutine_threadsafe(message, loop)

    return report


LONGEST_LINE = 4096
"""Most characters of a line of a text: no path is longer."""


def shortened(document: Any, most: int) -> Document:
    """A document as plain values, each of its lists and maps by rank cut to `most` elements.

    Returns:
        With `left_out` by key where something was cut: `ranks`, `verdict.iterations`,
        `reports[].causes` (the sum over all reports that are shown).
    """
    left_out: dict[str, int] = {}
    short: Document = _short(plain(document), "", most, left_out)
    return short | ({"left_out": left_out} if left_out else {})


def _short(value: Any, key: str, most: int, left_out: dict[str, int]) -> Any:
    if isinstance(value, str):
        return "\n".join(sanitized(line, LONGEST_LINE) for line in value.split("\n"))
    if isinstance(value, (list, tuple)):
        _count(key, len(value) - most, left_out)
        return [_short(each, f"{key}[]", most, left_out) for each in value[:most]]
    if isinstance(value, dict):
        kept = [*value.items()]
        if kept and all(name.isdecimal() for name in value):  # by rank
            _count(key, len(kept) - most, left_out)
            kept = kept[:most]
        return {
            name: _short(each, f"{key}.{name}" if key else name, most, left_out)
            for name, each in kept
        }
    return value


def _count(key: str, cut: int, left_out: dict[str, int]) -> None:
    if cut > 0:
        left_out[key] = left_out.get(key, 0) + cut

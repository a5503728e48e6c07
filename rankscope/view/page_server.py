"""The page of a run, served to browsers on this machine, with answers that a file cannot hold.

The server listens on the loopback address only. Other users of the machine can connect, too, so
every address begins with a random token; other addresses do not exist. Names of other machines in
the header `Host` are refused, so that no page of another site can reach the server by its name.
Connections are limited in number and time: one without a request ends after seconds.
"""

import asyncio
import hmac
import logging
import secrets
import socket
import traceback
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import polars as pl
from msgspec.structs import replace
from tornado.http1connection import HTTP1Connection
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.iostream import IOStream
from tornado.web import Application, RequestHandler

from rankscope.api import Run, open_run
from rankscope.compare.comparison import Comparison
from rankscope.compare.picks import picks_of
from rankscope.compare.timeline import timeline, with_last_to_arrive
from rankscope.errors import DatabaseChanged, RankscopeError, ToolError, UsageError
from rankscope.match.selection import parse_range
from rankscope.model.options import Options
from rankscope.output.documents.common import Document, dumps
from rankscope.output.html.lanes import ShownTimeline, timeline_section
from rankscope.output.html.page import safe
from rankscope.output.html.run_page import make_page
from rankscope.output.html.states import cell_states
from rankscope.store import Database
from rankscope.util import bug_log
from rankscope.util.rank_list import few, parse_ranks
from rankscope.util.wording import counted

LOG = logging.getLogger("rankscope.view")

LOOPBACK = "127.0.0.1"

TOKEN_BYTES = 16
"""Length of the random part of the address."""

MOST_PORT = 65535

MOST_RANKS = 16
"""Most ranks of a timeline: their reports are read again for it."""

QUESTIONS = ("page", "range", "timeline", "states")
"""Questions, by the last part of the address."""

KEPT = 4
"""Comparisons that are kept, each of another range of iterations."""

MOST_CONNECTIONS = 16
"""Most connections at once; further ones wait. A browser opens at most six."""

ASKING_S = 5.0
"""Time (s) in which a request must arrive; its connection ends with the answer."""

FETCHING_S = 60.0
"""Time (s) in which an answer must be fetched."""

RETRY_S = 0.5
"""Time (s) to the next attempt where the process has no descriptor left for a connection."""


Answer = TypeVar("Answer")


class RunAnswers:
    """Answers to a page's questions about a run; not safe for several threads."""

    def __init__(self, db: Path, options: Options, metric: str | None = None) -> None:
        """Open the run; it is compared when the first answer needs it.

        Args:
            db: the database; it is opened again after it has changed.
            options: how to compare; a page may ask for another range of iterations.
        """
        self._db = db
        self._options = options
        self._metric = metric
        self._state: tuple[int, ...] | None = None
        self.run: Run
        self._comparisons: OrderedDict[str, Comparison] = OrderedDict()
        self._open()

    def comparison(self, iter_range: str) -> Comparison:
        """The comparison of a range of iterations, `A:B`; empty: that of the options.

        Raises:
            UsageError: the text is no range, or selects no iteration.
            DatabaseError: the database is gone or cannot be used any more.
        """
        self._open()
        if iter_range not in self._comparisons:
            options = self._options
            if iter_range:
                options = replace(options, iter_range=parse_range(iter_range))
            self._comparisons[iter_range] = self.run.compare(options)
            if len(self._comparisons) > KEPT:
                self._comparisons.popitem(last=False)
        self._comparisons.move_to_end(iter_range)
        return self._comparisons[iter_range]

    def _open(self) -> None:
        """Open the database, again if it has changed."""
        state = Database.state(self._db)
        if state != self._state:
            self.run, self._state = open_run(self._db), state
            self._comparisons.clear()

    def settled(self, question: Callable[[], Answer]) -> Answer:
        """The answer to a question, which is asked again if the database changed meanwhile.

        Raises:
            RankscopeError: as the question does.
        """
        while True:
            try:
                return question()
            except DatabaseChanged:
                LOG.info("%s changed: it is read again", self._db)

    def page(self, iter_range: str) -> bytes:
        """The page, as HTML."""
        comparison = self.comparison(iter_range)
        picks = picks_of(comparison, self._metric)
        target = Path("report.html")
        page = make_page(comparison, picks, self._db, target, metric=self._metric, is_served=True)
        return page.content

    def timeline(self, iter_range: str, ranks: str, iteration: str) -> Document:
        """Ranks in an iteration, and those that arrive last there: `chart` and `tables`.

        Raises:
            UsageError: the run lacks a rank or the iteration, or the ranks are too many.
            ReportError: a report is gone, or has changed since it was ingested.
        """
        comparison = self.comparison(iter_range)
        number = _whole(iteration, "iteration")
        chosen = self._ranks(comparison, ranks)
        labels = {each.rank: each.title for each in picks_of(comparison, self._metric).picks}
        shown = timeline(comparison, with_last_to_arrive(comparison, chosen, [number]), [number])
        chart, tables = timeline_section(
            ShownTimeline(shown), {rank: labels.get(rank, "") for rank in chosen}
        )
        return safe({"chart": chart, "tables": tables})

    def states(self, iter_range: str, rank: str, iteration: str) -> Document:
        """States of the training thread in a cell: `states`, null if nothing is recorded."""
        cell = {"rank": [_whole(rank, "rank")], "iteration": [_whole(iteration, "iteration")]}
        states_of = cell_states(self.comparison(iter_range), pl.DataFrame(cell))
        return safe({"states": next(iter(states_of.values()), None)})

    def _ranks(self, comparison: Comparison, ranks: str) -> list[int]:
        """The ranks that a text names, if the run has them.

        Raises:
            UsageError: it lacks one of them, or they are more than MOST_RANKS.
        """
        chosen = parse_ranks(ranks, "ranks")
        if len(chosen) > MOST_RANKS:
            raise UsageError(
                f"{counted(len(chosen), 'rank')} are too many for a timeline",
                hint=f"name at most {MOST_RANKS}",
            )
        comparison.check_ranks(chosen)
        return chosen


class PageServer:
    """Serves the page of a run on this machine."""

    def __init__(self, answers: RunAnswers, port: int = 0) -> None:
        """Listen, but answer nothing yet.

        Args:
            port: 0 takes a free one.

        Raises:
            UsageError: there is no such port.
            ToolError: the port is taken or not allowed.
        """
        if not 0 <= port <= MOST_PORT:
            raise UsageError(f"--port {port}: not a port", hint=f"give 0 to {MOST_PORT}")
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        for name in ("general", "access", "application"):
            logging.getLogger(f"tornado.{name}").addFilter(self._without_token)
        try:
            self._socket = socket.create_server((LOOPBACK, port))
        except OSError as error:
            raise ToolError(
                f"--port {port}: cannot listen on it ({error.strerror})",
                hint="leave --port out to take a free one",
            ) from error
        self.port: int = self._socket.getsockname()[1]
        pool = ThreadPoolExecutor(1, "rankscope-view")  # one at a time: see RunAnswers
        common = {"token": self._token, "answers": answers, "pool": pool}
        self._application = Application(
            [(r"/([^/]*)/(\w*)", _Handler, common), (r".*", _Nothing)], log_function=_log
        )

    @property
    def address(self) -> str:
        """The address of the page, with the token."""
        return f"http://{LOOPBACK}:{self.port}/{self._token}/"

    def _without_token(self, record: logging.LogRecord) -> bool:
        """Take the token out of what tornado logs; it is logged in any case."""
        record.msg, record.args = record.getMessage().replace(self._token, "TOKEN"), ()
        return True

    def serve(self) -> None:
        """Answer until the process is interrupted."""
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        server = _FewAtOnce(
            self._application,
            max_body_size=0,
            no_keep_alive=True,
            idle_connection_timeout=ASKING_S,
            body_timeout=ASKING_S,
        )
        self._socket.setblocking(False)
        try:
            await server.accept(self._socket, MOST_CONNECTIONS)
        finally:
            self._socket.close()


class _FewAtOnce(HTTPServer):
    """Serves a limited number of connections at once; further ones wait."""

    async def accept(self, listening: socket.socket, most: int) -> None:
        """Serve for ever."""
        self._room = asyncio.Semaphore(most)
        loop = asyncio.get_running_loop()
        while True:
            await self._room.acquire()
            try:
                connection, address = await loop.sock_accept(listening)
            except OSError as error:  # too few descriptors, or who connected is gone
                LOG.warning("a connection was not accepted (%s)", error.strerror)
                self._room.release()
                await asyncio.sleep(RETRY_S)
                continue
            self.handle_stream(IOStream(connection), address)

    def on_close(self, server_conn: object) -> None:
        """Make room for the next connection."""
        super().on_close(server_conn)
        self._room.release()


class _Handler(RequestHandler):
    """Answers requests whose address begins with the token."""

    def initialize(self, token: str, answers: RunAnswers, pool: ThreadPoolExecutor) -> None:
        self._token = token
        self._answers, self._pool = answers, pool
        self._awaited: asyncio.Future[Any] | None = None  # the answer, then that it was fetched

    def on_connection_close(self) -> None:
        """Drop the question of a client that has left, unless its answer is being computed."""
        if self._awaited is not None:
            self._awaited.cancel()

    def set_default_headers(self) -> None:
        self.clear_header("Server")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("X-Frame-Options", "DENY")
        self.set_header("Referrer-Policy", "no-referrer")
        self.set_header("Cross-Origin-Resource-Policy", "same-origin")

    def prepare(self) -> None:
        """Refuse foreign names of this machine and addresses without the token."""
        host = self.request.host_name
        token = str(self.path_args[0]) if self.path_args else ""
        named = "Host" in self.request.headers and host in (LOOPBACK, "localhost")
        if not named or not hmac.compare_digest(token.encode(), self._token.encode()):
            self.set_status(404)
            self.finish()

    async def get(self, _token: str, what: str) -> None:
        ask = self._answers
        given = {
            name: self.get_query_argument(name, "")
            for name in ("iter-range", "ranks", "rank", "iteration")
        }
        chosen = given["iter-range"]
        questions: dict[str, Callable[[], Document | bytes]] = {
            "": lambda: ask.page(chosen),
            "range": lambda: {"count": len(ask.comparison(chosen).selection.numbers)},
            "timeline": lambda: ask.timeline(chosen, given["ranks"], given["iteration"]),
            "states": lambda: ask.states(chosen, given["rank"], given["iteration"]),
        }
        await self._answer(questions.get(what))

    async def _answer(self, question: Callable[[], Document | bytes] | None) -> None:
        if question is None:
            self.set_status(404)
            return
        try:
            settled = partial(self._answers.settled, question)
            asked = asyncio.get_running_loop().run_in_executor(self._pool, settled)
            self._awaited = asked
            answer = await asked
        except asyncio.CancelledError:
            if not asked.cancelled():
                raise
            self._auto_finish = False
            return
        except RankscopeError as error:
            self.set_status(400)
            answer = {"error": {"message": error.message, "hint": error.hint}}
        except Exception:
            self.set_status(500)
            details = traceback.format_exc()
            LOG.error("%s", details)
            message = "rankscope failed on this question"
            answer = {"error": {"message": message, "hint": bug_log.hint(details)}}
        kind = "text/html" if isinstance(answer, bytes) else "application/json"
        self.set_header("Content-Type", f"{kind}; charset=utf-8")
        self._awaited = self.finish(answer if isinstance(answer, bytes) else dumps(answer))
        _, late = await asyncio.wait([self._awaited], timeout=FETCHING_S)
        if late:
            cast(HTTP1Connection, self.request.connection).close()


class _Nothing(RequestHandler):
    """All addresses of other forms."""

    def prepare(self) -> None:
        self.set_status(404)
        self.finish()


def _log(handler: RequestHandler) -> None:
    """Log a request without the token."""
    request: HTTPServerRequest = handler.request
    what = request.path.rpartition("/")[2] or "page"
    known = what if what in QUESTIONS else "another address"  # which could be the token itself
    LOG.info("%s %s %s", handler.get_status(), request.method, known)


def _whole(text: str, name: str) -> int:
    """A number from a question.

    Raises:
        UsageError: it is none.
    """
    try:
        return few([int(text)], name)[0]
    except ValueError as error:
        raise UsageError(f"{name} {text!r} is no number", hint="give one") from error

"""What `rankscope view` answers, and to whom."""

import contextlib
import json
import re
import socket
import time

import pytest

from rankscope.errors import ToolError, UsageError
from rankscope.model.options import Options
from rankscope.view.page_server import ASKING_S, MOST_CONNECTIONS, PageServer, RunAnswers
from tests.output.test_html import Page
from tests.support import Stored
from tests.view.served import Served

DESCRIPTORS = 64
"""Descriptors that a process may have where they are few."""


def test_only_the_address_with_the_token_answers(served: Served) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", served.address)
    status, page = served.ask(served.token)
    assert (status, "<!doctype html>" in page) == (200, True)
    for path in ("/", "/wrong/", served.token[:-1], f"{served.token}x", "/../etc/passwd"):
        assert served.ask(path) == (404, ""), path
    assert served.ask(served.token, host="rankscope.example:80") == (404, "")
    assert served.ask(f"{served.token}open") == (404, "")
    assert served.ask(served.token, "POST")[0] == 405


@pytest.mark.parametrize(
    ("what", "parameters", "message"),
    [
        ("timeline", {"ranks": "0,9", "iteration": 3}, "rank 9 is not in this run"),
        ("timeline", {"ranks": "0", "iteration": 300}, "iteration"),
        ("timeline", {"ranks": "zero", "iteration": 3}, "is not a list of ranks"),
        ("timeline", {"ranks": "0:20", "iteration": 3}, "too many"),
        ("timeline", {"ranks": "0", "iteration": "x"}, "is no number"),
        ("range", {"iter-range": "90:"}, "--iter-range"),
        ("range", {"iter-range": "x"}, "is not A:B"),
    ],
)
def test_wrong_questions_are_answered_with_what_to_do(
    served: Served, what: str, parameters: dict[str, object], message: str
) -> None:
    status, body = served.ask(f"{served.token}{what}", **parameters)
    error = json.loads(body)["error"]
    assert status == 400
    assert message in error["message"]
    assert error["hint"]


def test_a_request_without_host_is_refused(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port or 0), timeout=60) as connection:
        connection.sendall(f"GET {served.token} HTTP/1.0\r\n\r\n".encode())
        assert b"200" not in connection.makefile("rb").readline()


def idle(port: int, many: int) -> list[socket.socket]:
    """Connections that ask nothing."""
    return [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(many)]


@pytest.mark.slow
def test_connections_that_ask_nothing_end_and_others_are_served(sample: Stored) -> None:
    running = Served(sample.db, "--verbose", most_descriptors=DESCRIPTORS)
    assert running.port is not None
    for _ in range(2):
        opened = idle(running.port, 90)
        begin = time.monotonic()
        assert running.ask(running.token)[0] == 200
        assert time.monotonic() - begin < 90 / MOST_CONNECTIONS * ASKING_S + 10
        for each in opened:
            each.close()
    code, said = running.close()
    assert code == 143
    assert "Traceback" not in said


@pytest.mark.slow
def test_a_request_must_arrive_and_its_answer_be_fetched(sample: Stored) -> None:
    running = Served(sample.db, "--verbose")
    assert running.port is not None
    [slow] = idle(running.port, 1)
    begin = time.monotonic()
    with slow, contextlib.suppress(OSError):  # the server has closed it
        while time.monotonic() - begin < 60:
            slow.sendall(b"G")
            time.sleep(0.05)
    assert time.monotonic() - begin < ASKING_S + 5
    for _ in range(30):  # nobody fetches these answers
        [lazy] = idle(running.port, 1)
        lazy.sendall(f"GET {running.token} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        lazy.close()
    begin = time.monotonic()
    assert running.ask(f"{running.token}range")[0] == 200
    assert time.monotonic() - begin < 30
    _, said = running.close()
    assert "Traceback" not in said


@pytest.mark.slow
def test_the_token_is_in_no_log(sample: Stored) -> None:
    running = Served(sample.db, "--verbose")
    token = running.token.strip("/")
    for path in (f"/{token}", f"/{token}/", f"/x/{token}"):
        running.ask(path)
    assert running.ask(f"/{token}/range", **{"iter-range": b"\xff"})[0] == 400
    _, said = running.close()
    assert "404 GET" in said
    assert token not in said


def test_a_range_is_compared_anew(served: Served, sample: Stored) -> None:
    status, page = served.ask(served.token, **{"iter-range": "3:9"})
    assert status == 200
    shown = Page(page).data
    assert shown["run"]["iterations"]["count"] == 6
    expected = sample.analysis(iter_range=slice(3, 9)).verdict.sentence
    assert shown["verdict"]["sentence"] == expected


def test_ports_that_cannot_be_had_are_errors(served: Served, sample: Stored) -> None:
    answers = RunAnswers(sample.db, Options())
    with pytest.raises(ToolError, match=f"--port {served.port}: cannot listen on it"):
        PageServer(answers, served.port or 0)
    with pytest.raises(UsageError, match="--port 99999: not a port"):
        PageServer(answers, 99999)

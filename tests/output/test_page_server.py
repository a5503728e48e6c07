"""What `rankscope view` answers, and to whom."""

from __future__ import annotations

import json
import re
import socket

import pytest

from rankscope.errors import ToolError, UsageError
from rankscope.model.options import Options
from rankscope.page_server import PageServer, RunAnswers
from tests.output.served import Served
from tests.support import Stored


def test_only_the_address_with_the_token_answers(served: Served) -> None:
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{20,}/", served.address)
    status, page = served.ask(served.token)
    assert (status, "<!doctype html>" in page) == (200, True)
    for path in ("/", "/wrong/", served.token[:-1], f"{served.token}x", "/../etc/passwd"):
        assert served.ask(path) == (404, ""), path
    assert served.ask(served.token, host="rankscope.example:80") == (404, "")
    assert served.ask(f"{served.token}open") == (404, "")
    assert served.ask(served.token, "POST") == (404, "")


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


@pytest.mark.parametrize(
    ("header", "value"),
    [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Site", "same-site"),
     ("Origin", "https://rankscope.example"), ("Origin", "null")],
)  # fmt: skip
def test_pages_of_other_sites_open_nothing(served: Served, header: str, value: str) -> None:
    asked = served.ask(f"{served.token}open", "POST", headers={header: value}, ranks="0")
    assert asked == (403, "")
    own = {"Sec-Fetch-Site": "same-origin", "Origin": served.address.rsplit("/", 2)[0]}
    assert served.ask(f"{served.token}open", "POST", headers=own, ranks="0")[0] == 400


def test_a_request_without_host_is_refused(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", served.port or 0), timeout=60) as connection:
        connection.sendall(f"GET {served.token} HTTP/1.0\r\n\r\n".encode())
        assert b"200" not in connection.makefile("rb").readline()


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
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page)
    assert data is not None
    shown = json.loads(data[1])
    assert shown["run"]["iterations"]["count"] == 6
    expected = sample.analysis(iter_range=slice(3, 9)).verdict.sentence
    assert shown["verdict"]["sentence"] == expected


def test_it_ends_when_it_is_told_to(sample: Stored) -> None:
    running = Served(sample.db, "--quiet")
    assert running.ask(running.token)[0] == 200
    code, said = running.close()
    assert code == 143
    assert "Traceback" not in said


def test_ports_that_cannot_be_had_are_errors(served: Served, sample: Stored) -> None:
    answers = RunAnswers(sample.db, Options())
    with pytest.raises(ToolError, match=f"--port {served.port}: cannot listen on it"):
        PageServer(answers, served.port or 0)
    with pytest.raises(UsageError, match="--port 99999: not a port"):
        PageServer(answers, 99999)


def test_the_gui_needs_a_display(served: Served) -> None:
    status, body = served.ask(f"{served.token}open", "POST", ranks="2,0")
    error = json.loads(body)["error"]
    assert status == 400
    assert re.search("no display for the GUI|the GUI is not found", error["message"])
    assert error["hint"]

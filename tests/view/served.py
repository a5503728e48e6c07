"""A running `rankscope view`."""

import http.client
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode, urlsplit

START_SECONDS = 60


class Served:
    """A running `rankscope view`."""

    def __init__(self, db: Path, *options: str, most_descriptors: int | None = None) -> None:
        command = [sys.executable, "-m", "rankscope", "view", "--db", str(db), *options]
        if most_descriptors is not None:
            command = ["sh", "-c", f'ulimit -n {most_descriptors}; exec "$@"', "sh", *command]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=db.parent,
            env={k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY")},
        )
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        self.port = urlsplit(self.address).port

    def ask(
        self,
        path: str,
        method: str = "GET",
        host: str | None = None,
        **parameters: object,
    ) -> tuple[int, str]:
        """Status and body of a request; `path` begins with `/`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS)
        query = f"?{urlencode(parameters)}" if parameters else ""
        sent = {} if host is None else {"Host": host}
        connection.request(method, path + query, headers=sent)
        response = connection.getresponse()
        body = response.read().decode()
        connection.close()
        return response.status, body

    @property
    def token(self) -> str:
        return urlsplit(self.address).path

    def close(self) -> tuple[int, str]:
        """Interrupt it; its exit code and what it said."""
        self.process.terminate()
        _, said = self.process.communicate(timeout=START_SECONDS)
        return self.process.returncode, said

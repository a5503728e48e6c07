"""An HTTP server that holds a limited number of connections, and goes on where it gets none."""

from __future__ import annotations

import asyncio
import logging
import socket

from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream

RETRY_S = 0.5
"""Time (s) to the next attempt where the process has no descriptor left for a connection."""

LOG = logging.getLogger("rankscope.view")


class FewAtOnce(HTTPServer):
    """Serves those who connect; more than are allowed at once wait for the end of one."""

    async def accept(self, listening: socket.socket, most: int) -> None:
        """Serve for ever.

        Args:
            listening: a socket that does not block.
            most: connections at once.
        """
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
        """Make room for the next one."""
        super().on_close(server_conn)
        self._room.release()

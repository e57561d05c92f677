"""Serves an ASGI application on a thread of its own: what the dashboard and the metrics have in common.

Both run beside something that matters more. So a visitor costs at most a connection among a few, and one that
says nothing loses it: otherwise a few idle sockets would keep every other visitor out, for ever.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from penstock.endpoint import Endpoint
from penstock.idle_connections import PATIENCE, IdleConnections, abort

if TYPE_CHECKING:
    from uvicorn import Server

__all__ = ["Application", "Message", "WebServer"]

_log = logging.getLogger("penstock.observe")

Message = MutableMapping[str, Any]
Application = Callable[
    [Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]
]
"""An ASGI application."""

_CLOSING: Final = 10.0
"""Seconds that closing may take; the threads are daemons and never hold up the end of the process."""


class _OwnMessages(logging.Filter):
    """Keeps what uvicorn says on our thread out of the log of the program.

    It reports every connection that is cut, with a traceback: a browser that does not read while the
    server closes, a request that is not HTTP. The application logs its own errors.
    """

    def __init__(self, thread: str) -> None:
        super().__init__()
        self._thread = thread

    def filter(self, record: logging.LogRecord) -> bool:
        """Drop the messages of our thread; those of other servers in this process pass."""
        if record.threadName != self._thread:
            return True
        _log.debug("uvicorn: %s", record.getMessage())
        return False


class WebServer:
    """Listens, then serves, until it is closed; the thread that serves has the name ``thread``."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        thread: str,
        subject: str,
        most_connections: int,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        """``subject`` is what the messages call it; more connections than ``most_connections`` get a 503."""
        self.endpoint = endpoint
        """Where it listens; after :meth:`listen` with the real port."""
        self._name = thread
        self._subject = subject
        self._most = most_connections
        self._tls = tls
        self._socket: socket.socket | None = None
        self._server: Server | None = None
        self._thread: threading.Thread | None = None
        self._own_messages = _OwnMessages(thread)

    def listen(self) -> None:
        """Take the address; OSError if it cannot be used."""
        if self._socket is not None:
            raise RuntimeError(f"{self._subject} has been started before; make another one")
        self._socket = _listening(self.endpoint, self._subject)
        self.endpoint = replace(self.endpoint, port=self._socket.getsockname()[1])

    def serve(
        self,
        application: Application,
        opened: Callable[[asyncio.AbstractEventLoop], object] = lambda loop: None,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        """Start the thread. It calls ``opened`` before the first request, and ``ended`` after the last."""
        import uvicorn

        config = uvicorn.Config(
            application,
            access_log=False,
            log_config=None,
            lifespan="off",
            loop="asyncio",
            http="h11",
            ws="none",
            server_header=False,
            proxy_headers=False,
            limit_concurrency=self._most,
            timeout_keep_alive=int(PATIENCE),
            timeout_graceful_shutdown=2,
            h11_max_incomplete_event_size=16384,
        )
        config.load()
        config.ssl = self._tls
        self._server = uvicorn.Server(config)
        logging.getLogger("uvicorn.error").addFilter(self._own_messages)
        self._thread = threading.Thread(target=self._run, args=(opened, ended), name=self._name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, and cut off open connections; calling it again does nothing."""
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_CLOSING)
            if self._thread.is_alive():
                _log.warning("the thread %s of %s has not ended yet", self._name, self._subject)
            self._thread = None
        logging.getLogger("uvicorn.error").removeFilter(self._own_messages)
        if self._socket is not None:
            self._socket.close()

    # ---------------------------------------------------------------- on its thread
    def _run(
        self, opened: Callable[[asyncio.AbstractEventLoop], object], ended: Callable[[], object]
    ) -> None:
        try:
            asyncio.run(self._serve(opened, ended))
        except Exception:
            _log.exception("%s has stopped", self._subject)

    async def _serve(
        self, opened: Callable[[asyncio.AbstractEventLoop], object], ended: Callable[[], object]
    ) -> None:
        assert self._server is not None
        assert self._socket is not None
        opened(asyncio.get_running_loop())
        state = self._server.server_state
        idle = IdleConnections(lambda: state.connections, self._most)
        watching = asyncio.create_task(idle.watch())
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            watching.cancel()
            ended()
            for connection in list(state.connections):
                abort(connection)  # One that does not read would stay for ever.
            await asyncio.sleep(0)  # the loop tells each connection that it is lost, and closes its socket
            await asyncio.sleep(0)


def _listening(endpoint: Endpoint, subject: str) -> socket.socket:
    family = socket.AF_INET6 if endpoint.is_ipv6 else socket.AF_INET
    host = "0.0.0.0" if endpoint.host == "*" else endpoint.host
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, endpoint.port))
        sock.listen(64)
    except OSError as error:
        sock.close()
        place = f"{endpoint.host}:{endpoint.port}"
        raise OSError(
            error.errno,
            f"{subject} cannot listen at {place}: {error.strerror}; choose another address, "
            f"or {endpoint.host}:0 for any free port",
        ) from None
    return sock

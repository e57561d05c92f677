"""A server for feeds that listen with HTTP or WebSocket: uvicorn, on a thread of its own."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from penstock.endpoint import Endpoint
from penstock.feeds.feed import BadFeed, FeedOptions, FeedUnavailable
from penstock.feeds.registry import FeedUrl
from penstock.idle_connections import IdleConnections
from penstock.net import address_text, new_event_loop

if TYPE_CHECKING:
    from penstock.net.http import Http

__all__ = ["LISTENER_PARAMETERS", "HttpListener", "ListenerAddress"]

_log = logging.getLogger("penstock.feeds")

LISTENER_PARAMETERS: Final = {
    "certificate": "the file with the certificate of a server with TLS",
    "key": "the file with its private key",
    "token-file": "a file with a secret, which every sender has to present as Authorization: Bearer SECRET",
}
_GRACE: Final = 3
"""Seconds for requests that are being answered when the feed is closed."""
_BACKLOG: Final = 256
_SHORTEST_TOKEN: Final = 16
_TOKEN: Final = re.compile(r"[\x20-\x7e]*")
"""What a header can have: with anything else, no sender could present the token."""
_MOST_CONNECTIONS: Final = 1000
"""Further connections are refused with 503."""
_MOST_UNREAD: Final = 1 << 20
"""Bytes of answers that may wait for a sender. An answer has a few hundred, and the next one waits for it."""
_LOOK: Final = 0.5
"""Seconds between two looks at what waits."""


class ListenerAddress:
    """Where a feed listens, and who may send: checked before anything is opened."""

    def __init__(self, url: FeedUrl, options: FeedOptions, *, tls: bool) -> None:
        address = url.address(-1)
        if address.port < 0:
            raise BadFeed(f"{url.shown} names no port to listen at; write {url.scheme}://HOST:PORT/PATH")
        if address.user is not None or address.password is not None:
            raise BadFeed(
                f"{url.shown}: a user and a password are not checked here, so everybody could send; name a "
                "secret with ?token-file=FILE"
            )
        self.path = f"/{address.path}"
        self.endpoint = Endpoint(address.host, address.port)
        self.token = _token_in(url)
        given = url.parameters
        self.certificate, self.key = given.get("certificate"), given.get("key")
        if tls and self.certificate is None:
            raise BadFeed(f"{url.shown}: TLS needs a certificate; add ?certificate=FILE&key=FILE")
        if not tls and (self.certificate or self.key):
            secure = "wss-listen" if url.scheme == "ws-listen" else f"{url.scheme}s"
            raise BadFeed(f"{url.shown}: a certificate is for TLS; write {secure}://…")
        if not (self.endpoint.is_loopback or options.allow_remote or (tls and self.token)):
            raise BadFeed(
                f"{url.shown} can be reached from other machines, and everybody there could write into the "
                "log. Listen at 127.0.0.1, use TLS and a token-file, or allow it with allow_remote=True "
                "(--insecure)"
            )

    def admits(self, authorization: str | None) -> bool:
        """Whether a sender with this header may send."""
        if self.token is None:
            return True
        scheme, _, given = (authorization or "").partition(" ")
        return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token)


def _token_in(url: FeedUrl) -> bytes | None:
    given = url.secret("token-file")
    if given is None:
        return None
    path = url.parameters["token-file"]
    if _TOKEN.fullmatch(given) is None:
        raise BadFeed(f"{path} has to have one token, in one line, of characters that a header may have")
    token = given.encode()
    if len(token) < _SHORTEST_TOKEN:
        raise BadFeed(
            f"the token in {path} has {len(token)} bytes; use at least {_SHORTEST_TOKEN} random ones: "
            "openssl rand -hex 32"
        )
    return token


def _server_of(uvicorn: Any, config: Any) -> Any:
    """A server that can end while a WebSocket is being closed."""

    class ListenerServer(uvicorn.Server):  # type: ignore[misc]
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            """Cut the WebSockets that have said farewell: uvicorn would say it again, and fail."""
            for connection in list(self.server_state.connections):
                if getattr(connection, "close_sent", None) is False and connection.transport.is_closing():
                    connection.close_sent = True
                    connection.transport.abort()
            await super().shutdown(sockets)

    return ListenerServer(config)


async def _cut_off_deaf_senders(connections: Callable[[], Iterable[Any]]) -> None:
    """Disconnect those that do not read what they are answered.

    The server answers each ping of a WebSocket at once, whether or not there is space. A sender of nothing
    but pings that does not read the answers would fill the memory.
    """
    while True:
        await asyncio.sleep(_LOOK)
        for connection in list(connections()):
            transport = connection.transport
            unread = transport.get_write_buffer_size()
            if unread > _MOST_UNREAD:
                sender = transport.get_extra_info("peername")
                _log.warning(
                    "%s does not read the answers, and %d bytes of them wait; this sender is disconnected",
                    sender and address_text(sender),
                    unread,
                )
                transport.abort()


class HttpListener:
    """Serves an application until it is closed. The port is bound when this is made."""

    def __init__(self, address: ListenerAddress, *, longest_message: int = 1 << 20) -> None:
        try:
            import uvicorn
        except ModuleNotFoundError as error:
            raise BadFeed(
                "a feed that listens with HTTP needs uvicorn: pip install 'penstock-streams[http]'"
            ) from error
        self._uvicorn: Any = uvicorn
        self._address = address
        self._longest_message = longest_message
        endpoint = address.endpoint
        host = "" if endpoint.host == "*" else endpoint.host
        try:
            self._socket = socket.create_server(
                (host, endpoint.port),
                family=socket.AF_INET6 if endpoint.is_ipv6 else socket.AF_INET,
                backlog=_BACKLOG,
            )
        except OSError as error:
            where = str(endpoint).removeprefix("tcp://")
            raise FeedUnavailable(f"cannot listen at {where}: {error.strerror or error}") from None
        self.port: int = self._socket.getsockname()[1]
        self._server: Any = None
        self._loop: Future[asyncio.AbstractEventLoop] = Future()
        self._thread: threading.Thread | None = None

    @property
    def where(self) -> str:
        """Its address, with the port that was found."""
        scheme = "https" if self._address.certificate else "http"
        host = str(Endpoint(self._address.endpoint.host, self.port)).removeprefix("tcp://")
        return f"{scheme}://{host}{self._address.path}"

    def start(self, application: Callable[[asyncio.AbstractEventLoop], Http]) -> asyncio.AbstractEventLoop:
        """Serve what this function makes on the server's event loop; return that loop."""
        self._thread = threading.Thread(
            target=self._run, args=(application,), name="penstock-feed-http", daemon=True
        )
        self._thread.start()
        try:
            return self._loop.result()
        except BaseException:
            self._socket.close()
            raise

    def _run(self, application: Callable[[asyncio.AbstractEventLoop], Http]) -> None:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve(application))

    async def _serve(self, application: Callable[[asyncio.AbstractEventLoop], Http]) -> None:
        try:
            loop = asyncio.get_running_loop()
            config = self._uvicorn.Config(
                application(loop),
                http="h11",  # With httptools, a request may have any number of headers of any length.
                log_config=None,
                log_level="warning",
                access_log=False,
                lifespan="off",
                server_header=False,
                ws_per_message_deflate=False,
                ws_max_queue=1,
                ws_max_size=self._longest_message,
                limit_concurrency=_MOST_CONNECTIONS,
                timeout_graceful_shutdown=_GRACE,
                ssl_certfile=self._address.certificate,
                ssl_keyfile=self._address.key,
            )
            config.load()
            self._server = _server_of(self._uvicorn, config)
        except (OSError, ValueError) as error:  # For instance a file that is not a certificate.
            self._loop.set_exception(BadFeed(f"cannot serve {self.where}: {error}"))
            return
        except BaseException as error:
            self._loop.set_exception(error)  # Whoever opens the feed waits for this.
            return
        self._loop.set_result(loop)
        state = self._server.server_state
        idle = IdleConnections(lambda: state.connections, _MOST_CONNECTIONS)
        deaf = _cut_off_deaf_senders(lambda: state.connections)
        watching = [asyncio.create_task(each) for each in (idle.watch(), deaf)]
        try:
            await self._server.serve(sockets=[self._socket])
        finally:
            for each in watching:
                each.cancel()

    def close(self, before: Callable[[], None] = lambda: None) -> None:
        """Stop listening; ``before`` is called on the loop first."""
        if self._thread is None:
            self._socket.close()
            return
        loop = self._loop.result()

        def stop() -> None:
            before()
            self._server.should_exit = True

        if self._thread.is_alive() and not loop.is_closed():
            loop.call_soon_threadsafe(stop)
        self._thread.join(_GRACE + 5)
        if self._thread.is_alive():
            _log.warning("the server at %s has not ended in time; its thread is left behind", self.where)
        self._socket.close()

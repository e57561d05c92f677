"""The connections that requests share: bounded, kept for a while, and closed with their event loop.

A connection belongs to the event loop that opened it, so a pool has connections of its own on each loop. They
are closed when nobody has used them for a while, and at the latest when the loop is closed. No loop tells
anybody that it is being closed. So the pool puts itself before the loop's ``close()``, where the loop can
still run the code that closes a connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import logging
import threading
import weakref
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from penstock.arguments import a_number, a_whole_number
from penstock.net.http.asgi import PoolExhausted, without_password
from penstock.net.labels import let_go
from penstock.net.settings import keep_alive_options
from penstock.streams.schedulers import background_loop
from penstock.streams.spi import renew_after_fork

if TYPE_CHECKING:
    import ssl

    import httpx2

__all__ = ["HttpLease", "HttpPool", "HttpPoolStatus", "check_port", "http_pool", "httpx2_library"]

_log = logging.getLogger("penstock.net.http")

_ATTRIBUTE: Final = "_penstock_http_pools"
"""Where an event loop has its pools. They live as long as the loop does, and a registry would keep both."""
_LAST_PORT: Final = 65_535
_KEEP_ALIVE: Final = keep_alive_options(60.0)
_CLOSE_WITHIN: Final = 5.0
"""Seconds that a loop's end waits for the connections to be closed."""


_NEW_STREAMS: Final = frozenset(
    {
        "connection.connect_tcp.complete",
        "connection.connect_unix_socket.complete",
        "connection.start_tls.complete",
    }
)


class _OpenStreams:
    """The sockets of all pools. After a fork the child lets go of them."""

    def __init__(self) -> None:
        self._streams: weakref.WeakSet[Any] = weakref.WeakSet()
        renew_after_fork(self)

    def add(self, stream: Any) -> None:
        """A connection was opened, or speaks TLS now."""
        self._streams.add(stream)

    def renew_in_child(self) -> None:
        """Otherwise the peer would not see the parent's end as long as the child lives."""
        for stream in list(self._streams):
            opened = stream.get_extra_info("socket")
            if opened is not None:
                let_go(opened.fileno())
        self._streams = weakref.WeakSet()


_open_streams: Final = _OpenStreams()


@dataclass(frozen=True, slots=True)
class HttpPoolStatus:
    """A pool on one event loop, at this moment."""

    active: int
    """Requests that have a connection: their responses have not been read to the end."""
    waiting: int
    """Requests that wait for a connection."""
    hosts: dict[str, int]
    """The active requests of each host."""
    requests: int
    """Requests since the loop began to use the pool."""
    opened: int
    """Connections that were opened for them."""
    refused: int
    """Requests that waited too long for a connection."""


class HttpLease:
    """What one request has of its pool: a client of its own, whose connections are shared."""

    def __init__(self, client: httpx2.AsyncClient, opened: Callable[[], object] | None = None) -> None:
        self.client = client
        self.extensions: dict[str, Any] = {"trace": self._trace}
        """What to pass on with the request: the library reports what it does."""
        self.shared = opened is not None
        """Whether the request was sent on a connection that others have used. The server may have closed it
        at the same moment."""
        self._opened = opened

    async def _trace(self, event: str, info: dict[str, Any]) -> None:
        if event == "connection.connect_tcp.complete":
            # A response may be silent for hours, and has no timeout then: is the server still there?
            opened = info["return_value"].get_extra_info("socket")
            for option in _KEEP_ALIVE if opened is not None else ():
                with contextlib.suppress(OSError):  # it is broken already, and the request is told
                    option.apply(opened)
        if self._opened is None:
            return
        if event in ("connection.connect_tcp.complete", "connection.connect_unix_socket.complete"):
            self._opened()
            self.shared = False
        if event in _NEW_STREAMS:
            _open_streams.add(info["return_value"])


class HttpPool:
    """Connections for requests, with bounds that hold for each event loop.

    ::

        few = HttpPool(connections=20, per_host=4)
        prices = get("https://example.org/prices", pool=few).ndjson()

    At most ``connections`` are open, ``per_host`` of them to one host. A request that finds none free waits
    for ``wait`` seconds, and then fails with ``PoolExhausted``. A connection that nobody uses is kept for
    ``keep_alive`` seconds, which should be less than the server allows; most allow at least five.
    """

    def __init__(
        self,
        *,
        connections: int = 500,
        per_host: int = 100,
        keep_alive: float = 4.0,
        wait: float | None = 30.0,
    ) -> None:
        """Set the bounds. Nothing is opened before the first request."""
        self.connections = a_whole_number(connections, "connections", least=1)
        self.per_host = a_whole_number(per_host, "per_host", least=1)
        self.keep_alive = a_number(keep_alive, "keep_alive", least=0)
        self.wait = None if wait is None else a_number(wait, "wait", least=0)

    def status(self) -> HttpPoolStatus:
        """What the pool has on the event loop that runs here, or else on the one in the background."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = background_loop().loop
        pools: _LoopPools | None = getattr(loop, _ATTRIBUTE, None)
        here = None if pools is None else pools.of.get(self)
        return HttpPoolStatus(0, 0, {}, 0, 0, 0) if here is None else here.status()

    async def aclose(self) -> None:
        """Close the connections on this event loop. A response that is being read fails.

        This is not the end of the pool: the next request opens a new connection.
        """
        pools: _LoopPools | None = getattr(asyncio.get_running_loop(), _ATTRIBUTE, None)
        here = None if pools is None else pools.of.get(self)
        if here is not None:
            await here.close()

    @contextlib.asynccontextmanager
    async def lease(self, method: str, url: str) -> AsyncIterator[HttpLease]:
        """Wait until there is a connection for this request. It is free again when the block ends."""
        here = _LoopPools.here().get(self)
        host = _host_of(url)
        await here.enter(method, url, host)
        try:
            yield here.leased()
        finally:
            here.leave(host)

    def __repr__(self) -> str:
        return f"HttpPool(connections={self.connections}, per_host={self.per_host})"


_default = HttpPool()


def http_pool() -> HttpPool:
    """The pool of requests that have neither a ``pool`` nor a ``client`` of their own."""
    return _default


def check_port(url: httpx2.URL) -> None:
    """Refuse a port that does not exist: asyncio raises OverflowError, and uvloop connects to another."""
    if url.port is not None and url.port > _LAST_PORT:
        raise httpx2_library().InvalidURL(f"there is no port {url.port}, the last one is {_LAST_PORT}")


async def _check_port_of(request: httpx2.Request) -> None:
    check_port(request.url)  # of each redirect, too


class _LoopPool:
    """A pool on one event loop, and used there only."""

    def __init__(self, pool: HttpPool, loop: asyncio.AbstractEventLoop) -> None:
        self._connections, self._per_host = pool.connections, pool.per_host
        self._keep_alive, self._wait = pool.keep_alive, pool.wait
        self._loop = loop
        self._active = 0
        self._hosts: Counter[str] = Counter()
        self._waiting: deque[tuple[asyncio.Future[None], str]] = deque()
        self._client: httpx2.AsyncClient | None = None
        self._owner: Any = pool
        """The pool, while there are connections: then it must not be forgotten."""
        self._idle: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._requests = self._opened = self._refused = 0

    # ---------------------------------------------------------------- bounds
    async def enter(self, method: str, url: str, host: str) -> None:
        """Wait until there is a connection for this host."""
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if not self._fits(host):
            await self._turn(method, url, host)
        else:
            self._take(host)
        self._requests += 1

    async def _turn(self, method: str, url: str, host: str) -> None:
        turn: asyncio.Future[None] = self._loop.create_future()
        entry = (turn, host)
        self._waiting.append(entry)
        try:
            async with asyncio.timeout(self._wait):
                await turn
        except BaseException as ended:
            if turn.done() and not turn.cancelled():
                self.leave(host)  # it was this request's turn, too late
            else:
                self._waiting.remove(entry)
            if not isinstance(ended, TimeoutError):
                raise
            self._refused += 1
            raise self._exhausted(method, url, host) from None

    def _exhausted(self, method: str, url: str, host: str) -> PoolExhausted:
        if self._hosts[host] >= self._per_host:
            bound, option = f"all {self._per_host} connections to {host}", "per_host"
        else:
            bound, option = f"all {self._connections} connections", "connections"
        return PoolExhausted(
            f"{method} {without_password(url)}: no connection became free within {self._wait} s, {bound} are "
            "in use; read the responses to their end or cancel them, or use a larger pool: "
            f"pool=HttpPool({option}=…)"
        )

    def _fits(self, host: str) -> bool:
        return self._active < self._connections and self._hosts[host] < self._per_host

    def _take(self, host: str) -> None:
        self._active += 1
        self._hosts[host] += 1

    def leave(self, host: str) -> None:
        """A request is over. Those that wait come first; later the connections are closed."""
        self._active -= 1
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        # None of them fitted before, so no more than one does now.
        chosen = next((one for one in self._waiting if self._fits(one[1]) and not one[0].done()), None)
        if chosen is not None:
            self._waiting.remove(chosen)
            self._take(chosen[1])
            chosen[0].set_result(None)
        if not self._active and self._client is not None and not self._loop.is_closed():
            self._idle = self._loop.call_later(self._keep_alive, self._forget)

    # ---------------------------------------------------------------- connections
    def leased(self) -> HttpLease:
        """What the next request needs."""
        if self._client is None:
            http = httpx2_library()
            # It never waits for a connection: we let no more requests through than there may be.
            limits = http.Limits(
                max_connections=self._connections,
                max_keepalive_connections=self._connections,
                keepalive_expiry=self._keep_alive,
            )
            self._client = http.AsyncClient(
                verify=_trust(), limits=limits, event_hooks={"request": [_check_port_of]}
            )
        one = copy.copy(self._client)
        one.cookies = {}
        return HttpLease(one, self._count)

    def _count(self) -> None:
        self._opened += 1

    def _forget(self) -> None:
        """Nobody has used the connections for a while."""
        closing = self._loop.create_task(self._taken_away())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Close the connections, and those that are being closed."""
        await asyncio.gather(self._taken_away(), *self._closing)

    def _taken_away(self) -> Coroutine[Any, Any, None]:
        """Take the connections out of use at once; what is returned closes them."""
        client, self._client = self._client, None
        self._owner = None
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        return _nothing() if client is None else client.aclose()

    def status(self) -> HttpPoolStatus:
        return HttpPoolStatus(
            self._active, len(self._waiting), dict(self._hosts), self._requests, self._opened, self._refused
        )


class _LoopPools:
    """All pools of an event loop. They are closed just before the loop is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, close_loop: Callable[[], None]) -> None:
        self.of: WeakKeyDictionary[HttpPool, _LoopPool] = WeakKeyDictionary()
        self._loop = loop
        self._close_loop = close_loop

    @classmethod
    def here(cls) -> _LoopPools:
        """The pools of the event loop that runs here."""
        loop = asyncio.get_running_loop()
        pools: _LoopPools | None = getattr(loop, _ATTRIBUTE, None)
        if pools is None:
            pools = cls(loop, loop.close)
            setattr(loop, _ATTRIBUTE, pools)
            loop.close = pools.close_with_loop  # type: ignore[method-assign]
        return pools

    def get(self, pool: HttpPool) -> _LoopPool:
        """What this pool has here."""
        here = self.of.get(pool)
        if here is None:
            here = self.of[pool] = _LoopPool(pool, self._loop)
        here._owner = pool
        return here

    def close_with_loop(self) -> None:
        """The loop's ``close()``."""
        loop = self._loop
        try:
            if self.of and not loop.is_running() and not loop.is_closed():
                if asyncio._get_running_loop() is None:
                    loop.run_until_complete(self._close())
                else:  # a loop is closed on the thread of another one
                    closing = threading.Thread(target=loop.run_until_complete, args=(self._close(),))
                    closing.start()
                    closing.join()
        finally:
            self._close_loop()

    async def _close(self) -> None:
        for here in list(self.of.values()):
            try:
                async with asyncio.timeout(_CLOSE_WITHIN):
                    await here.close()
            except Exception:
                _log.warning("the connections of an HTTP pool were not closed properly", exc_info=True)
        # The sockets are closed in the turn after the one in which their transports are.
        await asyncio.sleep(0)


async def _nothing() -> None:
    """There is nothing to close."""


def _host_of(url: str) -> str:
    """Scheme, host and port; the default port may be left out."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # the library says what is wrong with it
    place = parts.netloc.rpartition("@")[2].lower()
    default = {"http": ":80", "https": ":443"}.get(parts.scheme)
    return f"{parts.scheme}://{place.removesuffix(default) if default else place}"


def httpx2_library() -> Any:
    """The library, which is imported when it is needed."""
    try:
        import httpx2
    except ImportError:
        raise ImportError("the HTTP client needs httpx2: pip install 'penstock-streams[http]'") from None
    return httpx2


@cache
def _trust() -> ssl.SSLContext:
    """The trusted authorities. Reading them takes longer than many a request, so it is done once."""
    context: ssl.SSLContext = httpx2_library().create_ssl_context()
    return context

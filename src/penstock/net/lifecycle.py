"""The life of a connection: the states that observers see, idle timeouts, and how it is closed."""

from __future__ import annotations

import asyncio
import contextlib
import enum
import logging
import ssl
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, runtime_checkable

from penstock.net.errors import IdleTimeout
from penstock.net.flush import Flushing, push_out
from penstock.net.loops import refuse_on_a_loop
from penstock.net.metrics import Traffic
from penstock.streams import Mono

if TYPE_CHECKING:
    from penstock.net.connection import Connection
    from penstock.net.settings import TcpSettings

__all__ = [
    "CloseReport",
    "Closing",
    "ConnectionObserver",
    "ConnectionState",
    "Disposable",
    "IdleLimit",
    "IdleWatch",
    "StateCallback",
    "limits_of",
    "tell_state",
]

_LOOKS: Final = 4
"""How often per limit the figures are looked at."""


@dataclass(slots=True)
class IdleLimit:
    """Something that has to move once in a while."""

    what: str
    seconds: float
    progress: Callable[[], object]
    """A figure that is another one when something has moved."""
    due: Callable[[], bool]
    """Whether it has to move at all at the moment."""
    last: object = None
    since: float = 0.0
    looks: int = 0
    """How often it has been seen not to move."""


def limits_of(
    settings: TcpSettings,
    traffic: Traffic,
    transport: Any,
    *,
    receiving: Callable[[], bool],
    flushing: Callable[[], bool],
) -> list[IdleLimit]:
    """The limits that the settings put on a connection."""

    def left() -> int:
        """Bytes that have left this process."""
        return traffic.sent - int(transport.get_write_buffer_size())

    def anything() -> tuple[int, int]:
        return traffic.received, left()

    def to_be_taken() -> bool:
        return transport.get_write_buffer_size() > 0 or flushing()

    limits = (
        ("nothing was received or sent", settings.idle_timeout, anything, lambda: True),
        ("the peer sent nothing", settings.read_timeout, lambda: traffic.received, receiving),
        ("the peer took nothing of what was sent", settings.write_timeout, left, to_be_taken),
    )
    return [
        IdleLimit(what, seconds, progress, due)
        for what, seconds, progress, due in limits
        if seconds is not None
    ]


class IdleWatch:
    """The limits of one connection."""

    __slots__ = ("_expire", "_limits", "_loop", "_period", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: list[IdleLimit],
        expire: Callable[[IdleTimeout], object],
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._expire = expire
        self._period = min(limit.seconds for limit in limits) / _LOOKS
        for limit in limits:
            limit.last, limit.since = limit.progress(), loop.time()
        self._timer: Any = loop.call_later(self._period, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        for limit in self._limits:
            progress = limit.progress()
            if progress != limit.last or not limit.due():
                limit.last, limit.since, limit.looks = progress, now, 0
                continue
            limit.looks += 1
            # A loop that was held up has not looked, and has not read what came meanwhile either.
            if now - limit.since >= limit.seconds and limit.looks >= _LOOKS:
                self._expire(IdleTimeout(f"{limit.what} for {limit.seconds:g} s"))
                return
        self._timer = self._loop.call_later(self._period, self._look)

    def cancel(self) -> None:
        """Watch no more."""
        self._timer.cancel()


_log = logging.getLogger("penstock.net")


class ConnectionState(enum.Enum):
    """Where a connection is in its life; each is told once, in this order."""

    CONNECTED = "connected"
    """The socket is up, with TLS if there is any; nobody has the connection yet."""
    CONFIGURED = "configured"
    """Its inbound and outbound sides are there; the handler is called next."""
    DISCONNECTING = "disconnecting"
    """It is over, for whatever reason; nothing more is received or sent."""


@runtime_checkable
class ConnectionObserver(Protocol):
    """Somebody who wants to know; give one to ``observe()``."""

    def on_state_change(self, connection: Connection, state: ConnectionState, /) -> object:
        """The connection is in this state now. Called on the event loop: do not block."""
        ...


StateCallback = Callable[["Connection", ConnectionState], object]
"""An observer as a plain function."""


def tell_state(connection: Connection, state: ConnectionState) -> None:
    """Tell everybody who wants to know; an observer that fails harms nobody."""
    settings = connection.settings
    if settings.wiretap is not None:
        settings.wiretap.tell(connection.label, state.name)
    for observer in settings.observers:
        try:
            observer(connection, state)
        except Exception as fault:
            _log.error("%s an observer failed at %s: %r", connection.label, state.name, fault, exc_info=fault)


class Closing:
    """The end of one connection, from our decision until the socket is closed."""

    __slots__ = ("_flushing", "_loop", "_timer", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: Any) -> None:
        self._loop = loop
        self._transport = transport
        self._flushing: Flushing | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, linger: float, peer_ended: bool) -> bool:
        """Say the end; whether the peer has to be listened to, because it may still be sending."""
        listens = not peer_ended and linger > 0
        if not listens:
            self._transport.close()
        elif self._transport.can_write_eof():
            # Not now: we may be in a callback of the transport's, which would say it once more.
            self._loop.call_soon(self._say_end)
        else:
            self._flushing = Flushing(self._loop, self._transport, self._say_end_of_tls)
            self._loop.call_soon(self._flushing.check)
        self._timer = self._loop.call_later(linger, self._transport.abort)
        return listens

    def resume(self) -> None:
        """The transport has room."""
        if self._flushing is not None:
            self._flushing.check()

    def over(self) -> None:
        """The connection is lost."""
        if self._flushing is not None:
            self._flushing.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _say_end(self) -> None:
        if not self._transport.is_closing():
            try:
                self._transport.write_eof()
            except OSError:
                self._transport.abort()  # The peer has reset it, which we have not been told yet.

    def _say_end_of_tls(self) -> None:
        if self._transport.is_closing():
            return
        # It waits for the peer's own end, or finds that the peer is still sending: we know.
        with contextlib.suppress(ssl.SSLError):
            self._transport.get_extra_info("ssl_object").unwrap()
        push_out(self._transport)


@dataclass(frozen=True, slots=True)
class CloseReport:
    """What became of the connections that were there when a server was closed."""

    finished: int
    """Connections whose handlers ended in time."""
    aborted: tuple[str, ...]
    """The labels of those that had to be cut off."""


class Disposable(ABC):
    """Has an end that can be awaited, and one that lets its handlers finish first."""

    loop: asyncio.AbstractEventLoop
    """The loop that it lives on."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._closing: asyncio.Task[CloseReport] | None = None
        self._over = asyncio.Event()

    @abstractmethod
    async def _close_within(self, grace: float) -> CloseReport:
        """Close; sets ``_over`` when that is done."""

    async def aclose(self, grace: float = 3.0) -> CloseReport:
        """Take no more, let the handlers finish what has come, and cut off those that are still at it.

        ``receive()`` completes after what has come, which lets a handler end by itself; whoever has not ended
        after ``grace`` seconds is cut off, and named in what this returns.
        """
        if asyncio.get_running_loop() is not self.loop:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self.aclose(grace), self.loop))
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close_within(grace))
        return await asyncio.shield(self._closing)

    def close_now(self, grace: float = 3.0) -> CloseReport:
        """:meth:`aclose` for a thread that has no event loop."""
        refuse_on_a_loop("aclose()")
        return asyncio.run_coroutine_threadsafe(self.aclose(grace), self.loop).result()

    async def wait_closed(self) -> None:
        """Until it is closed, however that comes about."""
        if asyncio.get_running_loop() is self.loop:
            await self._over.wait()
        else:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._over.wait(), self.loop))

    def on_dispose(self) -> Mono[Any]:
        """A Mono that completes when it is closed: ``server.on_dispose().block()``."""
        return Mono.from_callable(self.wait_closed)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_now()

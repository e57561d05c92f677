"""The life of a connection: the states that observers see, idle timeouts, and the way it is closed."""

from __future__ import annotations

import enum
import logging
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, runtime_checkable

from penstock.net.errors import IdleTimeout
from penstock.net.metrics import Traffic
from penstock.net.transport import EventLoop, Flush, TimerHandle, Transport
from penstock.net.wiretap import Wiretap
from penstock.streams.spi import asks_main_thread_to_stop

if TYPE_CHECKING:
    from penstock.net.connection import Connection
    from penstock.net.settings import TcpSettings

__all__ = [
    "CloseReport",
    "ConnectionObserver",
    "ConnectionState",
    "IdleLimit",
    "IdleWatch",
    "Shutdown",
    "StateCallback",
    "limits_of",
    "tell_state",
]

_log = logging.getLogger("penstock.net")

_LOOKS: Final = 4
"""How often the figures are looked at within one idle limit."""

_MOST_LINGERS: Final = 600
"""How many times a close lingers at most, for a peer that takes a few bytes each time."""


# ---------------------------------------------------------------- states
class ConnectionState(enum.Enum):
    """The stages in the life of a connection, in this order. Observers hear of each once.

    A socket of a pool serves one connection after the other: each is acquired, configured and released. The
    first of them hears of ``CONNECTED``, the last of ``DISCONNECTING``.
    """

    CONNECTED = "connected"
    """The socket is up, and TLS with it if there is any. The handler has not been called."""
    ACQUIRED = "acquired"
    """The socket was taken from a pool, or opened for it."""
    CONFIGURED = "configured"
    """The inbound and outbound sides exist. The handler is called next."""
    RELEASED = "released"
    """The socket was given back to its pool. For its user the connection is closed."""
    DISCONNECTING = "disconnecting"
    """The connection is over, for whatever reason. Nothing more is received or sent."""


@runtime_checkable
class ConnectionObserver(Protocol):
    """Hears of the states of connections. Pass one to ``observe()``."""

    def on_state_change(self, connection: Connection, state: ConnectionState, /) -> object:
        """The connection is in this state now. Called on the event loop, so it must not block."""
        ...


StateCallback = Callable[["Connection", ConnectionState], object]
"""An observer as a plain function."""


class Observed(Protocol):
    """A connection, a UDP channel or an endpoint."""

    @property
    def label(self) -> str:
        """Its name in the log."""
        ...


S = TypeVar("S", bound=Observed)
E = TypeVar("E", bound=enum.Enum)


def tell_state(
    subject: S,
    state: E,
    wiretap: Wiretap | None,
    observers: Iterable[Callable[[S, E], object]],
) -> None:
    """Tell the wiretap and all observers. An observer that raises is logged, and the others still hear."""
    if wiretap is not None:
        wiretap.tell(subject.label, state.name)
    for observer in observers:
        try:
            observer(subject, state)
        except BaseException as fault:
            if asks_main_thread_to_stop(fault):
                raise
            _log.error("%s an observer failed at %s: %r", subject.label, state.name, fault, exc_info=fault)


# ---------------------------------------------------------------- idle timeouts
@dataclass(slots=True)
class IdleLimit:
    """Something that has to make progress once in so many seconds."""

    what: str
    seconds: float
    progress: Callable[[], object]
    """A figure that changes when there is progress."""
    due: Callable[[], bool]
    """Whether progress is expected at the moment."""
    last: object = None
    since: float = 0.0
    looks: int = 0
    """How often the figure has been looked at since it last changed."""


def limits_of(
    settings: TcpSettings,
    traffic: Traffic,
    transport: Transport,
    *,
    receiving: Callable[[], bool],
    flushing: Callable[[], bool],
) -> list[IdleLimit]:
    """The limits that the settings put on a connection."""

    def left() -> int:
        """Bytes that have left this process."""
        return traffic.sent - transport.get_write_buffer_size()

    def anything() -> tuple[int, int]:
        return traffic.received, left()

    def unsent() -> bool:
        return transport.get_write_buffer_size() > 0 or flushing()

    limits = (
        ("nothing was received or sent", settings.idle_timeout, anything, lambda: True),
        ("the peer sent nothing", settings.read_timeout, lambda: traffic.received, receiving),
        ("the peer took nothing of what was sent", settings.write_timeout, left, unsent),
    )
    return [
        IdleLimit(what, seconds, progress, due)
        for what, seconds, progress, due in limits
        if seconds is not None
    ]


class IdleWatch:
    """Closes a connection that makes no progress.

    For a chunk nothing is done but to count it. A timer looks at the counts a few times within each limit, so
    that a connection is closed after the limit, and at most a quarter of it later.
    """

    __slots__ = ("_expire", "_limits", "_loop", "_period", "_timer")

    def __init__(
        self, loop: EventLoop, limits: list[IdleLimit], expire: Callable[[IdleTimeout], object]
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._expire = expire
        self._period = min(limit.seconds for limit in limits) / _LOOKS
        for limit in limits:
            limit.last, limit.since = limit.progress(), loop.time()
        self._timer = loop.call_later(self._period, self._look)

    def _look(self) -> None:
        now = self._loop.time()
        for limit in self._limits:
            progress = limit.progress()
            if progress != limit.last or not limit.due():
                limit.last, limit.since, limit.looks = progress, now, 0
                continue
            limit.looks += 1
            # While the loop was blocked, nothing was read and nothing was looked at.
            if now - limit.since >= limit.seconds and limit.looks >= _LOOKS:
                self._expire(IdleTimeout(f"{limit.what} for {limit.seconds:g} s"))
                return
        self._timer = self._loop.call_later(self._period, self._look)

    def cancel(self) -> None:
        """Stop watching."""
        self._timer.cancel()


# ---------------------------------------------------------------- closing
class Shutdown:
    """The end of a connection, from our decision to close it until the socket is closed.

    Closing a socket that has unread bytes resets the connection, which may destroy what was just sent. So
    this side says that it is done, and keeps reading until the peer has ended too, for ``linger`` seconds at
    most.

    Those seconds begin when the kernel has all that sends have left: a coroutine that awaited its send has
    gone on, and nobody else waits for these bytes. They begin anew as long as the peer's kernel still takes
    some of them: on a slow line the kernel may have megabytes, which are lost if the peer still sends when
    the socket is closed.
    """

    __slots__ = (
        "_closed_by_peer",
        "_flush",
        "_left",
        "_linger",
        "_looks",
        "_timer",
        "_transport",
        "flushing",
    )

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._flush: Flush | None = None
        self._timer: TimerHandle | None = None
        self._linger = 0.0
        self._left = sys.maxsize
        """How many bytes the peer's kernel had not taken when we looked last."""
        self._looks = 0
        self._closed_by_peer = False
        self.flushing = False
        """Whether bytes of completed sends have not left; the peer has not seen our end."""

    def begin(self, linger: float, peer_ended: bool, *, flush: bool) -> bool:
        """Say that we are done. Returns whether to keep reading, because the peer may still be sending.

        With ``flush``, everything that was written has to leave first, however long the peer takes.
        """
        self._linger, self._closed_by_peer = linger, peer_ended
        if flush:
            self.flushing = True
            self._flush = self._transport.flush(self._say_it)
            self._flush.check()
        else:
            self._say_it()
        return not peer_ended and linger > 0

    def _say_it(self) -> None:
        self.flushing = False
        if not self._closed_by_peer and self._linger > 0:
            self._flush = self._transport.end()
        else:
            self._transport.close()
        self._timer = self._transport.loop.call_later(self._linger, self._give_up)

    def _give_up(self) -> None:
        """The time is over, unless the line is slow and still moves: a reset would destroy what is on it."""
        before, self._left = self._left, self._transport.unacknowledged()
        self._looks += 1
        if self._linger > 0 and 0 < self._left < before and self._looks < _MOST_LINGERS:
            self._timer = self._transport.loop.call_later(self._linger, self._give_up)
        else:
            self._transport.abort()

    def resume(self) -> None:
        """The transport has room again."""
        if self._flush is not None:
            self._flush.check()

    def over(self) -> None:
        """The socket is closed."""
        self.flushing = False
        if self._flush is not None:
            self._flush.cancel()
        if self._timer is not None:
            self._timer.cancel()


@dataclass(frozen=True, slots=True)
class CloseReport:
    """What happened to the connections that were open when a server was closed."""

    finished: int
    """How many handlers ended in time."""
    aborted: tuple[str, ...]
    """The labels of the connections that had to be cut off."""

"""How a server or a client is set up: immutable, every method of the builders makes a changed copy."""

from __future__ import annotations

import dataclasses
import logging
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from penstock.net.labels import address_text
from penstock.net.lifecycle import ConnectionObserver, StateCallback
from penstock.net.wiretap import Wiretap, WiretapFormat
from penstock.streams import Flux

if TYPE_CHECKING:
    from penstock.net.connection import Connection
    from penstock.net.inbound import Inbound
    from penstock.net.outbound import Outbound
    from penstock.net.tls import TlsSettings

__all__ = [
    "Handler",
    "SocketBuilder",
    "SocketOption",
    "SocketSettings",
    "SupportsFrames",
    "TcpBuilder",
    "TcpSettings",
]

Handler = Callable[["Inbound", "Outbound"], Any]
"""Gets both sides of a connection; returns what to run: a publisher, an Outbound, or a coroutine."""


class SupportsFrames(Protocol):
    """Finds where objects end in a stream of bytes; see :mod:`penstock.net.framing`."""

    def frames(self, data: Flux[bytes]) -> Flux[Any]:
        """The objects in the bytes."""
        ...


@dataclass(frozen=True, slots=True)
class SocketOption:
    """One ``setsockopt``."""

    level: int
    name: int
    value: int | bytes
    text: str

    @classmethod
    def named(cls, name: str, value: int | bytes) -> SocketOption:
        """The option with the name that the manual pages have for it."""
        levels = {
            "SO_": socket.SOL_SOCKET,
            "TCP_": socket.IPPROTO_TCP,
            "IPV6_": socket.IPPROTO_IPV6,
            "IP_": socket.IPPROTO_IP,
            "UDP_": socket.IPPROTO_UDP,
        }
        level = next((level for prefix, level in levels.items() if name.startswith(prefix)), None)
        number = getattr(socket, name, None)
        if level is None or number is None:
            raise ValueError(
                f"option({name!r}): this system has no such socket option; write it as the manual does, "
                "for example SO_RCVBUF or TCP_NODELAY"
            )
        return cls(level, number, value, name)

    def apply(self, connection: Any) -> None:
        """Set it."""
        connection.setsockopt(self.level, self.name, self.value)


@dataclass(frozen=True, slots=True)
class SocketSettings:
    """What can be set for a socket of any kind."""

    host: str | None = None
    port: int = 0
    wiretap: Wiretap | None = None
    metered: bool = False
    options: tuple[SocketOption, ...] = ()
    encoder: Callable[[Any], Any] = field(default=lambda thing: thing)

    @property
    def where(self) -> str:
        """The address as people write it."""
        return f"{self.host or '*'}:{self.port}"


@dataclass(frozen=True, slots=True)
class TcpSettings(SocketSettings):
    """Everything that can be set; what does not apply to one kind of end is not offered by its builder."""

    path: str | None = None
    tls: TlsSettings | None = None
    handler: Handler | None = None
    on_connection: tuple[Callable[[Connection], object], ...] = ()
    observers: tuple[StateCallback, ...] = ()
    max_connections: int | None = None
    backlog: int = 128
    connect_timeout: float = 10.0
    idle_timeout: float | None = None
    read_timeout: float | None = None
    write_timeout: float | None = None
    linger: float = 1.0
    read_ahead: int = 64 * 1024
    fused: bool = True
    framing: SupportsFrames | None = None

    @property
    def where(self) -> str:
        """The address as people write it."""
        return address_text(self.path) if self.path is not None else f"{self.host or '*'}:{self.port}"

    @property
    def counts_bytes(self) -> bool:
        """Whether somebody wants to know how many bytes went over a connection."""
        return self.metered or any((self.idle_timeout, self.read_timeout, self.write_timeout))

    @property
    def may_fuse(self) -> bool:
        """Whether an echo may bypass our own code: if nobody looks at its bytes."""
        return self.fused and self.wiretap is None and not self.counts_bytes


S = TypeVar("S", bound=SocketSettings)


class SocketBuilder(Generic[S]):
    """What builders have in common, whatever they open. Each method returns a changed copy."""

    def __init__(self, settings: S) -> None:
        self._settings = settings

    @property
    def settings(self) -> S:
        """What is set."""
        return self._settings

    def _with(self, **changes: Any) -> Self:
        return type(self)(dataclasses.replace(self._settings, **changes))

    def host(self, host: str) -> Self:
        """The name or the address: to listen on, or to connect to."""
        if not isinstance(host, str) or not host:
            raise ValueError(f"host({host!r}): give a name or an address as text")
        return self._with(host=host)

    def port(self, port: int) -> Self:
        """The port; a server takes any free one for 0."""
        if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port <= 65_535:
            raise ValueError(f"port({port!r}): give a whole number from 0 to 65535")
        return self._with(port=port)

    def wiretap(
        self,
        tap: bool | Wiretap | WiretapFormat = True,
        *,
        level: int = logging.DEBUG,
        redact: Callable[[bytes], bytes] | None = None,
    ) -> Self:
        """Log what goes over the wire, with the logger ``penstock.net.wire``."""
        if isinstance(tap, WiretapFormat):
            tap = Wiretap(tap, level=level, redact=redact)
        elif tap is True:
            tap = Wiretap(level=level, redact=redact)
        return self._with(wiretap=tap or None)

    def metrics(self, on: bool = True) -> Self:
        """Count bytes as well."""
        return self._with(metered=on)

    def option(self, name: str, value: int | bytes) -> Self:
        """Set an option of the socket, by the name in its manual: ``option("SO_RCVBUF", 65536)``."""
        return self._with(options=(*self._settings.options, SocketOption.named(name, value)))

    def encoder(self, encode: Callable[[Any], bytes]) -> Self:
        """What makes bytes of an object, for ``send_object()``."""
        if not callable(encode):
            raise TypeError(f"encoder({encode!r}): give a function that makes bytes of an object")
        return self._with(encoder=encode)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._settings.where}>"


class TcpBuilder(SocketBuilder[TcpSettings]):
    """What servers and clients of connections have in common."""

    def host(self, host: str) -> Self:
        """The name or the address: to listen on, or to connect to."""
        return super().host(host)._with(path=None)

    def port(self, port: int) -> Self:
        """The port; a server takes any free one for 0."""
        return super().port(port)._with(path=None)

    def unix(self, path: str) -> Self:
        """A Unix socket at this path, in place of host and port."""
        if not path:
            raise ValueError("unix(''): give the path of the socket")
        return self._with(path=str(path), host=None, port=0)

    def handle(self, handler: Handler) -> Self:
        """What to do with a connection: called with its two sides, returns what to run.

        When that completes, what was sent is flushed and the connection is closed; when it fails, the error
        is logged with the connection's id and the connection is closed.
        """
        if not callable(handler):
            raise TypeError(f"handle({handler!r}): give a function of inbound and outbound")
        return self._with(handler=handler)

    def metrics(self, on: bool = True) -> Self:
        """Count bytes as well as connections; an echo is then not fused."""
        return self._with(metered=on)

    def on_connection(self, call: Callable[[Connection], object]) -> Self:
        """Call this with every new connection, before its handler; if it raises, the connection is closed."""
        return self._with(on_connection=(*self._settings.on_connection, call))

    def observe(self, observer: ConnectionObserver | StateCallback) -> Self:
        """Tell this one about every :class:`~penstock.net.ConnectionState` of every connection."""
        call = observer.on_state_change if isinstance(observer, ConnectionObserver) else observer
        return self._with(observers=(*self._settings.observers, call))

    def idle_timeout(self, seconds: float) -> Self:
        """Close a connection on which nothing has moved, in or out, for so long."""
        return self._with(idle_timeout=_seconds("idle_timeout", seconds))

    def read_timeout(self, seconds: float) -> Self:
        """Close a connection whose peer has sent nothing for so long although it was waited for."""
        return self._with(read_timeout=_seconds("read_timeout", seconds))

    def write_timeout(self, seconds: float) -> Self:
        """Close a connection whose peer has taken nothing for so long although something was to be taken."""
        return self._with(write_timeout=_seconds("write_timeout", seconds))

    def linger(self, seconds: float) -> Self:
        """How long a close waits for the peer to take what was sent and to close its side (1 s)."""
        if seconds < 0:
            raise ValueError(f"linger({seconds!r}): give seconds, or 0")
        return self._with(linger=float(seconds))

    def read_ahead(self, size: int) -> Self:
        """How many bytes may be read before they are asked for (64 KiB); 0: none, and no close is heard."""
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ValueError(f"read_ahead({size!r}): give a number of bytes, or 0")
        return self._with(read_ahead=size)

    def fuse(self, on: bool) -> Self:
        """Whether ``outbound.send(inbound.receive())`` may go from the socket to itself (it may)."""
        return self._with(fused=on)

    def framing(self, framing: SupportsFrames) -> Self:
        """Where an object ends, for ``receive_objects()``: ``lines()``, ``length_prefixed()``, …"""
        if not callable(getattr(framing, "frames", None)):
            raise TypeError(f"framing({framing!r}): give one of penstock.net.framing, for example lines()")
        return self._with(framing=framing)


def _seconds(name: str, seconds: float) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
        raise ValueError(f"{name}({seconds!r}): give seconds above 0")
    return float(seconds)

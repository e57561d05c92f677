"""Settings of servers and clients, and their builders. Both are immutable: methods return a changed copy."""

from __future__ import annotations

import dataclasses
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar

from penstock.arguments import a_count, a_number, a_whole_number
from penstock.net.endpoint import EndpointCallback, EndpointObserver
from penstock.net.labels import address_text
from penstock.net.lifecycle import ConnectionObserver, StateCallback
from penstock.net.transport import SocketHandle
from penstock.net.wiretap import Wiretap, WiretapFormat
from penstock.streams import Flux

if TYPE_CHECKING:
    from penstock.net.connection import Connection
    from penstock.net.inbound import Inbound
    from penstock.net.loop_resources import LoopResources
    from penstock.net.outbound import Outbound
    from penstock.net.proxies.header import ProxyHeader
    from penstock.net.proxies.protocol import ProxyProtocol
    from penstock.net.proxies.proxy import Proxy
    from penstock.net.tcp.dialer import Resolver
    from penstock.net.tcp.pool import ConnectionPool
    from penstock.net.tls import TlsSettings

__all__ = [
    "Handler",
    "SocketBuilder",
    "SocketOption",
    "SocketSettings",
    "SupportsFrames",
    "TcpBuilder",
    "TcpSettings",
    "keep_alive_options",
]

Handler = Callable[["Inbound", "Outbound"], Any]
"""Takes both sides of a connection, and returns what to run: a publisher, an Outbound, or a coroutine."""


class SupportsFrames(Protocol):
    """Finds the objects in a stream of bytes. Those of :mod:`penstock.net.framing` do."""

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
        """The option that has this name in the manual pages."""
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

    def apply(self, opened: SocketHandle) -> None:
        """Set the option on a socket."""
        opened.setsockopt(self.level, self.name, self.value)


_LONGEST_KEEP_ALIVE: Final = 65_534
"""Seconds; Linux waits at most half of that before it asks for the first time."""


def keep_alive_options(seconds: float) -> tuple[SocketOption, ...]:
    """What makes the system ask a silent peer, after half of this time, whether it is still there."""
    wanted = {
        "SO_KEEPALIVE": 1,
        "TCP_KEEPIDLE": max(1, round(seconds / 2)),
        "TCP_KEEPINTVL": max(1, round(seconds / 6)),
        "TCP_KEEPCNT": 3,
    }
    return tuple(SocketOption.named(name, value) for name, value in wanted.items() if hasattr(socket, name))


@dataclass(frozen=True, slots=True)
class SocketSettings:
    """The settings that every kind of socket has."""

    host: str | None = None
    port: int = 0
    wiretap: Wiretap | None = None
    metered: bool = False
    options: tuple[SocketOption, ...] = ()
    encoder: Callable[[Any], Any] = field(default=lambda thing: thing)
    loops: LoopResources | None = None

    @property
    def where(self) -> str:
        """The address as people write it."""
        return f"{self.host or '*'}:{self.port}"

    @property
    def socket_options(self) -> tuple[SocketOption, ...]:
        """What is set on each socket."""
        return self.options


@dataclass(frozen=True, slots=True)
class TcpSettings(SocketSettings):
    """The settings of TCP and Unix servers and clients. A builder offers those that apply to it."""

    path: str | None = None
    tls: TlsSettings | None = None
    handler: Handler | None = None
    on_connection: tuple[Callable[[Connection], object], ...] = ()
    observers: tuple[StateCallback, ...] = ()
    endpoint_observers: tuple[EndpointCallback, ...] = ()
    max_connections: int | None = None
    backlog: int = 128
    connect_timeout: float = 10.0
    idle_timeout: float | None = None
    read_timeout: float | None = None
    write_timeout: float | None = None
    keep_alive: float | None = None
    linger: float = 1.0
    read_ahead: int = 64 * 1024
    queued_sends: int = 0
    dual_stack: bool = False
    local_address: tuple[str, int] | None = None
    resolver: Resolver | None = None
    pool: ConnectionPool | None = None
    fused: bool = True
    framing: SupportsFrames | None = None
    proxy: Proxy | None = None
    proxy_header: ProxyHeader | None = None
    proxy_protocol: ProxyProtocol | None = None

    @property
    def where(self) -> str:
        """The address as people write it."""
        return address_text(self.path) if self.path is not None else f"{self.host or '*'}:{self.port}"

    @property
    def socket_options(self) -> tuple[SocketOption, ...]:
        """What is set on each socket; the system knows that the peer of a Unix socket is gone."""
        if self.keep_alive is None or self.path is not None:
            return self.options
        return *self.options, *keep_alive_options(self.keep_alive)

    @property
    def route(self) -> tuple[Any, ...]:
        """Everything that decides what socket a client opens. One of the same route can be used instead."""
        place = self.path, self.host, self.port
        way = self.proxy, self.proxy_header
        return *place, self.tls, self.local_address, self.socket_options, self.resolver, *way

    @property
    def counts_bytes(self) -> bool:
        """Whether the bytes of each connection are counted, for metrics or for a timeout."""
        return self.metered or any((self.idle_timeout, self.read_timeout, self.write_timeout))

    @property
    def may_fuse(self) -> bool:
        """Whether an echo may bypass our own code, because nobody looks at its bytes."""
        return self.fused and self.wiretap is None and not self.counts_bytes


S = TypeVar("S", bound=SocketSettings)


class SocketBuilder(Generic[S]):
    """What all builders have in common. Each method returns a changed copy."""

    def __init__(self, settings: S) -> None:
        self._settings = settings

    @property
    def settings(self) -> S:
        """The settings so far."""
        return self._settings

    def _with(self, **changes: Any) -> Self:
        return type(self)(dataclasses.replace(self._settings, **changes))

    def host(self, host: str) -> Self:
        """The name or the address to listen on, or to connect to."""
        if not isinstance(host, str) or not host:
            raise ValueError(f"host({host!r}): pass a name or an address as text")
        if "\0" in host:  # the system would look up what stands before it, which is another host
            raise ValueError(f"host({host!r:.80}): a name has no NUL")
        return self._with(host=host)

    def port(self, port: int) -> Self:
        """The port. With 0, a server takes any free one."""
        return self._with(port=a_whole_number(port, "port()", least=0, most=65_535))

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
        """Count the bytes too."""
        return self._with(metered=on)

    def option(self, name: str, value: int | bytes) -> Self:
        """Set an option of the socket, by the name in its manual: ``option("SO_RCVBUF", 65536)``."""
        return self._with(options=(*self._settings.options, SocketOption.named(name, value)))

    def encoder(self, encode: Callable[[Any], bytes]) -> Self:
        """The function that turns an object into bytes, for ``send_object()``."""
        if not callable(encode):
            raise TypeError(f"encoder({encode!r}): pass a function that turns an object into bytes")
        return self._with(encoder=encode)

    def run_on(self, loops: LoopResources | None) -> Self:
        """Live on these event loops, which others may share, and not on the caller's (None)."""
        from penstock.net.loop_resources import LoopResources

        if loops is not None and not isinstance(loops, LoopResources):
            raise TypeError(f"run_on({loops!r:.80}): pass a LoopResources, or None")
        return self._with(loops=loops)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._settings.where}>"


class TcpBuilder(SocketBuilder[TcpSettings]):
    """What TCP and Unix servers and clients have in common."""

    def host(self, host: str) -> Self:
        """The name or the address to listen on, or to connect to."""
        return super().host(host)._with(path=None)

    def port(self, port: int) -> Self:
        """The port. With 0, a server takes any free one."""
        return super().port(port)._with(path=None)

    def unix(self, path: str | os.PathLike[str]) -> Self:
        """A Unix socket at this path, instead of host and port."""
        if not path:
            raise ValueError("unix(''): pass the path of the socket")
        text = os.fspath(path)
        if not isinstance(text, str):
            raise TypeError(f"unix({path!r:.80}): pass the path as text")
        if "\0" in text[1:]:  # the system would cut it there; an abstract name begins with one
            raise ValueError(f"unix({path!r:.80}): a path has no NUL")
        return self._with(path=text, host=None, port=0)

    def handle(self, handler: Handler) -> Self:
        """What to do with a connection. The handler takes its two sides and returns what to run.

        When that completes, what was sent is flushed and the connection is closed. When it fails, the error
        is logged with the connection's id, and the connection is closed.
        """
        if not callable(handler):
            raise TypeError(f"handle({handler!r}): pass a function of inbound and outbound")
        return self._with(handler=handler)

    def metrics(self, on: bool = True) -> Self:
        """Count bytes as well as connections. An echo is then not fused."""
        return self._with(metered=on)

    def on_connection(self, call: Callable[[Connection], object]) -> Self:
        """Call this with every new connection, before its handler. If it raises, the connection is closed."""
        return self._with(on_connection=(*self._settings.on_connection, call))

    def observe(self, observer: ConnectionObserver | EndpointObserver | StateCallback) -> Self:
        """Tell this observer of every :class:`~penstock.net.ConnectionState` of every connection.

        An observer that has ``on_endpoint_change()`` hears of every :class:`~penstock.net.EndpointState`:
        when a server is bound and unbound, and when a client looks up its host and connects.
        """
        observers, of_endpoints = self._settings.observers, self._settings.endpoint_observers
        if isinstance(observer, EndpointObserver):
            of_endpoints = (*of_endpoints, observer.on_endpoint_change)
        if isinstance(observer, ConnectionObserver):
            observers = (*observers, observer.on_state_change)
        elif not isinstance(observer, EndpointObserver):
            observers = (*observers, observer)
        return self._with(observers=observers, endpoint_observers=of_endpoints)

    def idle_timeout(self, seconds: float) -> Self:
        """Close a connection on which nothing was received or sent for so many seconds."""
        return self._with(idle_timeout=a_number(seconds, "idle_timeout()", above=0))

    def read_timeout(self, seconds: float) -> Self:
        """Close a connection if there is demand and its peer has sent nothing for so many seconds."""
        return self._with(read_timeout=a_number(seconds, "read_timeout()", above=0))

    def write_timeout(self, seconds: float) -> Self:
        """Close a connection if its peer has taken nothing of what is to be sent for so many seconds."""
        return self._with(write_timeout=a_number(seconds, "write_timeout()", above=0))

    def linger(self, seconds: float) -> Self:
        """How many seconds a close waits for the peer to close its side, once the kernel has all (1 s)."""
        return self._with(linger=a_number(seconds, "linger()", least=0))

    def keep_alive(self, seconds: float = 60.0) -> Self:
        """Let the system find out, within about so many seconds of silence, whether the peer is still there.

        A machine that loses its power or its network says nothing, and a router may forget a connection.
        A program that only waits for bytes would then wait for ever. This is for TCP: the peer's system
        answers by itself, so a peer that is silent or slow is not affected. A Unix socket does not need it,
        and ignores it.
        """
        return self._with(keep_alive=a_number(seconds, "keep_alive()", above=0, most=_LONGEST_KEEP_ALIVE))

    def read_ahead(self, size: int) -> Self:
        """How many bytes may be read without demand (64 KiB). With 0 none is, and a close is not noticed."""
        return self._with(read_ahead=a_count(size, "read_ahead()", least=0))

    def queue_sends(self, most: int = 1024) -> Self:
        """Let a send that begins while another one is under way wait for its turn (an error otherwise).

        At most ``most`` sends of a connection wait; one more fails with SendRefused.
        """
        return self._with(queued_sends=a_count(most, "queue_sends()"))

    def fuse(self, on: bool) -> Self:
        """Whether ``outbound.send(inbound.receive())`` may connect the socket to itself (True)."""
        return self._with(fused=on)

    def framing(self, framing: SupportsFrames) -> Self:
        """How to find objects, for ``receive_objects()``: ``lines()``, ``length_prefixed()``, …"""
        if not callable(getattr(framing, "frames", None)):
            raise TypeError(f"framing({framing!r}): pass one of penstock.net.framing, for example lines()")
        return self._with(framing=framing)

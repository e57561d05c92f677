"""Both sides of a connection keep the rules, over real sockets."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any, ClassVar

import pytest

from penstock.net import Connection, RunningServer, TcpClient, TcpServer
from penstock.streams import Flux, on_dropped
from penstock.streams.source import PublisherSource
from penstock.streams.stream import flux_of
from penstock.tck import (
    PublisherVerification,
    SubscriberBlackboxVerification,
)
from tests.net.tcp.loops import LoopThread
from tests.net.tcp.peers import raw
from tests.patient_kit import PATIENT

ENDLESS = 2**31
"""From here on the kit means a stream without an end."""


class Peers:
    """Servers that send so many single bytes, and what was connected to them."""

    def __init__(self) -> None:
        self.loops: dict[str, LoopThread] = {}
        self.servers: dict[int, RunningServer] = {}
        self.connections: list[Connection] = []

    def loop(self, kind: str) -> LoopThread:
        if kind not in self.loops:
            self.loops[kind] = LoopThread(kind)
        return self.loops[kind]

    def port(self, elements: int) -> int:
        if elements not in self.servers:
            # The reader takes single bytes; for the endless one they are written by the thousand.
            data = Flux.from_iterable(repeat(b"x" * 65_536) if elements >= ENDLESS else [b"x"] * elements)
            server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(data))
            self.servers[elements] = self.loop("asyncio").wait(server.bind())
        return self.servers[elements].port

    def connect(self, client: TcpClient, kind: str = "asyncio") -> Connection:
        connection = self.loop(kind).wait(client.connect())
        self.connections.append(connection)
        return connection

    def close(self) -> None:
        for connection in self.connections:
            connection.abort()
        for server in self.servers.values():
            self.loop("asyncio").wait(server.aclose(0))
        for loop in self.loops.values():
            loop.close()


peers = Peers()


@pytest.fixture(scope="module", autouse=True)
def closing() -> Iterator[None]:
    """What is told to nobody any more need not be logged here; and no connection is left."""
    with on_dropped(error=lambda error, where: None, element=lambda element, where: None):
        yield
        peers.close()


def one_byte_at_a_time(connection: Connection) -> None:
    """TCP has no elements: reading single bytes makes a known number of them."""
    raw(connection).max_size = 1


class Idle:
    """A subscriber that is there and asks for nothing."""

    def on_subscribe(self, subscription: Any) -> None: ...

    def on_next(self, element: Any) -> None: ...

    def on_error(self, error: BaseException) -> None: ...

    def on_complete(self) -> None: ...


class Receiving(PublisherVerification):
    environment = PATIENT
    profile = "threads"
    client: ClassVar[TcpClient] = TcpClient.create().on_connection(one_byte_at_a_time)

    def create_publisher(self, elements: int) -> Any:
        return peers.connect(self.client.port(peers.port(elements))).inbound.receive()

    def create_failed_publisher(self) -> Any:
        """The second subscriber to a connection hears that it has one."""
        connection = peers.connect(self.client.port(peers.port(ENDLESS)))
        connection.inbound.receive().subscribe(Idle())
        return connection.inbound.receive()


class TestReceiving(Receiving):
    """With the usual read-ahead."""


class TestReceivingWithoutReadAhead(Receiving):
    """Nothing is read that was not asked for."""

    client: ClassVar[TcpClient] = TcpClient.create().on_connection(one_byte_at_a_time).read_ahead(0)


class Catch:
    """A Publisher that keeps its Subscriber instead of serving it: from then on the kit serves it."""

    subscriber: Any = None

    def subscribe(self, subscriber: Any) -> None:
        self.subscriber = subscriber


def sender(kind: str) -> Any:
    """What a connection subscribes to whatever it is told to send."""
    connection = peers.connect(TcpClient.create().port(peers.port(0)), kind)
    source = Catch()
    sending = connection.outbound.send(flux_of(PublisherSource(source)))
    sending.mono().on_error_complete().subscribe()
    peers.loop(kind).wait(settled())
    assert source.subscriber is not None
    return source.subscriber


async def settled() -> None:
    """Everything that was given to the loop before has run."""


class TestSending(SubscriberBlackboxVerification):
    """On asyncio."""

    environment = PATIENT
    profile = "threads"
    kind = "asyncio"

    def create_subscriber(self) -> Any:
        return sender(self.kind)

    def create_element(self, index: int) -> bytes:
        return b"%d\n" % index


class TestSendingOnUvloop(TestSending):
    """On uvloop."""

    kind = "uvloop"

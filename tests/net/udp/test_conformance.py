"""Both sides of a UDP socket keep the rules: ``receive()``, and what ``send()`` subscribes to its source."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from concurrent.futures import Future
from itertools import repeat
from typing import Any

import pytest

from penstock.net import UdpChannel, UdpClient, UdpOverflow, UdpServer
from penstock.streams import Flux, on_dropped
from penstock.streams.source import PublisherSource
from penstock.streams.stream import flux_of
from penstock.tck import PublisherVerification, SubscriberBlackboxVerification
from tests.net.tcp.loops import LoopThread
from tests.net.udp.waiting import LONG, turns, until
from tests.patient_kit import PATIENT

ENDLESS = 2**31
"""From here on the kit means a stream without an end."""
AT_ONCE = 100
"""Small datagrams that a socket's buffer holds with certainty, so that none is lost on the way."""


class Sockets:
    """The loops and channels of these tests, closed at the end."""

    def __init__(self) -> None:
        self.loops: dict[str, LoopThread] = {}
        self.channels: list[tuple[LoopThread, UdpChannel]] = []

    def loop(self, kind: str) -> LoopThread:
        if kind not in self.loops:
            self.loops[kind] = LoopThread(kind)
        return self.loops[kind]

    def opened(self, kind: str, opening: Any) -> UdpChannel:
        channel = self.loop(kind).wait(opening)
        self.channels.append((self.loop(kind), channel))
        return channel

    def close(self) -> None:
        for loop, channel in self.channels:
            loop.wait(channel.aclose(0))
        for loop in self.loops.values():
            loop.close()


sockets = Sockets()


@pytest.fixture(scope="module", autouse=True)
def closing() -> Iterator[None]:
    """What is told to nobody any more need not be logged here; and no socket is left."""
    with on_dropped(error=lambda error, where: None, element=lambda element, where: None):
        yield
        sockets.close()


class SentThenClosed:
    """A server that is sent so many datagrams when somebody subscribes, and closed after the last one."""

    def __init__(self, kind: str, elements: int) -> None:
        server = UdpServer.create().overflow(UdpOverflow.ERROR, capacity=max(1, elements))
        self.loop = sockets.loop(kind)
        self.elements = elements
        self.fed: Future[None] | None = None
        self.channel = sockets.opened(kind, server.bind())

    def subscribe(self, subscriber: Any) -> None:
        self.channel.inbound.receive().subscribe(subscriber)
        if self.fed is None:
            self.fed = asyncio.run_coroutine_threadsafe(self.feed(), self.loop.loop)

    async def feed(self) -> None:
        channel, receiver = self.channel, self.channel._receiver
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for number in range(self.elements):
                if number % AT_ONCE == 0:
                    await until(lambda sent=number: channel.counts.received == sent or receiver.over)
                sender.sendto(b"%d" % number, channel.address)
        receiver.finish()


class Idle:
    """A subscriber that is there and asks for nothing."""

    def on_subscribe(self, subscription: Any) -> None: ...

    def on_next(self, element: Any) -> None: ...

    def on_error(self, error: BaseException) -> None: ...

    def on_complete(self) -> None: ...


class TestReceiving(PublisherVerification):
    """On asyncio."""

    environment = PATIENT
    subject = "UdpInbound.receive() on asyncio"
    profile = "threads"
    kind = "asyncio"
    expected_skips = ("test_optional_spec111",)
    """A socket has one receiving subscriber, and says so to a second."""
    sent: SentThenClosed | None = None

    def settle(self) -> None:
        """When all was sent and the loop has turned, there is nothing on its way."""
        if self.sent is not None and self.sent.fed is not None:
            self.sent.fed.result(LONG)
        sockets.loop(self.kind).wait(turns(5))

    def create_publisher(self, elements: int) -> Any:
        if elements < ENDLESS:
            self.sent = SentThenClosed(self.kind, elements)
            return self.sent
        server = UdpServer.create().overflow(UdpOverflow.LATEST)
        channel = sockets.opened(self.kind, server.bind())
        source = sockets.opened(self.kind, UdpClient.create().port(channel.port).pace(20_000).connect())
        source.outbound.send(Flux.from_iterable(repeat(b"x"))).mono().on_error_complete().subscribe()
        self.add_cleanup(source.close)
        return channel.inbound.receive()

    def create_failed_publisher(self) -> Any:
        """The second subscriber to a socket hears that it has one."""
        channel = sockets.opened(self.kind, UdpServer.create().bind())
        channel.inbound.receive().subscribe(Idle())
        return channel.inbound.receive()


class TestReceivingOnUvloop(TestReceiving):
    """On uvloop."""

    subject = "UdpInbound.receive() on uvloop"
    kind = "uvloop"


class Catch:
    """A Publisher that keeps its Subscriber instead of serving it: from then on the kit serves it."""

    subscriber: Any = None

    def subscribe(self, subscriber: Any) -> None:
        self.subscriber = subscriber


class TestSending(SubscriberBlackboxVerification):
    """On asyncio."""

    environment = PATIENT
    subject = "UdpOutbound.send() on asyncio"
    profile = "threads"
    kind = "asyncio"

    def settle(self) -> None:
        sockets.loop(self.kind).wait(turns(5))

    def create_subscriber(self) -> Any:
        target = sockets.opened(self.kind, UdpServer.create().bind())
        channel = sockets.opened(self.kind, UdpClient.create().port(target.port).connect())
        source = Catch()
        channel.outbound.send(flux_of(PublisherSource(source))).mono().on_error_complete().subscribe()
        sockets.loop(self.kind).wait(turns(1))
        assert source.subscriber is not None
        return source.subscriber

    def create_element(self, element: int) -> bytes:
        return b"%d" % element


class TestSendingOnUvloop(TestSending):
    """On uvloop."""

    subject = "UdpOutbound.send() on uvloop"
    kind = "uvloop"

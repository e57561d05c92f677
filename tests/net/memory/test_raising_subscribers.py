"""A Subscriber of receive() that raises, whatever it raises, has left; the socket goes on without it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.net import Connection, ReceiverTaken
from penstock.net.framing import Framing
from penstock.net.udp.datagram import OverflowSettings
from penstock.net.udp.receiver import DatagramReceiver
from penstock.spec import Subscription
from penstock.streams import Flux, on_dropped
from tests.net.memory.subscribers import Reader
from tests.net.memory.test_datagrams import Owner
from tests.net.memory.transports import MemoryDatagrams, MemoryLoop, MemoryTransport, connected


class Stop(BaseException):
    """As pytest's ``fail`` and others raise it."""


ERRORS = [ValueError(), asyncio.CancelledError(), GeneratorExit(), Stop()]
EXITS: list[BaseException] = [SystemExit(3), KeyboardInterrupt()]

any_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
any_exit = pytest.mark.parametrize("error", EXITS, ids=lambda error: type(error).__name__)
anywhere = pytest.mark.parametrize("where", ["on_subscribe", "on_next", "on_next of a queue", "on_complete"])


class Raising(Reader):
    """Raises in one of its methods."""

    def __init__(self, where: str, error: BaseException) -> None:
        super().__init__(0 if "queue" in where else 9)
        self._where = where.split()[0]
        self._raised = error

    def on_subscribe(self, subscription: Subscription, /) -> None:
        super().on_subscribe(subscription)
        self._raise_in("on_subscribe")

    def on_next(self, element: Any, /) -> None:
        super().on_next(element)
        self._raise_in("on_next")

    def on_error(self, error: BaseException, /) -> None:
        super().on_error(error)
        self._raise_in("on_error")

    def on_complete(self) -> None:
        super().on_complete()
        self._raise_in("on_complete")

    def _raise_in(self, where: str) -> None:
        if where == self._where:
            raise self._raised


class TcpSide:
    """A connection over a transport without a socket."""

    def __init__(self) -> None:
        self.connection: Connection
        self.transport: MemoryTransport
        self.connection, self.transport, self.loop = connected()

    def subscribe(self, reader: Reader) -> None:
        self.connection._receiver.subscribe(reader)

    def receive(self, *chunks: bytes) -> None:
        self.transport.receive(*chunks)

    def end(self) -> None:
        self.transport.peer_ends()


class UdpSide:
    """A socket for datagrams that is none."""

    def __init__(self) -> None:
        self.loop = MemoryLoop()
        self.transport = MemoryDatagrams(self.loop)
        self.receiver = DatagramReceiver(Owner(), self.transport, OverflowSettings(), None)
        self.receiver.open()

    def subscribe(self, reader: Reader) -> None:
        self.receiver.subscribe(reader)

    def receive(self, *datagrams: bytes) -> None:
        self.transport.incoming.extend(datagrams)
        if self.transport.readable is not None:
            self.transport.readable()

    def end(self) -> None:
        self.receiver.end(None)


@pytest.fixture(params=[TcpSide, UdpSide], ids=["tcp", "udp"])
def side(request: pytest.FixtureRequest) -> Any:
    return request.param()


@pytest.fixture
def dropped() -> Iterator[list[BaseException]]:
    errors: list[BaseException] = []
    with on_dropped(error=lambda error, where: errors.append(error)):
        yield errors


def play(side: Any, reader: Raising) -> None:
    """Everything that can happen to a subscriber of receive()."""
    side.subscribe(reader)
    side.receive(b"one", b"two")
    reader.subscription.request(9)
    side.receive(b"three")
    side.end()


@anywhere
@any_error
def test_it_is_reported_once_and_nothing_more_comes(
    side: Any, where: str, error: BaseException, dropped: list[BaseException]
) -> None:
    reader = Raising(where, error)

    play(side, reader)

    assert dropped == [error]
    assert len(reader.got) == {"on_subscribe": 0, "on_complete": 3}.get(where, 1)
    assert reader.ended is (where == "on_complete")


@anywhere
@any_exit
def test_an_exit_on_another_thread_is_like_any_other_error(
    where: str, error: BaseException, dropped: list[BaseException]
) -> None:
    came: list[BaseException] = []

    def loop_thread() -> None:
        for kind in (TcpSide, UdpSide):  # their loop is the thread that makes them
            try:
                play(kind(), Raising(where, error))
            except BaseException as raised:
                came.append(raised)

    thread = threading.Thread(target=loop_thread)
    thread.start()
    thread.join()

    assert (came, dropped) == ([], [error, error])


@anywhere
@any_exit
def test_an_exit_on_the_main_thread_goes_up_and_the_subscriber_has_left_all_the_same(
    side: Any, where: str, error: BaseException, dropped: list[BaseException]
) -> None:
    reader = Raising(where, error)

    with pytest.raises(type(error)):
        play(side, reader)
    had = len(reader.got)
    side.receive(b"four")
    reader.subscription.request(9)

    assert dropped == []
    assert len(reader.got) == had


@any_error
@pytest.mark.parametrize("where", ["on_subscribe", "on_error"])
def test_a_second_subscriber_that_raises_when_it_is_refused_is_reported(
    side: Any, where: str, error: BaseException, dropped: list[BaseException]
) -> None:
    side.subscribe(Reader())
    second = Raising(where, error)

    side.subscribe(second)

    assert dropped == [error]
    assert (where == "on_subscribe") or isinstance(second.error, ReceiverTaken)


class Unfinished:
    """A decoder that makes no frame, and raises when it has to say what is left."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def feed(self, chunk: bytes) -> list[bytes]:
        return []

    def finish(self) -> list[bytes]:
        raise self._error


@any_error
def test_a_decoder_that_raises_when_its_reader_leaves_does_not_keep_it(error: BaseException) -> None:
    connection, transport, _ = connected()
    reader = Reader(9)
    frames: Flux[bytes] = Framing(lambda: Unfinished(error), "unfinished").frames(
        connection.inbound.receive()
    )
    frames.subscribe(reader)
    transport.receive(b"half a frame")

    reader.subscription.cancel()
    transport.receive(b"the other half")

    assert connection._receiver.dropped, "it counts as half a frame"
    assert not connection._receiver.wanted

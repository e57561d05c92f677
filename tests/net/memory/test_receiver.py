"""The receiver over a transport without a socket: pauses, ends and resets at any moment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.net import Connection, ConnectionAborted, ReceiveStopped, TcpServer
from penstock.net.receiver import MOST_CHUNKS
from penstock.net.transport import HIGH_WATER
from penstock.streams import Mono
from tests.net.memory.subscribers import Reader
from tests.net.memory.transports import MemoryLoop, MemoryTransport, connected


def reading(connection: Connection, demand: int = 0) -> Reader:
    reader = Reader(demand)
    connection.inbound.receive().subscribe(reader)
    return reader


def test_a_full_queue_pauses_the_transport_and_reading_goes_on_when_most_of_it_is_gone() -> None:
    connection, transport, _ = connected(TcpServer.create().read_ahead(1000))
    reader = reading(connection)
    for _ in range(9):
        transport.receive(b"x" * 100)
    assert transport.reading
    transport.receive(b"x" * 100)
    assert not transport.reading
    reader.subscription.request(7)
    assert not transport.reading, "three quarters have to be gone first"
    reader.subscription.request(1)
    assert transport.reading
    assert len(reader.got) == 8


def test_many_small_chunks_fill_the_queue_as_well() -> None:
    connection, transport, _ = connected()
    reading(connection)
    for _ in range(MOST_CHUNKS):
        assert transport.reading
        transport.receive(b"x")
    assert not transport.reading


def test_without_read_ahead_nothing_is_read_before_it_is_asked_for() -> None:
    connection, transport, loop = connected(TcpServer.create().read_ahead(0))
    loop.settle()
    assert not transport.reading
    reader = reading(connection)
    assert not transport.reading
    reader.subscription.request(2)
    transport.receive(b"one")
    assert transport.reading
    transport.receive(b"two")
    assert not transport.reading
    assert reader.got == [b"one", b"two"]


def test_the_end_comes_after_everything_that_is_queued() -> None:
    connection, transport, _ = connected()
    reader = reading(connection)
    transport.receive(b"one", b"two")
    transport.peer_ends()
    assert not reader.ended
    reader.subscription.request(1)
    assert reader.got == [b"one"]
    assert not reader.ended
    reader.subscription.request(1)
    assert reader.got == [b"one", b"two"]
    assert reader.completed


def test_a_reset_comes_after_everything_that_is_queued_and_is_never_a_completion() -> None:
    connection, transport, loop = connected()
    reader = reading(connection)
    transport.receive(b"one", b"two")
    transport.peer_resets()
    loop.settle()
    reader.subscription.request(1)
    assert not reader.ended
    reader.subscription.request(1)
    assert reader.got == [b"one", b"two"]
    assert isinstance(reader.error, ConnectionAborted)
    assert not isinstance(reader.error, ReceiveStopped)


def test_a_subscriber_that_comes_after_the_end_still_gets_everything() -> None:
    connection, transport, _ = connected(TcpServer.create().handle(lambda *_: Mono.never()))
    transport.receive(b"one")
    transport.peer_ends()
    reader = reading(connection, demand=10)
    assert reader.got == [b"one"]
    assert reader.completed


def test_a_peer_that_has_closed_its_side_of_an_unused_connection_is_not_waited_for() -> None:
    settings = TcpServer.create().linger(5).handle(lambda *_: Mono.never())
    connection, transport, loop = connected(settings)
    transport.peer_ends()
    loop.pass_time(4.9)
    assert not connection.closed
    loop.pass_time(0.2)
    assert connection.closed


def test_an_echo_pauses_reading_while_the_peer_takes_nothing_back() -> None:
    settings = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
    connection, transport, loop = connected(settings, MemoryTransport(MemoryLoop(), room=0))
    assert connection.output._echo is not None
    received = 0
    while transport.reading:
        transport.receive(b"x" * 5000)
        received += 5000
    assert received <= HIGH_WATER + 5000
    transport.take(received)
    assert transport.reading
    transport.receive(b"the last")
    transport.peer_ends()
    loop.settle()
    assert not connection.closed, "the last bytes have not left"
    transport.take(8)
    loop.settle()
    assert transport.arrived.endswith(b"xthe last")
    assert connection.closed


def test_an_echo_that_is_reset_ends_its_handler_with_an_error() -> None:
    errors: list[BaseException] = []
    settings = TcpServer.create().handle(
        lambda inbound, outbound: outbound.send(inbound.receive()).mono().do_on_error(errors.append)
    )
    connection, transport, loop = connected(settings, MemoryTransport(MemoryLoop(), room=3))
    transport.receive(b"hello")
    transport.peer_resets()
    loop.settle()
    assert connection.closed
    (error,) = errors
    assert isinstance(error, ConnectionAborted)
    assert (error.elements, error.written) == (1, 5)


@given(st.data())
def test_whatever_comes_and_whatever_is_asked_the_chunks_arrive_in_order_and_the_queue_is_bounded(
    data: st.DataObject,
) -> None:
    bound = data.draw(st.sampled_from([0, 1, 100, 5000]))
    connection, transport, loop = connected(TcpServer.create().read_ahead(bound))
    loop.settle()
    reader = reading(connection)
    sent: list[bytes] = []
    for _ in range(data.draw(st.integers(1, 40))):
        if transport.reading and data.draw(st.booleans()):
            sent.append(bytes([len(sent) % 256]) * data.draw(st.integers(1, 3000)))
            transport.receive(sent[-1])
        else:
            reader.subscription.request(data.draw(st.integers(1, 5)))
        assert connection._receiver.waiting < max(bound, 1) + 3000
    if data.draw(st.booleans()):
        transport.peer_ends()
    else:
        transport.peer_resets()
    reader.subscription.request(1000)
    loop.settle()
    assert reader.got == sent
    assert reader.ended

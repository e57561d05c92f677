"""The sender over a transport without a socket: a kernel that takes little, resets, and the end."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.net import ConnectionAborted, ConnectionState, IdleTimeout, TcpServer
from penstock.net.sender import BUDGET, MOST_ELEMENTS
from penstock.net.transport import HIGH_WATER
from penstock.streams import Flux, Mono
from tests.net.memory.subscribers import Reader, Tap
from tests.net.memory.transports import MemoryLoop, MemoryTransport, connected


def test_a_send_completes_with_the_last_byte_that_the_kernel_takes_and_not_before() -> None:
    connection, transport, loop = connected(transport=MemoryTransport(MemoryLoop(), room=0))
    sent = Reader()
    connection.outbound.send(Flux.just(b"one", b"two")).subscribe(sent)
    loop.settle()
    for taken in range(6):
        assert not sent.ended
        assert transport.arrived == b"onetwo"[:taken]
        transport.take(1)
        loop.settle()
    assert sent.completed
    assert transport.arrived == b"onetwo"


def test_a_full_transport_stops_the_demand_until_it_has_room() -> None:
    connection, transport, loop = connected(transport=MemoryTransport(MemoryLoop(), room=0))
    source, sent = Tap(), Reader()
    connection.outbound.send(source).subscribe(sent)
    loop.settle()
    given = 0
    while source.demand:
        given += 1
        source.give(b"x" * 1000)
        loop.settle()
    assert transport.full
    assert HIGH_WATER < given * 1000 <= HIGH_WATER + BUDGET + 1000
    loop.pass_time(3600)
    assert source.demand == 0, "time is no reason to ask for more"
    transport.take(given * 1000 - HIGH_WATER // 4 - 1)
    loop.settle()
    assert source.demand == 0, "three quarters have to be gone first"
    transport.take(1)
    loop.settle()
    assert source.demand > 0


def test_the_demand_follows_the_size_of_the_elements() -> None:
    connection, _, loop = connected()
    source = Tap()
    connection.outbound.send(source).subscribe(Reader())
    loop.settle()
    for _ in range(6):
        source.give(*[b"x"] * source.demand)
        loop.settle()
    assert source.demand == MOST_ELEMENTS
    for _ in range(4):
        source.give(*[b"x" * 40_000] * source.demand)
        loop.settle()
    assert source.demand == BUDGET // 40_000


def test_a_reset_says_what_was_written_and_what_had_not_left() -> None:
    connection, transport, loop = connected(transport=MemoryTransport(MemoryLoop(), room=30_000))
    source, sent = Tap(), Reader()
    connection.outbound.send(source).subscribe(sent)
    loop.settle()
    for _ in range(10):
        source.give(b"x" * 10_000)
        loop.settle()
        if transport.full:
            break
    written = sum(map(len, transport.writes))
    transport.peer_resets()
    loop.settle()
    assert isinstance(sent.error, ConnectionAborted)
    assert (sent.error.elements, sent.error.written) == (written // 10_000, written)
    assert sent.error.unsent == written - 30_000
    assert isinstance(sent.error.__cause__, ConnectionResetError)
    assert source.cancelled


def test_a_reset_between_the_end_of_the_source_and_the_last_byte_is_an_error() -> None:
    connection, transport, loop = connected(transport=MemoryTransport(MemoryLoop(), room=5))
    sent = Reader()
    connection.outbound.send(Flux.just(b"one", b"two")).subscribe(sent)
    loop.settle()
    transport.peer_resets()
    loop.settle()
    assert isinstance(sent.error, ConnectionAborted)
    assert sent.error.unsent >= 1


def test_what_a_source_gave_before_it_failed_still_goes_out() -> None:
    connection, transport, loop = connected(transport=MemoryTransport(MemoryLoop(), room=0))
    sent = Reader()
    source = Flux.just(b"one", b"two").concat_with(Mono.error(LookupError("no third")))
    connection.outbound.send(source).subscribe(sent)
    loop.settle()
    assert isinstance(sent.error, LookupError)
    transport.take(100)
    assert transport.arrived == b"onetwo"


def test_elements_of_one_chunk_leave_as_one_write() -> None:
    handler = TcpServer.create().handle(
        lambda inbound, outbound: outbound.send(
            inbound.receive().flat_map_iterable(lambda chunk: [chunk[i : i + 1] for i in range(len(chunk))])
        )
    )
    _, transport, loop = connected(handler)
    transport.receive(b"ab")
    loop.settle()
    transport.receive(b"cdefg")
    loop.settle()
    assert transport.writes == [b"ab", b"cdefg"]


def test_a_connection_that_feeds_a_full_one_is_held_back_whatever_it_was_asked_for() -> None:
    loop = MemoryLoop()
    _, full, _ = (there := connected(transport=MemoryTransport(loop, room=0)))
    handler = TcpServer.create().handle(
        lambda inbound, outbound: there[0].outbound.send(inbound.receive()).mono()
    )
    source, from_peer, _ = connected(handler, MemoryTransport(loop))
    received = 0
    while from_peer.reading:
        from_peer.receive(b"x" * 4096)
        received += 4096
        loop.settle()
        assert received < 1_000_000, "nobody ever says stop"
    assert len(full.unsent) <= HIGH_WATER + 4096
    assert source._receiver.waiting <= source.settings.read_ahead + 4096
    full.take(1 << 30)
    loop.settle()
    assert from_peer.reading
    assert len(full.arrived) == received


def test_a_stage_that_drops_goes_on_dropping_while_the_transport_is_full() -> None:
    loop = MemoryLoop()
    there, full, _ = connected(transport=MemoryTransport(loop, room=0))
    handler = TcpServer.create().handle(
        lambda inbound, outbound: there.outbound.send(inbound.receive().on_backpressure_drop()).mono()
    )
    _, from_peer, _ = connected(handler, MemoryTransport(loop))
    for _ in range(1000):
        from_peer.receive(b"x" * 4096)
        loop.settle()
    assert from_peer.reading, "it may not be held back: it takes everything, and drops what is too much"
    assert len(full.unsent) <= HIGH_WATER + 3 * 4096


@given(
    st.lists(st.binary(min_size=1, max_size=40_000), min_size=1, max_size=30),
    st.lists(st.integers(min_value=1, max_value=50_000), min_size=1, max_size=60),
)
def test_whatever_the_kernel_takes_at_a_time_every_byte_arrives_in_order(
    elements: list[bytes], takes: list[int]
) -> None:
    connection, transport, loop = connected(transport=MemoryTransport(MemoryLoop(), room=0))
    sent = Reader()
    connection.outbound.send(Flux.from_iterable(elements)).subscribe(sent)
    loop.settle()
    for size in takes:
        transport.take(size)
        loop.turn()
        assert len(transport.unsent) <= HIGH_WATER + BUDGET + 2 * 40_000
    assert not sent.error
    transport.take(1 << 30)
    loop.settle()
    for _ in elements:
        loop.settle()
    assert sent.completed
    assert transport.arrived == b"".join(elements)


def test_a_write_timeout_spares_a_peer_that_takes_a_little_and_not_one_that_takes_nothing() -> None:
    states: list[ConnectionState] = []
    settings = TcpServer.create().write_timeout(3600).observe(lambda _, state: states.append(state))
    connection, transport, loop = connected(settings, MemoryTransport(MemoryLoop(), room=0))
    loop.pass_time(10_000)
    assert not connection.closed, "there was nothing to take"
    sent = Reader()
    connection.outbound.send(b"somebody there?").subscribe(sent)
    for _ in range(10):
        loop.pass_time(3000)
        transport.take(1)
    assert not connection.closed
    loop.pass_time(3600 * 1.25)
    assert connection.closed
    assert states[-1] is ConnectionState.DISCONNECTING
    assert isinstance(sent.error, ConnectionAborted)
    assert isinstance(sent.error.__cause__, IdleTimeout)


@pytest.mark.parametrize("linger", [0.0, 2.0])
def test_a_handler_that_is_done_ends_its_side_and_waits_for_the_peer_as_long_as_it_lingers(
    linger: float,
) -> None:
    settings = TcpServer.create().linger(linger).handle(lambda _, outbound: outbound.send(b"bye"))
    connection, transport, loop = connected(settings)
    loop.settle()
    assert transport.arrived == b"bye"
    if linger:
        assert transport.ended
        assert not connection.closed
        transport.receive(b"what", b"ever")
        loop.pass_time(linger - 0.1)
        assert not connection.closed
        loop.pass_time(0.1)
    assert connection.closed


@pytest.mark.parametrize("linger", [0.0, 2.0])
def test_bytes_that_were_awaited_leave_before_a_close_begins_to_linger(linger: float) -> None:
    """The coroutine has gone on, although the kernel had no room: only the close can wait for these bytes."""
    settings = TcpServer.create().linger(linger)
    connection, transport, loop = connected(settings, MemoryTransport(MemoryLoop(), room=3))
    for data in (b"first", b"second"):
        assert not list(connection.outbound.send(data).__await__())
    connection.close()
    loop.pass_time(60)
    assert connection.busy
    assert not connection.closed
    transport.take(8)
    assert transport.arrived == b"firstsecond"
    loop.settle()
    assert not connection.busy
    loop.pass_time(linger)
    assert connection.closed
    assert not transport.cut


def test_a_close_lingers_on_while_the_peer_still_takes_what_was_sent() -> None:
    """On a slow line. If the socket is closed and the peer still sends, what is on its way is lost."""
    settings = TcpServer.create().linger(2).handle(lambda _, outbound: outbound.send(b"a long answer"))
    connection, transport, loop = connected(settings)
    for transport.on_the_way in (3000, 2000, 1000):
        loop.pass_time(2)
        transport.receive(b"and so on")
        assert not connection.closed
    loop.pass_time(2)  # The peer has taken nothing more.
    assert connection.closed


def test_a_close_does_not_linger_for_ever_for_a_peer_that_takes_a_byte_at_a_time() -> None:
    settings = TcpServer.create().linger(2).handle(lambda _, outbound: outbound.send(b"a long answer"))
    connection, transport, loop = connected(settings)
    passed = 0
    for transport.on_the_way in range(10_000, 0, -1):
        loop.pass_time(2)
        passed += 2
        if connection.closed:
            break
    assert passed == 2 * 600


def test_a_close_that_cannot_flush_is_cut_with_a_reset() -> None:
    """Bytes are missing, so the peer must not take this for the end."""
    connection, transport, loop = connected(None, MemoryTransport(MemoryLoop(), room=3))
    assert not list(connection.outbound.send(b"first").__await__())
    connection.close()
    connection.abort()
    loop.settle()
    assert transport.cut


def test_a_close_that_cannot_flush_is_bounded_by_the_write_timeout() -> None:
    settings = TcpServer.create().write_timeout(60)
    connection, _, loop = connected(settings, MemoryTransport(MemoryLoop(), room=3))
    assert not list(connection.outbound.send(b"first").__await__())
    connection.close()
    loop.pass_time(50)
    assert not connection.closed
    loop.pass_time(60)
    assert connection.closed


def test_an_echo_that_is_cancelled_while_the_socket_is_full_leaves_it_full_for_the_next_send() -> None:
    connection, transport, loop = connected(None, MemoryTransport(MemoryLoop(), room=3))
    echo = Reader()
    connection.outbound.send(connection.inbound.receive()).subscribe(echo)
    transport.receive(bytes(2 * HIGH_WATER))
    assert not transport.reading
    echo.subscription.cancel()
    loop.settle()
    assert connection.output.sent_at_once(b"more") is None
    transport.take(2 * HIGH_WATER)
    assert connection.output.sent_at_once(b"more")


def test_an_idle_connection_is_closed_with_an_error_for_its_reader() -> None:
    connection, transport, loop = connected(TcpServer.create().idle_timeout(60))
    reader = Reader(demand=10)
    connection.inbound.receive().subscribe(reader)
    for _ in range(10):
        loop.pass_time(59)
        transport.receive(b"still here")
    loop.pass_time(60 * 1.25)
    assert connection.closed
    assert isinstance(reader.error, IdleTimeout)


def test_a_send_and_a_wait_fail_on_another_thread_once_the_event_loop_is_closed() -> None:
    connection, transport, loop = connected()
    loop.close()
    sent, waiting = Reader(), Reader()

    def use() -> None:
        connection.outbound.send(Flux.just(b"one")).subscribe(sent)
        connection.on_dispose().subscribe(waiting)

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    for reader in (sent, waiting):
        assert isinstance(reader.error, ConnectionAborted)
        assert "event loop of this connection is closed" in str(reader.error)
    assert transport.writes == []

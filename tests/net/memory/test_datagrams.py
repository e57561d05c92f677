"""The datagram sender and receiver without a socket: full buffers, refusals, and a pace on a test's clock."""

from __future__ import annotations

import errno
import threading

import pytest

from penstock.net import Address, ConnectionAborted, Datagram, DatagramTooLarge, SendRefused
from penstock.net.metrics import UdpCounters
from penstock.net.udp.datagram import OverflowSettings
from penstock.net.udp.receiver import DatagramReceiver
from penstock.net.udp.sender import MOST_DATAGRAMS, DatagramSender
from penstock.token_bucket import TokenBucket
from tests.net.memory.subscribers import Reader, Tap
from tests.net.memory.transports import MemoryDatagrams, MemoryLoop

PEER: Address = ("192.0.2.7", 9)


class Owner:
    """Stands in for a channel."""

    label = "[test]"

    def __init__(self) -> None:
        self.counts = UdpCounters()
        self.peer: Address | None = PEER
        self.broke: OSError | None = None

    def network_said(self, error: OSError) -> bool:
        return error.errno in (errno.ECONNREFUSED, errno.EHOSTUNREACH)

    def broken(self, error: OSError) -> None:
        self.broke = error


class Sending:
    """A send under way."""

    def __init__(self, pace: TokenBucket | None = None) -> None:
        self.loop = MemoryLoop()
        self.transport = MemoryDatagrams(self.loop)
        self.owner = Owner()
        self.outcomes: list[BaseException | None] = []
        self.source = Tap()
        self.sender = DatagramSender(self.owner, self.transport, pace, None, self.outcomes.append)
        self.source.subscribe(self.sender)

    def end(self) -> None:
        self.source.subscriber.on_complete()


def test_a_full_socket_keeps_what_was_asked_for_and_asks_for_no_more() -> None:
    sending = Sending()
    sending.transport.answers.append(errno.EAGAIN)
    assert sending.source.demand == MOST_DATAGRAMS
    sending.source.give(*[b"%d" % n for n in range(MOST_DATAGRAMS)])
    sending.loop.settle()
    assert sending.transport.sent == []
    assert sending.source.demand == 0
    assert sending.transport.writable is not None
    sending.transport.writable()
    assert sending.transport.sent == [b"%d" % n for n in range(MOST_DATAGRAMS)]
    assert sending.source.demand == MOST_DATAGRAMS
    assert sending.transport.writable is None


def test_the_end_waits_for_the_last_datagram() -> None:
    sending = Sending()
    sending.transport.answers.append(errno.EAGAIN)
    sending.source.give(b"last")
    sending.end()
    assert sending.outcomes == []
    assert sending.transport.writable is not None
    sending.transport.writable()
    assert sending.outcomes == [None]


def test_a_full_queue_of_the_interface_is_tried_again_a_little_later() -> None:
    sending = Sending()
    sending.transport.answers.extend([errno.ENOBUFS, errno.ENOBUFS])
    sending.source.give(b"one")
    for _ in range(2):
        assert sending.transport.sent == []
        sending.loop.pass_time(0.002)
    assert sending.transport.sent == [b"one"]


def test_the_refusal_of_an_earlier_datagram_does_not_cost_this_one() -> None:
    sending = Sending()
    sending.transport.answers.append(errno.ECONNREFUSED)
    sending.source.give(b"one")
    assert sending.transport.sent == [b"one"]
    assert sending.owner.counts.unsent == 0


def test_a_datagram_that_cannot_reach_its_address_is_counted_and_the_next_one_follows() -> None:
    sending = Sending()
    sending.transport.answers.extend([errno.EHOSTUNREACH] * 4)
    sending.source.give(b"lost", b"next")
    assert sending.transport.sent == [b"next"]
    assert (sending.owner.counts.unsent, sending.owner.counts.sent) == (1, 1)
    assert sending.outcomes == []


@pytest.mark.parametrize(("answer", "kind"), [(errno.EMSGSIZE, DatagramTooLarge), (errno.EPERM, SendRefused)])
def test_what_the_system_never_takes_ends_the_send(answer: int, kind: type[Exception]) -> None:
    sending = Sending()
    sending.transport.answers.append(answer)
    sending.transport.socket = type("Socket", (), {"family": 2, "getsockopt": lambda *_: 1500})()
    sending.source.give(b"one")
    (outcome,) = sending.outcomes
    assert isinstance(outcome, kind)
    assert sending.source.cancelled


def test_a_close_says_what_was_not_sent() -> None:
    sending = Sending()
    sending.source.give(b"one", b"two")
    sending.transport.answers.append(errno.EAGAIN)
    sending.source.give(b"three", b"four")
    sending.sender.lost("the socket was closed")
    (outcome,) = sending.outcomes
    assert isinstance(outcome, ConnectionAborted)
    assert (outcome.elements, outcome.unsent) == (2, len(b"threefour"))


def test_a_pace_is_kept_to_the_millisecond_on_the_clock_of_the_test() -> None:
    sending = Sending(TokenBucket(10, burst=1, now=0.0))
    sending.source.give(*[b"x"] * 20)
    for tenth in range(1, 11):
        assert len(sending.transport.sent) == tenth
        sending.loop.pass_time(0.1001)
    assert 20 - len(sending.transport.sent) > 0


def test_bytes_from_another_thread_are_those_of_the_moment_they_were_sent() -> None:
    sending = Sending()
    data = bytearray(b"before")
    thread = threading.Thread(target=sending.source.give, args=(data,))
    thread.start()
    thread.join()
    data[:] = b"after!"
    sending.loop.settle()
    assert sending.transport.sent == [b"before"]


def received(owner: Owner, transport: MemoryDatagrams, demand: int) -> tuple[DatagramReceiver, Reader]:
    receiver = DatagramReceiver(owner, transport, OverflowSettings(), None)
    receiver.open()
    reader = Reader(demand)
    receiver.subscribe(reader)
    return receiver, reader


def test_a_refusal_between_two_datagrams_is_not_the_end() -> None:
    owner, transport = Owner(), MemoryDatagrams(MemoryLoop())
    _, reader = received(owner, transport, 10)
    transport.incoming.extend([b"one", errno.ECONNREFUSED, b"two"])
    assert transport.readable is not None
    transport.readable()
    assert reader.got == [Datagram(b"one", PEER), Datagram(b"two", PEER)]
    assert not reader.ended


def test_a_socket_that_breaks_is_told_to_its_owner() -> None:
    owner, transport = Owner(), MemoryDatagrams(MemoryLoop())
    _, reader = received(owner, transport, 10)
    transport.incoming.extend([b"one", errno.EBADF])
    assert transport.readable is not None
    transport.readable()
    assert reader.got == [Datagram(b"one", PEER)]
    assert owner.broke is not None
    assert owner.broke.errno == errno.EBADF


def test_an_event_without_a_datagram_renews_the_watch() -> None:
    owner, transport = Owner(), MemoryDatagrams(MemoryLoop())
    received(owner, transport, 1)
    assert transport.readable is not None
    transport.readable()
    assert transport.renewed == 1

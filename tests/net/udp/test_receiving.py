"""What becomes of datagrams when nobody asks for them: every policy, and every figure."""

from __future__ import annotations

import socket
import sys
from typing import Any

import pytest

from penstock.net import DatagramOverflow, UdpChannel, UdpOverflow, UdpServer
from penstock.net.metrics import kernel_dropped
from penstock.spec import Subscription
from penstock.streams import on_dropped
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.udp.waiting import until

on_each_loop = pytest.mark.parametrize("kind", LOOPS)


def send_numbers(channel: UdpChannel, count: int, size: int = 0) -> None:
    """From a socket that is none of ours, and without a turn of the loop in between."""
    with socket.socket(channel.socket.family, socket.SOCK_DGRAM) as sender:
        for number in range(count):
            sender.sendto((b"%d" % number).ljust(size), channel.address)


class Slow:
    """Asks for as many as it is told to, and keeps what it gets."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.ended: BaseException | bool = False
        self.subscription: Any = None

    def on_subscribe(self, subscription: Subscription) -> None:
        self.subscription = subscription

    def on_next(self, datagram: Any) -> None:
        self.taken.append(int(datagram.data))

    def on_error(self, error: BaseException) -> None:
        self.ended = error

    def on_complete(self) -> None:
        self.ended = True


@on_each_loop
@pytest.mark.parametrize(
    ("policy", "capacity", "kept"),
    [
        (UdpOverflow.DROP_NEWEST, 3, [2, 3, 4]),
        (UdpOverflow.DROP_OLDEST, 3, [7, 8, 9]),
        (UdpOverflow.LATEST, None, [9]),
    ],
)
def test_what_is_kept(kind: str, policy: UdpOverflow, capacity: int | None, kept: list[int]) -> None:
    async def main() -> None:
        async with await UdpServer.create().overflow(policy, capacity=capacity).bind() as server:
            slow = Slow()
            server.inbound.receive().subscribe(slow)
            slow.subscription.request(2)
            send_numbers(server, 10)
            await until(lambda: server.counts.received == 10)
            assert slow.taken == [0, 1]
            assert server.metrics.dropped == 8 - len(kept)
            slow.subscription.request(100)
            assert slow.taken == [0, 1, *kept]
        assert slow.ended is True
        assert server.metrics.dropped == 8 - len(kept)

    run_on(kind, main())


@on_each_loop
def test_what_comes_before_the_subscriber_waits_for_it(kind: str) -> None:
    async def main() -> None:
        async with await UdpServer.create().overflow(UdpOverflow.DROP_NEWEST, capacity=4).bind() as server:
            send_numbers(server, 6)
            await until(lambda: server.counts.received == 6)
            received = await server.inbound.receive().take(4).collect_list()
            assert [datagram.data for datagram in received] == [b"0", b"1", b"2", b"3"]
            assert server.metrics.dropped == 2

    run_on(kind, main())


@on_each_loop
def test_an_overflow_that_is_an_error_comes_after_what_waited(kind: str) -> None:
    async def main() -> None:
        async with await UdpServer.create().overflow(UdpOverflow.ERROR, capacity=3).bind() as server:
            slow = Slow()
            server.inbound.receive().subscribe(slow)
            send_numbers(server, 10)
            await until(lambda: server.metrics.dropped)
            slow.subscription.request(2)
            assert (slow.taken, slow.ended) == ([0, 1], False)
            slow.subscription.request(1)
            assert slow.taken == [0, 1, 2]
            assert isinstance(slow.ended, DatagramOverflow)
            assert "found 3 waiting and no demand" in str(slow.ended)

    run_on(kind, main())


@on_each_loop
def test_demand_that_is_there_drops_nothing(kind: str) -> None:
    async def main() -> None:
        settings = UdpServer.create().overflow(UdpOverflow.ERROR, capacity=1)
        async with await settings.bind() as server:
            slow = Slow()
            server.inbound.receive().subscribe(slow)
            slow.subscription.request(200)
            send_numbers(server, 200)
            await until(lambda: len(slow.taken) == 200)
            assert slow.taken == list(range(200))
            assert server.metrics.dropped == 0

    run_on(kind, main())


@on_each_loop
def test_a_subscriber_that_raises_is_gone_and_the_socket_is_read_no_more(kind: str) -> None:
    class Raises(Slow):
        def on_next(self, datagram: Any) -> None:
            raise ArithmeticError("not today")

    async def main() -> None:
        dropped: list[BaseException] = []
        async with await UdpServer.create().bind() as server:
            raising = Raises()
            with on_dropped(error=lambda error, where: dropped.append(error)):
                server.inbound.receive().subscribe(raising)
                raising.subscription.request(5)
                send_numbers(server, 3)
                await until(lambda: dropped)
            assert server.counts.received == 1
            assert raising.ended is False

    run_on(kind, main())


@on_each_loop
def test_a_close_in_the_middle_of_an_element_ends_the_stream_after_it(kind: str) -> None:
    class Closes(Slow):
        def on_next(self, datagram: Any) -> None:
            server.close()
            assert self.ended is False
            super().on_next(datagram)

    server: UdpChannel

    async def main() -> None:
        nonlocal server
        server = await UdpServer.create().bind()
        closes = Closes()
        server.inbound.receive().subscribe(closes)
        closes.subscription.request(5)
        send_numbers(server, 3)
        await until(lambda: closes.ended)
        assert (closes.taken, closes.ended) == ([0], True)
        assert server.closed

    run_on(kind, main())


@on_each_loop
@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_what_the_system_drops_is_told_to_the_datagram(kind: str, host: str) -> None:
    """Nothing is lost without being counted: what was read and what was dropped make what was sent."""

    async def main() -> None:
        settings = UdpServer.create().host(host).option("SO_RCVBUF", 16_384)
        async with await settings.overflow(UdpOverflow.DROP_NEWEST, capacity=1_000).bind() as server:
            send_numbers(server, 500, size=1_000)
            lost = server.metrics.kernel_dropped
            assert lost
            assert 0 < lost < 500
            await until(lambda: server.counts.received + lost >= 500)
            assert server.counts.received + lost == 500
            assert server.metrics.as_dict("gate")["gate.kernel.dropped"] == lost
        assert server.metrics.kernel_dropped == lost

    run_on(kind, main())


def test_where_the_system_does_not_tell_the_figure_is_left_out() -> None:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with one, other:
        assert kernel_dropped(one) is None


@pytest.mark.parametrize(
    ("capacity", "error", "text"),
    [
        (0, ValueError, "at least 1"),
        (-1, ValueError, "at least 1"),
        (1.5, TypeError, "whole number"),
        (True, TypeError, "whole number"),
    ],
)
def test_a_capacity_is_at_least_one(capacity: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=rf"capacity of overflow\(\) needs a .*{text}"):
        UdpServer.create().overflow(UdpOverflow.DROP_OLDEST, capacity=capacity)


def test_policies_are_named_and_the_latest_is_one() -> None:
    with pytest.raises(TypeError, match=r"UdpOverflow\.DROP_OLDEST"):
        UdpServer.create().overflow("latest")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="LATEST keeps one"):
        UdpServer.create().overflow(UdpOverflow.LATEST, capacity=2)

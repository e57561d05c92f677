"""What can be sent and what cannot; a full socket, a refusing network, and a pace."""

from __future__ import annotations

import asyncio
import errno
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.net import (
    ConnectionAborted,
    Datagram,
    DatagramTooLarge,
    SendRefused,
    UdpChannel,
    UdpClient,
    UdpServer,
    UdpSettings,
)
from penstock.net.udp.sender import MOST_DATAGRAMS
from penstock.streams import Flux, schedulers
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.udp.waiting import LONG, begun, turns, until

on_each_loop = pytest.mark.parametrize("kind", LOOPS)


def numbers(count: int) -> Flux[bytes]:
    return Flux.range(count).map(lambda number: b"%d" % number)


# -------------------------------------------------------------------- a full socket
class Watched(socket.socket):
    """A socket that remembers whether it was ever full."""

    refused = False

    def send(self, data: Any, flags: int = 0, /) -> int:
        try:
            return super().send(data, flags)
        except BlockingIOError:
            self.refused = True
            raise


@contextmanager
def narrow_socket() -> Iterator[tuple[UdpChannel, socket.socket, Callable[[], bool]]]:
    """A channel whose socket fills up. UDP over the loopback never does: the receiver's buffer drops.

    A pair of local datagram sockets is the same to the sender, and takes no more than its peer has room for.
    Also the other end, and whether it is full.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        watched = Watched(fileno=ours.detach())
        yield UdpChannel(UdpSettings(), watched, ("pair", 1)), theirs, lambda: watched.refused


def read_all(theirs: socket.socket) -> list[bytes]:
    got = []
    while True:
        try:
            got.append(theirs.recv(65_536))
        except BlockingIOError:
            return got


@on_each_loop
@pytest.mark.parametrize("threaded", [False, True])
def test_a_full_socket_stops_the_demand_and_loses_nothing(kind: str, threaded: bool) -> None:
    async def main() -> None:
        made = 0

        def counted(data: bytes) -> bytes:
            nonlocal made
            made += 1
            return data

        with narrow_socket() as (channel, theirs, full):
            async with channel:
                source = numbers(3_000).map(counted)
                if threaded:
                    source = source.publish_on(schedulers.shared_pool(), prefetch=8)
                sending = begun(channel.outbound.send(source))
                await until(full)
                taken = channel.counts.sent
                await turns(200)
                assert channel.counts.sent == taken < 3_000 - MOST_DATAGRAMS
                assert made <= taken + MOST_DATAGRAMS + 16
                assert not sending.done()
                got: list[bytes] = []
                while not sending.done():
                    got += read_all(theirs)
                    await asyncio.sleep(0)
                await sending
                got += read_all(theirs)
                assert got == [b"%d" % number for number in range(3_000)]

    run_on(kind, main())


@on_each_loop
def test_a_close_in_the_middle_is_an_error_with_what_was_unsent(kind: str) -> None:
    async def main() -> None:
        with narrow_socket() as (channel, theirs, full):
            sending = begun(channel.outbound.send(numbers(3_000)))
            await until(full)
            await turns(200)
            await channel.aclose()
            with pytest.raises(ConnectionAborted, match="had not") as caught:
                await sending
            assert caught.value.elements == channel.counts.sent == len(read_all(theirs))
            assert caught.value.unsent > 0

    run_on(kind, main())


@on_each_loop
def test_whoever_cancels_a_send_stops_its_source(kind: str) -> None:
    async def main() -> None:
        cancelled = asyncio.Event()
        with narrow_socket() as (channel, _, _):
            async with channel:
                sending = begun(channel.outbound.send(numbers(3_000).do_on_cancel(cancelled.set)))
                await until(lambda: channel.counts.sent)
                sending.cancel()
                await asyncio.gather(sending, return_exceptions=True)
                await asyncio.wait_for(cancelled.wait(), 30)

    run_on(kind, main())


# -------------------------------------------------------------------- a network that refuses
def port_of_nobody() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as gone:
        gone.bind(("127.0.0.1", 0))
        return int(gone.getsockname()[1])


@on_each_loop
def test_a_refusal_ends_neither_side(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The same two streams go on when somebody is there at last."""
    caplog.set_level("INFO", "penstock.net")

    async def main() -> None:
        port = port_of_nobody()
        async with await UdpClient.create().port(port).connect() as client:
            receiving = begun(client.inbound.receive().take(3).collect_list())
            # The reader hears of it: nothing more is sent until it has.
            for heard in (1, 2, 3):
                await client.outbound.send(b"anybody?")
                await until(lambda heard=heard: client.counts.refused == heard)
            # The sender hears of it: each datagram meets the refusal of the one before.
            await client.outbound.send(numbers(100))
            assert client.metrics.datagrams_sent == 103
            assert client.metrics.refused > 3
            assert client.metrics.unsent == 0
            echo = (
                UdpServer.create()
                .port(port)
                .handle(lambda inbound, outbound: outbound.send(inbound.receive()))
            )
            async with await echo.bind():
                await client.outbound.send(numbers(3))
                got = [datagram.data for datagram in await asyncio.wait_for(receiving, 30)]
                assert got == [b"0", b"1", b"2"]

    run_on(kind, main())
    told = [record for record in caplog.records if "Connection refused" in record.getMessage()]
    assert len(told) == 1, "told once, counted after that"


@on_each_loop
def test_a_refusal_ends_no_send_that_is_under_way(kind: str) -> None:
    async def main() -> None:
        async with await UdpClient.create().port(port_of_nobody()).connect() as client:
            paced = numbers(50).publish_on(schedulers.shared_pool(), prefetch=1)
            await client.outbound.send(paced)
            assert client.metrics.datagrams_sent == 50
            await until(lambda: client.counts.refused)

    run_on(kind, main())


@on_each_loop
def test_a_refused_socket_leaves_nothing_to_the_next_one_with_its_number(kind: str) -> None:
    """uvloop ends its watch when it hears of a refusal; the next socket has the same descriptor."""

    async def main() -> None:
        port = port_of_nobody()
        echo = UdpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
        async with await echo.bind() as server:

            async def had_the_same_number(turns_before_the_close: int) -> bool:
                async with await UdpClient.create().port(port).connect() as refused:
                    number = refused.socket.fileno()
                    await refused.outbound.send(b"anybody?")
                    await turns(turns_before_the_close)
                async with await UdpClient.create().port(server.port).connect() as client:
                    await client.outbound.send(b"you?")
                    assert (
                        await asyncio.wait_for(begun(client.inbound.receive().first()), LONG)
                    ).data == b"you?"
                    return client.socket.fileno() == number

            for turns_before_the_close in range(8):
                async with asyncio.timeout(LONG):
                    # Another thread of the process may take the number in between.
                    while not await had_the_same_number(turns_before_the_close):
                        pass

    run_on(kind, main())


def address_without_a_way() -> tuple[Any, ...]:
    """A group that the loopback does not carry, as is usual; a machine may be set up so that it does."""
    with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as probe:
        probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("lo"))
        try:
            probe.sendto(b"", ("ff12::7703", 9))
        except OSError as error:
            if error.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH):
                return ("ff12::7703", 9)
            raise
    pytest.skip("the loopback of this machine carries groups, so that there is a way")


@on_each_loop
def test_a_datagram_without_a_way_is_counted_and_the_others_go(kind: str) -> None:
    nowhere = address_without_a_way()

    async def main() -> None:
        server = UdpServer.create().host("::").multicast(interface="lo")
        async with await server.bind() as one, await UdpServer.create().host("::1").bind() as other:
            await one.outbound.send(
                Flux.from_iterable([Datagram(b"lost", nowhere), Datagram(b"there", other.address)])
            )
            assert (await other.inbound.receive().first()).data == b"there"
            assert (one.metrics.unsent, one.metrics.datagrams_sent) == (1, 1)

    run_on(kind, main())


# -------------------------------------------------------------------- what cannot be sent
@on_each_loop
@pytest.mark.parametrize(("host", "limit"), [("127.0.0.1", 65_507), ("::1", 65_527)])
def test_a_datagram_that_is_too_large_ends_its_send_and_no_other(kind: str, host: str, limit: int) -> None:
    async def main() -> None:
        async with (
            await UdpServer.create().host(host).option("SO_RCVBUF", 1_000_000).bind() as server,
            await UdpClient.create().host(host).port(server.port).connect() as client,
        ):
            with pytest.raises(
                DatagramTooLarge, match=rf"{limit + 1:,} bytes .*{limit:,} is the most"
            ) as caught:
                await client.outbound.send(Flux.from_iterable([b"before", b"x" * (limit + 1), b"after"]))
            assert (caught.value.size, caught.value.limit) == (limit + 1, limit)
            await client.outbound.send(b"y" * limit)
            received = await server.inbound.receive().take(2).collect_list()
            assert [len(datagram.data) for datagram in received] == [6, limit]

    run_on(kind, main())


@on_each_loop
@pytest.mark.skipif(sys.platform != "linux", reason="the loopback of other systems has another MTU")
def test_a_datagram_that_the_way_does_not_carry_says_how_much_it_does(kind: str) -> None:
    """The loopback carries packets of 64 KiB, the largest datagram of IPv6 is a little larger."""

    async def main() -> None:
        client = UdpClient.create().host("::1").option("IPV6_DONTFRAG", 1)
        async with (
            await UdpServer.create().host("::1").bind() as server,
            await client.port(server.port).connect() as connected,
        ):
            with pytest.raises(DatagramTooLarge, match=r"65,527 bytes .*65,488 is the most") as caught:
                await connected.outbound.send(b"x" * 65_527)
            assert (caught.value.size, caught.value.limit) == (65_527, 65_488)
            await connected.outbound.send(b"x" * 65_488)
            assert len((await server.inbound.receive().first()).data) == 65_488

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize(
    ("element", "says"),
    [
        (b"bytes", "without an address"),
        (Datagram(b"x", ("localhost", 9)), "'localhost' is a name"),
        (Datagram(b"x", ("127.0.0.1", 0)), "not an address"),
        (Datagram(b"x", ("127.0.0.1",)), "not an address"),
        (Datagram("text", ("127.0.0.1", 9)), "not bytes"),  # type: ignore[arg-type]
        (Datagram(b"x", ("::1", 9)), "was not accepted"),
        (Datagram(b"x", ("255.255.255.255", 9)), "SO_BROADCAST"),
        (42, "not a datagram"),
    ],
)
def test_what_cannot_be_sent_is_refused_with_a_reason(kind: str, element: Any, says: str) -> None:
    async def main() -> None:
        async with await UdpServer.create().host("0.0.0.0").bind() as server:
            with pytest.raises(SendRefused, match=says):
                await server.outbound.send(Flux.from_iterable([element]))
            assert server.metrics.datagrams_sent == 0

    run_on(kind, main())


@on_each_loop
def test_a_connected_socket_sends_to_its_peer_alone(kind: str) -> None:
    async def main() -> None:
        async with await UdpClient.create().port(9).connect() as client:
            with pytest.raises(SendRefused, match="is connected"):
                await client.outbound.send(Datagram(b"x", ("127.0.0.1", 10)))

    run_on(kind, main())


@on_each_loop
def test_the_error_of_the_source_comes_after_what_it_gave(kind: str) -> None:
    async def main() -> None:
        async with (
            await UdpServer.create().bind() as server,
            await UdpClient.create().port(server.port).connect() as client,
        ):
            failing = Flux.concat(numbers(2), Flux.error(ArithmeticError))
            with pytest.raises(ArithmeticError):
                await client.outbound.send(failing)
            assert len(await server.inbound.receive().take(2).collect_list()) == 2

    run_on(kind, main())


# -------------------------------------------------------------------- pace
@on_each_loop
def test_no_more_is_sent_than_the_pace_allows(kind: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        settings = UdpClient.create().pace(500, burst=5)
        async with (
            await UdpServer.create().bind() as server,
            await settings.port(server.port).connect() as client,
        ):
            start = loop.time()
            sending = begun(client.outbound.send(numbers(55)))
            while not sending.done():
                await asyncio.sleep(0)
                assert client.counts.sent <= 5 + (loop.time() - start) * 500 + 1
            await sending
            assert loop.time() - start >= 0.095
            assert client.metrics.datagrams_sent == 55

    run_on(kind, main())


@pytest.mark.parametrize(
    ("rate", "error", "text"),
    [
        (0, ValueError, "above 0"),
        (-1, ValueError, "above 0"),
        ("fast", TypeError, "number"),
        (True, TypeError, "number"),
    ],
)
def test_a_pace_is_a_number_above_zero(rate: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=rf"pace\(\) needs a .*{text}"):
        UdpClient.create().pace(rate)

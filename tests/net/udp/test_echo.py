"""A UDP server and a client of it, on both kinds of event loop, and from threads."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
from typing import Any

import pytest

from penstock.net import (
    BindFailed,
    ConnectFailed,
    ConnectionAborted,
    ConnectionState,
    Datagram,
    ReceiverTaken,
    SendRefused,
    UdpChannel,
    UdpClient,
    UdpServer,
    WiretapFormat,
)
from penstock.streams import Flux, Mono
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.udp.waiting import begun, until

on_each_loop = pytest.mark.parametrize("kind", LOOPS)

ECHO = UdpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))


def answers(channel: UdpChannel, count: int) -> Mono[list[bytes]]:
    return channel.inbound.receive().take(count).map(lambda datagram: datagram.data).collect_list()


@on_each_loop
def test_what_is_sent_comes_back(kind: str) -> None:
    async def main() -> None:
        async with (
            await ECHO.bind() as server,
            await UdpClient.create().port(server.port).connect() as client,
        ):
            sent = [b"", b"one", b"x" * 60_000]
            await client.outbound.send(Flux.from_iterable(sent))
            assert await answers(client, 3) == sent
            assert server.metrics.datagrams_received == server.metrics.datagrams_sent == 3

    run_on(kind, main())


@on_each_loop
def test_it_speaks_ipv6_and_looks_names_up(kind: str) -> None:
    async def main() -> None:
        async with (
            await ECHO.host("::1").bind() as server,
            await UdpClient.create().host("::1").port(server.port).connect() as client,
        ):
            await client.outbound.send(b"six")
            received = await client.inbound.receive().first()
            assert received == Datagram(b"six", client.peer or ())
            assert server.label.endswith(f"L:[::1]:{server.port} - R:*]")

        async with (
            await ECHO.host("localhost").bind() as server,
            await UdpClient.create().host("localhost").port(server.port).connect() as client,
        ):
            await client.outbound.send(b"by name")
            assert await answers(client, 1) == [b"by name"]

    run_on(kind, main())


@on_each_loop
def test_a_reply_goes_to_whoever_asked(kind: str) -> None:
    def shout(inbound: Any, outbound: Any) -> Any:
        return outbound.send(inbound.receive().map(lambda asked: asked.reply(asked.data.upper())))

    async def main() -> None:
        async with await UdpServer.create().handle(shout).bind() as server:
            to_server = UdpClient.create().port(server.port)
            async with await to_server.connect() as one, await to_server.connect() as other:
                await one.outbound.send(b"one")
                await other.outbound.send(b"other")
                assert await answers(one, 1) == [b"ONE"]
                assert await answers(other, 1) == [b"OTHER"]

    run_on(kind, main())


@on_each_loop
def test_a_sequence_of_sends_goes_in_order_and_objects_are_encoded(kind: str) -> None:
    async def main() -> None:
        async with await UdpServer.create().bind() as server:
            settings = UdpClient.create().port(server.port).encoder(lambda number: b"%d" % number)
            async with await settings.connect() as client:
                await (
                    client.outbound.send(b"first")
                    .send_object(2)
                    .send_object(Flux.range(2))
                    .send(Datagram(b"last", client.peer or ()))
                )
                assert await answers(server, 5) == [b"first", b"2", b"0", b"1", b"last"]

    run_on(kind, main())


@on_each_loop
def test_a_source_that_never_waits_lets_others_have_their_turn(kind: str) -> None:
    async def main() -> None:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async with (
            await UdpServer.create().bind() as server,
            await UdpClient.create().port(server.port).connect() as client,
        ):
            beside = asyncio.ensure_future(other())
            await client.outbound.send(Flux.range(2_000).map(lambda number: b"%d" % number))
            beside.cancel()
            await asyncio.gather(beside, return_exceptions=True)
            assert client.metrics.datagrams_sent == 2_000
        assert turns >= 2_000 // 64

    run_on(kind, main())


def test_from_threads_without_a_loop() -> None:
    with ECHO.bind_now() as server, UdpClient.create().port(server.port).connect_now() as client:
        received = client.inbound.receive().take(2).collect_list()
        client.outbound.send(Flux.from_iterable([b"1", b"2"])).mono().block(10)
        assert [datagram.data for datagram in received.block(10)] == [b"1", b"2"]
    assert server.closed
    assert client.closed
    server.on_dispose().block(10)


@on_each_loop
def test_there_is_one_receiver_and_one_send_at_a_time(kind: str) -> None:
    async def main() -> None:
        async with await UdpServer.create().bind() as server:
            first = begun(server.inbound.receive().take(1).collect_list())
            await asyncio.sleep(0)
            with pytest.raises(ReceiverTaken, match=r"already received by .*share"):
                await server.inbound.receive().first()
            async with await UdpClient.create().port(server.port).connect() as client:
                open_end = begun(client.outbound.send(Flux.concat(Mono.just(b"x"), Mono.never())))
                assert [datagram.data for datagram in await first] == [b"x"]
                with pytest.raises(SendRefused, match="another send is under way"):
                    await client.outbound.send(b"y")
                await client.aclose()
                with pytest.raises(ConnectionAborted, match="1 datagrams had gone, 0 with 0 bytes had not"):
                    await open_end
                with pytest.raises(ConnectionAborted, match="closed before this send began"):
                    await client.outbound.send(b"z")

    run_on(kind, main())


@on_each_loop
def test_a_cancelled_receiver_leaves_the_socket_to_the_sender(kind: str) -> None:
    async def main() -> None:
        async with (
            await UdpServer.create().bind() as server,
            await UdpClient.create().port(server.port).connect() as client,
        ):
            await client.outbound.send(b"1")
            [asked] = await server.inbound.receive().take(1).collect_list()
            await server.outbound.send(asked.reply(b"2"))
            assert await answers(client, 1) == [b"2"]

    run_on(kind, main())


@on_each_loop
def test_close_lets_the_handler_finish_what_has_come(kind: str) -> None:
    """All of it was in the system's buffer when the server was told to close."""
    taken: list[bytes] = []

    def slowly(inbound: Any, outbound: Any) -> Any:
        async def take(datagram: Datagram) -> Datagram:
            await asyncio.sleep(0)
            taken.append(datagram.data)
            return datagram

        return inbound.receive().map_async(take, concurrency=1)

    async def main() -> None:
        server = await UdpServer.create().handle(slowly).bind()
        async with await UdpClient.create().port(server.port).connect() as client:
            await client.outbound.send(Flux.range(50).map(lambda number: b"%d" % number))
            closed = await server.aclose(grace=30)
        assert (closed.finished, closed.aborted) == (1, ())

    run_on(kind, main())
    assert taken == [b"%d" % number for number in range(50)]


@on_each_loop
@pytest.mark.parametrize("reads", [False, True])
def test_a_close_that_does_not_wait_cancels_the_handler(kind: str, reads: bool) -> None:
    async def main() -> None:
        taken: list[bytes] = []
        cancelled = asyncio.Event()

        def stuck(inbound: Any, outbound: Any) -> Any:
            async def take(datagram: Datagram) -> Datagram:
                taken.append(datagram.data)
                await asyncio.Event().wait()
                return datagram

            work = inbound.receive().map_async(take, concurrency=1).then() if reads else Mono.never()
            return work.do_on_cancel(cancelled.set)

        server = await UdpServer.create().handle(stuck).bind()
        async with await UdpClient.create().port(server.port).connect() as client:
            await client.outbound.send(Flux.from_iterable([b"1", b"2", b"3"]))
            await until(lambda: server.counts.received == 3)
        server.close()
        assert (server.closed, cancelled.is_set()) == (True, True)
        assert taken == ([b"1"] if reads else [])
        await until(lambda: len(asyncio.all_tasks()) == 1)

    run_on(kind, main())


def test_a_socket_that_fails_is_told_to_whoever_receives(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = await UdpServer.create().handle(lambda inbound, outbound: inbound.receive()).bind()
        alone = await UdpServer.create().bind()
        reading, writing = os.pipe()
        try:
            for channel in (server, alone):
                # The descriptor stands for something else now, which cannot be received from.
                os.dup2(reading, channel.socket.fileno())
                await channel.aclose()
        finally:
            os.close(reading)
            os.close(writing)
        with pytest.raises(ConnectionAborted, match="the socket failed"):
            await alone.inbound.receive().collect_list()
        assert server.closed

    run_on("asyncio", main())
    assert "the handler failed" in caplog.text


@on_each_loop
def test_a_handler_that_never_ends_is_cut_off_and_named(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> tuple[str, tuple[str, ...]]:
        server = await UdpServer.create().handle(lambda inbound, outbound: outbound.keep_open()).bind()
        label = server.label
        closed = await server.aclose(grace=0.01)
        assert server.closed
        return label, closed.aborted

    label, aborted = run_on(kind, main())
    assert aborted == (label,)
    assert f"{label} was cut off" in caplog.text


@on_each_loop
def test_a_handler_that_fails_closes_the_socket_and_is_logged(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(inbound: Any, outbound: Any) -> Any:
        return inbound.receive().map(lambda datagram: 1 // 0)

    def cancel(inbound: Any, outbound: Any) -> Any:
        raise asyncio.CancelledError

    async def main() -> str:
        server = await UdpServer.create().handle(fail).bind()
        async with await UdpClient.create().port(server.port).connect() as client:
            await client.outbound.send(b"x")
            await asyncio.wait_for(server.wait_closed(), 30)
        nothing = await UdpServer.create().handle(lambda inbound, outbound: None).bind()
        assert nothing.closed
        cancelled = await UdpServer.create().handle(cancel).bind()
        assert cancelled.closed
        return server.label.replace(" ! ", " - ")

    label = run_on(kind, main())
    assert f"{label} the handler failed: ZeroDivisionError" in caplog.text
    assert "the handler returned None" in caplog.text
    assert "the handler failed: CancelledError()" in caplog.text


@on_each_loop
def test_observers_wiretap_and_figures(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    states: list[ConnectionState] = []

    async def main() -> None:
        caplog.set_level(logging.DEBUG, "penstock.net.wire")
        settings = (
            ECHO.wiretap(WiretapFormat.TEXT).metrics().observe(lambda channel, state: states.append(state))
        )
        async with await settings.bind() as server:
            async with await UdpClient.create().port(server.port).connect() as client:
                await client.outbound.send(b"hello")
                assert await answers(client, 1) == [b"hello"]
            figures = server.metrics.as_dict()
            assert f"{server.label} READ 127.0.0.1:{client.port}: 5B 'hello'" in caplog.text
            assert f"{server.label} WRITE 127.0.0.1:{client.port}: 5B 'hello'" in caplog.text
        assert figures["penstock.net.udp.data.received"] == figures["penstock.net.udp.data.sent"] == 5
        assert figures["penstock.net.udp.datagrams.received"] == 1
        assert figures["penstock.net.udp.dropped"] == 0

    run_on(kind, main())
    assert states == [ConnectionState.CONNECTED, ConnectionState.CONFIGURED, ConnectionState.DISCONNECTING]


@on_each_loop
def test_errors_say_what_was_wrong(kind: str) -> None:
    async def main() -> None:
        async with await UdpServer.create().bind() as server:
            with pytest.raises(
                BindFailed, match=rf"127.0.0.1:{server.port}: Address already in use; .*port 0"
            ):
                await UdpServer.create().port(server.port).bind()
        with pytest.raises(BindFailed, match="does not have that address"):
            await UdpServer.create().host("203.0.113.1").bind()
        with pytest.raises(ConnectFailed, match=r"the host name is unknown.*spelling"):
            await UdpClient.create().host("no-such-host.invalid").port(9).connect()
        with pytest.raises(ValueError, match="needs a port"):
            await UdpClient.create().connect()

    run_on(kind, main())


@on_each_loop
def test_two_servers_share_a_port_if_both_say_so(kind: str) -> None:
    """Socket options are set before the address is taken."""

    async def main() -> None:
        shared = UdpServer.create().option("SO_REUSEPORT", 1)
        async with await shared.bind() as server, await shared.port(server.port).bind() as other:
            assert server.port == other.port

    run_on(kind, main())


@pytest.mark.parametrize(
    "method",
    ["unix", "secure", "linger", "read_ahead", "fuse", "framing", "on_connection", "max_connections",
     "backlog", "idle_timeout", "read_timeout", "write_timeout"],
)  # fmt: skip
def test_what_makes_no_sense_for_udp_is_not_offered(method: str) -> None:
    assert not hasattr(UdpServer, method)
    assert not hasattr(UdpClient, method)


def test_every_builder_method_makes_a_copy() -> None:
    before = UdpServer.create()
    after = before.host("0.0.0.0").port(7).pace(100)
    assert (before.settings.host, before.settings.port, before.settings.pace) == ("127.0.0.1", 0, None)
    assert repr(after) == "<UdpServer 0.0.0.0:7>"


@on_each_loop
def test_nothing_is_left_behind(kind: str) -> None:
    async def once() -> None:
        async with (
            await ECHO.bind() as server,
            await UdpClient.create().port(server.port).connect() as client,
        ):
            await client.outbound.send(b"x")
            assert await answers(client, 1) == [b"x"]

    async def main() -> None:
        await once()
        gc.collect()
        files = len(os.listdir("/proc/self/fd"))
        channels = sum(isinstance(thing, UdpChannel) for thing in gc.get_objects())
        for _ in range(20):
            await once()
        gc.collect()
        await until(lambda: len(os.listdir("/proc/self/fd")) <= files)
        assert sum(isinstance(thing, UdpChannel) for thing in gc.get_objects()) <= channels

    run_on(kind, main())

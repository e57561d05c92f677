"""What comes in: one subscriber, both directions apart from each other, and ends that lose nothing."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.net import (
    ConnectionAborted,
    Inbound,
    NetError,
    Outbound,
    ReceiverTaken,
    TcpClient,
    TcpServer,
)
from penstock.net.framing import FrameTooLong, lines
from penstock.streams import Flux, Mono, on_dropped
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Listener, Peer, begun, raw, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)
in_each_way = pytest.mark.parametrize("fused", [True, False], ids=["fused", "not fused"])


class FirstOne:
    """A subscriber with a name that can be found again."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.subscription: Any = None
        self.ended: list[Any] = []

    def on_subscribe(self, subscription: Any) -> None:
        self.subscription = subscription

    def on_next(self, data: bytes) -> None:
        self.got.append(data)

    def on_error(self, error: BaseException) -> None:
        self.ended.append(error)

    def on_complete(self) -> None:
        self.ended.append("complete")


@on_each_loop
def test_a_second_subscriber_is_told_who_was_first(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with await TcpClient.create().port(listener.port).connect() as client:
                peer = await listener.accept()
                first = FirstOne()
                client.inbound.receive().subscribe(first)
                with pytest.raises(ReceiverTaken, match=r"already received by a .*FirstOne.*share\(\)"):
                    await soon(client.inbound.receive().collect_list())
                first.subscription.request(9)
                await peer.send(b"for the first")
                await until(lambda: first.got == [b"for the first"])
                peer.socket.close()
                await until(lambda: first.ended == ["complete"])

    run_on(kind, main())


@on_each_loop
def test_nothing_is_given_that_was_not_asked_for(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with (
                await TcpClient.create().port(listener.port).connect() as client,
                await listener.accept() as peer,
            ):
                reader = FirstOne()
                client.inbound.receive().subscribe(reader)
                for number in range(3):
                    await peer.send(b"%d" % number)
                    await until(lambda number=number: client._receiver.waiting == number + 1)
                assert reader.got == []
                reader.subscription.request(2)
                assert reader.got == [b"0", b"1"]
                peer.half_close()
                await until(lambda: client.peer_has_ended)
                assert reader.ended == []
                reader.subscription.request(1)
                assert reader.got == [b"0", b"1", b"2"]
                assert reader.ended == ["complete"]

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("read_ahead", [0, 4096, 65_536])
def test_the_socket_is_paused_when_the_read_ahead_is_used_up(kind: str, read_ahead: int) -> None:
    async def main() -> None:
        with Listener() as listener:
            client = TcpClient.create().port(listener.port).read_ahead(read_ahead)
            async with await client.connect() as connection, await listener.accept() as peer:
                size = 32 * 1024 * 1024
                pushing = begun(peer.send(bytes(size)))
                await until(lambda: connection._receiver.paused)
                # uvloop reads at most one chunk of its own size beyond, stock asyncio one of ours.
                assert connection._receiver.waiting <= read_ahead + 262_144
                assert not pushing.done()
                chunks = connection.inbound.receive().scan(lambda total, data: total + len(data), 0)
                assert await soon(chunks.filter(lambda total: total == size).take(1).collect_list()) == [size]
                await pushing

    run_on(kind, main())


@on_each_loop
def test_receive_objects_without_a_framing_says_what_is_missing(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = TcpServer.create().handle(lambda inbound, outbound: inbound.receive_objects())
        async with await server.bind() as running, await Peer.of(running) as peer:
            assert await peer.rest() == b""
        assert "needs a framing to find the objects: configure framing(lines())" in caplog.text

    run_on(kind, main())


@on_each_loop
def test_a_frame_that_is_too_long_closes_the_connection(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        seen: list[bytes] = []
        errors: list[BaseException] = []

        def handler(inbound: Inbound, outbound: Outbound) -> Flux[Any]:
            return inbound.receive_objects().do_on_next(seen.append).do_on_error(errors.append)

        server = TcpServer.create().framing(lines(max_length=10)).handle(handler)
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(b"short\n" + b"x" * 1000)
            assert await peer.rest() == b""
            peer.socket.close()
            await until(lambda: not running.connections)
        assert seen == [b"short"]
        [error] = errors
        assert isinstance(error, FrameTooLong)
        assert error.limit == 10
        assert "the handler failed" in caplog.text

    run_on(kind, main())


@on_each_loop
@in_each_way
def test_a_peer_that_has_sent_everything_still_gets_everything(kind: str, fused: bool) -> None:
    """Half-close by the peer: it says that it is done, and reads on."""

    async def main() -> None:
        data = bytes(range(256)) * 20_000
        server = (
            TcpServer.create().fuse(fused).handle(lambda i, o: o.send(i.receive()).send(b" and the rest"))
        )
        async with await server.bind() as running, await Peer.of(running) as peer:
            reading = begun(peer.rest())
            await peer.send(data)
            peer.half_close()
            assert await reading == data + b" and the rest"
            peer.socket.close()
            await until(lambda: not running.connections)

    run_on(kind, main())


@on_each_loop
def test_this_side_may_say_that_it_is_done_and_read_on(kind: str) -> None:
    """Half-close by us, with the transport's own means."""

    async def main() -> None:
        async def count(inbound: Inbound, outbound: Outbound) -> None:
            total = 0
            async for chunk in inbound.receive():
                total += len(chunk)
            await outbound.send(b"%d" % total)

        async with (
            await TcpServer.create().handle(count).bind() as running,
            await TcpClient.create().port(running.port).connect() as client,
        ):
            await soon(client.outbound.send(bytes(100_000)))
            raw(client).write_eof()
            assert b"".join(await soon(client.inbound.receive().collect_list())) == b"100000"

    run_on(kind, main())


@on_each_loop
def test_an_answer_is_not_destroyed_by_a_request_that_nobody_reads(kind: str) -> None:
    """To close with unread bytes resets a connection, and the peer may lose what was sent."""

    async def main() -> None:
        answer = b"413 too much\n" * 1000
        server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(answer))
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(bytes(2_000_000))
            assert await peer.rest() == answer
            peer.socket.close()
            await until(lambda: not running.connections)

    run_on(kind, main())


@on_each_loop
def test_a_peer_that_never_closes_does_not_keep_a_connection_that_we_have_closed(kind: str) -> None:
    async def main() -> None:
        server = TcpServer.create().linger(0.05).handle(lambda inbound, outbound: outbound.send(b"bye"))
        async with await server.bind() as running, await Peer.of(running) as peer:
            assert await peer.rest() == b"bye"
            await until(lambda: not running.connections)

    run_on(kind, main())


@on_each_loop
def test_a_reset_is_an_error_of_receive(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with await TcpClient.create().port(listener.port).connect() as client:
                peer = await listener.accept()
                await peer.send(b"so far")
                got: list[bytes] = []
                reading = begun(client.inbound.receive().do_on_next(got.append).collect_list())
                await until(lambda: got)
                peer.reset()
                with pytest.raises(ConnectionAborted, match=r"the connection was lost: .*reset") as lost:
                    await reading
                assert client.id in str(lost.value)
                assert got == [b"so far"]
                assert isinstance(lost.value.__cause__, ConnectionResetError)

    run_on(kind, main())


@on_each_loop
def test_an_error_comes_after_what_was_received_before_it(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with await TcpClient.create().port(listener.port).connect() as client:
                peer = await listener.accept()
                reader = FirstOne()
                client.inbound.receive().subscribe(reader)
                await peer.send(b"before")
                await until(lambda: client._receiver.waiting)
                peer.reset()
                await until(lambda: client.closed)
                assert reader.ended == []
                reader.subscription.request(1)
                assert reader.got == [b"before"]
                [error] = reader.ended
                assert isinstance(error, ConnectionAborted)

    run_on(kind, main())


@on_each_loop
def test_a_subscriber_that_raises_has_left_and_the_connection_can_still_be_closed(kind: str) -> None:
    """The rules do not let it raise (§2.13); it is told to whoever wants to hear of dropped errors."""

    async def main() -> None:
        class Broken(FirstOne):
            def on_subscribe(self, subscription: Any) -> None:
                subscription.request(9)

            def on_next(self, data: bytes) -> None:
                raise LookupError("not for me")

        dropped: list[BaseException] = []
        with Listener() as listener, on_dropped(error=lambda error, where: dropped.append(error)):
            async with await TcpClient.create().port(listener.port).connect() as client:
                client._receiver.subscribe(Broken())
                async with await listener.accept() as peer:
                    await peer.send(b"x")
                    await until(lambda: dropped)
                    await soon(client.outbound.send(b"still here"))
                    assert await peer.receive(10) == b"still here"
                await soon(client.aclose())
        [error] = dropped
        assert isinstance(error, LookupError)

    run_on(kind, main())


@on_each_loop
def test_the_fused_echo_gives_back_what_came_before_it_began(kind: str) -> None:
    async def main() -> None:
        begin = asyncio.Event()

        def late(inbound: Inbound, outbound: Outbound) -> Any:
            return Mono.from_callable(begin.wait).then(outbound.send(inbound.receive()).mono())

        async with await TcpServer.create().handle(late).bind() as running, await Peer.of(running) as peer:
            await peer.send(b"early ")
            await until(lambda: running.connections and running.connections[0]._receiver.waiting)
            begin.set()
            assert await peer.receive(6) == b"early "
            assert running.connections[0].output._echo is not None
            with pytest.raises(ReceiverTaken, match="an echo"):
                await soon(running.connections[0].inbound.receive().collect_list())
            await peer.send(b"and late")
            peer.half_close()
            assert await peer.rest() == b"and late"

    run_on(kind, main())


@on_each_loop
def test_the_fused_echo_stops_reading_when_its_peer_does(kind: str) -> None:
    async def main() -> None:
        size = 48 * 1024 * 1024
        server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
        async with await server.bind() as running, await Peer.of(running) as peer:
            pushing = begun(peer.send(bytes(size)))
            await until(
                lambda: (
                    running.connections and running.connections[0].transport.get_write_buffer_size() > 65_536
                )
            )
            assert not pushing.done()
            assert running.connections[0].transport.get_write_buffer_size() < 1_000_000
            assert len(await peer.receive(size)) == size
            await pushing

    run_on(kind, main())


@on_each_loop
def test_a_fused_echo_that_is_cancelled_leaves_the_connection_to_others(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with await TcpClient.create().port(listener.port).connect() as client:
                async with await listener.accept() as peer:
                    echoing = begun(client.outbound.send(client.inbound.receive()))
                    await peer.send(b"one")
                    assert await peer.receive(3) == b"one"
                    echoing.cancel()
                    await until(lambda: client.output.sender is None)
                    await soon(client.outbound.send(b"two"))
                    assert await peer.receive(3) == b"two"
                # The peer's end is heard, although nobody reads any more.
                await until(lambda: client.peer_has_ended)

    run_on(kind, main())


@on_each_loop
def test_bytes_of_one_connection_go_out_on_another(kind: str) -> None:
    """A proxy: both directions, each with its own pace, and each end passed on."""

    async def main() -> None:
        echo = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
        async with await echo.bind() as target:

            async def relay(inbound: Inbound, outbound: Outbound) -> None:
                async with await TcpClient.create().port(target.port).connect() as there:
                    forth = begun(there.outbound.send(inbound.receive()))
                    back = begun(outbound.send(there.inbound.receive()))
                    await forth
                    raw(there).write_eof()
                    await back

            async with await TcpServer.create().handle(relay).bind() as proxy, await Peer.of(proxy) as peer:
                data = bytes(range(256)) * 10_000
                reading = begun(peer.rest())
                await peer.send(data)
                peer.half_close()
                assert await reading == data

    run_on(kind, main())


@on_each_loop
def test_nobody_can_begin_to_receive_when_the_connection_is_closed(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            client = await TcpClient.create().port(listener.port).connect()
            (await listener.accept()).socket.close()
            await soon(client.aclose())
            with pytest.raises(NetError, match="nobody: the connection is being closed"):
                await soon(client.inbound.receive().collect_list())

    run_on(kind, main())

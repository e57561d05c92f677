"""Elements and requests that come from other threads than the one that the socket is read on."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock.net import TcpClient, TcpServer
from penstock.streams import Flux, Sinks, schedulers
from tests.net.tcp.loops import LOOPS, LoopThread, run_on
from tests.net.tcp.peers import LONG, Listener, Peer, begun, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


@on_each_loop
def test_a_publisher_on_a_pool_is_sent_completely_and_in_order(kind: str) -> None:
    async def main() -> None:
        lines = [b"%d\n" % number for number in range(20_000)]
        threads: set[str] = set()

        def handler(inbound: Any, outbound: Any) -> Any:
            made = Flux.from_iterable(lines).do_on_next(
                lambda _: threads.add(threading.current_thread().name)
            )
            return outbound.send(made.subscribe_on(schedulers.shared_pool()))

        async with await TcpServer.create().handle(handler).bind() as running, await Peer.of(running) as peer:
            assert await peer.rest() == b"".join(lines)
        assert threading.current_thread().name not in threads

    run_on(kind, main())


@on_each_loop
def test_a_publisher_on_a_pool_is_held_back_by_a_peer_that_does_not_read(kind: str) -> None:
    async def main() -> None:
        made = 0
        total = 2_000

        def count(data: bytes) -> None:
            nonlocal made
            made += 1

        def handler(inbound: Any, outbound: Any) -> Any:
            source = Flux.range(0, total).map(lambda _: bytes(16_384)).do_on_next(count)
            return outbound.send(source.subscribe_on(schedulers.shared_pool()))

        async with (
            await TcpServer.create().handle(handler).bind() as running,
            await Peer.of(running, receive_buffer=65_536) as peer,
        ):
            await until(lambda: running.connections and not running.connections[0].output.writable)
            held = made
            assert held < total
            assert len(await peer.rest()) == total * 16_384
            assert made == total

    run_on(kind, main())


@on_each_loop
def test_a_thread_emits_into_a_send_and_may_use_its_buffer_again(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with (
                await TcpClient.create().port(listener.port).connect() as client,
                await listener.accept() as peer,
            ):

                class Caught:
                    """A Publisher that keeps its Subscriber for the thread."""

                    subscriber: Any = None

                    def subscribe(self, subscriber: Any) -> None:
                        self.subscriber = subscriber
                        subscriber.on_subscribe(self)

                    def request(self, n: int) -> None: ...

                    def cancel(self) -> None: ...

                source = Caught()
                sending = begun(client.outbound.send(source))
                await until(lambda: source.subscriber is not None)

                def emit() -> None:
                    buffer = bytearray(b"one ")
                    source.subscriber.on_next(buffer)
                    buffer[:] = b"two "
                    source.subscriber.on_next(buffer)
                    buffer[:] = b"!!! "
                    source.subscriber.on_complete()

                thread = threading.Thread(target=emit)
                thread.start()
                thread.join()  # the loop has not had a turn since
                await sending
                assert await peer.receive(8) == b"one two "

    run_on(kind, main())


@on_each_loop
def test_requests_from_another_thread_reach_the_socket(kind: str) -> None:
    loop = LoopThread(kind)
    try:

        async def serve() -> Any:
            chunks = Flux.from_iterable([b"%05d" % number for number in range(2000)])
            return await TcpServer.create().handle(lambda i, o: o.send(chunks)).bind()

        server = loop.wait(serve())
        connection = loop.wait(TcpClient.create().port(server.port).read_ahead(4096).connect())
        done = threading.Event()
        got = bytearray()
        errors: list[BaseException] = []

        class OneAtATime:
            def on_subscribe(self, subscription: Any) -> None:
                self.subscription = subscription
                threading.Thread(target=subscription.request, args=(1,)).start()

            def on_next(self, data: bytes) -> None:
                got.extend(data)
                threading.Thread(target=self.subscription.request, args=(1,)).start()

            def on_error(self, error: BaseException) -> None:
                errors.append(error)
                done.set()

            def on_complete(self) -> None:
                done.set()

        connection.inbound.receive().subscribe(OneAtATime())
        assert done.wait(LONG)
        assert not errors
        assert bytes(got) == b"".join(b"%05d" % number for number in range(2000))
        connection.close()
        loop.wait(connection.wait_closed())
        loop.wait(server.aclose())
    finally:
        loop.close()


@on_each_loop
def test_a_thread_that_blocks_on_an_element_is_served(kind: str) -> None:
    """``publish_on`` hands elements over to a pool; the socket waits for it, nobody else does."""

    async def main() -> None:
        def handler(inbound: Any, outbound: Any) -> Any:
            return outbound.send(inbound.receive().publish_on(schedulers.shared_pool()).map(bytes.upper))

        async with await TcpServer.create().handle(handler).bind() as running, await Peer.of(running) as peer:
            await peer.send(b"hello" * 1000)
            peer.half_close()
            assert await peer.rest() == b"HELLO" * 1000

    run_on(kind, main())


@on_each_loop
def test_a_send_is_cancelled_from_another_thread(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with (
                await TcpClient.create().port(listener.port).connect() as client,
                await listener.accept() as peer,
            ):
                for number in range(20):
                    source: Any = Sinks.unicast()
                    running = client.outbound.send(source.flux()).mono().subscribe()
                    if number % 2:
                        await until(lambda: client.output.sender is not None)
                    thread = threading.Thread(target=running.cancel)
                    thread.start()
                    await until(lambda: client.output.sender is None)
                    thread.join()
                    await soon(client.outbound.send(b"%02d" % number))
                    assert await peer.receive(2) == b"%02d" % number

    run_on(kind, main())


@on_each_loop
def test_a_server_is_closed_from_another_loop(kind: str) -> None:
    other = LoopThread("asyncio")
    try:

        async def main() -> None:
            running = await TcpServer.create().handle(lambda i, o: o.send(i.receive())).bind()
            client = await TcpClient.create().port(running.port).connect()
            closing = asyncio.run_coroutine_threadsafe(running.aclose(), other.loop)
            waiting = asyncio.run_coroutine_threadsafe(client.wait_closed(), other.loop)
            client.close()
            assert (await soon(asyncio.wrap_future(closing))).aborted == ()
            await soon(asyncio.wrap_future(waiting))

        run_on(kind, main())
    finally:
        other.close()


@on_each_loop
def test_a_handler_that_ends_on_a_pool_after_its_peer_has_gone_lets_the_server_close(kind: str) -> None:
    """The loop sleeps meanwhile: whoever ends elsewhere has to wake it."""

    async def main() -> None:
        took, go_on = threading.Event(), threading.Event()

        def work(data: bytes) -> bytes:
            took.set()
            assert go_on.wait(LONG)
            return data

        def handler(inbound: Any, outbound: Any) -> Any:
            return inbound.receive().publish_on(schedulers.shared_pool()).map(work)

        running = await TcpServer.create().handle(handler).bind()
        async with await Peer.of(running) as peer:
            await peer.send(b"x")
            await until(took.is_set)
            peer.reset()
            await until(lambda: not running.connections)
            closing = begun(running.aclose(grace=10 * LONG))
            await asyncio.sleep(0)
            timer = threading.Timer(0.1, go_on.set)
            timer.start()
            await closing
            timer.join()

    run_on(kind, main())

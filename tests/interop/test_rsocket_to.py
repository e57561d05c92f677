"""Streams for rsocket-py: as its Publishers, as its Subscribers, and over a socket."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from reactivestreams.publisher import Publisher
from reactivestreams.subscriber import DefaultSubscriber, Subscriber
from rsocket.awaitable.collector_subscriber import CollectorSubscriber
from rsocket.frame import MAX_REQUEST_N
from rsocket.helpers import single_transport_provider
from rsocket.payload import Payload
from rsocket.request_handler import BaseRequestHandler
from rsocket.rsocket_client import RSocketClient
from rsocket.rsocket_server import RSocketServer
from rsocket.transports.tcp import TransportTCP

from penstock.interop.rsocket_bridge import from_rsocket, to_rsocket, to_rsocket_subscriber
from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, processor, schedulers
from tests.interop.rsocket_publishers import payload, stream_from_generator
from tests.streams.operators.rigs import Oops
from tests.streams.recording import Recorder

PATIENCE = 60
"""Seconds after which something that should have happened is taken for not happening."""


def numbers(payloads: Any) -> list[int]:
    return [int(each.data) for each in payloads]


async def until(condition: Callable[[], object]) -> None:
    """Until this holds, however long a busy machine takes."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.002)


async def settled() -> None:
    """Let everything that is under way in this process have its turns, and what it has sent arrive."""
    for _ in range(50):
        await asyncio.sleep(0.001)


async def collect(publisher: Any, rate: int = MAX_REQUEST_N) -> list[int]:
    """Read it with the Subscriber that rsocket-py reads with."""
    collector = CollectorSubscriber(rate)
    publisher.subscribe(collector)
    collector.subscription.request(rate)
    return numbers(await asyncio.wait_for(collector.run(), PATIENCE))


class TestPublisher:
    def test_it_is_one_of_theirs(self) -> None:
        assert isinstance(to_rsocket(Flux.empty()), Publisher)

    @pytest.mark.parametrize("rate", [1, 3, 100, MAX_REQUEST_N])
    def test_elements_and_the_end_come_in_order(self, rate: int) -> None:
        assert asyncio.run(collect(to_rsocket(Flux.range(100).map(payload)), rate)) == list(range(100))

    def test_a_mono_is_a_stream_too(self) -> None:
        assert asyncio.run(collect(to_rsocket(Mono.just(payload(7))))) == [7]

    def test_an_error_is_passed_on(self) -> None:
        with pytest.raises(Oops):
            asyncio.run(collect(to_rsocket(Flux.error(Oops("broken")))))

    def test_signals_come_on_the_loop_whatever_thread_the_stream_runs_on(self) -> None:
        threads = set()

        async def main() -> None:
            done = asyncio.Event()
            subscriber = DefaultSubscriber(
                on_subscribe=lambda subscription: subscription.request(1_000),
                on_next=lambda value, is_complete: threads.add(threading.get_ident()),
                on_complete=lambda: (threads.add(threading.get_ident()), done.set()),
            )
            with schedulers.single("elsewhere") as elsewhere:
                to_rsocket(Flux.range(500).map(payload).publish_on(elsewhere)).subscribe(subscriber)
                await asyncio.wait_for(done.wait(), PATIENCE)

        asyncio.run(main())

        assert threads == {threading.get_ident()}

    def test_a_stream_that_never_waits_leaves_the_loop_to_others(self) -> None:
        async def main() -> int:
            collector = CollectorSubscriber()
            to_rsocket(Flux.from_iterable(itertools.repeat(payload(1)))).subscribe(collector)
            collector.subscription.request(MAX_REQUEST_N)
            for _ in range(5):
                await asyncio.sleep(0)
            collector.cancel()
            return len(collector.values)

        assert 0 < asyncio.run(main()) < 20_000

    def test_the_stream_is_asked_for_the_window_and_no_more(self) -> None:
        async def main() -> None:
            pulled: list[int] = []
            flux = Flux.range(1_000).do_on_next(pulled.append).map(payload)
            collector = CollectorSubscriber(5)
            to_rsocket(flux, prefetch=8).subscribe(collector)
            await settled()
            assert len(pulled) <= 8
            collector.subscription.request(3)
            await until(lambda: len(collector.values) >= 3)
            await settled()
            assert len(collector.values) == 3
            assert len(pulled) <= 3 + 8
            collector.cancel()

        asyncio.run(main())


class TestSubscriber:
    def test_it_is_one_of_theirs(self) -> None:
        assert isinstance(to_rsocket_subscriber(Recorder()), Subscriber)

    def test_the_last_element_brings_the_end(self) -> None:
        async def main() -> None:
            recorder = Recorder(10)
            stream_from_generator(3).subscribe(to_rsocket_subscriber(recorder))
            await until(lambda: recorder.terminated)
            assert numbers(recorder.check().items) == [0, 1, 2]
            assert recorder.completed

        asyncio.run(main())

    @pytest.mark.parametrize("n", [0, -1])
    def test_an_illegal_request_is_answered(self, n: int) -> None:
        theirs = _Theirs()
        recorder = Recorder()
        to_rsocket_subscriber(recorder).on_subscribe(theirs)

        recorder.request(n)
        recorder.request(1)

        assert isinstance(recorder.check().error, ValueError)
        assert theirs.calls == ["cancel"]

    def test_after_the_end_nobody_is_called(self) -> None:
        theirs = _Theirs()
        recorder = Recorder(3)
        subscriber = to_rsocket_subscriber(recorder)
        subscriber.on_subscribe(theirs)

        subscriber.on_next("last", is_complete=True)
        subscriber.on_complete()
        subscriber.on_next("another")
        recorder.request(1)
        recorder.cancel()

        assert recorder.check().items == ["last"]
        assert theirs.calls == ["request(3)"]

    def test_a_cancel_inside_the_last_element_keeps_the_end_away(self) -> None:
        recorder = Recorder(3, lambda recorder, element: recorder.cancel())
        subscriber = to_rsocket_subscriber(recorder)
        subscriber.on_subscribe(_Theirs())

        subscriber.on_next("last", is_complete=True)

        assert not recorder.check().terminated

    def test_a_second_subscription_is_cancelled(self) -> None:
        first, second = _Theirs(), _Theirs()
        subscriber = to_rsocket_subscriber(Recorder())

        subscriber.on_subscribe(first)
        subscriber.on_subscribe(second)

        assert (first.calls, second.calls) == ([], ["cancel"])

    def test_a_demand_that_no_frame_holds_is_asked_for_in_parts(self) -> None:
        theirs = _Theirs()
        recorder = Recorder()
        subscriber = to_rsocket_subscriber(recorder)
        subscriber.on_subscribe(theirs)

        recorder.request(3)
        recorder.request(UNBOUNDED)

        assert theirs.calls == ["request(3)", f"request({MAX_REQUEST_N - 3})"]

    def test_when_the_first_part_is_used_up_the_next_is_asked_for(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("penstock.interop.rsocket_bridge.MAX_REQUEST_N", 4)
        theirs = _Theirs()
        recorder = Recorder(UNBOUNDED)
        subscriber = to_rsocket_subscriber(recorder)
        subscriber.on_subscribe(theirs)

        for element in range(9):
            subscriber.on_next(element)

        assert theirs.calls == ["request(4)"] * 3

    def test_requests_of_other_threads_are_made_on_the_loop(self) -> None:
        async def main() -> None:
            theirs = _Theirs()
            recorder = Recorder()
            to_rsocket_subscriber(recorder).on_subscribe(theirs)
            await asyncio.to_thread(recorder.request, 2)
            await asyncio.to_thread(recorder.cancel)
            await asyncio.sleep(0)
            assert theirs.calls == ["request(2)", "cancel"]
            assert theirs.threads == {threading.get_ident()}

        asyncio.run(main())

    def test_a_loop_that_is_closed_ends_the_stream(self) -> None:
        theirs = _Theirs()
        recorder = Recorder()

        async def main() -> None:
            to_rsocket_subscriber(recorder).on_subscribe(theirs)

        asyncio.run(main())
        recorder.request(1).cancel()

        assert theirs.calls == []
        assert "closed" in str(recorder.check().error)


class _Theirs:
    """A Subscription that writes down how it is called."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.threads: set[int] = set()

    def request(self, n: int) -> None:
        self.calls.append(f"request({n})")
        self.threads.add(threading.get_ident())

    def cancel(self) -> None:
        self.calls.append("cancel")
        self.threads.add(threading.get_ident())


class _Server(BaseRequestHandler):  # type: ignore[misc]
    """Streams numbers, and doubles what comes in on a channel."""

    pulled: int
    cancelled: int

    async def request_stream(self, request: Payload) -> Publisher:
        def count(_: int) -> None:
            type(self).pulled += 1

        def cancelled() -> None:
            type(self).cancelled += 1

        flux = Flux.range(int(request.data)).do_on_next(count).do_on_cancel(cancelled)
        return to_rsocket(flux.map(payload), prefetch=8)

    async def request_channel(self, request: Payload) -> tuple[Publisher, Subscriber]:
        incoming = processor()
        doubled = Flux.from_publisher(incoming).map(lambda each: payload(int(each.data) * 2))
        return to_rsocket(doubled), to_rsocket_subscriber(incoming)

    async def request_response(self, request: Payload) -> asyncio.Future[Payload]:
        return asyncio.ensure_future(_answer(Mono.just(payload(int(request.data) + 1))))


async def _answer(mono: Mono[Payload]) -> Any:
    return await mono


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Any, type[_Server]]]:
    """A client and its server, over TCP."""
    handler = type("Server", (_Server,), {"pulled": 0, "cancelled": 0})
    servers: list[Any] = []

    def serve(*streams: Any) -> None:
        servers.append(RSocketServer(TransportTCP(*streams), handler_factory=handler))

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        port = listening.sockets[0].getsockname()[1]
        transport = TransportTCP(*await asyncio.open_connection("127.0.0.1", port))
        async with RSocketClient(single_transport_provider(transport)) as client:
            yield client, handler
    finally:
        for server in servers:
            await server.close()
        listening.close()
        await listening.wait_closed()


class TestSocket:
    def test_a_stream_crosses_it(self) -> None:
        async def main() -> list[Any]:
            async with connected() as (client, _):
                flux = from_rsocket(lambda: client.request_stream(Payload(b"1000")), prefetch=16)
                return [await flux.collect_list() for _ in range(2)]

        for payloads in asyncio.run(main()):
            assert numbers(payloads) == list(range(1_000))

    def test_demand_crosses_it(self) -> None:
        async def main() -> None:
            async with connected() as (client, server):
                recorder = Recorder.of(from_rsocket(client.request_stream(Payload(b"1000")), prefetch=16))
                recorder.request(1)
                await until(lambda: recorder.items)
                await settled()
                assert len(recorder.items) == 1
                assert server.pulled <= 16 + 8, "the window of the client and that of the server"
                recorder.request(50)
                await until(lambda: len(recorder.items) >= 51)
                await settled()
                assert numbers(recorder.check().items) == list(range(51))
                assert server.pulled <= 51 + 16 + 8
                recorder.cancel()
                await until(lambda: server.cancelled)
                await settled()
                assert server.cancelled == 1

        asyncio.run(main())

    def test_both_directions_of_a_channel_do(self) -> None:
        async def main() -> Any:
            async with connected() as (client, _):
                outgoing = to_rsocket(Flux.range(100).map(payload))
                request = client.request_channel(Payload(b""), outgoing)
                return await from_rsocket(request, prefetch=8).collect_list()

        assert numbers(asyncio.run(main())) == [2 * number for number in range(100)]

    def test_an_answer_is_a_future(self) -> None:
        async def main() -> Any:
            async with connected() as (client, _):
                return await Mono.from_future(client.request_response(Payload(b"41")))

        assert asyncio.run(main()).data == b"42"

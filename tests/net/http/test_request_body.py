"""A request's body as a stream: taken chunk by chunk, and shared with whoever waits for the client to go."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest

from penstock.net import ReceiverTaken
from penstock.net.framing import lines
from penstock.net.http import ClientGone, body, ndjson, stream
from penstock.net.http.reception import READ_AHEAD, _receptions
from penstock.streams import Flux, schedulers
from tests.net.http.conversing import PATIENCE, Exchange, turns


class Reader:
    """A Subscriber that asks when the test does."""

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.error: BaseException | None = None
        self.over = asyncio.Event()
        self.subscription: Any = None

    def on_subscribe(self, subscription: Any) -> None:
        self.subscription = subscription

    def on_next(self, chunk: bytes) -> None:
        self.chunks.append(chunk)

    def on_error(self, error: BaseException) -> None:
        self.error = error
        self.over.set()

    def on_complete(self) -> None:
        self.over.set()


async def collected(flux: Flux[Any]) -> list[Any]:
    return [element async for element in flux]


def test_all_of_it_comes_in_order() -> None:
    async def ask() -> list[bytes]:
        exchange = Exchange()
        for chunk in (b"one\ntw", b"", b"o\n"):
            exchange.chunk(chunk)
        exchange.chunk(b"three", more=False)
        return await asyncio.wait_for(collected(body(exchange.receive).transform(lines())), PATIENCE)

    assert asyncio.run(ask()) == [b"one", b"two", b"three"]


def test_a_request_without_a_body_completes() -> None:
    async def ask() -> list[bytes]:
        exchange = Exchange()
        exchange.chunk(b"", more=False)
        return await asyncio.wait_for(collected(body(exchange.receive)), PATIENCE)

    assert asyncio.run(ask()) == []


def test_nothing_is_received_that_was_not_asked_for() -> None:
    async def ask() -> None:
        exchange, reader = Exchange(), Reader()
        for number in range(10):
            exchange.chunk(b"%d" % number)
        body(exchange.receive).subscribe(reader)
        await turns()
        assert (exchange.received, exchange.receiving) == (0, 0)
        reader.subscription.request(3)
        await turns()
        assert reader.chunks == [b"0", b"1", b"2"]
        assert (exchange.received, exchange.receiving) == (3, 0)
        reader.subscription.cancel()
        await turns()

    asyncio.run(ask())


def test_a_client_that_goes_in_the_middle_is_an_error() -> None:
    async def ask() -> Reader:
        exchange, reader = Exchange(), Reader()
        body(exchange.receive).subscribe(reader)
        reader.subscription.request(10)
        exchange.chunk(b"half")
        exchange.disconnect()
        await asyncio.wait_for(reader.over.wait(), PATIENCE)
        return reader

    reader = asyncio.run(ask())
    assert reader.chunks == [b"half"]
    assert isinstance(reader.error, ClientGone)
    assert isinstance(reader.error, ConnectionError)
    assert "4 bytes of its request had arrived" in str(reader.error)


def test_a_second_subscriber_hears_that_there_was_a_first() -> None:
    async def ask() -> list[Any]:
        exchange = Exchange()
        chunks = body(exchange.receive)
        exchange.chunk(b"x", more=False)
        first = await collected(chunks)
        with pytest.raises(ReceiverTaken, match="share"):
            await collected(chunks)
        return first

    assert asyncio.run(asyncio.wait_for(ask(), PATIENCE)) == [b"x"]


def test_a_cancel_leaves_nothing_waiting() -> None:
    async def ask() -> None:
        exchange, reader = Exchange(), Reader()
        body(exchange.receive).subscribe(reader)
        reader.subscription.request(1)
        await turns()
        assert exchange.receiving == 1
        reader.subscription.cancel()
        await turns()
        assert exchange.receiving == 0
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(ask())


def test_it_may_be_subscribed_to_on_another_thread() -> None:
    async def ask() -> list[bytes]:
        exchange = Exchange()
        exchange.chunk(b"one")
        exchange.chunk(b"two", more=False)
        elsewhere = body(exchange.receive).subscribe_on(schedulers.shared_pool())
        return await asyncio.wait_for(collected(elsewhere), PATIENCE)

    assert asyncio.run(ask()) == [b"one", b"two"]


# ---------------------------------------------------------------- together with a response


def test_an_echo_reads_as_it_writes() -> None:
    async def ask() -> Exchange:
        exchange = Exchange(method="POST")

        async def echo(scope: Any, receive: Any, send: Any) -> None:
            await stream(body(receive))(scope, receive, send)

        running = exchange.start(echo)
        for number in range(5):
            exchange.chunk(b"%d" % number)
        exchange.chunk(b"end", more=False)
        await asyncio.wait_for(running, PATIENCE)
        return exchange

    assert b"".join(asyncio.run(ask()).bodies) == b"01234end"


def test_a_body_that_is_wanted_later_is_kept() -> None:
    async def ask() -> Exchange:
        exchange, gate = Exchange(method="POST"), asyncio.Event()

        async def wait(_: int) -> bytes:
            await gate.wait()
            return b"now: "

        async def app(scope: Any, receive: Any, send: Any) -> None:
            later = Flux.concat(Flux.just(1).map_async(wait), Flux.defer(lambda: body(receive)))
            await stream(later)(scope, receive, send)

        running = exchange.start(app)
        exchange.chunk(b"early", more=False)
        await turns()
        gate.set()
        await asyncio.wait_for(running, PATIENCE)
        return exchange

    assert b"".join(asyncio.run(ask()).bodies) == b"now: early"


def test_a_body_that_nobody_reads_is_read_ahead_a_little_and_no_more() -> None:
    async def ask() -> int:
        exchange = Exchange(method="POST")
        for _ in range(100):
            exchange.chunk(b"x" * (READ_AHEAD // 4))
        running = exchange.start(stream(Flux.never()))
        await turns(300)
        ahead = exchange.received
        running.cancel()
        await asyncio.wait((running,))
        return ahead

    assert asyncio.run(ask()) == 4


def test_the_client_is_seen_to_go_behind_a_body_that_nobody_wants() -> None:
    async def ask() -> None:
        exchange = Exchange(method="POST")

        async def app(scope: Any, receive: Any, send: Any) -> None:
            first = await collected(body(receive).take(1))
            await stream(Flux.concat(Flux.just(*first), Flux.never()))(scope, receive, send)

        running = exchange.start(app)
        for _ in range(100):
            exchange.chunk(b"x" * READ_AHEAD)
        exchange.disconnect()
        await asyncio.wait_for(running, PATIENCE)
        assert exchange.received == 101

    asyncio.run(ask())


def test_a_client_that_goes_ends_both_sides(caplog: pytest.LogCaptureFixture) -> None:
    async def ask() -> Exchange:
        exchange = Exchange(method="POST")

        async def app(scope: Any, receive: Any, send: Any) -> None:
            await ndjson(body(receive).count())(scope, receive, send)

        running = exchange.start(app)
        exchange.chunk(b"x")
        await turns()
        exchange.disconnect()
        await asyncio.wait_for(running, PATIENCE)
        await turns()
        assert len(asyncio.all_tasks()) == 1
        return exchange

    assert asyncio.run(ask()).sent == []
    assert caplog.text == ""


def test_nothing_is_kept_of_a_request_that_is_over() -> None:
    async def ask() -> None:
        for _ in range(10):
            exchange = Exchange(method="POST")

            async def echo(scope: Any, receive: Any, send: Any) -> None:
                await stream(body(receive))(scope, receive, send)

            exchange.chunk(b"x", more=False)
            await asyncio.wait_for(exchange.start(echo), PATIENCE)

    asyncio.run(ask())
    gc.collect()
    assert len(_receptions) == 0

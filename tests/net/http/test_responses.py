"""A response asks its source for what the client takes, joins what is there, and ends as it has to."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.net.framing import BadFrame
from penstock.net.http import Event, ResponseBroken, ndjson, reply, sse, stream
from penstock.net.http.outflow import BUDGET, MOST_BYTES
from penstock.streams import Flux, Mono, schedulers
from tests.net.http.conversing import PATIENCE, Exchange, Source, answered, turns


def counted(elements: list[bytes], size: int = 10, most: int = 100_000) -> Iterator[bytes]:
    for _ in range(most):
        elements.append(b"x" * size)
        yield elements[-1]


def broken_after(count: int) -> Flux[str]:
    def numbers() -> Iterator[str]:
        yield from map(str, range(count))
        raise RuntimeError("the source broke")

    return Flux.from_iterable(numbers())


# ---------------------------------------------------------------- what is sent


async def read_all(app: Any) -> bytes:
    return b"".join((await answered(app)).bodies)


def test_bytes_and_text_are_sent_as_they_are() -> None:
    exchange = asyncio.run(answered(stream(Flux.just(b"one ", "zwölf ", bytearray(b"three")))))

    assert b"".join(exchange.bodies) == "one zwölf three".encode()
    assert exchange.status == 200
    assert exchange.headers[b"content-type"] == b"application/octet-stream"
    assert exchange.sent[-1]["more_body"] is False


def test_objects_are_sent_as_json_lines() -> None:
    assert asyncio.run(read_all(ndjson(Flux.just({"a": 1}, [2], "three")))) == b'{"a":1}\n[2]\n"three"\n'


def test_events_are_sent_as_the_standard_has_them() -> None:
    events = Flux.just(Event("two\nlines", event="note", id="7", retry=250), "text", {"n": 1})

    assert asyncio.run(read_all(sse(events))) == (
        b'event: note\nid: 7\nretry: 250\ndata: two\ndata: lines\n\ndata: text\n\ndata: {"n":1}\n\n'
    )


def test_status_and_headers_are_the_users() -> None:
    app = stream(Flux.just(b"x"), status=207, headers={"Content-Type": "text/csv", "X-Mine": "1"})
    exchange = asyncio.run(answered(app))

    assert exchange.status == 207
    assert exchange.headers[b"content-type"] == b"text/csv"
    assert exchange.headers[b"x-mine"] == b"1"
    assert [name for name, _ in exchange.sent[0]["headers"]].count(b"content-type") == 1


def test_an_empty_source_is_an_empty_body() -> None:
    exchange = asyncio.run(answered(stream(Flux.empty())))

    assert (exchange.status, exchange.bodies) == (200, [b""])


def test_head_gets_the_headers_and_the_source_is_left_alone() -> None:
    made: list[bytes] = []
    exchange = asyncio.run(answered(stream(Flux.from_iterable(counted(made))), method="HEAD"))

    assert (exchange.status, exchange.bodies, made) == (200, [b""], [])


def test_a_response_answers_again() -> None:
    app = ndjson(Flux.range(2))

    async def twice() -> list[bytes]:
        return [await read_all(app), await read_all(app)]

    assert asyncio.run(twice()) == [b"0\n1\n"] * 2


def test_headers_that_middleware_adds_stay_with_their_request() -> None:
    app = ndjson(Flux.range(2))

    async def twice() -> list[int]:
        counts = []
        for _ in range(2):
            exchange = await answered(app)
            counts.append(len(exchange.sent[0]["headers"]))
            exchange.sent[0]["headers"].append((b"x-added", b"1"))
        return counts

    first, second = asyncio.run(twice())
    assert first == second


def test_a_source_on_another_thread() -> None:
    names: set[str] = set()

    def named(number: int) -> int:
        names.add(threading.current_thread().name)
        return number

    app = ndjson(Flux.range(1000).map(named).subscribe_on(schedulers.shared_pool()))

    assert asyncio.run(read_all(app)) == b"".join(b"%d\n" % number for number in range(1000))
    assert threading.current_thread().name not in names


@pytest.mark.parametrize(
    "headers", [{"x": "a\r\nset-cookie: b"}, {"x\n": "a"}, {"": "a"}, [("x", "a\0b")]], ids=repr
)
def test_a_header_with_a_line_end_is_refused(headers: Any) -> None:
    with pytest.raises(ValueError, match="line ends"):
        stream(Flux.just(b""), headers=headers)


@pytest.mark.parametrize("prefetch", [0, -1])
def test_a_window_has_room_for_one(prefetch: int) -> None:
    with pytest.raises(ValueError, match="prefetch"):
        stream(Flux.just(b""), prefetch=prefetch)


def test_a_heartbeat_takes_time() -> None:
    with pytest.raises(ValueError, match="heartbeat"):
        sse(Flux.never(), heartbeat=0)


def test_a_reply_has_a_length() -> None:
    exchange = asyncio.run(answered(reply("grün", status=201, headers={"x-a": "b"})))

    assert (exchange.status, exchange.bodies) == (201, ["grün".encode()])
    assert exchange.headers[b"content-length"] == b"5"
    assert exchange.headers[b"x-a"] == b"b"


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_without_a_body_does_not_tell_its_length(status: int) -> None:
    exchange = asyncio.run(answered(reply(status=status, headers={"x-a": "b"})))

    assert (exchange.status, exchange.bodies) == (status, [b""])
    assert exchange.headers == {b"x-a": b"b"}


# ---------------------------------------------------------------- demand


def test_small_elements_go_out_together() -> None:
    exchange = asyncio.run(answered(stream(Flux.from_iterable([b"x" * 100] * 10_000))))

    assert sum(map(len, exchange.bodies)) == 1_000_000
    assert max(map(len, exchange.bodies)) == 256 * 100
    assert len(exchange.bodies) < 60


def test_joined_elements_keep_below_the_limit_and_large_ones_go_alone() -> None:
    sizes = [100, 100, 40_000, 40_000, 100_000, 10]
    exchange = asyncio.run(answered(stream(Flux.from_iterable([b"x" * size for size in sizes]))))

    assert sum(map(len, exchange.bodies)) == sum(sizes)
    assert all(len(data) <= MOST_BYTES or len(data) == 100_000 for data in exchange.bodies)


@pytest.mark.parametrize("prefetch", [1, 2, 7, 64])
def test_no_more_is_asked_for_than_the_window_has_room(prefetch: int) -> None:
    async def ask() -> tuple[int, int]:
        made: list[bytes] = []
        exchange = Exchange()
        exchange.taking.clear()
        running = exchange.start(stream(Flux.from_iterable(counted(made)), prefetch=prefetch))
        await exchange.until_sent(1)
        await turns()
        at_first = len(made)
        exchange.taking.set()
        await exchange.until_sent(30)  # large enough a window by now
        exchange.taking.clear()
        await turns(50)
        taken = sum(map(len, exchange.bodies[:-1])) // 10
        ahead = len(made) - taken
        exchange.disconnect()
        await asyncio.wait_for(running, PATIENCE)
        return at_first, ahead

    at_first, ahead = asyncio.run(ask())
    assert at_first <= 2
    assert ahead <= prefetch


def test_large_elements_are_asked_for_one_by_one() -> None:
    async def ask() -> int:
        made: list[bytes] = []
        exchange = Exchange()
        running = exchange.start(stream(Flux.from_iterable(counted(made, size=BUDGET))))
        await exchange.until_sent(10)
        exchange.taking.clear()
        await turns()
        ahead = len(made) - (len(exchange.bodies) - 1)
        exchange.disconnect()
        await asyncio.wait_for(running, PATIENCE)
        return ahead

    assert asyncio.run(ask()) == 1


def test_a_client_that_takes_nothing_asks_for_nothing() -> None:
    async def ask() -> int:
        source = Source()
        exchange = Exchange()
        exchange.taking.clear()
        running = exchange.start(stream(source, prefetch=64))
        await turns()
        first = source.requested
        for _ in range(first):
            source.subscriber.on_next(b"x")
        await turns()
        assert source.requested == first
        exchange.taking.set()
        await exchange.until_sent(2)
        await turns()
        assert source.requested > first
        source.subscriber.on_complete()
        await asyncio.wait_for(running, PATIENCE)
        return first

    assert asyncio.run(ask()) == 2


# ---------------------------------------------------------------- the client goes


async def gone_while(source: Source, *, taking: bool, elements: int) -> Exchange:
    exchange = Exchange()
    running = exchange.start(stream(source))
    await turns()
    if not taking:
        exchange.taking.clear()
    for _ in range(elements):
        source.subscriber.on_next(b"x")
    await turns()
    assert not source.cancelled
    exchange.disconnect()
    await asyncio.wait_for(running, PATIENCE)
    return exchange


@pytest.mark.parametrize(
    ("taking", "elements"),
    [
        pytest.param(True, 0, id="before the first element"),
        pytest.param(True, 1, id="while the source is idle"),
        pytest.param(False, 1, id="while it does not read"),
    ],
)
def test_a_client_that_goes_cancels_the_source(taking: bool, elements: int) -> None:
    source = Source()
    asyncio.run(gone_while(source, taking=taking, elements=elements))

    assert source.cancelled


def test_a_source_that_never_waits_is_cancelled_although_send_says_nothing() -> None:
    made: list[bytes] = []

    async def ask() -> None:
        exchange = Exchange()
        running = exchange.start(stream(Flux.from_iterable(counted(made, most=10_000_000))))
        await exchange.until_sent(5)
        exchange.disconnect()
        await asyncio.wait_for(running, PATIENCE)

    asyncio.run(ask())
    assert len(made) < 10_000


def test_a_server_that_says_so_from_send_ends_it_as_well() -> None:
    source = Source()

    async def ask() -> None:
        exchange = Exchange()

        async def send(message: Any) -> None:
            raise BrokenPipeError("the client has gone")

        running = asyncio.ensure_future(stream(source)(exchange.scope, exchange.receive, send))
        await turns()
        source.subscriber.on_next(b"x")
        await asyncio.wait_for(running, PATIENCE)

    asyncio.run(ask())
    assert source.cancelled


def test_a_server_that_stops_cancels_the_source() -> None:
    source = Source()

    async def ask() -> None:
        exchange = Exchange()
        running = exchange.start(stream(source))
        await turns()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert exchange.receiving == 0

    asyncio.run(ask())
    assert source.cancelled


def test_nothing_is_left_running() -> None:
    async def ask() -> int:
        await answered(ndjson(Flux.range(10)))
        return len(asyncio.all_tasks())

    assert asyncio.run(ask()) == 1


# ---------------------------------------------------------------- the source fails


def test_an_error_before_the_first_byte_is_a_500(caplog: pytest.LogCaptureFixture) -> None:
    exchange = asyncio.run(answered(stream(broken_after(0))))

    assert (exchange.status, exchange.bodies) == (500, [b"the server could not produce this response\n"])
    (record,) = caplog.records
    assert record.name == "penstock.net.http"
    assert record.getMessage() == "GET / from 192.0.2.1:5: the source failed before its first byte"
    assert "the source broke" in caplog.text


@pytest.mark.parametrize(
    "error",
    [SystemExit(3), asyncio.CancelledError(), GeneratorExit()],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_would_end_a_server_or_its_task_is_a_500_as_well(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    failing: Flux[bytes] = Flux.error(error)

    exchange = asyncio.run(answered(stream(failing.subscribe_on(schedulers.shared_pool()))))

    assert exchange.status == 500
    assert f"the stream failed with {error!r}" in caplog.text


def test_an_error_after_it_breaks_the_connection_off(caplog: pytest.LogCaptureFixture) -> None:
    exchange = Exchange()

    async def ask() -> None:
        await asyncio.wait_for(exchange.start(stream(broken_after(3))), PATIENCE)

    with pytest.raises(ResponseBroken, match="the source failed after 3 bytes") as raised:
        asyncio.run(ask())

    assert b"".join(exchange.bodies) == b"012"
    assert all(message["more_body"] for message in exchange.sent[1:])
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert "the connection is broken" in caplog.text


def test_what_cannot_be_written_is_an_error_of_the_source() -> None:
    exchange = Exchange()

    async def ask() -> None:
        await asyncio.wait_for(exchange.start(ndjson(Flux.just(1, object()))), PATIENCE)

    with pytest.raises(ResponseBroken) as raised:
        asyncio.run(ask())
    assert isinstance(raised.value.__cause__, BadFrame)
    assert asyncio.run(answered(stream(Flux.just(7)))).status == 500  # type: ignore[arg-type]


# ---------------------------------------------------------------- headers and heartbeats


def test_without_a_limit_the_headers_wait_for_the_first_element() -> None:
    async def ask() -> None:
        source, exchange = Source(), Exchange()
        running = exchange.start(stream(source))
        await turns()
        assert exchange.sent == []
        source.subscriber.on_next(b"x")
        await exchange.until_sent(2)
        source.subscriber.on_complete()
        await asyncio.wait_for(running, PATIENCE)

    asyncio.run(ask())


def test_with_one_they_go_out_alone() -> None:
    async def ask() -> Exchange:
        source, exchange = Source(), Exchange()
        running = exchange.start(stream(source, headers_within=0.001))
        await exchange.until_sent(2)
        source.subscriber.on_error(RuntimeError("too late for a 500"))
        with pytest.raises(ResponseBroken):
            await asyncio.wait_for(running, PATIENCE)
        return exchange

    exchange = asyncio.run(ask())
    assert (exchange.status, exchange.bodies) == (200, [b""])


def test_an_idle_stream_of_events_sends_comments_and_a_busy_one_none() -> None:
    async def ask() -> Exchange:
        source, exchange = Source(), Exchange()
        running = exchange.start(sse(source, headers_within=0.001, heartbeat=0.005))
        await exchange.until_sent(4)
        source.subscriber.on_next("news")
        source.subscriber.on_complete()
        await asyncio.wait_for(running, PATIENCE)
        return exchange

    *before, news, end = asyncio.run(ask()).bodies
    assert len(before) >= 3
    assert set(before) == {b":\n\n"}
    assert (news, end) == (b"data: news\n\n", b"")


def test_an_event_that_is_there_needs_no_comment() -> None:
    assert asyncio.run(read_all(sse(Mono.just("news"), heartbeat=0.001))) == b"data: news\n\n"


def test_the_log_names_clients_that_go(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "penstock.net.http")
    asyncio.run(gone_while(Source(), taking=True, elements=0))

    assert "GET / from 192.0.2.1:5: the client disconnected" in caplog.text

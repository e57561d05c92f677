"""The same under every server, each a process of its own, over real sockets."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Coroutine
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.net.http.serving import MOST, PATIENCE, Served

pytestmark = pytest.mark.slow

BLOCK = bytes(64 * 1024)


def stalled(server: Served, path: str) -> socket.socket:
    """A client that asks and then reads nothing."""
    client = server.connection()
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: test\r\n\r\n".encode())
    return client


def push(client: socket.socket, most: int) -> int:
    """Send until the other side has taken nothing for a while, or ``most`` bytes are sent."""
    client.setblocking(False)
    sent = 0
    while sent < most and select.select([], [client], [], 1.0)[1]:
        sent += client.send(BLOCK[: most - sent])
    client.setblocking(True)
    client.settimeout(PATIENCE)
    return sent


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(coroutine, 2 * PATIENCE))


# ---------------------------------------------------------------- responses


def test_a_stream_arrives_whole(server: Served) -> None:
    answer = server.ask.get("/numbers/100000")

    assert answer.headers["content-type"] == "application/x-ndjson"
    assert answer.text.split() == [str(number) for number in range(100_000)]


def test_elements_arrive_as_they_are_made(server: Served) -> None:
    with server.ask.stream("GET", "/silent/arriving") as answer:
        assert next(answer.iter_raw()) == b"first\n"
    server.until("arriving", "closed")


def test_a_source_may_run_on_a_thread(server: Served) -> None:
    answer = server.ask.get("/pool")

    assert answer.text.splitlines() == [f'{{"n":{number},"pool":true}}' for number in range(3)]


def test_a_client_that_does_not_read_stops_the_source_and_its_going_cancels_it(server: Served) -> None:
    with stalled(server, "/endless/stalled"):
        assert server.at_rest("stalled", "produced", MOST) > 0
    server.until("stalled", "closed")
    assert server.at_rest("stalled", "produced", MOST) > 0


def test_a_client_that_goes_in_the_middle_cancels_the_source(server: Served) -> None:
    with server.ask.stream("GET", "/endless/left") as answer:
        chunks = answer.iter_raw()
        for _ in range(20):
            next(chunks)
    server.until("left", "closed")


def test_a_client_that_goes_while_the_source_is_idle_cancels_it(server: Served) -> None:
    with stalled(server, "/silent/idle") as client:
        received = b""
        while b"first" not in received:
            received += client.recv(1000)
    server.until("idle", "closed")


def test_events_and_heartbeats(server: Served) -> None:
    answer = server.ask.get("/events")
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.text == (
        "id: 1\ndata: one\n\nevent: note\nid: 2\ndata: two\ndata: lines\n\n"
        'data: {"three":3}\n\nretry: 250\ndata: last\n\n'
    )
    with server.ask.stream("GET", "/heartbeats") as beating:
        lines = beating.iter_lines()
        assert [next(lines) for _ in range(6)] == [":", ""] * 3


def test_a_source_that_fails_at_once_is_a_500(server: Served) -> None:
    answer = server.ask.get("/fails/0")

    assert (answer.status_code, answer.text) == (500, "the server could not produce this response\n")


def test_a_source_that_fails_later_does_not_end_properly(server: Served) -> None:
    with pytest.raises(httpx2.RemoteProtocolError, match="incomplete"):
        server.ask.get("/fails/5")

    assert "the source failed after 10 bytes, so the connection is broken" in server.log.read_text()


def test_head_does_not_run_the_source(server: Served) -> None:
    assert server.ask.head("/endless/head").status_code == 200
    assert server.state("head") == {}


# ---------------------------------------------------------------- uploads


def test_an_upload_and_its_response_flow_together(server: Served) -> None:
    lines = b"".join(b"line %d\n" % number for number in range(20_000))

    assert server.ask.post("/upper", content=lines).content == lines.upper()


def test_a_consumer_that_waits_holds_the_sender(server: Served) -> None:
    with server.connection() as client:
        client.sendall(
            b"POST /upload/held HTTP/1.1\r\nHost: test\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n" % MOST
        )
        sent = push(client, MOST)
        assert sent < MOST
        assert server.until("held", "taken")["taken"] <= sent
        server.open_gate("held")
        while sent < MOST:
            client.sendall(BLOCK[: MOST - sent])
            sent += len(BLOCK[: MOST - sent])
        answer = b""
        while chunk := client.recv(65536):
            answer += chunk
    assert b"200" in answer.splitlines()[0]
    assert server.state("held") == {"taken": MOST, "error": None}


def test_a_client_that_goes_in_the_middle_of_an_upload_is_an_error(server: Served) -> None:
    with server.connection() as client:
        client.sendall(b"POST /upload/broken HTTP/1.1\r\nHost: test\r\nContent-Length: 1000\r\n\r\nhalf")
        server.until("broken", "taken")
        server.open_gate("broken")
    assert server.until("broken", "error") == {"taken": 4, "error": "ClientGone"}


# ---------------------------------------------------------------- WebSockets


def joined(server: Served, path: str) -> connect:
    """A client without compression, with which the same bytes again would weigh nothing."""
    return connect(server.ws(path), compression=None, max_queue=1)


async def closed_by_the_server(client: ClientConnection) -> tuple[list[Any], int, str]:
    """All messages up to the close, and what it was closed with."""
    messages: list[Any] = []

    async def listen() -> None:
        while True:
            messages.append(await client.recv())

    with pytest.raises(ConnectionClosed) as raised:
        await listen()
    close = raised.value.rcvd
    assert close is not None
    return messages, close.code, close.reason


def test_an_echo(server: Served) -> None:
    async def ask() -> None:
        async with joined(server, "/echo") as client:
            for message in ("text", b"bytes", "", "ü" * 100_000):
                await client.send(message)
                assert await client.recv() == message

    run(ask())


def test_close_codes_reach_the_client(server: Served) -> None:
    async def ask() -> None:
        async with joined(server, "/close") as client:
            assert await closed_by_the_server(client) == (["bye"], 4001, "enough")
        async with joined(server, "/broken") as client:
            assert await closed_by_the_server(client) == (["one"], 1011, "the handler failed")
        with pytest.raises(InvalidStatus, match="404"):
            await joined(server, "/nowhere")

    run(ask())


def test_a_websocket_client_that_does_not_read_stops_the_source_and_its_going_cancels_it(
    server: Served,
) -> None:
    async def ask() -> None:
        client = await joined(server, "/chatter/talk")
        assert await asyncio.to_thread(server.at_rest, "talk", "produced", MOST) > 0
        client.transport.abort()
        await asyncio.to_thread(server.until, "talk", "closed")

    run(ask())


def test_a_handler_that_does_not_take_messages_holds_the_client(server: Served) -> None:
    count = MOST // len(BLOCK)
    sent = 0

    async def ask() -> None:
        nonlocal sent
        async with joined(server, "/deaf/listener") as client:

            async def say_all() -> None:
                nonlocal sent
                for _ in range(count):
                    await client.send(BLOCK)
                    sent += 1
                await client.send(b"end")

            talking = asyncio.ensure_future(say_all())
            before = -1
            while sent != before and not talking.done():
                before = sent
                await asyncio.wait((talking,), timeout=1.0)
            assert not talking.done()
            assert (await asyncio.to_thread(server.until, "listener", "messages"))["messages"] == 1
            await asyncio.to_thread(server.open_gate, "listener")
            await talking
            assert await client.recv() == f"{count + 1} messages"

    run(ask())
    assert sent == count


# ---------------------------------------------------------------- reading in a loop


def test_a_loop_over_a_body_reads_few_chunks_ahead(server: Served) -> None:
    head = "POST /looped/body HTTP/1.1\r\nHost: test\r\nContent-Length: 1000000000\r\n\r\n"
    with server.connection() as client:
        client.sendall(head.encode() + BLOCK)
        server.until("body", "taken")
        assert push(client, 2 * MOST) < MOST
    server.open_gate("body")


def test_a_loop_over_messages_reads_few_of_them_ahead(server: Served) -> None:
    async def main() -> None:
        message = bytes(1_000_000)
        client = await connect(server.ws("/looped/messages"), compression=None, ping_interval=None)
        sent = 0
        try:
            while sent < 100:
                await asyncio.wait_for(client.send(message), 2)
                sent += 1
        except TimeoutError:
            pass
        assert 0 < sent < 60  # what the sockets and the server itself hold, and few more
        client.transport.abort()

    run(main())
    server.open_gate("messages")


def test_a_client_that_leaves_in_the_middle_of_its_upload_is_no_error_of_the_route(server: Served) -> None:
    for number in range(3):
        with server.connection() as client:
            client.sendall(
                f"POST /looped/left{number} HTTP/1.1\r\nHost: test\r\nContent-Length: 100\r\n\r\nabc".encode()
            )
            server.until(f"left{number}", "taken")
        server.open_gate(f"left{number}")
    assert server.ask.get("/numbers/3").text.split() == ["0", "1", "2"]
    assert "the route failed" not in server.log.read_text()

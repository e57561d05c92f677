"""Our WebSocket client and our WebSocket server, with each of the servers in between."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.net.http import BadStatus, WebSocketClosed, ws
from penstock.streams import Flux
from tests.net.http.serving import PATIENCE, Served

pytestmark = pytest.mark.slow

MOST = 32 * 1024 * 1024


def test_an_echo_in_order(server: Served) -> None:
    messages: list[Any] = ["text", b"bytes", "", "ü" * 100_000, *map(str, range(1000))]

    async def ask() -> list[Any]:
        async with await ws(server.ws("/echo")).connect() as connection:
            sending = asyncio.ensure_future(connection.outbound.send(Flux.from_iterable(messages)).mono())
            got = [message async for message in connection.inbound.receive().take(len(messages))]
            await sending
            return got

    assert asyncio.run(asyncio.wait_for(ask(), PATIENCE)) == messages


def test_the_close_of_a_handler_arrives(server: Served) -> None:
    got: list[Any] = []
    with pytest.raises(WebSocketClosed, match=r"4001 \(enough\)"):
        ws(server.ws("/close")).receive().do_on_next(got.append).block_last(PATIENCE)
    assert got == ["bye"]
    with pytest.raises(WebSocketClosed, match="1011"):
        ws(server.ws("/broken")).receive().block_last(PATIENCE)


def test_a_path_that_is_not_there(server: Served) -> None:
    with pytest.raises(BadStatus, match=r"/nowhere was answered with 404") as raised:
        ws(server.ws("/nowhere")).connect().block(PATIENCE)
    assert raised.value.status == 404


def test_a_subscriber_that_does_not_ask_stops_the_source_behind_the_server(server: Served) -> None:
    messages = ws(server.ws("/chatter/unread"), close_timeout=0.5).receive().to_iterable(prefetch=1)
    next(messages)
    assert server.at_rest("unread", "produced", MOST) > 0
    messages.close()  # type: ignore[attr-defined]
    server.until("unread", "closed")


def test_a_handler_that_does_not_take_messages_stops_the_source_of_the_client(server: Served) -> None:
    made = 0

    def block(number: int) -> bytes:
        nonlocal made
        made = number + 1
        return bytes(65_536)

    async def ask() -> None:
        async with await ws(server.ws("/deaf/held")).connect() as connection:
            blocks = Flux.range(512).map(block)
            sending = asyncio.ensure_future(connection.outbound.send(blocks).send(b"end").mono())
            before = -1
            while made != before:
                before = made
                await asyncio.wait((sending,), timeout=1.0)
            assert made < 512
            await asyncio.to_thread(server.open_gate, "held")
            await sending
            assert await connection.inbound.receive().take(1).collect_list() == ["513 messages"]

    asyncio.run(asyncio.wait_for(ask(), PATIENCE))

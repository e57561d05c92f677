"""A WebSocket in the hands of a test: demand to the message, and every way it can end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.net import ReceiverTaken, SendRefused
from penstock.net.http import WebSocketClosed, websocket
from penstock.streams import Flux, Mono, schedulers
from tests.net.http.conversing import PATIENCE, Exchange, Source, turns


class Client(Exchange):
    """The other end of a WebSocket."""

    def __init__(self) -> None:
        super().__init__(kind="websocket", path="/ws")
        self.incoming.put_nowait({"type": "websocket.connect"})

    def say(self, *messages: bytes | str) -> None:
        for message in messages:
            kind = "text" if isinstance(message, str) else "bytes"
            self.incoming.put_nowait({"type": "websocket.receive", kind: message})

    def close(self, code: int = 1000, reason: str = "") -> None:
        self.incoming.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})

    @property
    def heard(self) -> list[bytes | str]:
        sends = [message for message in self.sent if message["type"] == "websocket.send"]
        return [message["text"] if "text" in message else message["bytes"] for message in sends]

    @property
    def closed_with(self) -> tuple[int, str] | None:
        last = self.sent[-1]
        return (last["code"], last["reason"]) if last["type"] == "websocket.close" else None


Script = Callable[[Client], Awaitable[None] | None]


def played(handler: Any, script: Script) -> Client:
    """Run a handler against a client that does what the script says, to the end of both."""

    async def play() -> Client:
        client = Client()
        running = client.start(websocket(handler))
        result = script(client)
        if result is not None:
            await result
        await asyncio.wait_for(running, PATIENCE)
        await turns()
        assert len(asyncio.all_tasks()) == 1
        assert client.receiving == 0
        return client

    return asyncio.run(play())


def echo(inbound: Any, outbound: Any) -> Any:
    return outbound.send(inbound.receive())


def stays(client: Client) -> None:
    """The client says nothing and waits."""


# ---------------------------------------------------------------- messages


def test_text_comes_back_as_text_and_bytes_as_bytes() -> None:
    async def script(client: Client) -> None:
        client.say("text", b"bytes", "", b"")
        await client.until_sent(5)
        client.close()

    client = played(echo, script)
    assert client.heard == ["text", b"bytes", "", b""]
    assert client.closed_with is None


def test_sends_go_out_in_order_and_the_end_closes() -> None:
    client = played(
        lambda inbound, outbound: (
            outbound.send("one").send(Flux.just(b"2", "3")).then(Mono.empty()).send("4")
        ),
        stays,
    )

    assert client.heard == ["one", b"2", "3", "4"]
    assert client.closed_with == (1000, "")


def test_a_coroutine_may_be_the_handler() -> None:
    async def handler(inbound: Any, outbound: Any) -> None:
        async for name in inbound.receive().take(2):
            await outbound.send(f"hello {name}")

    client = played(handler, lambda client: client.say("Ada", "Grace"))
    assert client.heard == ["hello Ada", "hello Grace"]
    assert client.closed_with == (1000, "")


def test_a_coroutine_may_return_what_is_to_be_run() -> None:
    async def handler(inbound: Any, outbound: Any) -> Any:
        return outbound.send("later")

    assert played(handler, stays).heard == ["later"]


def test_a_source_on_another_thread() -> None:
    numbers = Flux.range(100).map(str).subscribe_on(schedulers.shared_pool())
    client = played(lambda inbound, outbound: outbound.send(numbers).send("end"), stays)

    assert client.heard == [*map(str, range(100)), "end"]


def test_a_subprotocol_is_agreed_on() -> None:
    async def ask() -> Any:
        client = Client()
        client.scope["subprotocols"] = ["other", "mine"]
        app = websocket(lambda inbound, outbound: outbound, subprotocols=["mine"], headers={"x-a": "b"})
        await asyncio.wait_for(client.start(app), PATIENCE)
        return client.sent[0]

    accepted = asyncio.run(ask())
    assert accepted["subprotocol"] == "mine"
    assert accepted["headers"] == [(b"x-a", b"b")]


# ---------------------------------------------------------------- demand


def test_a_client_that_does_not_read_stops_the_source() -> None:
    async def ask() -> None:
        client, source = Client(), Source()
        running = client.start(websocket(lambda inbound, outbound: outbound.send(source)))
        await client.until_sent(1)
        await turns()
        client.taking.clear()
        first = source.requested
        for number in range(first):
            source.subscriber.on_next(str(number))
        await turns()
        assert (client.heard, source.requested) == (["0"], first)
        client.taking.set()
        await client.until_sent(1 + first)
        await turns()
        assert source.requested > first
        source.subscriber.on_complete()
        await asyncio.wait_for(running, PATIENCE)

    asyncio.run(ask())


def test_messages_that_nobody_asks_for_stay_with_the_server() -> None:
    async def ask() -> tuple[int, list[str]]:
        client, gate = Client(), asyncio.Event()
        got: list[str] = []

        async def handler(inbound: Any, outbound: Any) -> None:
            await gate.wait()
            async for message in inbound.receive():
                got.append(message)

        running = client.start(websocket(handler))
        client.say(*map(str, range(1000)))
        client.close()
        await turns(2000)
        ahead = client.received
        gate.set()
        await asyncio.wait_for(running, PATIENCE)
        return ahead, got

    ahead, got = asyncio.run(ask())
    assert ahead == 1 + 32  # the connect, and what may be read ahead
    assert got == [str(number) for number in range(1000)]


def test_receive_has_one_subscriber() -> None:
    async def handler(inbound: Any, outbound: Any) -> None:
        assert [message async for message in inbound.receive().take(1)] == ["x"]
        with pytest.raises(ReceiverTaken):
            await inbound.receive().collect_list()
        await outbound.send("checked")

    assert played(handler, lambda client: client.say("x")).heard == ["checked"]


# ---------------------------------------------------------------- the client ends it


def test_what_has_come_before_a_close_is_still_given() -> None:
    got: list[Any] = []

    async def handler(inbound: Any, outbound: Any) -> None:
        async for message in inbound.receive():
            await asyncio.sleep(0)
            got.append(message)
        got.append(inbound.close_code)

    def script(client: Client) -> None:
        client.say("one", "two")
        client.close(1001)

    played(handler, script)
    assert got == ["one", "two", 1001]


@pytest.mark.parametrize("code", [1006, 1002, 4000])
def test_a_close_that_means_trouble_is_an_error(code: int) -> None:
    errors: list[WebSocketClosed] = []

    async def handler(inbound: Any, outbound: Any) -> None:
        try:
            await inbound.receive().collect_list()
        except WebSocketClosed as closed:
            errors.append(closed)

    played(handler, lambda client: client.close(code, "because"))
    (closed,) = errors
    assert (closed.code, closed.reason, closed.clean) == (code, "because", False)
    assert isinstance(closed, ConnectionError)


@pytest.mark.parametrize("taking", [True, False], ids=["idle source", "blocked send"])
def test_a_client_that_goes_cancels_what_is_being_sent(
    taking: bool, caplog: pytest.LogCaptureFixture
) -> None:
    source = Source()

    async def script(client: Client) -> None:
        await client.until_sent(1)
        await turns()
        if not taking:
            client.taking.clear()
        source.subscriber.on_next("x")
        await client.until_sent(2)
        client.close(1001)

    played(lambda inbound, outbound: outbound.send(source), script)
    assert source.cancelled
    assert caplog.text == ""


def test_a_send_says_how_far_it_got() -> None:
    errors: list[BaseException] = []
    source = Source()

    async def script(client: Client) -> None:
        await client.until_sent(1)
        await turns()
        source.subscriber.on_next("x")
        await client.until_sent(2)
        client.close(1006)

    played(lambda inbound, outbound: outbound.send(source).mono().do_on_error(errors.append), script)
    (closed,) = errors
    assert isinstance(closed, WebSocketClosed)
    assert (closed.code, closed.elements) == (1006, 1)


def test_a_handler_that_does_not_listen_is_cancelled() -> None:
    cancelled = []

    async def handler(inbound: Any, outbound: Any) -> None:
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    played(handler, lambda client: client.close())
    assert cancelled == [True]


def test_a_handler_that_listened_to_the_end_may_finish() -> None:
    finished = []

    async def handler(inbound: Any, outbound: Any) -> None:
        count = await inbound.receive().count()
        await turns(50)
        finished.append(count)

    def script(client: Client) -> None:
        client.say("a", "b")
        client.close()

    played(handler, script)
    assert finished == [2]


def test_a_server_that_says_so_from_send_ends_it_as_well() -> None:
    source = Source()

    async def ask() -> None:
        client = Client()

        async def send(message: Any) -> None:
            if message["type"] == "websocket.send":
                raise BrokenPipeError("the client has gone")

        app = websocket(lambda inbound, outbound: outbound.send(source))
        running = asyncio.ensure_future(app(client.scope, client.receive, send))
        await turns()
        source.subscriber.on_next("x")
        await asyncio.wait_for(running, PATIENCE)

    asyncio.run(ask())
    assert source.cancelled


# ---------------------------------------------------------------- we end it


def test_a_handler_that_fails_closes_with_1011(caplog: pytest.LogCaptureFixture) -> None:
    client = played(
        lambda inbound, outbound: outbound.send("x").then(Mono.error(RuntimeError("broken"))), stays
    )

    assert client.heard == ["x"]
    assert client.closed_with == (1011, "the handler failed")
    assert "WebSocket /ws from 192.0.2.1:5: the handler failed" in caplog.text
    assert "RuntimeError: broken" in caplog.text


def test_a_handler_that_raises_does_as_well(caplog: pytest.LogCaptureFixture) -> None:
    def handler(inbound: Any, outbound: Any) -> Any:
        raise RuntimeError("broken at once")

    assert played(handler, stays).closed_with == (1011, "the handler failed")
    assert "broken at once" in caplog.text


@pytest.mark.parametrize("element", [7, {"a": 1}])
def test_a_message_is_bytes_or_text(element: Any, caplog: pytest.LogCaptureFixture) -> None:
    client = played(lambda inbound, outbound: outbound.send(Flux.just(element)), stays)

    assert client.closed_with == (1011, "the handler failed")
    assert SendRefused.__name__ in caplog.text


def test_a_handler_may_choose_how_to_close() -> None:
    assert played(lambda inbound, outbound: outbound.close(4001, "enough"), stays).closed_with == (
        4001,
        "enough",
    )


def test_nobody_listens_any_more_when_a_close_is_sent() -> None:
    listening: list[int] = []

    async def ask() -> None:
        client = Client()

        async def send(message: Any) -> None:
            if message["type"] == "websocket.close":
                listening.append(client.receiving)

        app = websocket(lambda inbound, outbound: outbound.send("x"))
        await asyncio.wait_for(app(client.scope, client.receive, send), PATIENCE)

    asyncio.run(ask())
    assert listening == [0]


def test_after_a_close_nothing_can_be_sent_and_receiving_ends() -> None:
    async def closes(inbound: Any, outbound: Any) -> None:
        reading = asyncio.ensure_future(collect(inbound))
        await turns()
        await outbound.close(4002)
        assert await reading == ["x"]
        with pytest.raises(SendRefused, match="closed on this side"):
            await outbound.send("too late")

    client = played(closes, lambda client: client.say("x"))
    assert client.closed_with == (4002, "")


async def collect(inbound: Any) -> list[Any]:
    return [message async for message in inbound.receive()]


def test_a_server_that_stops_cancels_everything() -> None:
    source = Source()

    async def ask() -> None:
        client = Client()
        running = client.start(websocket(lambda inbound, outbound: outbound.send(source)))
        await client.until_sent(1)
        await turns()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await turns()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(ask())
    assert source.cancelled


def test_trouble_is_told_to_the_log_and_a_farewell_is_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.net.http")
    played(echo, lambda client: client.close(1000))
    assert caplog.text == ""
    played(echo, lambda client: client.close(1006))
    assert "the client closed the WebSocket with code 1006" in caplog.text


def test_a_handler_is_a_function() -> None:
    with pytest.raises(TypeError, match="function"):
        websocket("echo")  # type: ignore[arg-type]

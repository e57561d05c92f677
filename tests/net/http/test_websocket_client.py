"""The WebSocket client: its messages, its ends, and demand that reaches the socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed

from penstock.net import ReceiverTaken, SendRefused
from penstock.net.http import WebSocketClient, WebSocketClosed, WebSocketInbound, WebSocketOutbound, ws
from penstock.streams import Flux, Mono
from tests.net.http.conversing import Source, turns
from tests.net.http.websocket_peers import (
    BINARY,
    CLOSE,
    PATIENCE,
    PING,
    TEXT,
    RawPeer,
    frame,
    raw_server,
    websocket_server,
)


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end, and look whether a task is left."""

    async def main() -> None:
        await asyncio.wait_for(work, PATIENCE)
        await turns()
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(main())


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


class Ends:
    """A handler that takes everything, and remembers how each of its WebSockets was closed."""

    def __init__(self, *says: Any) -> None:
        self.says = says
        self.heard: list[Any] = []
        self.codes: list[tuple[int, str]] = []
        self.over = threading.Event()

    async def __call__(self, connection: ServerConnection) -> None:
        try:
            for message in self.says:
                await connection.send(message)
            while True:
                self.heard.append(await connection.recv())
        except ConnectionClosed as closed:
            self.codes.append((closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (1006, ""))
        finally:
            self.over.set()


@pytest.fixture(scope="module")
def echoing() -> Iterator[str]:
    with websocket_server(echo) as url:
        yield url


# ---------------------------------------------------------------- messages


def test_text_bytes_and_messages_of_16_mb_come_back(echoing: str) -> None:
    messages = ["text", b"bytes", "", b"", "ü" * 100_000, bytes(16_000_000)]

    async def ask() -> None:
        async with await ws(echoing).connect() as connection:
            sending = asyncio.ensure_future(connection.outbound.send(Flux.from_iterable(messages)).mono())
            got = [message async for message in connection.inbound.receive().take(len(messages))]
            await sending
            assert got == messages

    run(ask())


def test_a_message_in_fragments_is_one_message() -> None:
    async def fragments(connection: ServerConnection) -> None:
        await connection.send(["ein", "s ", "zwei"])
        await connection.send([b"x" * 1000] * 100)

    with websocket_server(fragments) as url:
        assert list(ws(url).receive()) == ["eins zwei", b"x" * 100_000]


def test_headers_and_subprotocols_are_agreed_on() -> None:
    heads: list[Any] = []

    async def look(connection: ServerConnection) -> None:
        assert connection.request is not None
        heads.append(connection.request.headers["x-token"])

    async def ask(url: str) -> None:
        client = ws(f"{url}a/b?c=d", headers={"X-Token": "secret"}, subprotocols=["other", "mine"])
        async with await client.connect() as connection:
            assert connection.subprotocol == "mine"
            assert ("sec-websocket-protocol", "mine") in connection.headers
            scope = connection.inbound.scope
            assert (scope["path"], scope["query_string"]) == ("/a/b", b"c=d")

    with websocket_server(look, subprotocols=["mine"]) as url:
        run(ask(url))
    assert heads == ["secret"]


def test_sends_at_the_same_time_take_turns(echoing: str) -> None:
    async def ask() -> None:
        async with await ws(echoing).connect() as connection:
            sends = [connection.outbound.send(Flux.range(50).map(lambda n, k=k: f"{k}{n}")) for k in "abc"]
            together = asyncio.gather(*(asyncio.ensure_future(send.mono()) for send in sends))
            got = [message async for message in connection.inbound.receive().take(150)]
            await together
            for k in "abc":
                assert [text for text in got if text[0] == k] == [f"{k}{n}" for n in range(50)]

    run(ask())


def test_text_that_cannot_be_encoded_is_refused_and_the_connection_goes_on(echoing: str) -> None:
    async def ask() -> None:
        async with await ws(echoing).connect() as connection:
            with pytest.raises(SendRefused, match="UTF-8"):
                await connection.outbound.send("\ud800")
            with pytest.raises(SendRefused, match="bytes or text"):
                await connection.outbound.send(Flux.just(7))
            await connection.outbound.send("fine")
            assert await connection.inbound.receive().take(1).collect_list() == ["fine"]

    run(ask())


def test_receive_has_one_subscriber(echoing: str) -> None:
    async def ask() -> None:
        async with await ws(echoing).connect() as connection:
            await connection.outbound.send("x")
            assert await connection.inbound.receive().take(1).collect_list() == ["x"]
            with pytest.raises(ReceiverTaken):
                await connection.inbound.receive().collect_list()

    run(ask())


def test_on_a_thread_without_an_event_loop(echoing: str) -> None:
    connection = ws(echoing).connect().block(PATIENCE)
    assert connection is not None
    connection.outbound.send("one").send("two").mono().block(PATIENCE)
    assert connection.inbound.receive().take(2).collect_list().block(PATIENCE) == ["one", "two"]
    connection.outbound.close(4000, "done").mono().block(PATIENCE)
    assert (connection.inbound.close_code, connection.outbound.close_code) == (4000, 4000)


def test_its_two_sides_may_be_used_on_another_thread(echoing: str) -> None:
    async def ask() -> None:
        async with await ws(echoing).connect() as connection:

            def elsewhere() -> Any:
                connection.outbound.send(Flux.range(100).map(str)).mono().block(PATIENCE)
                return connection.inbound.receive().take(100).collect_list().block(PATIENCE)

            assert await asyncio.to_thread(elsewhere) == [str(n) for n in range(100)]

    run(ask())


def test_each_subscriber_opens_its_own(echoing: str) -> None:
    opened: list[WebSocketInbound] = []
    echoes: list[Any] = []

    def greet(inbound: WebSocketInbound, outbound: WebSocketOutbound) -> Any:
        opened.append(inbound)
        return outbound.send("a").then(inbound.receive().take(1).do_on_next(echoes.append))

    hello = ws(echoing).handle(greet)
    hello.block(PATIENCE)
    hello.block(PATIENCE)

    assert echoes == ["a", "a"]
    assert len(opened) == 2
    assert opened[0] is not opened[1]


# ---------------------------------------------------------------- demand


def test_a_slow_subscriber_stops_the_reading_and_loses_nothing() -> None:
    size, count = 65_536, 2048
    stopped: list[int] = []
    resume = threading.Event()

    def talk(peer: RawPeer) -> None:
        peer.accept()
        message = frame(BINARY, bytes(size))
        unsent = memoryview(message * count)
        sent = 0
        peer.socket.settimeout(1.0)
        try:
            while sent < len(unsent):
                sent += peer.socket.send(unsent[sent : sent + size])
        except TimeoutError:
            stopped.append(sent)
        resume.set()
        peer.socket.settimeout(PATIENCE)
        peer.socket.sendall(unsent[sent:])
        peer.close()

    with raw_server(talk) as url:
        messages = ws(url).receive().to_iterable(prefetch=1)
        assert len(next(messages)) == size
        assert resume.wait(PATIENCE)
        assert sum(1 for _ in messages) == count - 1
    assert stopped
    assert stopped[0] < size * count / 2


def test_a_server_that_does_not_read_stops_the_source() -> None:
    gate, has_all = threading.Event(), threading.Event()
    size, count = 65_536, 1024

    def talk(peer: RawPeer) -> None:
        peer.accept()
        assert gate.wait(PATIENCE)
        heard = 0
        while heard <= size * count:
            chunk = peer.socket.recv(65_536)
            assert chunk, f"the client has gone after {heard:,} bytes"
            heard += len(chunk)
        has_all.set()
        peer.until_gone()

    async def ask(url: str) -> None:
        made = 0

        def blocks() -> Iterator[bytes]:
            nonlocal made
            while made < count:
                made += 1
                yield bytes(size)

        async with await ws(url, close_timeout=0.1).connect() as connection:
            sending = asyncio.ensure_future(connection.outbound.send(Flux.from_iterable(blocks())).mono())
            before = -1
            while made != before:
                before = made
                await asyncio.wait((sending,), timeout=1.0)
            assert made < count
            gate.set()
            await sending
            assert made == count
            # The close cuts a server off that does not answer it, and what is on its way with it.
            assert await asyncio.to_thread(has_all.wait, PATIENCE)

    with raw_server(talk) as url:
        run(ask(url))


# ---------------------------------------------------------------- the server ends it


@pytest.mark.parametrize("code", [1000, 1001])
def test_a_proper_close_completes(code: int) -> None:
    async def bye(connection: ServerConnection) -> None:
        await connection.send("one")
        await connection.close(code, "bye")

    async def ask(url: str) -> None:
        async with await ws(url).connect() as connection:
            assert await connection.inbound.receive().collect_list() == ["one"]
            assert (connection.inbound.close_code, connection.inbound.close_reason) == (code, "bye")
            assert connection.outbound.close_code is None
            with pytest.raises(WebSocketClosed, match=f"the server closed the WebSocket with code {code}"):
                await connection.outbound.send("too late")

    with websocket_server(bye) as url:
        assert list(ws(url).receive()) == ["one"]
        run(ask(url))


def test_a_close_that_means_trouble_is_an_error() -> None:
    async def enough(connection: ServerConnection) -> None:
        await connection.send("one")
        await connection.close(4001, "enough")

    got: list[Any] = []
    with websocket_server(enough) as url, pytest.raises(WebSocketClosed, match=r"4001 \(enough\)") as raised:
        ws(url).receive().do_on_next(got.append).block_last(PATIENCE)
    assert got == ["one"]
    assert (raised.value.code, raised.value.reason, raised.value.clean) == (4001, "enough", False)
    assert url in str(raised.value)


def test_a_server_that_closes_the_websocket_but_not_the_socket() -> None:
    def talk(peer: RawPeer) -> None:
        peer.accept()
        peer.say(CLOSE, (4005).to_bytes(2, "big"))
        peer.until_gone()

    with raw_server(talk) as url, pytest.raises(WebSocketClosed, match="closed the WebSocket with code 4005"):
        list(ws(url, close_timeout=0.1, ping_interval=None).receive())


def test_a_cut_without_a_close_frame_is_an_error_that_says_so() -> None:
    def talk(peer: RawPeer) -> None:
        peer.accept()
        peer.say(TEXT, b"one")
        peer.say(TEXT, b"half of", fin=False)

    got: list[Any] = []
    with raw_server(talk) as url, pytest.raises(WebSocketClosed, match="without a close frame") as raised:
        ws(url).receive().do_on_next(got.append).block_last(PATIENCE)
    assert got == ["one"]
    assert raised.value.code == 1006


@pytest.mark.parametrize(
    ("frames", "code", "why"),
    [
        (frame(TEXT, b"\xff\xfe"), 1007, "invalid start byte"),
        (frame(TEXT, b"x" * 1001), 1009, "1009"),
        (frame(BINARY, b"x" * 600, fin=False) + frame(0, b"x" * 600), 1009, "1009"),
        (frame(0, b"what is continued?"), 1002, "1002"),
        (b"\xf3\x01x", 1002, "1002"),
    ],
    ids=["invalid UTF-8", "too large", "too large in fragments", "nothing to continue", "reserved bits"],
)
def test_what_breaks_the_protocol_closes_with_a_code_of_ours(frames: bytes, code: int, why: str) -> None:
    rest: list[bytes] = []

    def talk(peer: RawPeer) -> None:
        peer.accept()
        peer.say(TEXT, b"before")
        peer.socket.sendall(frames)
        answer = peer.socket.recv(65_536)
        peer.socket.shutdown(socket.SHUT_WR)
        rest.append(answer + peer.until_gone())

    got: list[Any] = []
    with raw_server(talk) as url, pytest.raises(WebSocketClosed, match=why) as raised:
        ws(url, max_length=1000).receive().do_on_next(got.append).block_last(PATIENCE)
    assert got == ["before"]
    assert raised.value.code == code
    assert "this side closed" in str(raised.value)
    assert rest[0][0] == 0x80 | CLOSE


@pytest.mark.parametrize("more", [b"", frame(CLOSE, (1000).to_bytes(2, "big"))], ids=["gone", "closed well"])
def test_text_that_is_not_utf8_is_named_even_if_the_server_is_gone_by_then(more: bytes) -> None:
    def talk(peer: RawPeer) -> None:
        peer.accept()
        peer.socket.sendall(frame(TEXT, b"before") + frame(TEXT, b"\xff\xfe") + more)

    async def ask(url: str) -> None:
        connection = await ws(url).connect()
        with pytest.raises(WebSocketClosed, match="invalid start byte") as raised:
            await connection.inbound.receive().collect_list()
        assert raised.value.code == 1007
        await connection.aclose()

    with raw_server(talk) as url:
        run(ask(url))


def test_a_server_that_goes_cancels_what_is_being_sent() -> None:
    async def ask(url: str) -> None:
        source = Source()
        async with await ws(url).connect() as connection:
            sending = asyncio.ensure_future(connection.outbound.send(source).mono())
            await turns()
            source.subscriber.on_next("first")
            with pytest.raises(WebSocketClosed, match="1 messages had been sent") as raised:
                await sending
            assert source.cancelled
            assert (raised.value.code, raised.value.elements) == (4002, 1)

    async def first_only(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.close(4002)

    with websocket_server(first_only) as url:
        run(ask(url))


# ---------------------------------------------------------------- we end it


def test_leaving_the_block_closes_with_1000_and_an_error_with_1011() -> None:
    ends = Ends()

    async def ask(url: str) -> None:
        async with await ws(url).connect() as connection:
            await connection.outbound.send("x")
        assert (connection.outbound.close_code, connection.inbound.close_code) == (1000, 1000)
        await connection.aclose()
        with pytest.raises(SendRefused, match="closed on this side"):
            await connection.outbound.send("too late")
        with pytest.raises(ZeroDivisionError):
            async with await ws(url).connect():
                raise ZeroDivisionError

    with websocket_server(ends) as url:
        run(ask(url))
    assert (ends.heard, ends.codes) == (["x"], [(1000, ""), (1011, "")])


def test_a_code_and_a_reason_of_your_own() -> None:
    ends = Ends()
    with websocket_server(ends) as url:
        ws(url).handle(lambda inbound, outbound: outbound.send("x").close(4003, "näh")).block(PATIENCE)
    assert (ends.heard, ends.codes) == (["x"], [(4003, "näh")])


@pytest.mark.parametrize(
    ("code", "reason"), [(999, ""), (1005, ""), (1006, ""), (5000, ""), (4000, "ü" * 62)]
)
def test_a_close_that_cannot_be_sent_is_refused_at_once(code: int, reason: str, echoing: str) -> None:
    async def ask() -> None:
        async with await ws(echoing).connect() as connection:
            with pytest.raises(ValueError, match="close"):
                connection.outbound.close(code, reason)

    run(ask())


def test_closing_reads_past_messages_that_nobody_wanted() -> None:
    ends = Ends(*[bytes(50_000)] * 200)

    async def ask(url: str) -> None:
        async with await ws(url).connect() as connection:
            assert await connection.inbound.receive().take(1).count() == 1

    with websocket_server(ends) as url:
        run(ask(url))
        assert ends.over.wait(PATIENCE)
    assert ends.codes == [(1000, "")]


def test_a_server_that_does_not_answer_a_close_is_cut_off() -> None:
    def talk(peer: RawPeer) -> None:
        peer.accept()
        peer.until_gone()

    async def ask(url: str) -> None:
        connection = await ws(url, close_timeout=0.1).connect()
        await connection.aclose()
        assert (connection.inbound.close_code, connection.outbound.close_code) == (1006, 1000)

    with raw_server(talk) as url:
        run(ask(url))


def test_cancelling_the_receiving_stream_closes_with_1000() -> None:
    ends = Ends("one", "two", "three")

    async def ask(url: str) -> None:
        assert await ws(url).receive().take(2).collect_list() == ["one", "two"]
        await asyncio.to_thread(ends.over.wait, PATIENCE)

    with websocket_server(ends) as url:
        run(ask(url))
    assert ends.codes == [(1000, "")]


def test_an_abort_is_a_cut() -> None:
    ends = Ends()

    async def ask(url: str) -> None:
        connection = await ws(url).connect()
        reading = asyncio.ensure_future(connection.inbound.receive().collect_list())
        await turns()
        threading.Thread(target=connection.abort).start()
        with pytest.raises(WebSocketClosed, match="without a close frame"):
            await reading
        await connection.aclose()

    with websocket_server(ends) as url:
        run(ask(url))
        assert ends.over.wait(PATIENCE)
    assert ends.codes == [(1006, "")]


@pytest.mark.parametrize("way", ["connect", "receive", "handle"])
def test_a_cancel_during_the_handshake_closes_the_socket(way: str) -> None:
    asked, gone = threading.Event(), threading.Event()

    def talk(peer: RawPeer) -> None:
        asked.set()
        peer.until_gone()
        gone.set()

    async def ask(url: str) -> None:
        client = ws(url)
        streams: dict[str, Any] = {
            "connect": client.connect(),
            "receive": client.receive(),
            "handle": client.handle(lambda inbound, outbound: outbound),
        }
        waiting = streams[way].subscribe()
        await asyncio.to_thread(asked.wait, PATIENCE)
        waiting.cancel()
        await asyncio.to_thread(gone.wait, PATIENCE)

    with raw_server(talk) as url:
        run(ask(url))
    assert gone.is_set()


def test_a_connection_that_comes_too_late_for_its_subscriber_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = Ends()

    class Idle:
        """Asks for nothing, so that the connection waits for it."""

        subscription: Any = None

        def on_subscribe(self, subscription: Any) -> None:
            self.subscription = subscription

        def on_next(self, element: Any) -> None:
            raise AssertionError

        def on_error(self, error: BaseException) -> None:
            raise AssertionError from error

        def on_complete(self) -> None:
            raise AssertionError

    opened = threading.Event()
    opening = WebSocketClient._open

    async def told(client: WebSocketClient) -> Any:
        connection = await opening(client)
        opened.set()
        return connection

    monkeypatch.setattr(WebSocketClient, "_open", told)

    async def ask(url: str) -> None:
        idle = Idle()
        ws(url).connect().subscribe(idle)
        await asyncio.to_thread(opened.wait, PATIENCE)
        await turns()
        idle.subscription.cancel()
        await asyncio.to_thread(ends.over.wait, PATIENCE)

    with websocket_server(ends) as url:
        run(ask(url))
    assert ends.codes == [(1006, "")]


def test_a_cancel_on_another_thread_at_any_moment_leaves_no_connection() -> None:
    left = threading.Condition()
    here = 0

    async def counts(connection: ServerConnection) -> None:
        nonlocal here
        with left:
            here += 1
        await connection.wait_closed()
        with left:
            here -= 1
            left.notify_all()

    async def ask(url: str) -> None:
        for number in range(60):
            subscription = ws(url).connect().subscribe(taken.append)
            canceller = threading.Timer(number / 5000, subscription.cancel)
            canceller.start()
            await asyncio.to_thread(canceller.join)
            for connection in taken:
                connection.abort()

    taken: list[Any] = []
    with websocket_server(counts) as url:
        asyncio.run(ask(url))
        with left:
            assert left.wait_for(lambda: here == 0, PATIENCE)


def test_an_await_that_is_cancelled_when_the_connection_is_there_leaves_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The element had come, and the coroutine that awaited it was gone: nobody closed the connection."""
    ends = Ends()
    opening = WebSocketClient._open
    using: asyncio.Future[None]

    def cancel_after(count: int) -> None:
        if count:
            asyncio.get_running_loop().call_soon(cancel_after, count - 1)
        else:
            using.cancel()

    async def use(url: str) -> None:
        async with await ws(url).connect():
            await asyncio.Event().wait()

    async def ask(url: str) -> None:
        nonlocal using
        for count in range(8):

            async def told(client: WebSocketClient, count: int = count) -> Any:
                connection = await opening(client)
                cancel_after(count)
                return connection

            monkeypatch.setattr(WebSocketClient, "_open", told)
            ends.over.clear()
            using = asyncio.ensure_future(use(url))
            await asyncio.wait([using])
            assert using.cancelled()
            assert await asyncio.to_thread(ends.over.wait, PATIENCE), f"open after {count} turns"

    with websocket_server(ends) as url:
        run(ask(url))


def test_a_server_of_pings_that_does_not_read_the_answers_is_cut_off() -> None:
    """Each ping is answered at once, and the answers filled the memory."""

    def talk(peer: RawPeer) -> None:
        peer.accept()
        with contextlib.suppress(ConnectionError):
            for _ in range(160):
                peer.socket.sendall(frame(PING, b"p" * 125) * 1000)

    with raw_server(talk) as url, pytest.raises(WebSocketClosed, match="did not read the answers") as closed:
        ws(url).receive().then().block(PATIENCE)
    assert closed.value.code == 1006


# ---------------------------------------------------------------- handlers


def test_a_handler_that_fails_tells_1011_and_fails() -> None:
    ends = Ends()

    def broken(inbound: Any, outbound: Any) -> Any:
        return outbound.send("x").then(Mono.error(ZeroDivisionError("mine")))

    with websocket_server(ends) as url, pytest.raises(ZeroDivisionError, match="mine"):
        ws(url).handle(broken).block(PATIENCE)
    assert ends.codes == [(1011, "the handler failed")]


@pytest.mark.parametrize("code", [1000, 4004])
def test_a_handler_that_does_not_listen_is_cancelled_when_the_server_closes(code: int) -> None:
    cancelled: list[bool] = []

    async def waits(inbound: Any, outbound: Any) -> None:
        try:
            await asyncio.Future()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    async def closes(connection: ServerConnection) -> None:
        await connection.close(code)

    async def ask(url: str) -> None:
        if code == 1000:
            await ws(url).handle(waits)
        else:
            with pytest.raises(WebSocketClosed, match="4004"):
                await ws(url).handle(waits)

    with websocket_server(closes) as url:
        run(ask(url))
    assert cancelled == [True]


def test_retry_connects_again() -> None:
    visits: list[int] = []

    async def second_time_lucky(connection: ServerConnection) -> None:
        visits.append(len(visits))
        await connection.send(f"visit {len(visits)}")
        await connection.close(1000 if len(visits) == 2 else 1013)

    with websocket_server(second_time_lucky) as url:
        assert list(ws(url).receive().retry(3)) == ["visit 1", "visit 2"]


# ---------------------------------------------------------------- ping


def test_a_server_that_does_not_answer_a_ping_is_cut_off() -> None:
    with raw_server(lambda peer: (peer.accept(), peer.until_gone())) as url:
        silent = ws(url, ping_interval=0.05, ping_timeout=0.1).receive()
        with pytest.raises(WebSocketClosed, match=r"did not answer a ping for 0\.1 s") as raised:
            list(silent)
    assert raised.value.code == 1006


def test_a_reader_that_is_slow_does_not_run_into_the_time_out_of_a_ping() -> None:
    pinged = threading.Event()

    def talk(peer: RawPeer) -> None:
        peer.accept()
        peer.socket.sendall(frame(BINARY, bytes(1000)) * 200)  # more than is read ahead
        peer.say(CLOSE, b"\x03\xe8")
        peer.socket.shutdown(socket.SHUT_WR)
        peer.socket.recv(1)
        pinged.set()
        peer.until_gone()

    with raw_server(talk) as url:
        messages = ws(url, ping_interval=0.05, ping_timeout=2.0).receive().to_iterable(prefetch=1)
        next(messages)
        assert pinged.wait(PATIENCE)
        threading.Event().wait(3.0)  # more than the time-out: what is shown is that it does not count
        assert sum(1 for _ in messages) == 199


def test_pings_go_both_ways() -> None:
    pongs: list[bool] = []

    async def asks(connection: ServerConnection) -> None:
        await asyncio.wait_for(await connection.ping(), PATIENCE)
        pongs.append(True)
        await connection.wait_closed()

    async def ask(url: str) -> None:
        async with await ws(url, ping_interval=0.01, ping_timeout=PATIENCE).connect():
            while not pongs:
                await asyncio.sleep(0.05)

    with websocket_server(asks) as url:
        run(ask(url))
    assert pongs


def test_a_ping_of_the_server_is_answered_with_its_own_bytes() -> None:
    heard: list[bytes] = []

    def talk(peer: RawPeer) -> None:
        peer.accept()
        peer.say(PING, b"you")
        answer = peer.socket.recv(2 + 4 + 3, 0x100)  # MSG_WAITALL
        mask, data = answer[2:6], answer[6:]
        heard.append(answer[:1] + bytes(a ^ b for a, b in zip(mask, data, strict=False)))
        peer.close()

    with raw_server(talk) as url:
        assert list(ws(url).receive()) == []
    assert heard == [b"\x8ayou"]


# ---------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    "options",
    [{"max_length": 0}, {"ping_timeout": -1}, {"connect_timeout": 0}, {"headers": {"a": "b\r\nc: d"}}],
    ids=str,
)
def test_what_cannot_be_is_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"number|header"):
        ws("ws://127.0.0.1/", **options)


def test_without_its_library_it_says_what_to_install() -> None:
    program = "import sys; sys.modules['websockets'] = None\nfrom penstock.net.http import ws\nws('ws://127.0.0.1/')"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last == (
        "ImportError: the WebSocket client needs websockets 15 or newer: pip install 'penstock-streams[http]'"
    )

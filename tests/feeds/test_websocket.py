"""WebSockets as feeds: read on demand, acknowledged after the commit, a lost connection is a state."""

import asyncio
import contextlib
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import websockets

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway
from penstock.feeds import BadFeed, FeedOptions, OnBadLine, WebSocketFeed, WebSocketListenFeed
from penstock.feeds.schemes import websocket as schemes_websocket
from tests.cli.running import PATIENCE
from tests.feeds.brokers import wait_until
from tests.feeds.reading import Reader

Listening = tuple[WebSocketListenFeed, Gateway]


@contextmanager
def server(handler: Callable[[Any], Any], port: int = 0) -> Iterator[int]:
    """A WebSocket server on a thread of its own; its port."""
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    found: list[int] = []
    ready = threading.Event()

    async def serve() -> None:
        async with websockets.serve(handler, "127.0.0.1", port) as running:
            found.append(next(iter(running.sockets)).getsockname()[1])
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(PATIENCE)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(PATIENCE)
        loop.close()


def test_the_messages_of_a_server_are_records_and_it_is_told_what_is_safe() -> None:
    heard: list[str] = []
    told = threading.Event()

    async def serve(socket: Any) -> None:
        heard.append(await socket.recv())
        for number in range(100):
            await socket.send(f"{number}")
        async for message in socket:
            heard.append(message)
            if message == "100 safe":
                told.set()

    with server(serve) as port:
        url = f"ws://127.0.0.1:{port}/prices?symbol=a#hello=subscribe&ack={{count}}+safe"
        with feeds.open(url) as feed, Gateway(feed, "tcp://127.0.0.1:0") as gateway:
            taken = list(AquiferPublisher(gateway.endpoint, stop=100).flux())
            assert told.wait(PATIENCE)
            assert gateway.status().source.state == "up"
    assert taken == [b"%d" % number for number in range(100)]
    assert heard[0] == "subscribe"


def test_a_server_that_ends_the_connection_is_connected_to_again(caplog: pytest.LogCaptureFixture) -> None:
    connections = 0

    async def serve(socket: Any) -> None:
        nonlocal connections
        connections += 1
        await socket.send(f"connection {connections}")

    with server(serve) as port:
        feed = WebSocketFeed(f"ws://127.0.0.1:{port}/", FeedOptions(codec="text"))
        assert list(feed.flux().take(3)) == ["connection 1", "connection 2", "connection 3"]
    assert "the server has closed the connection with 1000" in caplog.text


def test_a_server_that_is_not_there_is_a_state() -> None:
    with feeds.open("ws://127.0.0.1:9/") as feed, Gateway(feed, "tcp://127.0.0.1:0") as gateway:
        while (state := gateway.feed_state) is None or state.status != "down":
            threading.Event().wait(0.01)
        assert state.reason is not None
        assert gateway.status().end is None


def test_without_demand_the_socket_is_not_read() -> None:
    sent = 0

    async def serve(socket: Any) -> None:
        nonlocal sent
        with contextlib.suppress(websockets.ConnectionClosed):
            while sent < 5000:
                await socket.send(b"x" * 100_000)
                sent += 1

    with server(serve) as port:
        reader = Reader()
        WebSocketFeed(f"ws://127.0.0.1:{port}/", FeedOptions())(0).subscribe(reader)
        reader.subscription.request(2)
        reader.take(2)
        last = -1
        while last != sent:  # Until the buffers between the two are full.
            last = sent
            threading.Event().wait(0.3)
        assert sent < 1000
        assert reader.lines.empty()
        reader.subscription.cancel()


@pytest.fixture
def listening() -> Iterator[Listening]:
    """A gateway of what others send."""
    url = "ws-listen://127.0.0.1:0/in?ack=safe+{count}"
    with feeds.open(url, FeedOptions(codec="text", max_line=1000)) as feed:
        assert isinstance(feed, WebSocketListenFeed)
        with Gateway(feed, "tcp://127.0.0.1:0", codec="text") as gateway:
            yield feed, gateway


def test_several_senders_are_told_of_their_own_messages(
    listening: Listening,
) -> None:
    feed, gateway = listening

    async def send(count: int) -> str:
        async with websockets.connect(f"ws://127.0.0.1:{feed.port}/in") as socket:
            for number in range(count):
                await socket.send(f"{count}-{number}")
            async for message in socket:
                if message == f"safe {count}":
                    return str(message)
        return "closed"

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(send(count) for count in (1, 20, 300)))

    assert asyncio.run(all_of_them()) == ["safe 1", "safe 20", "safe 300"]
    taken = list(AquiferPublisher(gateway.endpoint, codec="text", stop=321).flux())
    assert [each for each in taken if each.startswith("300-")] == [f"300-{number}" for number in range(300)]


@pytest.mark.parametrize("bad", [b"\xff", "x" * 2000])
def test_a_bad_message_disconnects_its_sender_and_no_other(listening: Listening, bad: Any) -> None:
    feed, gateway = listening

    async def main() -> None:
        url = f"ws://127.0.0.1:{feed.port}/in"
        async with websockets.connect(url) as fine, websockets.connect(url) as wrong:
            await wrong.send("first")
            await wrong.recv()
            await wrong.send(bad)
            await wrong.wait_closed()
            assert wrong.close_code in (1007, 1009)
            await fine.send("second")
            assert await fine.recv() == "safe 1"

    asyncio.run(main())
    assert list(AquiferPublisher(gateway.endpoint, codec="text", stop=2).flux()) == ["first", "second"]


@contextmanager
def listening_with(policy: OnBadLine) -> Iterator[Listening]:
    url = "ws-listen://127.0.0.1:0/in?ack=safe+{count}"
    with feeds.open(url, FeedOptions(codec="text", max_line=1000, on_bad_line=policy)) as feed:
        assert isinstance(feed, WebSocketListenFeed)
        kept: dict[str, Any] = {"on_bad_record": "dead-letter"} if policy == "dead-letter" else {}
        with Gateway(feed, "tcp://127.0.0.1:0", codec="text", **kept) as gateway:
            yield feed, gateway


def letters_of(gateway: Gateway, count: int) -> list[dict[str, Any]]:
    return list(AquiferPublisher(f"{gateway.endpoint}/dead-letters", codec="json").flux().take(count))


@pytest.mark.parametrize("policy", ["skip", "dead-letter"])
def test_a_message_that_is_too_long_is_left_out_and_its_sender_stays(policy: OnBadLine) -> None:
    async def last_word(port: int) -> str:
        async with websockets.connect(f"ws://127.0.0.1:{port}/in") as socket:
            for message in ("one", "x" * 2000, "two"):
                await socket.send(message)
            async for told in socket:
                if told == "safe 3":
                    return told
        return "closed"

    with listening_with(policy) as (feed, gateway):
        assert asyncio.run(last_word(feed.port)) == "safe 3"
        assert list(AquiferPublisher(gateway.endpoint, codec="text", stop=2).flux()) == ["one", "two"]
        if policy == "skip":
            assert feed.skipped == 1
        else:
            [letter] = letters_of(gateway, 1)
            assert letter["reason"] == "has 2000 bytes; allow more with max_line (--max-line)"
            assert letter["text"] == "x" * 2000


@pytest.mark.parametrize("policy", ["fail", "skip", "dead-letter"])
def test_a_message_that_is_too_long_to_be_received_is_told_or_counted_or_kept(
    policy: OnBadLine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(schemes_websocket, "_LARGEST", 5000)

    async def refused(port: int) -> int | None:
        async with websockets.connect(f"ws://127.0.0.1:{port}/in") as socket:
            await socket.send("x" * 6000)
            await socket.wait_closed()
            return socket.close_code

    with listening_with(policy) as (feed, gateway):
        assert asyncio.run(refused(feed.port)) == 1009
        if policy == "dead-letter":
            [letter] = letters_of(gateway, 1)
            assert letter["reason"] == "has more than 5000 bytes; allow more with max_line (--max-line)"
            assert letter["bytes"] > len(letter["text"])
        elif policy == "skip":
            wait_until(lambda: feed.skipped == 1, "it is not counted")
        else:
            wait_until(lambda: "this sender is disconnected" in caplog.text, "it is not told")
            assert "a message has more than 1000 bytes; allow more with max_line" in caplog.text


def test_a_sender_of_pings_that_does_not_read_the_answers_is_disconnected(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The server answers each ping at once, and the answers filled the memory."""
    with feeds.open("ws-listen://127.0.0.1:0/in") as feed, socket.socket() as sender:
        assert isinstance(feed, WebSocketListenFeed)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sender.settimeout(PATIENCE)
        sender.connect(("127.0.0.1", feed.port))
        sender.sendall(
            b"GET /in HTTP/1.1\r\nHost: here\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
        )
        assert sender.recv(12) == b"HTTP/1.1 101"
        ping = b"\x89\xfd" + bytes(4) + b"p" * 125

        def send_pings() -> None:
            for _ in range(2000):  # A quarter of a gigabyte.
                sender.sendall(ping * 1000)

        with pytest.raises(ConnectionError):
            send_pings()
    assert "does not read the answers" in caplog.text


def test_a_listener_with_a_token_lets_nobody_else_in(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("0123456789abcdef")
    with feeds.open(f"ws-listen://127.0.0.1:0/in?ack=ok&token-file={tmp_path}/token") as feed:
        assert isinstance(feed, WebSocketListenFeed)
        with Gateway(feed, "tcp://127.0.0.1:0"):
            url = f"ws://127.0.0.1:{feed.port}/in"

            async def attempt(headers: dict[str, str]) -> str:
                async with websockets.connect(url, additional_headers=headers) as socket:
                    await socket.send("x")
                    return str(await socket.recv())

            with pytest.raises(websockets.ConnectionClosed):
                asyncio.run(attempt({}))
            assert asyncio.run(attempt({"Authorization": "Bearer 0123456789abcdef"})) == "ok"


def test_a_listener_off_loopback_is_refused() -> None:
    with pytest.raises(BadFeed, match="can be reached from other machines"):
        feeds.open("ws-listen://*:0/in")


@pytest.mark.parametrize("size", [200, 17 * 1024 * 1024])
def test_a_message_that_is_too_long_ends_the_feed_once_and_says_what_to_do(size: int) -> None:
    connections = 0

    async def serve(socket: Any) -> None:
        nonlocal connections
        connections += 1
        await socket.send("short")
        await socket.send("x" * size)
        await socket.wait_closed()

    with server(serve) as port, feeds.open(f"ws://127.0.0.1:{port}/", FeedOptions(max_line=100)) as feed:
        reader = Reader()
        feed(0).subscribe(reader)
        reader.subscription.request(10)
        assert reader.ended.wait(PATIENCE)
    assert reader.take(1) == [b"short"]
    assert "allow more with max_line (--max-line)" in str(reader.error)
    assert connections == 1


def test_a_message_that_is_too_long_is_skipped_if_told_so() -> None:
    async def serve(socket: Any) -> None:
        for message in ("one", "x" * 200, "two"):
            await socket.send(message)
        await socket.wait_closed()

    options = FeedOptions(max_line=100, on_bad_line="skip")
    with server(serve) as port, feeds.open(f"ws://127.0.0.1:{port}/", options) as feed:
        reader = Reader()
        feed(0).subscribe(reader)
        reader.subscription.request(10)
        assert reader.take(2) == [b"one", b"two"]
        assert feed.skipped == 1
        reader.subscription.cancel()


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "websockets.asyncio.client", None)
    with pytest.raises(BadFeed, match=r"pip install 'penstock-streams\[http\]'"):
        feeds.open("ws://127.0.0.1:1/prices")

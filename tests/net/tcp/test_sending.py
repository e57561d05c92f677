"""What can be sent, in which order, and what becomes of it when a connection ends before."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.net import (
    Connection,
    ConnectionAborted,
    Outbound,
    SendRefused,
    TcpClient,
    TcpServer,
    WiretapFormat,
)
from penstock.net.framing import json_line, length_prefix, length_prefixed, lines
from penstock.streams import Flux, Mono, Sinks
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Peer, begun, raw, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


def sent_by(kind: str, send: Callable[[Outbound], Any], **settings: Any) -> bytes:
    """What a peer gets of this."""

    async def main() -> bytes:
        server = TcpServer.create().handle(lambda inbound, outbound: send(outbound))
        if settings:
            server = server.encoder(settings["encoder"])
        async with await server.bind() as running, await Peer.of(running) as peer:
            return await peer.rest()

    return run_on(kind, main())


@on_each_loop
def test_sends_are_chained_in_order(kind: str) -> None:
    order: list[str] = []
    assert (
        sent_by(
            kind,
            lambda outbound: (
                outbound.send(b"one ")
                .send_object(b"two ")
                .then(Mono.from_callable(lambda: order.append("between")))
                .send(Flux.just(b"three ", b"four "))
                .send([b"five ", b"six"])
            ),
        )
        == b"one two three four five six"
    )
    assert order == ["between"]


@on_each_loop
def test_a_chain_ends_where_something_in_it_fails(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    failing = Flux.just(b"two").concat_with(Mono.error(LookupError("no three")))
    assert sent_by(kind, lambda outbound: outbound.send(b"one").send(failing).send(b"never")) == b"onetwo"
    assert "no three" in caplog.text


@on_each_loop
def test_what_follows_begins_when_everything_before_was_handed_to_the_kernel(kind: str) -> None:
    """A peer that reads nothing keeps the first send from its end."""

    async def main() -> None:
        reached = asyncio.Event()

        def handler(inbound: Any, outbound: Outbound) -> Outbound:
            return outbound.send(bytes(16_000_000)).then(Mono.from_callable(reached.set))

        async with (
            await TcpServer.create().handle(handler).bind() as running,
            await Peer.of(running, receive_buffer=65_536) as peer,
        ):
            await until(
                lambda: running.connections and running.connections[0].transport.get_write_buffer_size()
            )
            assert not reached.is_set()
            assert len(await peer.rest()) == 16_000_000
            assert reached.is_set()

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("make", [bytes, bytearray, memoryview], ids=["bytes", "bytearray", "memoryview"])
def test_whatever_is_bytes_is_sent(kind: str, make: Any) -> None:
    class Marked(bytes):
        """Bytes with a name of their own."""

    got = sent_by(kind, lambda outbound: outbound.send(make(b"direct ")).send([make(b"in "), Marked(b"it")]))
    assert got == b"direct in it"


@on_each_loop
def test_a_buffer_is_copied_before_its_owner_can_change_it(kind: str) -> None:
    size = 4_000_000

    def reusing() -> Any:
        buffer = bytearray(size)
        for letter in b"abc":
            buffer[:] = bytes([letter]) * size
            yield memoryview(buffer)
        buffer[:] = b"!" * size

    got = sent_by(kind, lambda outbound: outbound.send(Flux.from_iterable(reusing())))
    assert got == b"a" * size + b"b" * size + b"c" * size


@on_each_loop
@pytest.mark.parametrize(
    ("send", "text"),
    [
        (lambda outbound: outbound.send("text"), r"the text 'text', and only bytes.*encoder\(\)"),
        (
            lambda outbound: outbound.send(Flux.just("text")),
            r"was given 'text', which is not bytes.*encode it",
        ),
        (lambda outbound: outbound.send(Flux.just(7)), r"was given 7, which is not bytes"),
        (lambda outbound: outbound.send_object({"a": 1}), r"was given \{'a': 1\}.*encoder\(\)"),
    ],
    ids=["text", "a text", "a number", "an object without an encoder"],
)
def test_what_is_no_bytes_is_refused_and_the_error_says_what_to_do(kind: str, send: Any, text: str) -> None:
    async def main() -> None:
        server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
        async with (
            await server.bind() as running,
            await TcpClient.create().port(running.port).connect() as client,
        ):
            with pytest.raises(SendRefused, match=text):
                await soon(send(client.outbound))
            # The connection is as good as before.
            await soon(client.outbound.send(b"bytes"))
            assert await soon(client.inbound.receive().take(1).collect_list()) == [b"bytes"]

    run_on(kind, main())


@on_each_loop
def test_a_second_send_beside_the_first_is_refused(kind: str) -> None:
    async def main() -> None:
        server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
        async with (
            await server.bind() as running,
            await TcpClient.create().port(running.port).connect() as client,
        ):
            source: Any = Sinks.unicast()
            first = begun(client.outbound.send(source.flux()))
            await until(lambda: client.output.sender is not None)
            with pytest.raises(SendRefused, match="another send is under way") as refused:
                await soon(client.outbound.send(b"second"))
            assert str(refused.value).startswith(client.label)
            source.try_emit(b"first")
            source.try_complete()
            await first
            assert await soon(client.inbound.receive().take(1).collect_list()) == [b"first"]

    run_on(kind, main())


@on_each_loop
def test_a_send_that_was_cancelled_leaves_the_connection_to_the_next(kind: str) -> None:
    async def main() -> None:
        server = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
        async with (
            await server.bind() as running,
            await TcpClient.create().port(running.port).connect() as client,
        ):
            cancelled = asyncio.Event()
            source: Any = Sinks.unicast()
            first = begun(client.outbound.send(source.flux().do_on_cancel(cancelled.set)))
            source.try_emit(b"one ")
            await until(lambda: client.output.sender is not None)
            first.cancel()
            await soon(cancelled.wait())
            await soon(client.outbound.send(b"two"))
            raw(client).write_eof()
            assert b"".join(await soon(client.inbound.receive().collect_list())) == b"one two"

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("end", ["completion", "error", "disconnect"])
def test_send_using_cleans_up_whatever_happens(kind: str, end: str) -> None:
    async def main() -> None:
        opened: list[str] = []
        cleaned = asyncio.Event()

        def stream(resource: str) -> Any:
            begin = Mono.just(resource.encode())
            if end == "error":
                return begin.concat_with(Mono.error(LookupError("gone")))
            return begin if end == "completion" else begin.concat_with(Mono.never())

        def handler(inbound: Any, outbound: Outbound) -> Outbound:
            return outbound.send_using(
                lambda: opened.append("opened") or "resource", stream, lambda resource: cleaned.set()
            )

        async with (
            await TcpServer.create().handle(handler).bind() as running,
            await Peer.of(running) as peer,
        ):
            assert await peer.receive(8) == b"resource"
            assert opened == ["opened"]
            if end == "disconnect":
                assert not cleaned.is_set()
                peer.reset()
            await soon(cleaned.wait())

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize(
    ("offset", "count"),
    [(0, None), (7, None), (0, 10), (100_000, 200_000), (299_999, 50), (400_000, None), (5, 0)],
)
def test_a_file_is_sent_or_a_part_of_it(kind: str, offset: int, count: int | None, tmp_path: Path) -> None:
    data = bytes(number * 7 % 251 for number in range(300_000))
    path = tmp_path / "data"
    path.write_bytes(data)
    part = data[offset:] if count is None else data[offset : offset + count]
    assert sent_by(kind, lambda outbound: outbound.send_file(path, offset=offset, count=count)) == part


@on_each_loop
def test_an_empty_file_is_sent_as_nothing(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "empty"
    path.touch()
    assert sent_by(kind, lambda outbound: outbound.send_file(path).send(b"end")) == b"end"


@on_each_loop
def test_a_missing_file_fails_the_send(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert sent_by(kind, lambda outbound: outbound.send(b"x").send_file(tmp_path / "none")) == b"x"
    assert "FileNotFoundError" in caplog.text


def test_a_part_of_a_file_below_its_beginning_is_refused() -> None:
    with pytest.raises(ValueError, match="neither can be below 0"):
        Outbound(None).send_file("x", offset=-1)  # type: ignore[arg-type]


def writes(kind: str, flush: Any, caplog: pytest.LogCaptureFixture) -> list[str]:
    """The sizes of the writes that five elements of one burst become."""
    caplog.set_level(logging.DEBUG, "penstock.net.wire")

    async def main() -> None:
        server = (
            TcpServer.create()
            .wiretap(WiretapFormat.SIZES)
            .handle(
                lambda i, o: o.send(Flux.from_iterable([b"a", b"bb", b"c|", b"dddd", b"eeeee"]), flush=flush)
            )
        )
        async with await server.bind() as running, await Peer.of(running) as peer:
            assert await peer.rest() == b"abbc|ddddeeeee"

    run_on(kind, main())
    return [record.message.split("WRITE: ")[1] for record in caplog.records if "WRITE" in record.message]


@on_each_loop
def test_elements_of_a_burst_are_joined_and_a_flush_parts_them(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    joined = writes(kind, None, caplog)
    caplog.clear()
    every = writes(kind, lambda data: True, caplog)
    caplog.clear()
    marked = writes(kind, lambda data: data.endswith(b"|"), caplog)
    assert every == ["1B", "2B", "2B", "4B", "5B"]
    assert len(joined) < len(every)
    assert any(sum(int(size[:-1]) for size in marked[:n]) == 5 for n in range(1, len(marked) + 1))


@on_each_loop
def test_a_flush_that_fails_fails_the_send(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    data = Flux.from_iterable([b"a"] * 100)
    sent_by(kind, lambda outbound: outbound.send(data, flush=lambda data: data[9]))
    assert "index out of range" in caplog.text


@on_each_loop
def test_objects_go_out_by_the_encoder_and_come_in_by_the_framing(kind: str) -> None:
    async def main() -> None:
        def doubling(inbound: Any, outbound: Outbound) -> Outbound:
            return outbound.send_object(inbound.receive_objects().map(lambda line: {"twice": 2 * int(line)}))

        server = TcpServer.create().framing(lines()).encoder(json_line).handle(doubling)
        client = TcpClient.create().framing(lines(encoding="utf-8")).encoder(lambda number: b"%d\n" % number)
        async with (
            await server.bind() as running,
            await client.port(running.port).connect() as connection,
        ):
            await soon(connection.outbound.send_object(1).send_object(Flux.range(2, 2)))
            got = await soon(connection.inbound.receive_objects().take(3).collect_list())
            assert [text.replace(" ", "") for text in got] == ['{"twice":2}', '{"twice":4}', '{"twice":6}']

    run_on(kind, main())


@on_each_loop
def test_frames_with_a_length_arrive_as_they_were_sent(kind: str) -> None:
    async def main() -> None:
        frames = [b"", b"one", bytes(200_000), b"\n"]
        server = (
            TcpServer.create()
            .framing(length_prefixed())
            .encoder(length_prefix)
            .handle(lambda inbound, outbound: outbound.send_object(inbound.receive_objects()))
        )
        client = TcpClient.create().framing(length_prefixed()).encoder(length_prefix)
        async with (
            await server.bind() as running,
            await client.port(running.port).connect() as connection,
        ):
            sending = begun(connection.outbound.send_object(Flux.from_iterable(frames)))
            assert await soon(connection.inbound.receive_objects().take(4).collect_list()) == frames
            await sending

    run_on(kind, main())


@on_each_loop
def test_a_send_that_this_side_cuts_off_by_closing_is_an_error(kind: str) -> None:
    async def main() -> None:
        server = TcpServer.create().handle(lambda inbound, outbound: inbound.receive())
        async with (
            await server.bind() as running,
            await TcpClient.create().port(running.port).connect() as client,
        ):
            source: Any = Sinks.unicast()
            sending = begun(client.outbound.send(source.flux()))
            source.try_emit(b"one")
            await until(lambda: client.output.sender is not None and client.output.sender._bytes == 3)
            client.close()
            with pytest.raises(
                ConnectionAborted, match="this side closed the connection while sending"
            ) as cut:
                await sending
            assert (cut.value.elements, cut.value.written) == (1, 3)

    run_on(kind, main())


@on_each_loop
def test_outbound_can_be_subscribed_to_and_tells_its_connection(kind: str) -> None:
    async def main() -> None:
        seen: list[Connection] = []
        server = TcpServer.create().handle(
            lambda i, o: o.with_connection(seen.append).send(i.with_connection(seen.append).receive())
        )
        async with (
            await server.bind() as running,
            await TcpClient.create().port(running.port).connect() as client,
        ):
            over = asyncio.Event()
            client.outbound.send(b"x").mono().do_on_terminate(over.set).subscribe()
            await soon(over.wait())
            await until(lambda: len(seen) == 2)
            assert seen[0] is seen[1]
            assert client.outbound.connection is client
            assert client.inbound.connection is client

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("linger", [0.0, 0.05])
@pytest.mark.parametrize("way", ["awaited", "returned"])
def test_a_peer_that_reads_after_the_close_has_lingered_gets_all_that_was_sent(
    kind: str, way: str, linger: float
) -> None:
    """An awaited send goes on while the transport has room, so its last bytes may wait there at the close."""

    async def main() -> None:
        sent = 0
        filled = asyncio.Event()

        async def handler(inbound: Any, outbound: Outbound) -> None:
            nonlocal sent
            waiting = outbound.connection.transport.get_write_buffer_size
            while not waiting():
                await outbound.send(bytes(8000))
                sent += 8000
            filled.set()

        def returning(inbound: Any, outbound: Outbound) -> Any:
            nonlocal sent
            sent = 12_000_000
            filled.set()
            return outbound.send(bytes(sent))

        server = TcpServer.create().linger(linger).handle(handler if way == "awaited" else returning)
        async with await server.bind() as running, await Peer.of(running, 65_536) as peer:
            await soon(filled.wait())
            await asyncio.sleep(3 * linger)  # longer than the close would wait for the peer's end
            assert len(await peer.rest()) == sent

    run_on(kind, main())

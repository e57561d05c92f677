"""What is sent together is written together; what was written is counted; and a single send costs little."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from penstock.net import (
    Connection,
    ConnectionAborted,
    Inbound,
    Outbound,
    TcpClient,
    TcpServer,
    WiretapFormat,
)
from penstock.net.asyncio_transport import AsyncioFlush
from penstock.net.framing import lines
from penstock.streams import Flux
from tests.net.tcp.certificates import Authority
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Listener, Peer, begun, settled, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


@on_each_loop
def test_lines_that_came_together_go_out_together(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "penstock.net.wire")
    block = (b"x" * 99 + b"\n") * 500

    async def main() -> None:
        def shout(inbound: Inbound, outbound: Outbound) -> Outbound:
            return outbound.send(inbound.receive().transform(lines()).map(lambda line: line.upper() + b"\n"))

        server = TcpServer.create().wiretap(WiretapFormat.SIZES).handle(shout)
        async with await server.bind() as running, await Peer.of(running) as peer:
            for _ in range(10):
                await peer.send(block)
                assert await peer.receive(len(block)) == block.upper()
        told = [record.getMessage() for record in caplog.records]
        reads, writes = ([line for line in told if f" {event}: " in line] for event in ("READ", "WRITE"))
        # A chunk, and what its windows of demand make of it; not a line each, of which there are 5000.
        assert len(writes) < 8 * len(reads) < 1000

    run_on(kind, main())


@on_each_loop
def test_lines_of_one_connection_that_go_to_another_are_written_together_too(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "penstock.net.wire")

    async def main() -> None:
        with Listener() as listener:
            target = await soon(TcpClient.create().wiretap(WiretapFormat.SIZES).port(listener.port).connect())
            async with await listener.accept() as sink:

                def forward(inbound: Inbound, outbound: Outbound) -> Any:
                    framed = inbound.receive().transform(lines()).map(lambda line: line + b"\n")
                    return target.outbound.send(framed)

                server = TcpServer.create().handle(forward)
                async with await server.bind() as running, await Peer.of(running) as peer:
                    await peer.send(b"0123456789\n" * 400)
                    assert await sink.receive(4400) == b"0123456789\n" * 400
                target.abort()
                await soon(target.wait_closed())
        writes = [record for record in caplog.records if " WRITE: " in record.getMessage()]
        assert 0 < len(writes) < 40

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("fused", [True, False])
def test_an_echo_that_is_reset_says_how_much_it_had_written(kind: str, fused: bool) -> None:
    async def main() -> None:
        errors: list[BaseException] = []
        server = TcpServer.create().fuse(fused)
        server = server.handle(lambda i, o: o.send(i.receive()).mono().do_on_error(errors.append))
        async with await server.bind() as running:
            peer = await Peer.of(running)
            for _ in range(20):
                await peer.send(b"x" * 10_000)
                assert len(await peer.receive(10_000)) == 10_000
            peer.reset()
            await until(lambda: errors)
        [error] = errors
        assert isinstance(error, ConnectionAborted)
        assert error.written == 200_000
        assert error.elements >= 20
        assert f"{error.elements:,} elements with 200,000 bytes" in str(error)

    run_on(kind, main())


@on_each_loop
def test_single_sends_are_in_order_and_may_be_put_into_a_chain(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connection = await soon(TcpClient.create().port(listener.port).connect())
            async with await listener.accept() as peer:
                send = connection.outbound.send
                await soon(send(b"1"))
                again = send(bytearray(b"2"))
                await soon(again)
                await soon(again)
                await soon(send(b"3").send(b"4").send(Flux.just(b"5", b"6")).then(send(b"7").mono()))
                await soon(send(memoryview(b"8")).mono())
                await soon(send(b"9", flush=lambda data: True))
                assert await peer.receive(10) == b"1223456789"
                connection.abort()
                with pytest.raises(ConnectionAborted):
                    await soon(send(b"10"))
                await soon(connection.wait_closed())

    run_on(kind, main())


@on_each_loop
def test_a_single_send_waits_until_the_kernel_has_taken_it_and_counts_what_was_lost(kind: str) -> None:
    large = b"x" * 8_000_000

    async def main() -> None:
        with Listener() as listener:
            client = TcpClient.create().option("SO_SNDBUF", 8192).port(listener.port)
            connection = await soon(client.connect())
            peer = await listener.accept()
            sending = begun(connection.outbound.send(large))
            await until(lambda: connection.transport.get_write_buffer_size())
            assert not sending.done()
            assert await peer.receive(len(large)) == large
            await sending
            sending = begun(connection.outbound.send(large))
            await until(lambda: connection.transport.get_write_buffer_size())
            peer.reset()
            with pytest.raises(ConnectionAborted) as lost:
                await sending
            assert (lost.value.elements, lost.value.written) == (1, len(large))
            await soon(connection.wait_closed())

    run_on(kind, main())


@on_each_loop
def test_a_coroutine_that_sends_without_end_lets_others_run(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connection = await soon(TcpClient.create().port(listener.port).connect())
            async with await listener.accept() as peer:
                turns = 0

                async def tick() -> None:
                    nonlocal turns
                    while True:
                        turns += 1
                        await asyncio.sleep(0)

                ticking = asyncio.ensure_future(tick())
                for _ in range(640):
                    await connection.outbound.send(b"x")
                assert turns >= 9
                ticking.cancel()
                assert len(await peer.receive(640)) == 640
                connection.abort()
                await soon(connection.wait_closed())
        await settled()

    run_on(kind, main())


def waits_for_the_kernel(connection: Connection) -> bool:
    sender = connection.output.sender
    flushing = None if sender is None else sender._flushing
    return isinstance(flushing, AsyncioFlush) and flushing._watched is not None


@on_each_loop
def test_a_send_over_tls_whose_peer_does_not_read_costs_nothing_while_it_waits(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks again and again whether it has been taken."""
    looks: list[int] = []
    look = AsyncioFlush._check_below

    def counted(self: AsyncioFlush, times: int) -> None:
        looks.append(times)
        look(self, times)

    monkeypatch.setattr(AsyncioFlush, "_check_below", counted)
    authority = Authority.make(tmp_path)
    data = b"x" * 120_000

    async def main() -> None:
        ended = asyncio.Event()
        server = TcpServer.create().option("SO_SNDBUF", 8192)
        server = server.secure(certificate=authority.certificate("localhost"))
        server = server.handle(lambda i, o: o.send(data).mono().do_on_complete(ended.set))
        async with await server.bind() as running, await Peer.of(running, receive_buffer=4096) as peer:
            context = ssl.create_default_context(cafile=authority.trust)
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")

            async def step(act: Any) -> Any:
                while True:
                    try:
                        return act()
                    except ssl.SSLWantReadError:
                        await peer.send(outgoing.read())
                        incoming.write(await soon(peer.loop.sock_recv(peer.socket, 4096)))

            await step(session.do_handshake)
            await peer.send(outgoing.read())
            await until(lambda: running.connections and waits_for_the_kernel(running.connections[0]))
            looks.clear()
            for _ in range(100):
                await asyncio.sleep(0.002)
            assert len(looks) < 5  # the kernel may take a little more; a look every 10 ms would be 20 of them
            assert not ended.is_set()
            got = bytearray()
            while len(got) < len(data):
                got += await step(lambda: session.read(65_536))
            await soon(ended.wait())
            assert got == data
        await settled()

    run_on(kind, main())

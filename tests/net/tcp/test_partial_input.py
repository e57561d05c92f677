"""Input that ends before the peer has ended it is never taken for all of it."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from penstock.net import ConnectionAborted, Inbound, Outbound, ReceiveStopped, TcpClient, TcpServer
from penstock.net.framing import json_objects, length_prefixed, lines
from tests.net.tcp.certificates import Authority
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Listener, Peer, begun, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(Path(tmp_path_factory.mktemp("authority")))


class Reading:
    """A handler that keeps what it reads, and how that ended."""

    def __init__(self, framing: Any = None) -> None:
        self.framing = framing
        self.got: list[Any] = []
        self.end: list[BaseException | None] = []

    async def __call__(self, inbound: Inbound, outbound: Outbound) -> None:
        source = inbound.receive() if self.framing is None else inbound.receive().transform(self.framing)
        try:
            async for element in source:
                self.got.append(element)
        except ConnectionAborted as error:
            self.end.append(error)
            raise
        self.end.append(None)


@on_each_loop
@pytest.mark.parametrize(
    ("framing", "sent", "whole"),
    [
        (lines(), b"PAY alice 10\nPAY bob 1", [b"PAY alice 10"]),
        (lines(encoding="utf-8"), b"one\ntw", ["one"]),
        (length_prefixed(1), b"\3one\3tw", [b"one"]),
        (json_objects(), b'{"a":1}{"b"', [b'{"a":1}']),
        (None, b"half an upload", [b"half an upload"]),
    ],
    ids=["lines", "text", "lengths", "objects", "bytes"],
)
def test_a_server_that_is_closed_in_the_middle_of_a_message_hands_on_no_part_of_it(
    kind: str, framing: Any, sent: bytes, whole: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.net")

    async def main() -> None:
        reading = Reading(framing)
        running = await TcpServer.create().handle(reading).bind()
        async with await Peer.of(running) as peer:
            await peer.send(sent)
            await until(lambda: reading.got == whole)
            closing = begun(running.aclose(grace=20))
            assert await peer.rest() == b""
            peer.socket.close()
            closed = await closing
        assert reading.got == whole
        [end] = reading.end
        assert isinstance(end, ReceiveStopped)
        assert (closed.finished, closed.aborted) == (1, ())
        assert running.metrics.errors == 0
        assert "the handler failed" not in caplog.text

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("fused", [True, False])
def test_an_echo_that_is_stopped_says_that_its_input_was_not_at_its_end(kind: str, fused: bool) -> None:
    async def main() -> None:
        errors: list[BaseException] = []
        server = TcpServer.create().fuse(fused)
        server = server.handle(lambda i, o: o.send(i.receive()).mono().do_on_error(errors.append))
        running = await server.bind()
        async with await Peer.of(running) as peer:
            await peer.send(b"hello")
            assert await peer.receive(5) == b"hello"
            closing = begun(running.aclose(grace=20))
            assert await peer.rest() == b""
            peer.socket.close()
            await closing
        assert [type(error) for error in errors] == [ReceiveStopped]

    run_on(kind, main())


@on_each_loop
def test_who_reads_a_connection_that_this_side_closes_is_not_told_that_it_was_complete(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connection = await soon(TcpClient.create().port(listener.port).connect())
            async with await listener.accept() as peer:
                got: list[bytes] = []

                async def read() -> None:
                    async for line in connection.inbound.receive().transform(lines()):
                        got.append(line)

                reading = begun(read())
                await peer.send(b"one\ntw")
                await until(lambda: got == [b"one"])
                connection.close()
                with pytest.raises(ReceiveStopped, match="this side closed the connection"):
                    await reading
                assert got == [b"one"]
                await peer.gone()
                peer.socket.close()
                await soon(connection.wait_closed())

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize("way", ["framed", "bytes", "fused echo"])
def test_tls_that_is_cut_without_its_end_is_an_error_on_a_server(
    kind: str, way: str, authority: Authority
) -> None:
    async def main() -> None:
        reading = Reading(lines() if way == "framed" else None)
        errors: list[BaseException] = []

        def echo(inbound: Inbound, outbound: Outbound) -> Any:
            return outbound.send(inbound.receive()).mono().do_on_error(errors.append)

        server = TcpServer.create().secure(certificate=authority.certificate("localhost"))
        running = await server.handle(echo if way == "fused echo" else reading).bind()
        async with running, await Peer.of(running) as peer:
            session = await shaken_hands(peer, authority)
            session.write(b"one\ntw")
            await peer.send(session.outgoing.read())
            if way == "fused echo":
                assert await peer.receive(1)
            else:
                await until(lambda: reading.got)
            peer.half_close()  # a FIN, and no close_notify
            await until(lambda: reading.end or errors)
            await peer.gone()
        assert reading.got == {"framed": [b"one"], "bytes": [b"one\ntw"], "fused echo": []}[way]
        [error] = reading.end or errors
        assert isinstance(error, ConnectionAborted)
        if way != "fused echo":
            assert "close_notify" in str(error)

    run_on(kind, main())


@on_each_loop
def test_tls_that_is_cut_without_its_end_is_an_error_on_a_client(kind: str, authority: Authority) -> None:
    context = authority.context("localhost")

    def serve(listener: socket.socket) -> None:
        raw, _ = listener.accept()
        with context.wrap_socket(raw, server_side=True) as session:
            session.sendall(b"half an answer")
            socket.socket(fileno=session.detach()).close()

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            serving = asyncio.get_running_loop().run_in_executor(None, serve, listener)
            client = TcpClient.create().host("localhost").port(listener.getsockname()[1])
            connection = await soon(client.secure(trust=authority.trust).connect())
            got: list[bytes] = []
            with pytest.raises(ConnectionAborted, match="close_notify"):
                await soon(connection.inbound.receive().do_on_next(got.append).then())
            assert b"".join(got) == b"half an answer"
            await soon(serving)
            await soon(connection.aclose())

    run_on(kind, main())


@on_each_loop
def test_tls_that_the_peer_ends_is_complete(kind: str, authority: Authority) -> None:
    async def main() -> None:
        reading = Reading()
        server = TcpServer.create().secure(certificate=authority.certificate("localhost")).handle(reading)
        async with await server.bind() as running:
            client = TcpClient.create().host("localhost").port(running.port)
            async with await soon(client.secure(trust=authority.trust).connect()) as connection:
                await soon(connection.outbound.send(b"everything"))
            await until(lambda: reading.end)
        assert reading.end == [None]
        assert b"".join(reading.got) == b"everything"

    run_on(kind, main())


class Session:
    """TLS over a bare socket, which does what it is told and no more."""

    def __init__(self, context: ssl.SSLContext, name: str) -> None:
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname=name)
        self.write = self.tls.write


async def shaken_hands(peer: Peer, authority: Authority) -> Session:
    session = Session(ssl.create_default_context(cafile=authority.trust), "localhost")
    while True:
        try:
            session.tls.do_handshake()
        except ssl.SSLWantReadError:
            await peer.send(session.outgoing.read())
            session.incoming.write(await soon(peer.loop.sock_recv(peer.socket, 65_536)))
        else:
            await peer.send(session.outgoing.read())
            return session

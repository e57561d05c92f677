"""A connection that is cut looks like a cut to the peer, and a refused TLS peer learns why."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from penstock.net import TcpServer
from penstock.streams import Flux, Mono
from tests.net.tcp.certificates import Authority
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import LONG, Peer, soon, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


@on_each_loop
def test_a_handler_that_is_cut_off_at_the_end_of_the_grace_resets_its_connection(kind: str) -> None:
    """The peer could take an end for the end of the answer."""

    async def main() -> None:
        endless = Flux.just(b"part of an answer").concat_with(Flux.never())
        server = await TcpServer.create().handle(lambda i, o: o.send(endless)).bind()
        async with await Peer.of(server) as peer:
            assert await peer.receive(17) == b"part of an answer"
            report = await soon(server.aclose(grace=0.05))
            assert len(report.aborted) == 1
            with pytest.raises(ConnectionResetError):
                await peer.rest()

    run_on(kind, main())


@on_each_loop
def test_a_connection_that_has_ended_in_order_is_not_reset(kind: str) -> None:
    async def main() -> None:
        server = await TcpServer.create().linger(5).handle(lambda i, o: o.send(b"an answer")).bind()
        async with await Peer.of(server) as peer:
            await until(lambda: any(c._closing for c in server.connections))
            await soon(server.aclose(grace=0.05))
            assert await peer.rest() == b"an answer"

    run_on(kind, main())


@on_each_loop
def test_an_abort_resets(kind: str) -> None:
    async def main() -> None:
        def handler(inbound: Any, outbound: Any) -> Any:
            inbound.connection.abort()
            return inbound.receive().then()

        async with await TcpServer.create().handle(handler).bind() as server, await Peer.of(server) as peer:
            with pytest.raises(ConnectionResetError):
                await peer.rest()

    run_on(kind, main())


@on_each_loop
def test_a_client_without_a_certificate_gets_an_alert(kind: str, tmp_path: Path) -> None:
    authority = Authority.make(tmp_path)

    def call(port: int) -> None:
        context = ssl.create_default_context(cafile=authority.trust)
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # the client learns of it in the handshake
        with (
            socket.create_connection(("127.0.0.1", port), timeout=LONG) as plain,
            context.wrap_socket(plain, server_hostname="localhost"),
        ):
            pass

    async def main() -> None:
        server = TcpServer.create().handle(lambda i, o: o.send(i.receive()))
        server = server.secure(
            certificate=authority.certificate("localhost"), client_authority=authority.trust
        )
        async with await server.bind() as running:
            with pytest.raises(ssl.SSLError, match="ALERT"):
                await asyncio.to_thread(call, running.port)
            await until(lambda: running.metrics.handshakes_failed == 1)

    run_on(kind, main())


@on_each_loop
def test_an_abort_inside_a_callback_of_the_transport_loses_the_connection_once(kind: str) -> None:
    """A send to a slow peer ends when the transport says that it is empty, and what follows runs there."""

    async def main() -> None:
        def handler(inbound: Any, outbound: Any) -> Any:
            aborting = Mono.from_callable(inbound.connection.abort)
            return outbound.send(bytes(12_000_000)).then(aborting)

        async with (
            await TcpServer.create().handle(handler).bind() as server,
            await Peer.of(server, 65_536) as peer,
        ):
            await until(lambda: any(c.transport.get_write_buffer_size() for c in server.connections))
            with pytest.raises(ConnectionResetError):
                await peer.rest()
            await until(lambda: not server.connections)

    run_on(kind, main())

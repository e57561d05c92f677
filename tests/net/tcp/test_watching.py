"""What can be seen of connections from outside: the wiretap and the figures."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.net import TcpClient, TcpMetrics, TcpServer, Wiretap, WiretapFormat
from penstock.streams import Flux, Mono
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Peer, until

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)

ECHO = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))


def tapped(
    kind: str, server: TcpServer, caplog: pytest.LogCaptureFixture, data: bytes = b"Hello\n\x00\xff"
) -> list[str]:
    """What the wiretap says of one echo."""
    caplog.set_level(logging.DEBUG, "penstock.net.wire")

    async def main() -> None:
        async with await server.bind() as running, await Peer.of(running) as peer:
            await peer.send(data)
            assert await peer.receive(len(data)) == data
            peer.half_close()
            assert await peer.rest() == b""
            peer.socket.close()
            await until(lambda: not running.connections)

    run_on(kind, main())
    return [record.getMessage() for record in caplog.records if record.name == "penstock.net.wire"]


@on_each_loop
def test_the_wiretap_dumps_what_goes_over_the_wire(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    told = tapped(kind, ECHO.wiretap(), caplog)
    dump = "\n|00000000| 48 65 6c 6c 6f 0a 00 ff                         |Hello...        |"
    assert [line.split("] ", 1)[1] for line in told] == [
        "CONNECTED",
        "CONFIGURED",
        f"READ: 8B{dump}",
        f"WRITE: 8B{dump}",
        "DISCONNECTING",
    ]
    assert len({line.split(",")[0] for line in told}) == 1
    assert " - R:" in told[0]
    assert " ! R:" in told[-1]


@on_each_loop
def test_the_wiretap_as_text(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    told = tapped(kind, ECHO.wiretap(WiretapFormat.TEXT), caplog, "grüße\n".encode())
    assert any(line.endswith("READ: 8B 'grüße\\n'") for line in told)


@on_each_loop
def test_the_wiretap_shows_sizes_only(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    told = tapped(kind, ECHO.wiretap(WiretapFormat.SIZES), caplog, b"secret")
    assert any(line.endswith("READ: 6B") for line in told)
    assert "secret" not in caplog.text


@on_each_loop
@pytest.mark.parametrize("form", [WiretapFormat.TEXT, WiretapFormat.HEX])
def test_the_wiretap_shows_nothing_that_is_to_be_kept_secret(
    kind: str, form: WiretapFormat, caplog: pytest.LogCaptureFixture
) -> None:
    server = ECHO.wiretap(form, redact=lambda data: data.replace(b"secret", b"******"))
    told = tapped(kind, server, caplog, b"a secret word")
    assert any("******" in line and "13B" in line for line in told)
    assert "secret" not in caplog.text
    assert b"secret".hex(" ") not in caplog.text


@on_each_loop
def test_the_wiretap_shows_no_more_than_it_is_told_to(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    told = tapped(kind, ECHO.wiretap(Wiretap(WiretapFormat.TEXT, most=4)), caplog, b"abcdefgh")
    assert any("READ: 8B 'abcd'\n… and 4 more bytes" in line for line in told)
    assert "efgh" not in caplog.text


@on_each_loop
def test_the_wiretap_has_a_level_and_can_be_taken_off(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    assert tapped(kind, ECHO.wiretap().wiretap(False), caplog) == []
    assert tapped(kind, ECHO.wiretap(level=logging.DEBUG - 1), caplog) == []
    assert tapped(kind, ECHO.wiretap(level=logging.INFO), caplog)
    levels = {record.levelno for record in caplog.records if record.name == "penstock.net.wire"}
    assert levels == {logging.INFO}


@on_each_loop
def test_the_figures_of_a_server(kind: str) -> None:
    async def main() -> None:
        async with await ECHO.metrics().bind() as running:
            assert running.metrics == TcpMetrics()
            async with await Peer.of(running) as one, await Peer.of(running) as two:
                for peer in one, two:
                    await peer.send(b"x" * 1000)
                    assert len(await peer.receive(1000)) == 1000
                assert running.metrics.connections_active == 2
                assert running.metrics.data_received == 2000
                assert running.metrics.data_sent == 2000
                assert [c.traffic.received for c in running.connections if c.traffic] == [1000, 1000]
            await until(lambda: not running.connections)
            assert running.metrics.as_dict() == {
                "penstock.net.connections.total": 2,
                "penstock.net.connections.active": 0,
                "penstock.net.connections.refused": 0,
                "penstock.net.handshakes.failed": 0,
                "penstock.net.proxy.headers_refused": 0,
                "penstock.net.errors": 0,
                "penstock.net.data.received": 2000,
                "penstock.net.data.sent": 2000,
            }

    run_on(kind, main())


@on_each_loop
def test_bytes_are_counted_only_if_asked_for_and_connections_always(kind: str) -> None:
    async def main() -> None:
        async with await ECHO.bind() as running:
            async with await Peer.of(running) as peer:
                await peer.send(b"x")
                assert await peer.receive(1) == b"x"
                assert running.connections[0].traffic is None
            await until(lambda: not running.connections)
            assert running.metrics == TcpMetrics(connections_total=1)

    run_on(kind, main())


@on_each_loop
def test_every_handler_that_fails_is_counted_once(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        handlers: list[Any] = [
            lambda: Mono.error(LookupError("one")),
            lambda: Flux.just(b"a").map(lambda _: 1 / 0),
            lambda: None,
        ]
        async with await TcpServer.create().handle(lambda i, o: handlers.pop()()).bind() as running:
            for _ in range(3):
                async with await Peer.of(running) as peer:
                    assert await peer.rest() == b""
            await until(lambda: not running.connections)
            assert running.metrics.errors == 3

    run_on(kind, main())


@on_each_loop
def test_bytes_that_a_client_sends_are_counted_on_both_ends(kind: str) -> None:
    async def main() -> None:
        async with await TcpServer.create().metrics().handle(lambda i, o: i.receive()).bind() as running:
            async with await TcpClient.create().metrics().port(running.port).connect() as client:
                await client.outbound.send(Flux.from_iterable([b"x" * 10] * 1000))
                assert client.traffic is not None
                assert client.traffic.sent == 10_000
            await until(lambda: not running.connections)
            assert running.metrics.data_received == 10_000

    run_on(kind, main())

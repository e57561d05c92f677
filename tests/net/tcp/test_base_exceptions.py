"""``BaseException`` in a handler or a decoder ends the connection; nobody is left waiting."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.net import Connection, Inbound, Outbound, TcpClient, TcpServer
from penstock.net.framing import Framing
from penstock.streams import Flux, Mono
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import soon

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


class Stop(BaseException):
    """As pytest's ``fail`` and others raise it."""


ERRORS = [GeneratorExit(), asyncio.CancelledError(), Stop(), ValueError()]
any_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


@on_each_loop
@any_error
@pytest.mark.parametrize("where", ["handler", "on_connection"])
def test_a_function_that_raises_when_a_connection_comes_closes_it(
    kind: str, where: str, error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    def handler(inbound: Inbound, outbound: Outbound) -> Any:
        raise error

    def called(connection: Connection) -> None:
        raise error

    async def main() -> None:
        server = TcpServer.create()
        if where == "handler":
            server = server.handle(handler)
        else:
            server = server.handle(lambda inbound, outbound: Mono.never()).on_connection(called)
        async with await server.bind() as bound:
            for _ in range(2):  # the server goes on
                async with await TcpClient.create().port(bound.port).connect() as client:
                    assert await soon(client.inbound.receive().collect_list()) == []
            assert bound.metrics.errors == 2

    run_on(kind, main())
    assert caplog.text.count(f"the handler failed: {error!r}") == 2


@on_each_loop
@any_error
def test_a_flush_function_that_raises_fails_the_send(kind: str, error: BaseException) -> None:
    def flush(data: bytes) -> bool:
        raise error

    async def main() -> None:
        reads = TcpServer.create().handle(lambda inbound, outbound: inbound.receive())
        async with (
            await reads.bind() as server,
            await TcpClient.create().port(server.port).connect() as client,
        ):
            ticks = Flux.interval(0.001).on_backpressure_drop().map(lambda _: b"x")
            with pytest.raises(type(error)):
                await soon(client.outbound.send(ticks, flush=flush))

    run_on(kind, main())


class Broken:
    """A decoder that raises, at a chunk or at the end."""

    def __init__(self, where: str, error: BaseException) -> None:
        self._where = where
        self._error = error

    def feed(self, chunk: bytes) -> list[bytes]:
        self._raise_in("feed")
        return [chunk]

    def finish(self) -> list[bytes]:
        self._raise_in("finish")
        return []

    def _raise_in(self, where: str) -> None:
        if where == self._where:
            raise self._error


def broken(where: str, error: BaseException) -> Flux[bytes]:
    made: list[Broken] = []

    def make() -> Broken:
        if where == "make" and made:  # the first one was made when the framing was
            raise error
        made.append(Broken(where, error))
        return made[-1]

    return Framing(make, "broken").frames(Flux.just(b"a", b"b"))


@any_error
@pytest.mark.parametrize("where", ["make", "feed", "finish"])
def test_a_decoder_that_raises_fails_the_frames(where: str, error: BaseException) -> None:
    heard: list[BaseException] = []
    broken(where, error).subscribe(lambda frame: None, on_error=heard.append)
    assert heard == [error]


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("where", ["make", "feed", "finish"])
def test_exit_and_ctrl_c_in_a_decoder_reach_the_subscriber_and_the_caller(
    where: str, error: BaseException
) -> None:
    heard: list[BaseException] = []
    with pytest.raises(type(error)):
        broken(where, error).subscribe(lambda frame: None, on_error=heard.append)
    assert heard == [error]

"""A handler that does nothing useful is told so in the log, once."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.net import TcpServer
from penstock.streams import Flux
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import Peer

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)


def told(kind: str, handler: Any, caplog: pytest.LogCaptureFixture, expected: bytes = b"") -> list[str]:
    """What two connections to this handler leave in the log."""

    async def main() -> None:
        async with await TcpServer.create().handle(handler).bind() as running:
            for _ in range(2):
                async with await Peer.of(running) as peer:
                    await peer.send(b"line\n")
                    peer.half_close()
                    assert await peer.rest() == expected

    run_on(kind, main())
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


async def generating(inbound: Any, outbound: Any) -> AsyncIterator[bytes]:
    yield b"an answer"


async def forgetting(inbound: Any, outbound: Any) -> None:
    async for chunk in inbound.receive():
        outbound.send(chunk)


@on_each_loop
@pytest.mark.parametrize(
    ("handler", "text"),
    [
        (lambda inbound, outbound: Flux.just(b"an answer"), "returned <Flux just"),
        (lambda inbound, outbound: inbound.receive().map(bytes.upper), "returned <Flux receive() map"),
        (lambda inbound, outbound: [b"an answer"], "returned [b'an answer']"),
        (generating, "returned the async generator generating()"),
        (forgetting, "called outbound.send(…) and ended, but nothing was sent"),
    ],
    ids=["a Flux", "what is received", "a list", "an async generator", "no await"],
)
def test_a_handler_that_sends_nothing_is_told_what_to_do_once(
    kind: str, handler: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    [line] = told(kind, handler, caplog)
    assert text in line
    assert "outbound.send(…)" in line
    assert line.endswith("this is logged only once")


@on_each_loop
@pytest.mark.parametrize(
    "handler",
    [
        lambda inbound, outbound: inbound.receive().then(),
        lambda inbound, outbound: inbound.receive().count(),
        lambda inbound, outbound: inbound.receive().map(len),
    ],
    ids=["then()", "a result", "numbers"],
)
def test_a_handler_that_only_receives_is_left_alone(
    kind: str, handler: Any, caplog: pytest.LogCaptureFixture
) -> None:
    assert told(kind, handler, caplog) == []


@on_each_loop
def test_a_handler_that_awaits_its_sends_is_left_alone(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def answering(inbound: Any, outbound: Any) -> None:
        async for chunk in inbound.receive():
            await outbound.send(chunk)

    assert told(kind, answering, caplog, expected=b"line\n") == []

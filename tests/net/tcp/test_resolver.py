"""Looking up a host with a function of the client's own, and trying the addresses that it returns."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.net import ConnectFailed, ConnectionPool, ResolveFailed, TcpClient, TcpServer
from penstock.net.tcp import dialer
from tests.net.tcp.certificates import Authority, echoed
from tests.net.tcp.loops import LOOPS, run_on
from tests.net.tcp.peers import LONG, Listener, refusing_port, soon

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)

ECHO = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))


def returning(*addresses: Any) -> Any:
    """A resolver that always returns these."""

    async def resolve(host: str, port: int) -> list[Any]:
        return list(addresses)

    return resolve


@contextlib.contextmanager
def silent_port() -> Iterator[int]:
    """A port that does not answer: its queue is full, so the kernel ignores who calls."""
    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(4):
            caller = opened.enter_context(socket.socket())
            caller.setblocking(False)
            caller.connect_ex(listening.getsockname())
        yield int(listening.getsockname()[1])


@on_each_loop
def test_a_name_that_only_the_resolver_knows(kind: str) -> None:
    asked = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        await asyncio.sleep(0)
        return ["127.0.0.1"]

    async def main() -> None:
        async with await ECHO.bind() as server:
            client = TcpClient.create().host("prices.invalid").port(server.port).resolver(resolve)
            assert await echoed(client) == b"hello"
            assert asked == [("prices.invalid", server.port)]
            with pytest.raises(ResolveFailed, match="name is unknown"):
                await soon(client.resolver(None).connect())

    run_on(kind, main())


@on_each_loop
def test_addresses_are_tried_in_their_order(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # On a busy machine an answer may take longer than the next address is waited with.
    monkeypatch.setattr(dialer, "_NEXT_ADDRESS", LONG)

    async def main() -> None:
        async with await ECHO.bind() as first, await ECHO.bind() as second:
            client = TcpClient.create().host("service.invalid").port(first.port)
            resolver = returning(("127.0.0.1", refused), ("127.0.0.1", second.port), "127.0.0.1")
            assert await echoed(client.resolver(resolver)) == b"hello"
            assert (first.metrics.connections_total, second.metrics.connections_total) == (0, 1)

    with refusing_port() as refused:
        run_on(kind, main())


@on_each_loop
def test_an_address_that_does_not_answer_does_not_delay_the_next_for_long(kind: str) -> None:
    async def main() -> None:
        async with await ECHO.bind() as server:
            with silent_port() as silent:
                resolver = returning(("127.0.0.1", silent), "127.0.0.1")
                client = TcpClient.create().host("service.invalid").port(server.port).resolver(resolver)
                assert await echoed(client) == b"hello"

    run_on(kind, main())


@on_each_loop
def test_if_no_address_answers_the_last_reason_is_told(kind: str) -> None:
    async def main() -> None:
        with refusing_port() as refused:
            resolver = returning(*(("127.0.0.1", refused) for _ in range(3)))
            client = TcpClient.create().host("service.invalid").port(1).resolver(resolver)
            with pytest.raises(ConnectFailed, match=r"service.invalid:1: Connection refused; is a server"):
                await soon(client.connect())
        with silent_port() as silent:
            resolver = returning(("127.0.0.1", silent), ("127.0.0.1", silent))
            with pytest.raises(ConnectFailed, match="no answer in time"):
                await soon(client.resolver(resolver).connect_timeout(0.4).connect())

    run_on(kind, main())


async def fails(host: str, port: int) -> list[str]:
    raise LookupError("the directory is down")


async def returns_text(host: str, port: int) -> str:
    return "127.0.0.1"


def is_not_a_coroutine_function(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@on_each_loop
@pytest.mark.parametrize(
    ("resolver", "why"),
    [
        (fails, r"fails failed \(LookupError: the directory is down\)"),
        (returning(), "returned no address"),
        (returning("localhost"), "'localhost' is not an IP address"),
        (returning(("127.0.0.1", "http?")), "is not an IP address"),
        (returning(None), "is not an IP address"),
        (returning(("127.0.0.1", 70_000)), "is not an IP address, nor a pair"),
        (returning(("127.0.0.1", None)), "is not an IP address, nor a pair"),
        (returning(()), "is not an IP address, nor a pair"),
        (returning("127.0.0.1\0.example.org"), "is not an IP address"),
        (returns_text, "it returned '127.0.0.1' and not a list"),
        (is_not_a_coroutine_function, "coroutine function of host and port"),
    ],
)
def test_a_resolver_that_fails_is_named(kind: str, resolver: Any, why: str) -> None:
    async def main() -> None:
        client = TcpClient.create().host("service.invalid").port(7).resolver(resolver)
        with pytest.raises(ResolveFailed, match=why) as failed:
            await soon(client.connect())
        assert "cannot connect to service.invalid:7: its resolver" in str(failed.value)
        assert isinstance(failed.value, ConnectFailed)

    run_on(kind, main())


@on_each_loop
def test_a_resolver_that_never_answers_is_cancelled_with_the_connection(kind: str) -> None:
    cancelled = []

    async def resolve(host: str, port: int) -> list[str]:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(host)
            raise
        return []

    async def main() -> None:
        client = TcpClient.create().host("service.invalid").port(7).resolver(resolve)
        with pytest.raises(ConnectFailed, match="in time"):
            await soon(client.connect_timeout(0.05).connect())
        assert cancelled == ["service.invalid"]

    run_on(kind, main())


@on_each_loop
def test_a_cancelled_attempt_leaves_no_socket_open(kind: str) -> None:
    async def main() -> None:
        with Listener() as listener, silent_port() as silent:
            for addresses in (["127.0.0.1"], ["127.0.0.1"] * 3, [("127.0.0.1", silent), "127.0.0.1"]):
                client = TcpClient.create().port(listener.port).resolver(returning(*addresses))
                for turns in range(10):
                    caller = asyncio.ensure_future(client.connect())
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    if caller.cancel():
                        with pytest.raises(asyncio.CancelledError):
                            await caller
                    else:
                        (await caller).abort()
                    for _ in range(5):
                        await asyncio.sleep(0)

    run_on(kind, main())


@on_each_loop
def test_tls_checks_the_name_and_not_the_address(kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority.make(tmp_path)
        server = ECHO.secure(certificate=authority.certificate("service.invalid"))
        async with await server.bind() as running:
            client = TcpClient.create().host("service.invalid").port(running.port)
            client = client.resolver(returning("127.0.0.1")).secure(trust=authority.trust)
            assert await echoed(client) == b"hello"

    run_on(kind, main())


@on_each_loop
def test_a_pool_does_not_mix_the_sockets_of_different_resolvers(kind: str) -> None:
    async def main() -> None:
        async with await ECHO.bind() as one, await ECHO.bind() as two, ConnectionPool() as pool:
            client = TcpClient.create().host("service.invalid").port(7).pool(pool)
            to_one = client.resolver(returning(("127.0.0.1", one.port)))
            to_two = client.resolver(returning(("127.0.0.1", two.port)))
            for _ in range(2):
                assert await echoed(to_one) == await echoed(to_two) == b"hello"
            assert one.metrics.connections_total == two.metrics.connections_total == 1

    run_on(kind, main())


def test_a_resolver_has_to_be_a_function() -> None:
    with pytest.raises(TypeError, match="coroutine function"):
        TcpClient.create().resolver("8.8.8.8")  # type: ignore[arg-type]


@on_each_loop
def test_addresses_of_a_family_that_the_system_lacks_are_passed_over(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_ipv6(family: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, os.strerror(errno.EAFNOSUPPORT))
        return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)

    monkeypatch.setattr(dialer, "_new_socket", without_ipv6)

    async def main() -> None:
        async with await ECHO.bind() as server:
            client = TcpClient.create().host("somewhere").port(server.port)
            assert await echoed(client.resolver(returning("::1", "127.0.0.1"))) == b"hello"
            with pytest.raises(ConnectFailed, match="not supported"):
                await client.resolver(returning("::1", "::2")).connect()

    run_on(kind, main())

"""Clients behind a proxy: HTTP CONNECT and SOCKS5, against proxies that know nothing of ours."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest

from penstock.net import (
    ConnectFailed,
    Connection,
    ConnectionPool,
    HandshakeFailed,
    ProxyAuthenticationFailed,
    ProxyFailed,
    ProxyHeader,
    TcpClient,
    TcpServer,
)
from tests.net.tcp.certificates import Authority, echoed
from tests.net.tcp.loops import LOOPS, LoopThread, run_on
from tests.net.tcp.peers import Listener, settled, soon, until
from tests.net.tcp.proxies.small_proxies import PROXIES, HttpProxy, SmallProxy, SocksProxy

pytestmark = pytest.mark.usefixtures("quiet_loop")
on_each_loop = pytest.mark.parametrize("kind", LOOPS)
of_each_scheme = pytest.mark.parametrize("scheme", PROXIES)

ECHO = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
SHOP = TcpClient.create().host("shop.example").port(443)
SECRET = "s3cr3t-wörd"


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def greeted(client: TcpClient) -> bytes:
    """All that the server sends."""
    async with await soon(client.connect()) as connection:
        return b"".join([chunk async for chunk in connection.inbound.receive()])


@on_each_loop
@of_each_scheme
@pytest.mark.parametrize("slowly", [False, True])
def test_the_name_is_left_to_the_proxy_and_the_bytes_arrive(kind: str, scheme: str, slowly: bool) -> None:
    async def main() -> None:
        async with (
            await ECHO.bind() as server,
            PROXIES[scheme](names={"shop.example": server.port}, slowly=slowly) as proxy,
        ):
            data = os.urandom(400_000)
            assert await echoed(SHOP.proxy(proxy.url), data) == data
            assert proxy.asked == [("shop.example", 443)]
            async with await soon(SHOP.proxy(proxy.url).connect()) as connection:
                assert connection.remote == "shop.example:443"
                assert connection.via == f"{scheme}://127.0.0.1:{proxy.port}"
                assert "R:shop.example:443]" in connection.label
        await settled()

    run_on(kind, main())


@on_each_loop
@of_each_scheme
def test_half_a_connection_ends_through_the_proxy(kind: str, scheme: str) -> None:
    async def count(inbound: Any, outbound: Any) -> None:
        size = sum([len(chunk) async for chunk in inbound.receive()])
        await outbound.send(b"%d" % size)

    async def main() -> None:
        async with (
            await TcpServer.create().handle(count).bind() as server,
            PROXIES[scheme](names={"shop.example": server.port}) as proxy,
            await soon(SHOP.proxy(proxy.url).connect()) as connection,
        ):
            await soon(connection.outbound.send(b"x" * 100_000).end())
            answer = b"".join([chunk async for chunk in connection.inbound.receive()])
            assert answer == b"100000"

    run_on(kind, main())


@on_each_loop
@of_each_scheme
@pytest.mark.parametrize("credentials", [None, ("me@home", SECRET)])
@pytest.mark.parametrize("slowly", [False, True])
def test_bytes_that_come_with_the_answer_are_the_first_of_the_stream(
    kind: str, scheme: str, credentials: tuple[str, str] | None, slowly: bool
) -> None:
    greeting = b"220 ready\r\n" + b"x" * 20_000

    async def main() -> None:
        hello = TcpServer.create().handle(lambda inbound, outbound: outbound.send(greeting))
        async with (
            await hello.bind() as server,
            PROXIES[scheme](names={"shop.example": server.port}, greets=True, slowly=slowly) as proxy,
        ):
            proxy.credentials = credentials
            client = SHOP.proxy(f"{scheme}://127.0.0.1:{proxy.port}")
            if credentials is not None:
                username, password = credentials
                client = SHOP.proxy(
                    f"{scheme}://127.0.0.1:{proxy.port}", username=username, password=password
                )
            for read_ahead in (65_536, 0):
                assert await greeted(client.read_ahead(read_ahead)) == greeting

    run_on(kind, main())


@on_each_loop
@of_each_scheme
def test_tls_goes_through_the_proxy_to_the_target(kind: str, scheme: str, tmp_path: Path) -> None:
    async def main() -> None:
        authority = Authority.make(tmp_path)
        secured = ECHO.secure(certificate=authority.certificate("shop.example"))
        async with (
            await secured.bind() as server,
            PROXIES[scheme](names={"shop.example": server.port, "other.example": server.port}) as proxy,
        ):
            client = SHOP.proxy(proxy.url).secure(trust=authority.trust)
            data = os.urandom(400_000)
            assert await echoed(client, data) == data
            with pytest.raises(HandshakeFailed, match="its certificate was not accepted") as failed:
                await soon(client.host("other.example").connect())
            assert f"other.example:443 through the proxy {scheme}://127.0.0.1:{proxy.port}" in str(
                failed.value
            )
            await until(lambda: proxy.open == 0)
        await settled()

    run_on(kind, main())


@on_each_loop
@of_each_scheme
def test_a_header_goes_through_the_proxy_to_the_target(kind: str, scheme: str) -> None:
    async def main() -> None:
        seen: list[Connection] = []
        server = ECHO.proxy_protocol("127.0.0.1").on_connection(seen.append)
        async with (
            await server.bind() as running,
            PROXIES[scheme](names={"shop.example": running.port}) as proxy,
        ):
            header = ProxyHeader(("192.0.2.7", 1), ("198.51.100.1", 2))
            assert await echoed(SHOP.proxy(proxy.url).proxy_protocol(header)) == b"hello"
            assert seen[0].proxy_header == header

    run_on(kind, main())


@on_each_loop
@of_each_scheme
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_an_address_is_passed_on_as_one(kind: str, scheme: str, host: str) -> None:
    async def main() -> None:
        async with await ECHO.host(host).bind() as server, PROXIES[scheme]() as proxy:
            client = TcpClient.create().host(host).port(server.port).proxy(proxy.url)
            assert await echoed(client) == b"hello"
            assert proxy.asked == [(host, server.port)]

    run_on(kind, main())


@on_each_loop
@of_each_scheme
def test_the_right_credentials_in_the_url(kind: str, scheme: str) -> None:
    async def main() -> None:
        async with (
            await ECHO.bind() as server,
            PROXIES[scheme](names={"shop.example": server.port}, credentials=("a/b", "p@ss:w/ör%d")) as proxy,
        ):
            url = f"{scheme}://a%2Fb:p%40ss%3Aw%2F%C3%B6r%25d@127.0.0.1:{proxy.port}/"
            assert await echoed(SHOP.proxy(url)) == b"hello"

    run_on(kind, main())


# ---------------------------------------------------------------- errors
def all_texts(error: BaseException) -> str:
    """Everything that a log could show of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + repr(vars(error))


@on_each_loop
@of_each_scheme
@pytest.mark.parametrize("known", ["nothing", "another password"])
def test_a_proxy_that_wants_other_credentials(
    kind: str, scheme: str, known: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def main() -> None:
        async with PROXIES[scheme](credentials=("me", "another")) as proxy:
            url = f"{scheme}://127.0.0.1:{proxy.port}"
            client = SHOP.wiretap().proxy(url)
            if known == "another password":
                client = SHOP.wiretap().proxy(url, username="me", password=SECRET)
            with pytest.raises(ProxyAuthenticationFailed) as failed:
                await soon(client.connect())
            error = failed.value
            assert (error.phase, error.target, error.proxy) == ("authentication", "shop.example:443", url)
            assert f"cannot connect to shop.example:443 through the proxy {url}: authentication" in str(error)
            remedy = "check" if known == "another password" else "user:password@host:port"
            assert remedy in str(error).rpartition(";")[2]
            shown = (
                all_texts(error) + repr(client) + repr(client.settings) + str(client.settings) + caplog.text
            )
            assert SECRET not in shown
            assert "another" not in shown.replace("another password", "")
            assert isinstance(error, ConnectFailed)
            await until(lambda: proxy.open == 0)
        await settled()

    run_on(kind, main())


def test_a_proxy_that_does_not_take_basic() -> None:
    async def main() -> None:
        async with HttpProxy(credentials=("me", "x")) as proxy:
            proxy.challenge = "Negotiate"
            with pytest.raises(ProxyAuthenticationFailed, match="does not take Basic"):
                await soon(SHOP.proxy(proxy.url.replace("x@", "y@")).connect())

    run_on("asyncio", main())


CODES = [
    ("http", 403, "does not allow this target"),
    ("http", 502, "cannot reach the target"),
    ("http", 504, "did not answer the proxy in time"),
    ("http", 418, "status 418"),
    ("http", 302, "status 302"),
    ("socks5", 1, "general failure"),
    ("socks5", 2, "rules of the proxy"),
    ("socks5", 3, "target's network"),
    ("socks5", 4, "cannot reach the target"),
    ("socks5", 5, "target refused the connection"),
    ("socks5", 6, "TTL expired"),
    ("socks5", 7, "does not support CONNECT"),
    ("socks5", 8, "kind of address"),
    ("socks5", 99, "code 99"),
]


@on_each_loop
@pytest.mark.parametrize(("scheme", "code", "words"), CODES)
def test_what_the_proxy_answers_is_told_in_words(kind: str, scheme: str, code: int, words: str) -> None:
    async def main() -> None:
        async with PROXIES[scheme](refusal=code) as proxy:
            with pytest.raises(ProxyFailed, match=words) as failed:
                await soon(SHOP.proxy(proxy.url).connect())
            assert (failed.value.phase, failed.value.code) == ("request", code)
            again = pickle.loads(pickle.dumps(failed.value))
            assert (str(again), again.phase) == (str(failed.value), "request")
            await until(lambda: proxy.open == 0)
        await settled()

    run_on(kind, main())


@on_each_loop
@of_each_scheme
def test_a_proxy_that_is_not_there(kind: str, scheme: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            port = listener.port
        with pytest.raises(ProxyFailed, match="is the proxy running there") as failed:
            await soon(SHOP.proxy(f"{scheme}://127.0.0.1:{port}").connect())
        assert failed.value.phase == "connect"
        assert isinstance(failed.value.__cause__, ConnectionRefusedError)

    run_on(kind, main())


ANSWERS = [
    ("http", b"", "the proxy closed the connection"),
    ("http", b"HTTP/1.1 200 OK\r\n", "the proxy closed the connection"),
    ("http", b"SSH-2.0-OpenSSH\r\n", "does not speak HTTP"),
    ("http", b"HTTP/1.1 yes\r\n\r\n", "does not speak HTTP"),
    ("http", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000, "longer than 16 KiB"),
    ("socks5", b"", "the proxy closed the connection"),
    ("socks5", b"\x05", "the proxy closed the connection"),
    ("socks5", b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak SOCKS5"),
    ("socks5", b"\x05\x01", "method 1, which was not offered"),
    ("socks5", b"\x05\x00\x04\x00", "does not speak SOCKS5"),
    ("socks5", b"\x05\x00\x05\x00\x00\x09", "unknown kind 9"),
    ("socks5", b"\x05\x00\x05\x00\x00\x03\x05ab", "the proxy closed the connection"),
]


@on_each_loop
@pytest.mark.parametrize(("scheme", "answer", "why"), ANSWERS)
def test_something_else_is_listening_there(kind: str, scheme: str, answer: bytes, why: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            connecting = asyncio.ensure_future(SHOP.proxy(f"{scheme}://127.0.0.1:{listener.port}").connect())
            async with await listener.accept() as peer:
                await peer.send(answer)
                peer.half_close()
                with pytest.raises(ProxyFailed, match=why):
                    await soon(connecting)
                await peer.gone()
        await settled()

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize(
    "answer",
    [b"HTTP/1.0 200\r\n\r\n", b"HTTP/1.1 200 OK\nVia: x\n\n", b"HTTP/1.1 204 \r\nContent-Length: 5\r\n\r\n"],
)
@pytest.mark.parametrize("slowly", [False, True])
def test_answers_that_are_unusual_and_right(kind: str, answer: bytes, slowly: bool) -> None:
    async def main() -> None:
        with Listener() as listener:
            client = SHOP.proxy(f"http://127.0.0.1:{listener.port}")
            connecting = asyncio.ensure_future(client.connect())
            async with await listener.accept() as peer:
                for piece in [bytes([byte]) for byte in answer] if slowly else [answer + b"\r\nhi"]:
                    await peer.send(piece)
                if slowly:
                    await peer.send(b"\r\nhi")
                peer.half_close()
                async with await soon(connecting) as connection:
                    rest = b"".join([chunk async for chunk in connection.inbound.receive()])
                    assert rest == b"\r\nhi"

    run_on(kind, main())


PHASES = [
    ("http", b"", "request"),
    ("http", b"HTTP/1.1 100 Continue\r\n\r\n", "request"),
    ("socks5", b"", "greeting"),
    ("socks5", b"\x05\x02", "authentication"),
    ("socks5", b"\x05\x00", "request"),
    ("socks5", b"\x05\x00\x05\x00\x00", "request"),
]


@on_each_loop
@pytest.mark.parametrize(("scheme", "answer", "phase"), PHASES)
@pytest.mark.parametrize("by", ["a timeout", "a cancel"])
def test_a_proxy_that_says_no_more(kind: str, scheme: str, answer: bytes, phase: str, by: str) -> None:
    async def main() -> None:
        with Listener() as listener:
            url = f"{scheme}://me:{SECRET}@127.0.0.1:{listener.port}"
            # A busy machine needs some of the time to come to this point at all.
            client = SHOP.proxy(url).connect_timeout(3 if by == "a timeout" else 60)
            before = descriptors()
            for _ in range(1 if by == "a timeout" else 3):
                connecting = asyncio.ensure_future(client.connect())
                async with await listener.accept() as peer:
                    await peer.send(answer)
                    if by == "a timeout":
                        with pytest.raises(ProxyFailed, match="no answer in time") as failed:
                            await soon(connecting)
                        assert failed.value.phase == phase
                        assert SECRET not in all_texts(failed.value)
                    else:
                        await peer.receive(1)
                        connecting.cancel()
                        with pytest.raises(asyncio.CancelledError):
                            await connecting
                    await peer.gone()
            await until(lambda: descriptors() <= before)
        await settled()

    run_on(kind, main())


@on_each_loop
@of_each_scheme
def test_a_cancel_during_tls_leaves_nothing_open(kind: str, scheme: str, tmp_path: Path) -> None:
    async def main() -> None:
        with Listener() as listener:
            async with PROXIES[scheme](names={"shop.example": listener.port}) as proxy:
                client = SHOP.proxy(proxy.url).secure(trust=Authority.make(tmp_path).trust)
                connecting = asyncio.ensure_future(client.connect())
                async with await listener.accept() as target:
                    assert await target.receive(1) == b"\x16"
                    connecting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await connecting
                    await target.gone()
                await until(lambda: proxy.open == 0)
        await settled()

    run_on(kind, main())


@on_each_loop
def test_interim_answers_are_passed_over(kind: str) -> None:
    async def main() -> None:
        async with await ECHO.bind() as server, HttpProxy(names={"shop.example": server.port}) as proxy:
            proxy.interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
            assert await echoed(SHOP.proxy(proxy.url)) == b"hello"

    run_on(kind, main())


@on_each_loop
@pytest.mark.parametrize(
    "bound", [b"\x01\x7f\x00\x00\x01", b"\x04" + bytes(16), b"\x03\x05abcde", b"\x03\x00"]
)
def test_the_address_in_a_socks_reply_may_be_of_any_kind(kind: str, bound: bytes) -> None:
    async def main() -> None:
        async with await ECHO.bind() as server, SocksProxy(names={"shop.example": server.port}) as proxy:
            proxy.bound = bound
            assert await echoed(SHOP.proxy(proxy.url)) == b"hello"

    run_on(kind, main())


@of_each_scheme
def test_a_client_without_a_loop_of_its_own(scheme: str) -> None:
    async def open_both() -> tuple[Any, SmallProxy]:
        server = await ECHO.bind()
        proxy = PROXIES[scheme](names={"shop.example": server.port})
        return server, await proxy.__aenter__()

    thread = LoopThread()
    try:
        server, proxy = thread.wait(open_both())
        connection = SHOP.proxy(proxy.url).connect_now(20)
        connection.outbound.send(b"hello").mono().block(20)
        assert connection.inbound.receive().take(1).collect_list().block(20) == [b"hello"]
        connection.close()
        connection.on_dispose().block(20)
        thread.wait(server.aclose())
        thread.wait(proxy.__aexit__())
    finally:
        thread.close()


@pytest.mark.parametrize("host", ["a b", "a\r\nX-Injected: 1", "x" * 300, "\u2603" * 100])
@of_each_scheme
def test_a_host_that_cannot_be_asked_for_is_refused(scheme: str, host: str) -> None:
    async def main() -> None:
        async with PROXIES[scheme]() as proxy:
            with pytest.raises((ValueError, ProxyFailed)):
                await soon(TcpClient.create().host(host).port(1).proxy(proxy.url).connect())
            assert all("\r" not in asked for asked, _ in proxy.asked)
        await settled()

    run_on("asyncio", main())


def test_a_name_with_other_letters_is_asked_for_in_ascii() -> None:
    async def main() -> None:
        async with (
            await ECHO.bind() as server,
            SocksProxy(names={"xn--bcher-kva.example": server.port}) as proxy,
        ):
            client = TcpClient.create().host("bücher.example").port(443).proxy(proxy.url)
            assert await echoed(client) == b"hello"

    run_on("asyncio", main())


@on_each_loop
@of_each_scheme
def test_a_pool_keeps_connections_through_a_proxy_apart_from_direct_ones(kind: str, scheme: str) -> None:
    async def main() -> None:
        async with await ECHO.bind() as server, PROXIES[scheme]() as proxy, ConnectionPool() as pool:
            direct = TcpClient.create().port(server.port).pool(pool)
            through = direct.proxy(proxy.url)
            for client in (direct, through, direct, through):
                async with await soon(client.connect()) as connection:
                    await soon(connection.outbound.send(b"hello"))
                    assert await soon(connection.inbound.receive().first()) == b"hello"
                    assert connection.via == (
                        None if client is direct else f"{scheme}://127.0.0.1:{proxy.port}"
                    )
                    assert connection.remote == f"127.0.0.1:{server.port}"
            assert len(proxy.asked) == 1

    run_on(kind, main())


@on_each_loop
def test_a_proxy_whose_name_is_unknown(kind: str) -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        raise LookupError(f"no {host}")

    async def main() -> None:
        client = SHOP.proxy("http://proxy.invalid:3128").resolver(nowhere)
        with pytest.raises(
            ProxyFailed, match=r"no proxy\.invalid.*check the spelling of the proxy's host"
        ) as e:
            await soon(client.connect())
        assert (e.value.phase, e.value.target) == ("connect", "shop.example:443")

    run_on(kind, main())


@on_each_loop
def test_a_proxy_that_sends_nothing_but_interim_answers_is_given_up(kind: str) -> None:
    async def main() -> None:
        async with await ECHO.bind() as server, HttpProxy(names={"shop.example": server.port}) as proxy:
            proxy.interim = b"HTTP/1.1 100 Continue\r\n\r\n" * 10_000
            with pytest.raises(ProxyFailed, match="more than 8 interim answers"):
                await SHOP.proxy(proxy.url).connect()

    run_on(kind, main())

"""Which proxy a client uses, and for which hosts: the URL, the credentials, and ``no_proxy``."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.net import Proxy, TcpClient, TcpServer
from tests.net.tcp.certificates import echoed
from tests.net.tcp.loops import run_on
from tests.net.tcp.proxies.small_proxies import HttpProxy


@pytest.mark.parametrize(
    ("url", "where", "username", "password"),
    [
        ("http://proxy.example:3128", "http://proxy.example:3128", None, None),
        ("HTTP://proxy.example:3128/", "http://proxy.example:3128", None, None),
        ("http://proxy.example", "http://proxy.example:80", None, None),
        ("socks5://proxy.example", "socks5://proxy.example:1080", None, None),
        ("socks5h://proxy.example:1", "socks5://proxy.example:1", None, None),
        ("socks5://[::1]:1080", "socks5://[::1]:1080", None, None),
        ("http://[::1]", "http://[::1]:80", None, None),
        ("http://me:pass@proxy.example:8080", "http://proxy.example:8080", "me", "pass"),
        ("http://me@proxy.example:8080", "http://proxy.example:8080", "me", ""),
        ("http://me:p@ss@proxy.example:8080", "http://proxy.example:8080", "me", "p@ss"),
        ("http://m%40e:p%3A%2F@proxy.example:8080", "http://proxy.example:8080", "m@e", "p:/"),
    ],
)
def test_a_url_names_a_proxy(url: str, where: str, username: str | None, password: str | None) -> None:
    proxy = Proxy.parse(url)

    assert (proxy.where, proxy.username, proxy.password) == (where, username, password)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("proxy.example:3128", "not the URL of a proxy"),
        ("https://me:s3cr3t@proxy.example:3128", "the scheme 'https' is not known"),
        ("socks4://me:s3cr3t@proxy.example:3128", "the scheme 'socks4' is not known"),
        ("http://me:s3cr3t@", "no host"),
        ("http://me:s3cr3t@:80", "no host"),
        ("http://me:s3cr3t@proxy.example:many", "no port"),
        ("http://me:s3cr3t@proxy.example:0", "no port"),
        ("http://me:s3cr3t@proxy.example:70000", "no port"),
        ("http://me:s3cr3t@proxy.example:", "no port"),
        ("http://me:s3cr3t@proxy.example/path", "no host"),
        ("http://me:s3cr3t@pro xy.example", "no host"),
        ("http://me:s3cr3t@[::1]80", None),
        ("http://m%3Ae:s3cr3t@proxy.example", "colon"),
        ("socks5://me@proxy.example", "user name and a password"),
        ("socks5://:s3cr3t@proxy.example", "user name and a password"),
        ("socks5://me:" + "s3cr3t" * 50 + "@proxy.example", "255 bytes"),
    ],
)
def test_a_url_that_cannot_be_used_is_refused_and_never_shown(url: str, why: str | None) -> None:
    if why is None:
        assert Proxy.parse(url).port == 80
        return
    with pytest.raises(ValueError, match=why) as failed:
        TcpClient.create().proxy(url)
    assert "s3cr3t" not in str(failed.value)
    assert "s3cr3t" not in repr(failed.value.__context__)


def test_credentials_are_passed_in_one_place() -> None:
    with pytest.raises(ValueError, match="one place"):
        TcpClient.create().proxy("http://me:x@proxy.example", username="me")
    with pytest.raises(ValueError, match="no user name"):
        TcpClient.create().proxy("http://proxy.example", password="x")
    proxy = TcpClient.create().proxy("http://proxy.example", username="me", password="s3cr3t")
    assert "s3cr3t" not in repr(proxy.settings)
    assert "s3cr3t" not in repr(proxy)
    assert proxy.proxy(None).settings.proxy is None


@pytest.mark.parametrize(
    ("no_proxy", "host", "direct"),
    [
        ("", "example.org", False),
        ("*", "example.org", True),
        ("example.org", "example.org", True),
        ("example.org", "EXAMPLE.org.", True),
        ("example.org", "www.example.org", True),
        ("example.org", "badexample.org", False),
        (".example.org", "www.example.org", True),
        (".example.org", "example.org", True),
        ("*.example.org", "www.example.org", True),
        ("localhost, 127.0.0.1 ,example.org", "example.org", True),
        ("localhost 127.0.0.1 example.org", "127.0.0.1", True),
        ("example.org:443", "example.org", True),
        ("example.org:80", "example.org", False),
        ("127.0.0.1", "127.0.0.2", False),
        ("10.0.0.0/8", "10.1.2.3", True),
        ("10.1.2.3/8", "10.9.9.9", True),
        ("10.0.0.0/8", "11.1.2.3", False),
        ("10.0.0.0/8", "10.example.org", False),
        ("::1", "::1", True),
        ("[::1]", "0:0:0:0:0:0:0:1", True),
        ("[::1]:443", "::1", True),
        ("[::1]:80", "::1", False),
        ("2001:db8::/32", "2001:db8::7", True),
        ("192.0.2.0/24", "::ffff:192.0.2.7", True),
        ("192.0.2.0/24", "::1", False),
        ("example.org", "192.0.2.7", False),
        ("nonsense/99", "192.0.2.7", False),
        (",,", "example.org", False),
    ],
)
def test_hosts_that_go_direct(no_proxy: str, host: str, direct: bool) -> None:
    assert Proxy.parse("http://proxy.example", no_proxy=no_proxy).serves(host, 443) is not direct


def test_patterns_may_be_a_list() -> None:
    proxy = Proxy.parse("http://proxy.example", no_proxy=["localhost", " Example.org "])

    assert not proxy.serves("www.example.org", 443)
    assert proxy.serves("example.com", 443)


def test_a_direct_host_and_a_unix_socket_never_meet_the_proxy(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")

    async def main() -> None:
        echo = TcpServer.create().handle(lambda inbound, outbound: outbound.send(inbound.receive()))
        async with await echo.bind() as server, await echo.unix(path).bind(), HttpProxy() as proxy:
            client = TcpClient.create().port(server.port).proxy(proxy.url, no_proxy="127.0.0.0/8")
            assert await echoed(client) == b"hello"
            assert await echoed(TcpClient.create().proxy(proxy.url).unix(path)) == b"hello"
            assert proxy.asked == []

    run_on("asyncio", main())

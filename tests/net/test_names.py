"""Hosts and paths that cannot be any, and those that the system would take for others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.net import BindFailed, NetError, ResolveFailed, TcpClient, TcpServer, UdpClient, UdpServer

Opens = Callable[[], Awaitable[Any]]

server = TcpServer.create().handle(lambda inbound, outbound: inbound.receive().then())


@pytest.mark.parametrize("builder", [server, TcpClient.create(), UdpServer.create(), UdpClient.create()])
def test_a_host_with_a_nul_is_refused_and_not_cut_there(builder: Any) -> None:
    with pytest.raises(ValueError, match="a name has no NUL"):
        builder.host("localhost\0.example.org")


@pytest.mark.parametrize("builder", [server, TcpClient.create()])
@pytest.mark.parametrize("abstract", ["", "\0"])
def test_a_path_with_a_nul_is_refused_and_not_cut_there(builder: Any, abstract: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="a path has no NUL"):
        builder.unix(f"{abstract}{tmp_path}/one\0two")


@pytest.mark.parametrize("wrong", [5, b"/tmp/socket"])
def test_a_path_is_text(wrong: Any) -> None:
    with pytest.raises(TypeError):
        server.unix(wrong)


def test_a_path_object_is_a_path(tmp_path: Path) -> None:
    async def main() -> None:
        place = tmp_path / "socket"
        async with await server.unix(place).bind():
            await (await TcpClient.create().unix(place).connect()).aclose()

    asyncio.run(main())


@pytest.mark.parametrize("name", [".", "a..b", "x" * 64 + ".example", "\ud800"])
@pytest.mark.parametrize(
    ("builder", "error"),
    [
        (TcpClient.create().port(9), ResolveFailed),
        (server, BindFailed),
        (UdpServer.create(), BindFailed),
        (UdpClient.create().port(9), NetError),
    ],
)
def test_a_name_that_cannot_be_one_is_unknown(name: str, builder: Any, error: type[NetError]) -> None:
    async def main() -> None:
        configured = builder.host(name)
        opens: Opens = configured.connect if hasattr(configured, "connect") else configured.bind
        with pytest.raises(error, match="the host name is unknown"):
            await opens()

    asyncio.run(main())

"""Real proxies, small ones: HTTP CONNECT and SOCKS5, on asyncio's streams and on nothing of ours."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ipaddress
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import ClassVar, Self


@dataclass
class SmallProxy:
    """Connects its clients with the targets that they ask for."""

    names: dict[str, int] = field(default_factory=dict)
    """The only names that it knows, each with a port on this machine."""
    credentials: tuple[str, str] | None = None
    """The only user, if it asks for one."""
    greets: bool = False
    """Wait for the first bytes of the target, and send them together with the answer."""
    slowly: bool = False
    """Send the answer byte by byte."""
    refusal: int | None = None
    """Answer with this code, whatever is asked for."""
    asked: list[tuple[str, int]] = field(default_factory=list)
    """The targets that clients have asked for."""

    scheme: ClassVar[str]

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *anything: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        """Where it is, with the credentials that it wants."""
        user = "" if self.credentials is None else "{}:{}@".format(*self.credentials)
        return f"{self.scheme}://{user}127.0.0.1:{self.port}"

    @property
    def open(self) -> int:
        """How many clients it has."""
        return len(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._client(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with closing(writer):
                await self.serve(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            return  # One side has gone: so does the other.

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        raise NotImplementedError

    async def forward(
        self, target: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter, yes: bytes
    ) -> None:
        """Say yes, and pass everything on in both directions until both have ended."""
        host, port = target
        there, towards = await asyncio.open_connection(*self._looked_up(host, port))
        async with closing(towards):
            answer = yes + (await there.read(65_536) if self.greets else b"")
            await self.say(writer, answer)
            await asyncio.gather(_copy(reader, towards), _copy(there, writer))

    def knows(self, host: str) -> bool:
        return host in self.names or host.startswith("127.") or host == "::1"

    def _looked_up(self, host: str, port: int) -> tuple[str, int]:
        return ("127.0.0.1", self.names[host]) if host in self.names else (host, port)

    async def say(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        if self.slowly:
            for byte in answer:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0)
        else:
            writer.write(answer)
            await writer.drain()


@contextlib.asynccontextmanager
async def closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close in the end, at once if something failed, and wait until that is done."""
    try:
        yield
    except BaseException:
        writer.transport.abort()
        raise
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


class HttpProxy(SmallProxy):
    """CONNECT, with Basic authentication."""

    scheme = "http"
    interim = b""
    """What it says before its answer."""
    challenge = 'Basic realm="small"'

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("ascii").split("\r\n")
        method, where, version = head[0].split(" ")
        fields = dict(line.split(": ", 1) for line in head[1:-2])
        assert (method, version, fields["Host"]) == ("CONNECT", "HTTP/1.1", where)
        host, _, port = where.rpartition(":")
        host = host.strip("[]")
        if self.credentials is not None:
            token = base64.b64encode(":".join(self.credentials).encode()).decode()
            if fields.get("Proxy-Authorization") != f"Basic {token}":
                await self._refuse(writer, 407, f"Proxy-Authenticate: {self.challenge}\r\n")
                return
        self.asked.append((host, int(port)))
        if self.refusal is not None or not self.knows(host):
            await self._refuse(writer, self.refusal or 502)
            return
        yes = self.interim + b"HTTP/1.1 200 Connection established\r\nVia: 1.1 small\r\n\r\n"
        await self.forward((host, int(port)), reader, writer, yes)

    async def _refuse(self, writer: asyncio.StreamWriter, status: int, more: str = "") -> None:
        # The reason is the proxy's own, and may repeat anything: a client must not print it.
        answer = f"HTTP/1.1 {status} {self.credentials}\r\n{more}Content-Length: 2\r\n\r\nno"
        await self.say(writer, answer.encode())


class SocksProxy(SmallProxy):
    """SOCKS5, with user name and password."""

    scheme = "socks5"
    bound = b"\x01\x00\x00\x00\x00"
    """The address that it says it has connected from: its kind, and its bytes."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        version, count = await reader.readexactly(2)
        methods = await reader.readexactly(count)
        wanted = 0 if self.credentials is None else 2
        if version != 5 or wanted not in methods:
            await self.say(writer, b"\x05\xff")
            return
        await self.say(writer, bytes([5, wanted]))
        if self.credentials is not None:
            (_, length) = await reader.readexactly(2)
            user = await reader.readexactly(length)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            accepted = (user.decode(), password.decode()) == self.credentials
            await self.say(writer, bytes([1, 0 if accepted else 1]))
            if not accepted:
                return
        _, command, _, kind = await reader.readexactly(4)
        host = await self._host(reader, kind)
        port = int.from_bytes(await reader.readexactly(2), "big")
        self.asked.append((host, port))
        if command != 1 or self.refusal is not None or not self.knows(host):
            await self.say(writer, bytes([5, self.refusal or 4, 0]) + b"\x01\x00\x00\x00\x00\x00\x00")
            return
        await self.forward((host, port), reader, writer, b"\x05\x00\x00" + self.bound + b"\x00\x00")

    async def _host(self, reader: asyncio.StreamReader, kind: int) -> str:
        if kind == 3:
            return (await reader.readexactly((await reader.readexactly(1))[0])).decode()
        return str(ipaddress.ip_address(await reader.readexactly(4 if kind == 1 else 16)))


PROXIES: dict[str, type[SmallProxy]] = {"http": HttpProxy, "socks5": SocksProxy}

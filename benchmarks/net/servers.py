"""``python -m benchmarks.net.servers KIND``: a server that says its port, and stays until its input ends.

Each is what its library's users would write. None has options set that the others could not have, and each
holds back when the peer does not read: a server without that would be faster, and would fall over.
"""

from __future__ import annotations

import asyncio
import resource
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import repeat
from typing import Any

__all__ = ["KINDS", "main"]

HOST = "127.0.0.1"
BACKLOG = 1024
CHUNK = 2**16
"""Bytes that one read of a stream asks for, where one has to say it."""
ELEMENT = bytes(range(100))
"""What a source sends, again and again; the load generator expects just that."""
JOINED = 128
"""Elements for each write of the source that joins them by hand."""


def announce(port: int) -> None:
    """Tell the one that started us where we can be reached."""
    print(port, flush=True)


async def dismissed() -> None:
    """Wait, on asyncio, until the input ends."""
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    loop.add_reader(sys.stdin.fileno(), ended.set_result, None)
    await ended
    loop.remove_reader(sys.stdin.fileno())


class Echo(asyncio.Protocol):
    """The least that an echo can be: what comes in goes out, and a full way out stops the way in."""

    transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self.transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Send it back."""
        self.transport.write(data)

    def pause_writing(self) -> None:
        """The client does not read."""
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        """It does again."""
        self.transport.resume_reading()


def ended(line: bytes) -> bytes:
    """What every server of lines does with a line."""
    return line + b"\n"


class Lines(Echo):
    """Lines, each through a function, and a write for all that one chunk brings."""

    rest = b""

    def data_received(self, data: bytes) -> None:
        """Send back the lines that are complete."""
        lines = (self.rest + data).split(b"\n")
        self.rest = lines.pop()
        if lines:
            self.transport.write(b"".join([ended(line) for line in lines]))


class Source(asyncio.Protocol):
    """Writes elements until the way out is full, and goes on when it is free.

    After some writes the loop gets its turn: a peer that reads as fast as we write would keep it for ever.
    """

    TURN = 128
    transport: asyncio.Transport

    def __init__(self, each: bytes) -> None:
        self.each = each
        self.writable = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is there."""
        self.transport = transport  # type: ignore[assignment]
        self.write_some()

    def connection_lost(self, error: Exception | None) -> None:
        """It has gone."""
        self.writable = False

    def write_some(self) -> None:
        """One turn, and the next one if there is still room."""
        write, each = self.transport.write, self.each
        for _ in range(self.TURN):
            if not self.writable:
                return
            write(each)
        asyncio.get_running_loop().call_soon(self.write_some)

    def pause_writing(self) -> None:
        """The client does not read as fast as we write."""
        self.writable = False

    def resume_writing(self) -> None:
        """There is room again."""
        self.writable = True
        self.write_some()


async def serve_protocol(factory: Callable[[], asyncio.Protocol]) -> None:
    """A server of asyncio or uvloop with a protocol for each connection."""
    server = await asyncio.get_running_loop().create_server(factory, HOST, 0, backlog=BACKLOG)
    announce(server.sockets[0].getsockname()[1])
    await dismissed()


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def serve_streams(handler: Handler) -> None:
    """A server of asyncio or uvloop with a pair of streams for each connection."""
    server = await asyncio.start_server(handler, HOST, 0, backlog=BACKLOG)
    announce(server.sockets[0].getsockname()[1])
    await dismissed()


async def echo_streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read, write, wait for room."""
    while data := await reader.read(CHUNK):
        writer.write(data)
        await writer.drain()
    writer.close()


async def lines_streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read a line, write, wait for room."""
    while line := await reader.readline():
        writer.write(ended(line[:-1]))
        await writer.drain()
    writer.close()


async def source_streams(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Write an element, wait for room."""
    with suppress(ConnectionError):  # The client has seen enough.
        for element in repeat(ELEMENT):
            writer.write(element)
            await writer.drain()
    writer.close()


async def serve_anyio() -> None:
    """The echo server of anyio's documentation."""
    import anyio
    from anyio.abc import SocketAttribute, SocketStream

    async def echo(client: SocketStream) -> None:
        async with client:
            async for chunk in client:
                await client.send(chunk)

    listener = await anyio.create_tcp_listener(local_host=HOST, local_port=0, backlog=BACKLOG)
    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, echo)
        announce(listener.extra(SocketAttribute.local_port))
        await anyio.wait_readable(sys.stdin.fileno())
        tasks.cancel_scope.cancel()


async def serve_trio() -> None:
    """The echo server of trio's documentation."""
    import trio

    async def echo(client: trio.SocketStream) -> None:
        async with client:
            async for chunk in client:
                await client.send_all(chunk)

    listeners = await trio.open_tcp_listeners(0, host=HOST, backlog=BACKLOG)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, echo, listeners)
        announce(listeners[0].socket.getsockname()[1])
        await trio.lowlevel.wait_readable(sys.stdin.fileno())
        nursery.cancel_scope.cancel()


async def serve_penstock(handler: Callable[[Any, Any], Any], fused: bool) -> None:
    """Our own, as its documentation shows it."""
    from penstock.net import TcpServer

    server = await TcpServer.create().host(HOST).port(0).fuse(fused).handle(handler).bind()
    announce(server.port)
    await dismissed()
    await server.aclose(0)


def penstock_echo(inbound: Any, outbound: Any) -> Any:
    """The echo of the documentation."""
    return outbound.send(inbound.receive())


def penstock_mapped_echo(inbound: Any, outbound: Any) -> Any:
    """The same with an operator between, which sees every chunk."""
    return outbound.send(inbound.receive().map(lambda data: data))


def penstock_lines(inbound: Any, outbound: Any) -> Any:
    """Lines, each through a function."""
    from penstock.net.framing import lines

    return outbound.send(inbound.receive().transform(lines()).map(ended))


async def penstock_line_by_line(inbound: Any, outbound: Any) -> None:
    """The same as a coroutine, as the first handler of the documentation has it."""
    from penstock.net.framing import lines

    async for line in inbound.receive().transform(lines()):
        await outbound.send(ended(line))


def penstock_source(_: Any, outbound: Any) -> Any:
    """Elements that a synchronous source has, one by one."""
    from penstock.streams import Flux

    return outbound.send(Flux.from_iterable(repeat(ELEMENT)))


def on_asyncio(serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it on the loop of the standard library."""
    asyncio.run(serve())


def on_uvloop(serve: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run it on uvloop."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def on_anyio() -> None:
    """Anyio on asyncio with uvloop, which is the fastest that it has."""
    import anyio

    anyio.run(serve_anyio, backend="asyncio", backend_options={"use_uvloop": True})


def on_trio() -> None:
    """Trio has its own loop."""
    import trio

    trio.run(serve_trio)


def _penstock(handler: Callable[[Any, Any], Any], *, fused: bool = True) -> Callable[[], None]:
    return partial(on_uvloop, partial(serve_penstock, handler, fused))


def _uvloop_protocol(factory: Callable[[], asyncio.Protocol]) -> Callable[[], None]:
    return partial(on_uvloop, partial(serve_protocol, factory))


KINDS: dict[str, Callable[[], None]] = {
    "raw-uvloop": _uvloop_protocol(Echo),
    "raw-asyncio": partial(on_asyncio, partial(serve_protocol, Echo)),
    "streams-uvloop": partial(on_uvloop, partial(serve_streams, echo_streams)),
    "streams-asyncio": partial(on_asyncio, partial(serve_streams, echo_streams)),
    "anyio": on_anyio,
    "trio": on_trio,
    "penstock-fused": _penstock(penstock_echo),
    "penstock-unfused": _penstock(penstock_echo, fused=False),
    "penstock-mapped": _penstock(penstock_mapped_echo),
    "raw-uvloop-lines": _uvloop_protocol(Lines),
    "streams-uvloop-lines": partial(on_uvloop, partial(serve_streams, lines_streams)),
    "penstock-lines": _penstock(penstock_lines),
    "penstock-line-by-line": _penstock(penstock_line_by_line),
    "raw-uvloop-source": _uvloop_protocol(partial(Source, ELEMENT)),
    "raw-uvloop-joined-source": _uvloop_protocol(partial(Source, ELEMENT * JOINED)),
    "streams-uvloop-source": partial(on_uvloop, partial(serve_streams, source_streams)),
    "penstock-source": _penstock(penstock_source),
}


def main(kind: str) -> None:
    """Serve until the input ends."""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    KINDS[kind]()


if __name__ == "__main__":
    main(sys.argv[1])

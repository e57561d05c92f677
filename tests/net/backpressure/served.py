"""The server under test, as a process of its own: what it holds in memory is its own.

It gets its settings as JSON and prints its port. Each line of its input is a command, which is answered by a
line of JSON; it ends when its input does.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import re
import resource
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

from penstock.net import Connection, RunningServer, TcpServer
from penstock.spec import UNBOUNDED, Subscription
from penstock.streams import Flux, Mono
from tests.net.tcp.loops import LOOPS

PACE = 1_000_000
"""Bytes that the slow consumer takes in a second."""
SLOW_HOST = "127.0.0.2"
"""Who comes from here meets the slow consumer of the mixed server."""
STREAM_HOST = "127.0.0.3"
"""Who comes from here gets the stream of the mixed server."""


class Tally:
    """What the handlers have done so far."""

    def __init__(self) -> None:
        self.consumed = 0
        self.chunks = 0
        self.produced = 0
        self.most_in_a_turn = 0
        """Bytes that a source has produced in one turn of the event loop, at most."""
        self.completed = 0
        self.failed = 0


class Taking:
    """Counts what it is given, and asks for nothing by itself."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def on_subscribe(self, subscription: Subscription) -> None:
        self.subscription = subscription

    def on_next(self, data: bytes) -> None:
        self.tally.consumed += len(data)
        self.tally.chunks += 1

    def on_error(self, error: BaseException) -> None:
        self.tally.failed += 1

    def on_complete(self) -> None:
        self.tally.completed += 1


class Paced(Taking):
    """Asks for the next chunk when the last one has had its time: demand is its only means."""

    def on_subscribe(self, subscription: Subscription) -> None:
        super().on_subscribe(subscription)
        subscription.request(1)

    def on_next(self, data: bytes) -> None:
        super().on_next(data)
        asyncio.get_running_loop().call_later(len(data) / PACE, self.subscription.request, 1)


class Hoarding(Taking):
    """Asks for everything and keeps it: what must not happen, to see that it would be seen."""

    def on_subscribe(self, subscription: Subscription) -> None:
        self.kept: list[bytes] = []
        subscription.request(UNBOUNDED)

    def on_next(self, data: bytes) -> None:
        super().on_next(data)
        self.kept.append(data)


class Handlers:
    """What the server does with its connections."""

    def __init__(self, element: int) -> None:
        self.tally = Tally()
        self.element = bytes(element)
        self.takers: list[Taking] = []

    def slow(self, inbound: Any, outbound: Any) -> Any:
        return self._taken_by(Paced(self.tally), inbound, outbound)

    def hoarding(self, inbound: Any, outbound: Any) -> Any:
        return self._taken_by(Hoarding(self.tally), inbound, outbound)

    def on_command(self, inbound: Any, outbound: Any) -> Any:
        """Nothing is asked for until the test says so, and the handler stays when the peer has gone."""
        self._taken_by(Taking(self.tally), inbound, outbound)
        return Mono.never()

    def echo(self, inbound: Any, outbound: Any) -> Any:
        return outbound.send(inbound.receive())

    def mapped_echo(self, inbound: Any, outbound: Any) -> Any:
        return outbound.send(inbound.receive().map(bytes))

    def dropping_echo(self, inbound: Any, outbound: Any) -> Any:
        return outbound.send(inbound.receive().on_backpressure_drop())

    def dropping_mapped_echo(self, inbound: Any, outbound: Any) -> Any:
        return outbound.send(inbound.receive().map(bytes).on_backpressure_drop().map(bytes))

    def stream(self, inbound: Any, outbound: Any) -> Any:
        """A source that always has a next element at once."""
        return outbound.send(Flux.from_iterable(self._elements()))

    def mixed(self, inbound: Any, outbound: Any) -> Any:
        by_host = {SLOW_HOST: self.slow, STREAM_HOST: self.stream}
        host = inbound.connection.transport.raw.get_extra_info("peername")[0]
        return by_host.get(host, self.echo)(inbound, outbound)

    def _taken_by(self, taker: Taking, inbound: Any, outbound: Any) -> Any:
        self.takers.append(taker)
        inbound.receive().subscribe(taker)
        return outbound.keep_open()

    def _elements(self) -> Iterator[bytes]:
        for element in repeat(self.element):
            self.tally.produced += len(element)
            yield element


class Commands:
    """What the test asks of the server while it runs."""

    def __init__(self, server: RunningServer, handlers: Handlers) -> None:
        self._server = server
        self._handlers = handlers
        self._produced = 0

    def answer(self, name: str, *arguments: Any) -> Any:
        return getattr(self, name)(*arguments)

    def forget_peak(self) -> dict[str, int]:
        """From now on the peak is that of what comes."""
        with open("/proc/self/clear_refs", "w") as control:
            control.write("5")
        return memory()

    def figures(self) -> dict[str, Any]:
        connections = [held_by(connection) for connection in self._server.connections]
        return {**vars(self._handlers.tally), **memory(), "connections": connections}

    def request(self, n: int) -> int:
        """Give every taker this much demand."""
        for taker in self._handlers.takers:
            taker.subscription.request(n)
        return len(self._handlers.takers)

    def watch_turns(self) -> None:
        """Note what is produced in each turn of the loop, from now on."""
        tally = self._handlers.tally
        tally.most_in_a_turn = max(tally.most_in_a_turn, tally.produced - self._produced)
        self._produced = tally.produced
        asyncio.get_running_loop().call_soon(self.watch_turns)


def memory() -> dict[str, int]:
    """Bytes of this process in memory: now, and at most."""
    with open("/proc/self/status") as status:
        found = dict(re.findall(r"(VmRSS|VmHWM):\s+(\d+) kB", status.read()))
    return {"resident": int(found["VmRSS"]) * 1024, "peak": int(found["VmHWM"]) * 1024}


def held_by(connection: Connection) -> dict[str, Any]:
    """What there is of one connection, here and in the kernel."""
    transport = connection.transport
    socket = transport.socket
    unread = bytes(4)
    if socket is not None and socket.fileno() >= 0:  # It is just being closed otherwise.
        unread = fcntl.ioctl(socket.fileno(), termios.FIONREAD, unread)
    return {
        "unsent": transport.get_write_buffer_size(),
        "waiting": connection._receiver.waiting,
        "unread": struct.unpack("i", unread)[0],
        "ended": connection.peer_has_ended,
    }


async def serve(
    handler: str,
    element: int,
    tls: str | None,
    fused: bool,
    read_ahead: int | None,
    options: dict[str, int],
) -> None:
    handlers = Handlers(element)
    server = TcpServer.create().backlog(1024).fuse(fused).handle(getattr(handlers, handler))
    if tls is not None:
        server = server.secure(certificate=f"{tls}/certificate.pem", key=f"{tls}/key.pem")
    if read_ahead is not None:
        server = server.read_ahead(read_ahead)
    for name, value in options.items():
        server = server.option(name, value)
    running = await server.bind()
    say(running.port)
    await obey(Commands(running, handlers).answer)
    await running.aclose(0)


async def obey(answer: Callable[..., Any]) -> None:
    """Answer commands until the input ends, or one fails."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()

    def read() -> None:
        try:
            line = sys.stdin.readline()
            if line:
                say(answer(*json.loads(line)))
            else:
                loop.remove_reader(sys.stdin.fileno())
                ended.set_result(None)
        except BaseException as failure:
            loop.remove_reader(sys.stdin.fileno())
            ended.set_exception(failure)

    loop.add_reader(sys.stdin.fileno(), read)
    await ended


def say(thing: Any) -> None:
    print(json.dumps(thing), flush=True)


def main(loop: str, **settings: Any) -> None:
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
        runner.run(serve(**settings))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))

"""An ASGI server's side of one exchange, in the hands of a test: it decides when a message is taken.

Real servers are in ``test_servers.py``. Here every ``send()`` can be held, so that it can be said exactly how
much a source was asked for at that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

PATIENCE = 60.0

Message = MutableMapping[str, Any]


class Exchange:
    """One request: what the client sends is put in, what the application sends is recorded."""

    def __init__(self, *, method: str = "GET", path: str = "/", kind: str = "http") -> None:
        self.scope: dict[str, Any] = {
            "type": kind,
            "method": method,
            "path": path,
            "headers": [],
            "query_string": b"",
            "client": ("192.0.2.1", 5),
            "subprotocols": [],
        }
        self.incoming: asyncio.Queue[Message] = asyncio.Queue()
        self.sent: list[Message] = []
        self.taking = asyncio.Event()
        self.taking.set()
        self.arrived = asyncio.Event()
        self.receiving = 0
        """How many receive() are waiting at this moment; a server allows one."""
        self.received = 0

    async def receive(self) -> Message:
        self.receiving += 1
        assert self.receiving == 1, "receive() was called twice at once"
        try:
            message = await self.incoming.get()
            self.received += 1
            return message
        finally:
            self.receiving -= 1

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        self.arrived.set()
        await self.taking.wait()

    def start(self, app: Callable[..., Awaitable[None]]) -> asyncio.Task[None]:
        return asyncio.ensure_future(app(self.scope, self.receive, self.send))  # type: ignore[arg-type]

    async def until_sent(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.sent) < count:
                self.arrived.clear()
                await self.arrived.wait()

    def disconnect(self) -> None:
        self.incoming.put_nowait({"type": "http.disconnect"})

    def chunk(self, data: bytes, *, more: bool = True) -> None:
        self.incoming.put_nowait({"type": "http.request", "body": data, "more_body": more})

    @property
    def status(self) -> int:
        status: int = self.sent[0]["status"]
        return status

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent[1:]]


async def answered(app: Callable[..., Awaitable[None]], **scope: Any) -> Exchange:
    """The exchange with a client that takes everything and stays."""
    exchange = Exchange(**scope)
    exchange.chunk(b"", more=False)
    await asyncio.wait_for(exchange.start(app), PATIENCE)
    return exchange


class Source:
    """A Publisher that remembers how it was asked, and sends what the test says."""

    def __init__(self) -> None:
        self.requested = 0
        self.cancelled = False
        self.subscriber: Any = None

    def subscribe(self, subscriber: Any, /) -> None:
        self.subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int, /) -> None:
        self.requested += n

    def cancel(self) -> None:
        self.cancelled = True


async def turns(count: int = 20) -> None:
    """Let everything run that can."""
    for _ in range(count):
        await asyncio.sleep(0)

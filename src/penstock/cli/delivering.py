"""Brings every line of a file into the journal of a gateway exactly once, whoever is killed on the way.

The gateway says how many lines it has: at first those that came, then, again and again, those that are safe.
So the sender begins where the gateway's lines end, keeps nothing but the file, and is done when all are safe.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from penstock.net import ConnectFailed, Connection, ConnectionAborted, NetError, TcpClient
from penstock.net.framing import lines
from penstock.streams import Flux

__all__ = ["Delivery", "DeliveryFailed"]

_CHUNK: Final = 128 * 1024
_LAST_WORD: Final = 2.0
"""Seconds in which a gateway's reason for hanging up has to arrive."""
_RETRY: Final = 0.2
"""Seconds between attempts to find the gateway again."""


class DeliveryFailed(NetError):
    """The lines cannot be delivered, however often one tries."""


class Delivery:
    """One file on its way."""

    def __init__(self, client: TcpClient, path: str, patience: float) -> None:
        self._client = client
        self._path = path
        self._patience = patience
        self._total: int | None = None
        self._changed = asyncio.Event()
        self._refusal: DeliveryFailed | None = None
        """What the gateway has said in place of a number."""
        self.safe = 0
        """Lines in the gateway's journal, as far as it has said."""
        self.sent = 0
        """Lines that were sent by us, some perhaps more than once."""
        self.state = "connecting"

    async def run(self) -> None:
        """Until every line is safe."""
        while True:
            connection = await self._connect()
            async with connection:
                try:
                    await self._deliver(connection)
                    return
                except ConnectionAborted:
                    self.state = "the connection was lost, looking for the gateway"
            await asyncio.sleep(_RETRY)

    async def _connect(self) -> Connection:
        deadline = time.monotonic() + self._patience
        while True:
            try:
                return await self._client.connect()
            except ConnectFailed:
                if time.monotonic() > deadline:
                    raise
            await asyncio.sleep(_RETRY)

    async def _deliver(self, connection: Connection) -> None:
        said = connection.inbound.receive().transform(lines(1024, must_end=True)).map(_number)
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        hearing = asyncio.ensure_future(self._hear(said, told))
        try:
            first = await told
            self.state = f"sending from line {first + 1:,} on"
            await connection.outbound.send(Flux.from_iterable(self._from_line(first)))
            self.state = "everything is sent, waiting until it is safe"
            while self.safe < (self._total or 0):
                if hearing.done():
                    raise ConnectionAborted("the gateway hung up before everything was safe")
                self._changed.clear()
                await self._changed.wait()
        except ConnectionAborted:
            # The gateway may have said why. What it said has come by now, or will not come any more.
            await asyncio.wait([hearing], timeout=_LAST_WORD)
            if self._refusal is not None:
                raise self._refusal from None
            raise
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _hear(self, said: Flux[int], told: asyncio.Future[int]) -> None:
        try:
            async for number in said:
                if not told.done():
                    told.set_result(number)
                else:
                    self.safe = number
                self._changed.set()
        except NetError as error:
            if isinstance(error, DeliveryFailed):
                self._refusal = error
            _fail(told, error)
        finally:
            _fail(told, ConnectionAborted("the gateway hung up at once"))
            self._changed.set()

    def _from_line(self, first: int) -> Iterator[bytes]:
        """The file behind its first lines; the last line gets an end if it has none."""
        count, ended = 0, True
        with open(self._path, "rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                ended = chunk.endswith(b"\n")
                found = chunk.count(b"\n")
                rest = chunk
                if count < first:
                    rest = chunk.split(b"\n", first - count)[-1] if count + found >= first else b""
                count += found
                if rest:
                    self.sent += rest.count(b"\n")
                    yield rest
        if not ended:
            count += 1
            if count > first:
                self.sent += 1
                yield b"\n"
        if count < first:
            raise DeliveryFailed(
                f"the gateway has {first:,} lines and {self._path} has {count:,}: is it another file? "
                "Give another file another journal"
            )
        self._total = count


def _number(line: bytes) -> int:
    try:
        return int(line)
    except ValueError:
        said = line.decode(errors="replace")
        if said.startswith("line "):
            raise DeliveryFailed(f"the gateway does not take a line: {said}") from None
        raise DeliveryFailed(
            f"the other side said {said[:40]!r}, which is not a number of lines: is it a gateway with "
            "--source 'tcp-listen://HOST:PORT?acknowledge'?"
        ) from None


def _fail(told: asyncio.Future[int], error: Exception) -> None:
    if not told.done():
        told.set_exception(error)

"""Sends every line of a file into the journal of a gateway exactly once, even if either side is killed.

The gateway says how many lines it has: first how many have arrived, then, again and again, how many are in
its journal. So the sender starts after the last line that the gateway has, needs no state but the file, and
is done when the journal has every line.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from penstock.backoff import Backoff
from penstock.net import ConnectFailed, Connection, ConnectionAborted, NetError, TcpClient
from penstock.net.framing import lines
from penstock.streams import Flux

__all__ = ["LineSender", "SendingFailed"]

_CHUNK: Final = 128 * 1024
_LAST_WORD: Final = 2.0
"""Seconds in which a gateway's reason for disconnecting has to arrive."""
_RECONNECT: Final = Backoff(first=0.2, longest=1.0)
"""The pauses between two attempts to reconnect."""


class SendingFailed(NetError):
    """The lines cannot be sent, and another attempt would not help."""


class LineSender:
    """Sends one file to a gateway that listens with ``tcp-listen://HOST:PORT?acknowledge``.

    ``client`` connects to it, ``patience`` is for how many seconds to look for a gateway that is not there,
    or to wait for the first word of one that is.
    """

    def __init__(self, client: TcpClient, path: str, patience: float) -> None:
        # A gateway that is gone without a word would be waited for, for ever.
        self._client = client.keep_alive()
        self._path = path
        self._patience = patience
        self._reconnect = replace(_RECONNECT, patience=patience)
        self._total: int | None = None
        self._changed = asyncio.Event()
        self._refusal: SendingFailed | None = None
        """What the gateway has said instead of a number."""
        self.safe = 0
        """How many lines are in the gateway's journal, as far as it has said."""
        self.sent = 0
        """How many lines were sent; a line that was sent again counts again."""
        self.state = "connecting"
        """What it is doing, for a screen."""

    async def run(self) -> None:
        """Send until every line is in the journal; SendingFailed or NetError if that is impossible."""
        while True:
            connection = await self._connect()
            async with connection:
                try:
                    await self._deliver(connection)
                    return
                except ConnectionAborted:
                    self.state = "the connection was lost; reconnecting"
            await asyncio.sleep(self._reconnect.pause(1))

    async def _connect(self) -> Connection:
        began = time.monotonic()
        for attempt in itertools.count(1):
            try:
                return await self._client.connect()
            except ConnectFailed:
                if self._reconnect.gives_up(time.monotonic() - began):
                    raise
            await asyncio.sleep(self._reconnect.pause(attempt))
        raise AssertionError("an endless loop has ended")

    async def _deliver(self, connection: Connection) -> None:
        said = connection.inbound.receive().transform(lines(1024, must_end=True)).map(_number)
        told: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        hearing = asyncio.ensure_future(self._hear(said, told))
        try:
            first = await self._first_word(told)
            self.state = f"sending from line {first + 1:,}"
            await connection.outbound.send(Flux.from_iterable(self._from_line(first)))
            self.state = "everything is sent; waiting for the journal"
            while self.safe < (self._total or 0):
                if hearing.done():
                    raise ConnectionAborted("the gateway disconnected before every line was in its journal")
                self._changed.clear()
                await self._changed.wait()
        except ConnectionAborted:
            # The gateway may have said why. If so, it has arrived by now, or arrives very soon.
            await asyncio.wait([hearing], timeout=_LAST_WORD)
            if self._refusal is not None:
                raise self._refusal from None
            raise
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    async def _first_word(self, told: asyncio.Future[int]) -> int:
        """How many lines the gateway has; SendingFailed if the server says nothing for too long."""
        await asyncio.wait([told], timeout=self._patience)
        if not told.done():
            raise SendingFailed(
                f"the server has said nothing for {self._patience:g} s; a gateway that acknowledges lines is "
                "started with --source 'tcp-listen://HOST:PORT?acknowledge'"
            )
        return await told

    async def _hear(self, said: Flux[int], told: asyncio.Future[int]) -> None:
        try:
            async for number in said:
                if not told.done():
                    told.set_result(number)
                else:
                    self.safe = number
                self._changed.set()
        except NetError as error:
            if isinstance(error, SendingFailed):
                self._refusal = error
            _fail(told, error)
        finally:
            _fail(told, ConnectionAborted("the gateway disconnected at once"))
            self._changed.set()

    def _from_line(self, first: int) -> Iterator[bytes]:
        """Yield the file after its first lines; the last line gets a newline if it has none."""
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
            raise SendingFailed(
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
            raise SendingFailed(f"the gateway refuses a line: {said}") from None
        raise SendingFailed(
            f"the server answered {said[:40]!r} instead of a number of lines; start a gateway there with "
            "--source 'tcp-listen://HOST:PORT?acknowledge'"
        ) from None


def _fail(told: asyncio.Future[int], error: Exception) -> None:
    if not told.done():
        told.set_exception(error)

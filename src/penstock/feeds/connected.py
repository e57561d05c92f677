"""A feed that has a connection, and reconnects: what brokers, WebSockets and event streams have in common."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from abc import abstractmethod
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any, ClassVar, Final

from penstock.backoff import Backoff
from penstock.delivery import Delivery, FeedState
from penstock.feeds.feed import Feed
from penstock.feeds.lines import LineSplitter, portions
from penstock.feeds.senders import DATA, DEMAND, WORKING, SenderLedger, SenderVisit
from penstock.spec import Publisher
from penstock.streams import Flux

__all__ = ["RECONNECT", "ConnectedFeed", "ConnectionLost", "down", "heed_cancel"]

_log = logging.getLogger("penstock.feeds")

RECONNECT: Final = Backoff(first=0.2, longest=30.0)
"""The pauses between two attempts to reconnect."""


_BETWEEN_WARNINGS: Final = 60.0
"""Seconds between two warnings of the same reason, if the connection was there in between."""


class ConnectionLost(ConnectionError):
    """The other side has ended the connection; a :class:`ConnectedFeed` then reconnects."""


def down(before: FeedState, error: BaseException, attempts: int, pause: float) -> FeedState:
    """The state of a feed whose connection has failed; the next attempt follows after ``pause`` seconds."""
    now = time.time()
    since = before.since if before.status == "down" else now
    return FeedState("down", since, str(error) or type(error).__name__, attempts, now + pause)


def heed_cancel() -> None:
    """Raise CancelledError if this task was cancelled: some clients lose a cancel while they wait.

    A feed that did not notice would connect again, for ever, and nobody would read it.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class ConnectedFeed(Feed):
    """Reads one connection after the other; a server that is not there is a state and not an end.

    :meth:`connection` is an asynchronous generator that connects, calls :meth:`connected`, and yields
    deliveries or plain records. It is stepped once for each element of demand: while the gateway has no
    space it stands still at its ``yield``, and whatever the protocol offers to slow down a sender applies.

    An error of a kind in :attr:`lost` means: log it, wait as :attr:`backoff` says, and call it again. Any
    other error ends the feed, and so does returning.
    """

    lost: ClassVar[tuple[type[BaseException], ...]] = (OSError, EOFError, TimeoutError)
    """The errors after which it reconnects."""
    backoff: Backoff = RECONNECT
    _visit: SenderVisit
    """What the connection says of itself; there is one while :meth:`connection` runs."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.state = FeedState("connecting")
        self.senders = self._ledger = SenderLedger()
        self._attempts = 0
        """How many connections in a row have failed, or have ended early without giving anything."""
        self._reason: str | None = None
        """Why the last one ended."""
        self._is_told = False
        """Whether there was a warning that the connection is lost."""
        self._told = -math.inf
        """When there was one."""

    @abstractmethod
    def connection(self) -> AsyncGenerator[Any, None]:
        """Connect, and yield what comes; runs on an event loop, once for each connection."""

    def connected(self) -> None:
        """Say that the connection is there; called by :meth:`connection`."""
        if self.state.status == "down":
            seconds = time.time() - self.state.since
            level, about = logging.WARNING if self._is_told else logging.DEBUG, {"feed": self.name}
            _log.log(level, "%s: connected again, after %.1f s", self.name, seconds, extra=about)
        self._is_told = False
        self.state = FeedState("up")

    def _lines_of(self, chunk: bytes, splitter: LineSplitter) -> Iterator[Delivery]:
        """The lines that end in a chunk of this connection, a few hundred to a delivery at most."""
        self._visit.took(0, len(chunk))
        for piece in portions(chunk):
            self._visit.doing = WORKING
            made, error = splitter.take(piece)
            self._visit.doing = DATA
            if made:
                yield Delivery(made)
            if error is not None:
                raise error

    def _leave_out_the_rest(self, splitter: LineSplitter) -> None:
        """Forget the line in whose middle the connection has ended, and say so."""
        lost = splitter.forget()
        if lost:
            _log.warning("%s ended in the middle of a line; its %d bytes are left out", self.name, lost)

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return what the connections give, one after the other."""
        return Flux.from_async_iterable(self._connections)

    async def _connections(self) -> AsyncGenerator[Any, None]:
        while True:
            began, useful = time.monotonic(), False
            try:
                with self._ledger.visit(self.name) as self._visit:
                    async with aclosing(self.connection()) as elements:
                        async for element in elements:
                            useful = True
                            self._visit.doing = DEMAND
                            yield element
                            self._visit.doing = DATA
                            self._visit.took(len(element.records) if isinstance(element, Delivery) else 1)
                return
            except self.lost as error:
                heed_cancel()
                # A server that accepts and then hangs up at once is as good as one that is not there.
                lasted = self.state.status == "up" and time.monotonic() - began >= self.backoff.longest
                if useful or lasted:
                    self._attempts = 0
                pause = self._disconnected(error)
            await asyncio.sleep(pause)

    def _disconnected(self, error: BaseException) -> float:
        """Note why, and return how many seconds to wait."""
        self._attempts = attempts = self._attempts + 1
        pause = self.backoff.pause(attempts)
        self.state = down(self.state, error, attempts, pause)
        reason = self.state.reason
        # Once for each reason, and then ever more rarely: a server may be away for days. One that ends each
        # connection after a few records is told of once a minute.
        is_due = attempts > 1 or time.monotonic() - self._told >= _BETWEEN_WARNINGS
        if self._reason != reason or (attempts & (attempts - 1) == 0 and is_due):
            self._is_told, self._told = True, time.monotonic()
            about = {"feed": self.name, "reason": reason, "attempt": attempts + 1, "pause": pause}
            _log.warning(
                "%s: %s; attempt %d follows in %.1f s", self.name, reason, attempts + 1, pause, extra=about
            )
        self._reason = reason
        return pause

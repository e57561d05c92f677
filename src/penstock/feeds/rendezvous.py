"""From many senders to one subscriber: a delivery waits with its sender until it is asked for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field

from penstock.delivery import Delivery
from penstock.spec import Publisher
from penstock.streams.spi import AsyncIterableSource, flux_of

__all__ = ["FeedClosed", "Rendezvous"]


class FeedClosed(Exception):
    """Nobody takes deliveries any more."""


@dataclass(eq=False)
class _Offer:
    delivery: Delivery
    taken: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class Rendezvous:
    """Lives on one event loop, where the senders are; the subscriber may be on any thread.

    There is no buffer: an offer that is withdrawn before it was taken leaves nothing behind.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._offers: deque[_Offer] = deque()
        self._offered = asyncio.Event()
        self._unsettled: set[asyncio.Future[None]] = set()
        """What senders wait for: the commits of deliveries that were taken."""
        self.closing: asyncio.Future[None] = loop.create_future()
        """Done when the feed is being closed: nobody will ever ask again."""
        self._closed = False
        """Whether nobody takes deliveries at the moment."""

    def publisher(self) -> Publisher[Delivery]:
        """What is offered, for one subscriber: one delivery for each element of demand."""
        return flux_of(AsyncIterableSource("rendezvous", self._deliveries, loop=self._loop))

    async def offer(
        self,
        delivery: Delivery,
        seconds: float | None = None,
        withdrawn: Callable[[], object] = lambda: None,
    ) -> bool:
        """Wait until the delivery is asked for; False after so many seconds, and then it is withdrawn.

        FeedClosed if nobody will ask. A caller that is cancelled withdraws it, too, unless it was taken in
        the same moment. ``withdrawn`` is called if nobody took it.
        """
        if self._closed:
            withdrawn()
            raise FeedClosed
        offer = _Offer(delivery)
        self._offers.append(offer)
        self._offered.set()
        try:
            await asyncio.wait([offer.taken], timeout=seconds)
        finally:
            if not offer.taken.done():
                self._offers.remove(offer)
                withdrawn()
            elif offer.taken.exception() is not None:
                withdrawn()
        if offer.taken.done():
            offer.taken.result()
        return offer.taken.done()

    def commit(self) -> tuple[asyncio.Future[None], Callable[[], None]]:
        """What a sender can wait for, and the function to call from any thread when it is there."""
        stored = self._loop.create_future()
        self._unsettled.add(stored)
        stored.add_done_callback(self._unsettled.discard)

        def tell() -> None:
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(_settle, stored)

        return stored, tell

    def close(self) -> None:
        """On the loop: every sender that waits gets FeedClosed."""
        self._closed = True
        _settle(self.closing)
        offers, self._offers = self._offers, deque()
        for waiting in (*(offer.taken for offer in offers), *self._unsettled):
            if not waiting.done():
                waiting.set_exception(FeedClosed())
                waiting.exception()  # Retrieved: the sender may be gone.

    async def _deliveries(self) -> AsyncGenerator[Delivery, None]:
        self._closed = self.closing.done()  # A gateway may have read this before, and have been closed.
        try:
            while True:
                while not self._offers:
                    self._offered.clear()
                    await self._offered.wait()
                offer = self._offers.popleft()
                if not offer.taken.done():
                    offer.taken.set_result(None)
                    yield offer.delivery
        finally:
            # The gateway is being closed. What it has taken is stored before its feed is closed.
            self._closed = True
            offers, self._offers = self._offers, deque()
            for offer in offers:
                if not offer.taken.done():
                    offer.taken.set_exception(FeedClosed())


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)

"""Reading a range of offsets in the caller's own thread, frame by frame: for loops that may block.

The gateway is granted more when the caller comes back for the next frame. A loop that stands still holds no
more than a window.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import Final

from penstock.aquifer.batches import MSGPACK
from penstock.aquifer.endpoints import Endpoint
from penstock.aquifer.protocol.frames import Frame
from penstock.aquifer.protocol.subscriber_side import SubscriberSide
from penstock.aquifer.protocol.wishes import Wishes
from penstock.aquifer.security import CurveClient
from penstock.aquifer.subscriber.channel import Channel
from penstock.aquifer.subscriber.driving import Driver
from penstock.aquifer.subscriber.shelf_view import Lookout

__all__ = ["frames"]

_LONG: Final = 0.05
"""Seconds that the sockets may be left alone while there are frames to hand on."""


def frames(
    endpoint: str,
    *,
    start: int,
    stop: int,
    epoch: str | None = None,
    format: str = MSGPACK,
    patience: float = 30.0,
    window: int = 65_536,
    window_bytes: int = 8 * 1024 * 1024,
    curve: CurveClient | None = None,
) -> Iterator[Frame]:
    """The records from offset ``start`` up to, but not with, ``stop``: in order, none twice, none missing.

    The payload of a large frame is a view of what has come: it costs no copy, and lives as long as somebody
    looks at it.

    Who reads a range is not kept: somebody else has to see to it that the gateway does not forget it. If it
    has, or does, this raises :class:`~penstock.aquifer.OffsetGone`.
    """
    address = Endpoint.parse(endpoint)
    lookout = Lookout(endpoint) if address.is_loopback else None
    wishes = Wishes(
        start=start,
        stop=stop,
        epoch=epoch,
        keep=False,
        formats=[format],
        dialect="extended",
        window=window,
        max_window=window,
        window_bytes=window_bytes,
        patience=patience,
        shelves=lookout,
    )
    reader = _RangeReader(SubscriberSide(endpoint, wishes), Channel(address, curve, views=True))
    try:
        yield from reader.run()
    finally:
        reader.close()
        if lookout is not None:
            lookout.close()


class _RangeReader:
    """Drives the subscriber's side from within a generator."""

    def __init__(self, side: SubscriberSide, channel: Channel) -> None:
        self._side = side
        self._channel = channel
        self._waiting: deque[Frame] = deque()
        self._driver = Driver(side, channel, self._waiting.append)
        self._heard = 0.0
        """When the sockets were last looked at."""

    def run(self) -> Iterator[Frame]:
        side = self._side
        self._driver.do(side.start(time.monotonic()))
        while True:
            while self._waiting:
                frame = self._waiting.popleft()
                yield frame
                nbytes = len(frame.payload) + len(frame.notes)
                side.reading.hand_on(frame.first + frame.count, nbytes)
                side.reading.acknowledged = frame.first + frame.count
                now = time.monotonic()
                if not self._waiting or now - self._heard >= _LONG:
                    self._hear(now)  # Before it is asked for how long there was silence.
                self._driver.do(side.tick(now))
            if self._driver.finished is not None:
                if self._driver.finished.error is not None:
                    raise self._driver.finished.error
                return
            if side.reading is not None and side.reading.ended:
                return
            now = time.monotonic()
            self._driver.do(side.tick(now))
            self._channel.wait(max(0.0, min(side.deadline() - now, 0.5)))
            self._hear(time.monotonic())

    def _hear(self, now: float) -> None:
        self._heard = now
        self._driver.hear(now)

    def close(self) -> None:
        self._driver.do(self._side.leave())
        self._channel.close()

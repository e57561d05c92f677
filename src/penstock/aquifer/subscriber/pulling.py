"""Reading a range of offsets in the caller's own thread, frame by frame: for loops that may block.

The gateway is granted more when the caller comes back for the next frame. A loop that stands still holds no
more than a window.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator

import zmq

from penstock.aquifer.batches import MSGPACK
from penstock.aquifer.endpoints import Endpoint
from penstock.aquifer.protocol import effects
from penstock.aquifer.protocol.extended_reading import ExtendedReading
from penstock.aquifer.protocol.frames import Frame, parse
from penstock.aquifer.protocol.messages import encode
from penstock.aquifer.protocol.subscriber_side import Phase, SubscriberSide
from penstock.aquifer.protocol.wishes import Wishes
from penstock.aquifer.security import CurveClient
from penstock.aquifer.subscriber.channel import Channel

__all__ = ["frames"]


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

    Who reads a range is not kept: somebody else has to see to it that the gateway does not forget it. If it
    has, or does, this raises :class:`~penstock.aquifer.OffsetGone`.
    """
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
    )
    reader = _RangeReader(SubscriberSide(endpoint, wishes), Channel(Endpoint.parse(endpoint), curve))
    try:
        yield from reader.run()
    finally:
        reader.close()


class _RangeReader:
    """Drives the subscriber's side from within a generator."""

    def __init__(self, side: SubscriberSide, channel: Channel) -> None:
        self._side = side
        self._channel = channel
        self._waiting: deque[Frame] = deque()
        self._finished: effects.Finish | None = None

    def run(self) -> Iterator[Frame]:
        side = self._side
        self._do(side.start(time.monotonic()))
        while True:
            while self._waiting:
                frame = self._waiting.popleft()
                yield frame
                nbytes = len(frame.payload) + len(frame.notes)
                side.reading.hand_on(frame.first + frame.count, nbytes)
                side.reading.acknowledged = frame.first + frame.count
                self._listen()  # Before the clock is looked at: the caller may have been away for long.
                self._do(side.tick(time.monotonic()))
            if self._finished is not None:
                if self._finished.error is not None:
                    raise self._finished.error
                return
            if side.reading is not None and side.reading.ended:
                return
            now = time.monotonic()
            self._do(side.tick(now))
            self._channel.wait(max(0.0, min(side.deadline() - now, 0.5)))
            self._listen()

    def close(self) -> None:
        self._do(self._side.leave())
        self._channel.close()

    def _listen(self) -> None:
        side, channel, now = self._side, self._channel, time.monotonic()
        news = channel.control_news()
        if zmq.EVENT_HANDSHAKE_FAILED_AUTH in news:
            self._do(side.turned_away())
        elif zmq.EVENT_HANDSHAKE_SUCCEEDED in news:
            side.connected(now)
        channel.data_news()
        for message in channel.control_messages():
            if not self._do(side.control(message, now)):
                break  # What is left was said on the old connection.
        if side.phase is not Phase.READING or not isinstance(side.reading, ExtendedReading):
            return
        for parts in channel.frames():
            self._do(side.reading.frame(parse(parts), now))
            if side.phase is not Phase.READING:
                return

    def _do(self, wanted: list[effects.Effect]) -> bool:
        """Do what the protocol wants; False if that was to connect anew."""
        same = True
        for effect in wanted:
            if isinstance(effect, effects.Take):
                self._waiting.append(effect.frame)
            elif isinstance(effect, effects.Say):
                self._channel.say(encode(effect.message))
            elif isinstance(effect, effects.Connect):
                self._channel.connect(keep_data=effect.keep_data)
                same = False
            elif isinstance(effect, effects.Join):
                self._channel.join(effect.port, effect.topic)
            else:
                self._finished = effect
        return same

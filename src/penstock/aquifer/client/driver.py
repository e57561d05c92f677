"""Between the protocol's machine and the sockets: does what the one wants, tells it what the others bring."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import zmq

from penstock.aquifer.client.sockets import GatewaySockets
from penstock.aquifer.protocol import effects
from penstock.aquifer.protocol.extended_reader import ExtendedReader
from penstock.aquifer.protocol.frames import Frame, parse
from penstock.aquifer.protocol.messages import encode
from penstock.aquifer.protocol.subscriber_side import Phase, SubscriberSide

__all__ = ["Driver"]

_LOOK: Final = 0.25
"""Seconds between looks at the bytes of the data connection."""


class Driver:
    """Drives one subscription. When to listen, and what becomes of the records, is its owner's business."""

    def __init__(
        self,
        side: SubscriberSide,
        sockets: GatewaySockets,
        take: Callable[[Frame], object],
        take_records: Callable[[list[bytes], int, int], object] | None = None,
    ) -> None:
        self.finished: effects.Finish | None = None
        """How it ended, once it has."""
        self._side = side
        self._sockets = sockets
        self._take = take
        self._take_records = take_records
        """Given single records, the number of those before, and their bytes; None if only frames are to be
        expected."""
        self._looked = 0.0
        """When the data connection was last asked what has moved on it,"""
        self._received = 0
        """and how many bytes that were."""

    def do(self, wanted: list[effects.Effect]) -> bool:
        """Do what the protocol wants; False if that was to connect anew."""
        same = True
        for effect in wanted:
            if isinstance(effect, effects.Take):
                self._take(effect.frame)
            elif isinstance(effect, effects.Say):
                self._sockets.send(encode(effect.message))
            elif isinstance(effect, effects.Connect):
                self._sockets.connect(keep_data=effect.keep_data)
                same = False
            elif isinstance(effect, effects.Join):
                self._sockets.connect_data(effect.port, effect.topic)
            else:
                self.finished = effect
        return same

    def hear(self, now: float) -> None:
        """Tell the protocol what has come in."""
        side, sockets = self._side, self._sockets
        news = sockets.control_events()
        if zmq.EVENT_HANDSHAKE_FAILED_AUTH in news:
            self.do(side.turned_away())
        elif zmq.EVENT_HANDSHAKE_SUCCEEDED in news:
            side.connected(now)
        if zmq.EVENT_HANDSHAKE_SUCCEEDED in sockets.data_events():
            self.do(side.joined(now))
        same = True
        for message in sockets.control_messages():
            same = self.do(side.control(message, now))
            if not same:
                break  # What is left was said on the old connection.
        if same and zmq.EVENT_DISCONNECTED in news:
            # After what was said before it.
            self.do(side.disconnected(now))
        if side.phase is not Phase.READING:
            return
        if now - self._looked >= _LOOK:
            self._look(now)
        reading = side.reading
        if isinstance(reading, ExtendedReader):
            for parts in sockets.frames():
                self.do(reading.frame(parse(parts), now))
                if side.phase is not Phase.READING:
                    return
        elif self._take_records is not None and (records := sockets.records()):
            nbytes = sum(map(len, records))
            self._take_records(records, reading.next, nbytes)
            self.do(reading.records(len(records), now, nbytes))

    def _look(self, now: float) -> None:
        """Whether bytes have come of a message that is not whole yet."""
        self._looked = now
        received = self._sockets.data_bytes().received
        if received > self._received:
            self._side.bytes_came(now)
        self._received = received

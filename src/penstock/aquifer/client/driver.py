"""Between the protocol and the sockets: carries out effects, and reports what arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import zmq

from penstock.aquifer.client.sockets import GatewaySockets
from penstock.aquifer.protocol.effects import Connect, Effect, Finish, Join, Send, Take
from penstock.aquifer.protocol.extended_reader import ExtendedReader
from penstock.aquifer.protocol.frames import Frame
from penstock.aquifer.protocol.messages import encode
from penstock.aquifer.protocol.subscriber_side import Phase, SubscriberSide

__all__ = ["Driver"]

_LOOK: Final = 0.25
"""Seconds between two looks at the bytes of the data connection."""


class Driver:
    """Drives one subscription. Its owner decides when to listen, and what to do with the records."""

    def __init__(
        self,
        side: SubscriberSide,
        sockets: GatewaySockets,
        take: Callable[[Frame], object],
        take_records: Callable[[list[bytes], int, int], object] | None = None,
    ) -> None:
        self.finished: Finish | None = None
        """How the subscription ended, once it has."""
        self._side = side
        self._sockets = sockets
        self._take = take
        self._take_records = take_records
        """Called with plain records, how many came before them, and their bytes; None if there are only
        frames."""
        self._looked = 0.0
        """When the bytes of the data connection were last counted."""
        self._received = 0
        """How many bytes that were."""

    def do(self, effects: list[Effect]) -> bool:
        """Carry out effects; False if one of them was to connect anew."""
        same = True
        for effect in effects:
            if isinstance(effect, Take):
                self._take(effect.frame)
            elif isinstance(effect, Send):
                self._sockets.send(encode(effect.message))
            elif isinstance(effect, Connect):
                self._sockets.connect(keep_data=effect.keep_data)
                same = False
            elif isinstance(effect, Join):
                self._sockets.connect_data(effect.port, effect.topic)
            else:
                self.finished = effect
        return same

    def fail(self, error: BaseException) -> None:
        """End the subscription with an error that the protocol does not know."""
        self.finished = Finish(error)

    def listen(self, now: float) -> None:
        """Tell the protocol what has arrived."""
        side, sockets = self._side, self._sockets
        events = sockets.control_events()
        if zmq.EVENT_CONNECTED in events:
            side.reached()
        if zmq.EVENT_HANDSHAKE_FAILED_AUTH in events:
            self.do(side.turned_away())
        elif zmq.EVENT_HANDSHAKE_SUCCEEDED in events:
            side.connected(now)
        if zmq.EVENT_HANDSHAKE_SUCCEEDED in sockets.data_events():
            self.do(side.joined(now))
        same = True
        for message in sockets.control_messages():
            same = self.do(side.control(message, now))
            if not same:
                break  # The rest came over the old connection.
        if same and zmq.EVENT_DISCONNECTED in events:
            # After the messages that came before it.
            self.do(side.disconnected(now))
        if side.phase is not Phase.READING:
            return
        if now - self._looked >= _LOOK:
            self._look(now)
        reader = side.reader
        if isinstance(reader, ExtendedReader):
            for parts in sockets.frames():
                self.do(reader.receive(parts, now))
                if side.phase is not Phase.READING:
                    return
        elif reader is not None and self._take_records is not None and (records := sockets.records()):
            nbytes = sum(map(len, records))
            self._take_records(records, reader.next, nbytes)
            self.do(reader.records(len(records), now, nbytes))

    def _look(self, now: float) -> None:
        """Report bytes of a message that is not complete yet: they are a sign of life."""
        self._looked = now
        received = self._sockets.data_bytes().received
        if received > self._received:
            self._side.bytes_came(now)
        self._received = received

"""Reading from a gateway that knows nothing but the document: counted batches, and deficits.

The gateway declares how many records it sends, and that is all that can be known: if fewer arrive in time,
the deficit is logged and the requests become smaller; as long as everything arrives, they slowly grow again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import UNSET

from penstock.aquifer.protocol.credit import RequestRate
from penstock.aquifer.protocol.effects import Connect, Effect, Finish, Say
from penstock.aquifer.protocol.messages import Next, OnComplete, OnError, OnNext, Subscribe
from penstock.aquifer.protocol.remote_errors import error_from

if TYPE_CHECKING:
    from penstock.aquifer.protocol.subscriber_side import SubscriberSide

__all__ = ["PlainReading"]

_log = logging.getLogger("penstock.aquifer")

_SETTLE: Final = 0.02
"""Seconds between the handshake of the data connection and the first request: a plain gateway sends without
looking whether anybody listens, and the wish to listen is on its way."""
_ANSWER: Final = 2.0
"""Seconds to wait for the answer to a request."""
_SHORTEST: Final = 0.001
_LONGEST: Final = 0.1
"""Seconds to wait before asking again after ``OnNext(0)``: ever longer, while nothing comes."""
_JOIN: Final = 5.0
"""Seconds to wait for the data connection."""


class PlainReading:
    """Where a plain subscriber stands."""

    dialect: ClassVar[str] = "plain"

    def __init__(self, side: SubscriberSide, now: float) -> None:
        self.next = 0
        """How many records have arrived."""
        self.handed = 0
        self.acknowledged = 0
        self.declared = 0
        """How many were declared."""
        self.deficits = 0
        """How often fewer arrived in time than were declared."""
        self.ended = False
        self.rate = RequestRate(side.window.size)
        self._side = side
        self._asked: float | None = None
        """When the request that has no answer yet was sent."""
        self._batch = 0
        """Records of the last declared batch."""
        self._forgiven = 0
        """Records that were declared, did not come, and are no longer waited for."""
        self._deadline = now + _JOIN
        self._joined = False
        self._crowded = False
        """Whether asking waits for the reader."""
        self._pause = _SHORTEST
        self._completing = False
        self._lost_answers = 0
        self._uncertain = False
        """Whether an answer was lost: nobody knows then how many records are still on their way."""

    @property
    def missing(self) -> int:
        """How many records were declared, did not come in time, and are no longer waited for."""
        return self._forgiven

    @property
    def _awaited(self) -> int:
        return self.declared - self._forgiven - self.next

    def resumed(self, now: float) -> None:
        """Welcomed once more: the data connection is a new one."""
        self._joined = False
        self._asked = None
        self._deadline = now + _JOIN

    def joined(self, now: float) -> list[Effect]:
        """The data connection is there: ask, after a moment."""
        self._side.flowing()
        if not self._joined:
            self._joined = True
            self._deadline = now + _SETTLE
        return []

    def records(self, count: int, now: float) -> list[Effect]:
        """So many records have come."""
        self.next += count
        # Late ones, which had been given up.
        self._forgiven = min(self._forgiven, max(self.declared - self.next, 0))
        self._side.window.arrived(count, now)
        if self._completing and self._awaited <= 0 and not self._uncertain:
            self.ended = True
            return []
        if self._awaited > 0 or self._asked is not None or self._completing:
            self._deadline = now + self._side.wishes.timeout
            return []
        if self._batch:
            self.rate.arrived_in_full()
            self._batch = 0
        return self._ask(now)

    def hand_on(self, count: int, nbytes: int) -> None:
        """So many records were handed on."""
        self.handed = count

    # ---------------------------------------------------------------- messages and time
    def message(self, message: Any, now: float) -> list[Effect]:
        """The gateway's answer."""
        self._asked = None
        self._lost_answers = 0
        if isinstance(message, OnNext):
            return self._on_next(max(message.count, 0), now)
        if isinstance(message, OnComplete):
            self._completing = True
            self._deadline = now + self._side.wishes.timeout
            self.ended = self._awaited <= 0 and not self._uncertain
            return []
        if isinstance(message, OnError):
            if message.recoverable is not UNSET and message.recoverable:
                self._deadline = now + _LONGEST
                return []
            return [Finish(error_from(message))]
        return []

    def _on_next(self, count: int, now: float) -> list[Effect]:
        if not count:
            self._deadline = now + self._pause
            self._pause = min(self._pause * 2, _LONGEST)
            return []
        self._pause = _SHORTEST
        self.declared += count
        self._batch = count
        self._deadline = now + self._side.wishes.timeout
        return self.records(0, now) if self._awaited <= 0 else []

    def tick(self, now: float) -> list[Effect]:
        """Ask if there is room; give up what did not come in time."""
        if self.ended:
            return []
        if self._asked is not None:
            return self._ask_again(now) if now - self._asked > _ANSWER else []
        if self._awaited > 0:
            return self._fell_short(now) if now >= self._deadline else []
        if self._completing:
            self.ended = now >= self._deadline
            return []
        if now < self._deadline and not (self._crowded and self._room >= self._enough):
            return []
        if not self._joined:
            return self._side.lost("the data connection did not come about", now)
        return self._ask(now)

    def deadline(self) -> float:
        """When :meth:`tick` may have something to do, if nothing happens before."""
        if self.ended:
            return float("inf")
        return self._asked + _ANSWER if self._asked is not None else self._deadline

    @property
    def _room(self) -> int:
        return self._side.window.size - (self.next - self.handed)

    @property
    def _enough(self) -> int:
        # A request for what little the reader has taken so far would cost a round trip of its own.
        return min(self.rate.size, max(1, self._side.window.size // 2))

    def _ask(self, now: float) -> list[Effect]:
        if not self._joined or self._completing:
            return []
        if self._room < self._enough and (not self._crowded or self._room <= 0):
            self._crowded = True
            self._deadline = now + _LONGEST  # Or as soon as enough was handed on.
            return []
        self._crowded = False
        self._asked = now
        self._deadline = now
        return [Say(Next(min(self.rate.size, self._room)))]

    def _ask_again(self, now: float) -> list[Effect]:
        # The answer was lost, or the gateway. A new connection, because the old one waits for that answer.
        self._lost_answers += 1
        if self._lost_answers * _ANSWER > self._side.wishes.patience:
            return [Finish(self._side.unreachable())]
        _log.warning("%s did not answer Next in %g s: asking again", self._side.endpoint, _ANSWER)
        self._asked = now
        # Its records may have come all the same: they were declared then, in words that we did not hear.
        self.declared = max(self.declared, self.next)
        self._uncertain = True
        return [Connect(keep_data=True), Say(Next(max(1, min(self.rate.size, self._room))))]

    def _fell_short(self, now: float) -> list[Effect]:
        declared, received = self._batch, self._batch - self._awaited
        self._forgiven += self._awaited
        self._batch = 0
        if declared:
            self.deficits += 1
            self.rate.fell_short()
            _log.warning(
                "%s: deficit: %d of %d declared records arrived within %g s; asking for %d at a time now",
                self._side.endpoint,
                received,
                declared,
                self._side.wishes.timeout,
                self.rate.size,
            )
            if self._side.wishes.on_deficit is not None:
                self._side.wishes.on_deficit(declared, received, self.rate.size)
        if self._completing:
            self.ended = True
            return []
        return self._ask(now)

    def goodbye(self) -> list[Effect]:
        """Cancel, in the words of the document."""
        return [Say(Subscribe(cancel=True))]

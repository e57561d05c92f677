"""Reading from a gateway that speaks the plain dialect only: counted batches, and deficits.

The gateway says how many records there will be, and with each batch how many it sends. Nothing else can be
known. If fewer arrive in time, the deficit is logged and the requests become smaller; while everything
arrives, they slowly grow again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar, Final

from msgspec import UNSET

from penstock.aquifer.protocol.credit import RequestRate
from penstock.aquifer.protocol.effects import Connect, Effect, Finish, ReaderMessage, Send
from penstock.aquifer.protocol.gateway_errors import error_from
from penstock.aquifer.protocol.messages import Next, OnComplete, OnNext, Subscribe
from penstock.spec import UNBOUNDED

if TYPE_CHECKING:
    from penstock.aquifer.protocol.subscriber_side import SubscriberSide

__all__ = ["PlainReader"]

_log = logging.getLogger("penstock.aquifer")

_SETTLE: Final = 0.02
"""Seconds between the handshake of the data connection and the first request: a plain gateway sends whether
or not anybody listens, and our subscription to the data port is still on its way."""
_SHORTEST: Final = 0.001
_LONGEST: Final = 0.1
"""Seconds to wait before asking again after ``OnNext(0)``: the pauses double while nothing comes."""
_JOIN: Final = 5.0
"""Seconds to wait for the data connection; they double each time, because the line may be slow."""
_UNKNOWN: Final = 64 * 1024
"""The size that a record is assumed to have until the first one has arrived."""


class PlainReader:
    """The state of a plain subscriber."""

    dialect: ClassVar[str] = "plain"

    def __init__(self, side: SubscriberSide) -> None:
        self.next = 0
        """How many records have arrived."""
        self.handed = 0
        """How many of them were handed to the subscriber."""
        self.acknowledged = 0
        self.declared = 0
        """How many records the gateway has declared."""
        self.deficits = 0
        """How often fewer records arrived in time than were declared."""
        self.ended = False
        self.rate = RequestRate(side.ahead.size)
        self._side = side
        self._asked: float | None = None
        """When the request without an answer was sent."""
        self._batch = 0
        """How many records the last batch declared."""
        self._forgiven = 0
        """Records that were declared, did not arrive, and are no longer waited for."""
        self._size = UNBOUNDED
        """How many records this session will have, as the gateway said when it welcomed us."""
        self._start = self._declared_before = 0
        """How many had arrived, and how many had been declared, at that moment."""
        self._waiting_bytes = 0
        """Bytes that have arrived and were not handed on."""
        self._record_bytes: float = _UNKNOWN
        """The expected size of a record."""
        self._deadline = 0.0
        self._join = _JOIN
        self._joined = False
        self._crowded = False
        """Whether the next request waits for the subscriber to take records."""
        self._pause = _SHORTEST
        self._completing = False
        self._lost_since: float | None = None
        """When the request was first sent whose connection was lost before its answer."""
        self._uncertain = False
        """Whether an answer was lost: then nobody knows how many records are still on their way."""

    @property
    def missing(self) -> int:
        """How many records were declared, did not arrive in time, and are no longer waited for."""
        return self._forgiven

    @property
    def _awaited(self) -> int:
        return self.declared - self._forgiven - self.next

    def resumed(self, size: int, now: float) -> None:
        """A gateway has welcomed us, for the first time or again, and announced ``size`` records."""
        self._joined = False
        self._asked = self._lost_since = None
        self._deadline = now + self._join
        self._join = min(2 * self._join, max(_JOIN, self._side.options.patience / 2))
        self._size = size
        self._start, self._declared_before = self.next, self.declared
        self._end_by_size()

    def joined(self, now: float) -> list[Effect]:
        """The data connection is up: ask, after a moment."""
        self._side.flowing(now)
        if not self._joined:
            self._joined = True
            self._deadline = now + _SETTLE
        return []

    def records(self, count: int, now: float, nbytes: int = 0) -> list[Effect]:
        """``count`` records arrived, which have ``nbytes`` bytes."""
        self.next += count
        self._side.flowing(now)
        self._waiting_bytes += nbytes
        if count:
            size = nbytes / count
            # Growth counts at once, to keep the bound on bytes; shrinking counts slowly.
            known = size if self._record_bytes == _UNKNOWN else self._record_bytes
            self._record_bytes = max(size, (known * 3 + size) / 4, 1.0)
        # Late records, which had been given up.
        self._forgiven = min(self._forgiven, max(self.declared - self.next, 0))
        self._side.ahead.arrived(count, now)
        self._end_by_size()
        if self._completing and self._awaited <= 0 and not self._uncertain:
            self.ended = True
        if self.ended:
            return []
        if self._awaited > 0 or self._asked is not None or self._completing:
            self._deadline = now + self._side.options.timeout
            return []
        if self._batch:
            self.rate.arrived_in_full()
            self._batch = 0
        return self._ask(now)

    def bytes_came(self, now: float) -> None:
        """A part of a record arrived: it is large, or the line is slow, and the rest will follow."""
        if self._awaited > 0 or self._completing:
            self._deadline = now + self._side.options.timeout

    def hand_on(self, count: int, nbytes: int) -> None:
        """``count`` records were handed on in all, ``nbytes`` bytes of them since the last call."""
        self.handed = count
        self._waiting_bytes -= nbytes

    def _end_by_size(self) -> None:
        """End when everything that the gateway announced has arrived or was given up."""
        came, declared = self.next - self._start, self.declared - self._declared_before
        if came >= self._size or (declared >= self._size and self._awaited <= 0):
            self.ended = True

    # ---------------------------------------------------------------- messages and time
    def message(self, message: ReaderMessage, now: float) -> list[Effect]:
        """The gateway's answer."""
        self._asked = self._lost_since = None
        if isinstance(message, OnNext):
            return self._on_next(max(message.count, 0), now)
        if isinstance(message, OnComplete):
            self._completing = True
            self._deadline = now + self._side.options.timeout
            self.ended = self._awaited <= 0 and not self._uncertain
            return []
        if message.recoverable is not UNSET and message.recoverable:
            self._deadline = now + _LONGEST
            return []
        return [Finish(error_from(message))]

    def _on_next(self, count: int, now: float) -> list[Effect]:
        if not count:
            self._deadline = now + self._pause
            self._pause = min(self._pause * 2, _LONGEST)
            return []
        self._pause = _SHORTEST
        self.declared += count
        self._batch = count
        self._deadline = now + self._side.options.timeout
        return self.records(0, now) if self._awaited <= 0 else []

    def tick(self, now: float) -> list[Effect]:
        """Ask if there is demand; give up what did not arrive in time."""
        if self.ended:
            return []
        if self._asked is not None:
            return [Finish(self._side.unreachable())] if now >= self._give_up else []
        if self._awaited > 0:
            return self._fell_short(now) if now >= self._deadline else []
        if self._completing:
            self.ended = now >= self._deadline
            return []
        if now < self._deadline and not (self._crowded and self._demand >= self._enough):
            return []
        if not self._joined:
            return self._side.lost("there was no data connection", now)
        return self._ask_again(now) if self._lost_since is not None else self._ask(now)

    def deadline(self) -> float:
        """When :meth:`tick` may have something to do, if nothing happens before."""
        if self.ended:
            return float("inf")
        return self._deadline if self._asked is None else self._give_up

    @property
    def _give_up(self) -> float:
        since = self._lost_since if self._lost_since is not None else self._asked
        return (since or 0.0) + self._side.options.patience

    @property
    def _demand(self) -> int:
        """How many records to ask for at most; a record that is larger than the window is asked for alone."""
        waiting = self.next - self.handed
        left = (self._side.ahead.nbytes - self._waiting_bytes) / self._record_bytes
        return min(self._side.ahead.size - waiting, max(int(left), 0 if waiting else 1))

    @property
    def _enough(self) -> int:
        # A request costs a round trip, so it waits until the subscriber has taken enough.
        fit = int(self._side.ahead.nbytes / self._record_bytes)
        return min(self.rate.size, max(1, self._side.ahead.size // 2), max(1, fit // 2))

    @property
    def _request(self) -> int:
        left = self._size - (self.declared - self._declared_before)
        return max(1, min(self.rate.size, self._demand, left))

    def _ask(self, now: float) -> list[Effect]:
        if not self._joined or self._completing:
            return []
        if self._demand < self._enough and (not self._crowded or self._demand <= 0):
            self._crowded = True
            self._deadline = now + _LONGEST  # Or as soon as enough records were handed on.
            return []
        self._crowded = False
        self._asked = now
        self._deadline = now
        return [Send(Next(self._request))]

    def disconnected(self, now: float) -> None:
        """The control connection is gone: an answer that is still missing will never arrive."""
        if self._asked is None:
            return
        self._lost_since = self._asked if self._lost_since is None else self._lost_since
        self._asked = None
        self._deadline = now + _LONGEST

    def _ask_again(self, now: float) -> list[Effect]:
        # On a new connection: ØMQ would repair the old one, but might repeat a request that it kept.
        if now >= self._give_up:
            return [Finish(self._side.unreachable())]
        _log.warning(
            "%s: the connection was lost before the answer to Next; asking again", self._side.endpoint
        )
        self._asked = now
        # Its records may have arrived all the same: then the lost answer declared them.
        self.declared = max(self.declared, self.next)
        self._uncertain = True
        return [Connect(keep_data=True), Send(Next(self._request))]

    def _fell_short(self, now: float) -> list[Effect]:
        declared, received = self._batch, self._batch - self._awaited
        self._forgiven += self._awaited
        self._batch = 0
        if declared:
            self.deficits += 1
            self.rate.fell_short(declared, received)
            _log.warning(
                "%s: deficit: %d of %d declared records arrived within %g s; asking for %d at a time now",
                self._side.endpoint,
                received,
                declared,
                self._side.options.timeout,
                self.rate.size,
            )
            if self._side.options.on_deficit is not None:
                self._side.options.on_deficit(declared, received, self.rate.size)
        self._end_by_size()
        if self._completing:
            self.ended = True
        return [] if self.ended else self._ask(now)

    def goodbye(self) -> list[Effect]:
        """Cancel, as a plain peer does."""
        return [Send(Subscribe(cancel=True))]

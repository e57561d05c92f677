"""Reading frames: absolute credit, gaps seen and mended, everything in order."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar, Final

from msgspec import UNSET

from penstock.aquifer.errors import Overtaken, ProtocolViolation
from penstock.aquifer.protocol.effects import Effect, Finish, Say, Take
from penstock.aquifer.protocol.frames import Flag, Frame
from penstock.aquifer.protocol.messages import (
    Grant,
    Next,
    OnError,
    SessionTerms,
    Subscribe,
    SubscribeTerms,
    decode,
    terms,
)
from penstock.aquifer.protocol.subscriber_side import error_from

if TYPE_CHECKING:
    from penstock.aquifer.protocol.subscriber_side import SubscriberSide

__all__ = ["ExtendedReading"]

_log = logging.getLogger("penstock.aquifer")

_REPEAT: Final = 0.5
"""Seconds after which a grant is repeated if nothing came of it: the first may have been lost."""
_LINGER: Final = 0.1
"""Seconds that an acknowledgement may wait for a grant to ride on."""
_SILENCE: Final = 4.0
"""Seconds without any frame after which the gateway is taken for lost."""


class ExtendedReading:
    """Where an extended subscriber stands."""

    dialect: ClassVar[str] = "extended"

    def __init__(self, side: SubscriberSide, start: int) -> None:
        self.next = start
        """The offset of the next record to arrive."""
        self.handed = start
        """Records before this offset were handed on."""
        self.acknowledged = start
        """Records before this offset may be forgotten by the gateway."""
        self.head = start
        """The log's head, as last heard."""
        self.gaps = 0
        """How often something was lost on the way, and asked for again."""
        self.ended = False
        self._side = side
        self._limit = start
        self._limit_bytes = 0
        self._handed_bytes = 0
        """Bytes of this session that were handed on."""
        self._arrived_bytes = 0
        self._stale_bytes = 0
        """Bytes that still wait here, and came in a session before this one."""
        self._told = -1
        """The acknowledgement that was last sent."""
        self._spoke = self._heard = 0.0
        self._must_answer = False

    def resumed(self, answer: SessionTerms, now: float) -> list[Effect]:
        """A gateway has welcomed us, for the first time or again: grant it a window."""
        start = answer.next if answer.next is not UNSET else self.next
        if start != self.next:
            text = f"the gateway starts at offset {start}, and {self.next} was asked for"
            return [Finish(ProtocolViolation(text))]
        if answer.head is not UNSET:
            self.head = answer.head
        # Bytes are counted by session, and what still waits here belongs to the one before.
        self._stale_bytes += self._arrived_bytes - self._handed_bytes
        self._handed_bytes = self._arrived_bytes = self._limit_bytes = 0
        self._limit = self.next
        self._heard = now
        return self._grant(now)

    # ---------------------------------------------------------------- frames
    def frame(self, frame: Frame, now: float) -> list[Effect]:
        """A frame came."""
        self._heard = now
        if self.ended:
            return []
        if frame.flags & Flag.ERR:
            return self._failed(frame, now)
        if frame.flags & Flag.GAP:
            return self._overtaken(frame, now)
        if frame.first > self.next:
            self.gaps += 1
            return self._side.lost(f"records {self.next} to {frame.first - 1} did not arrive", now)
        if frame.flags & Flag.END:
            self.ended = True
            return []
        if frame.flags & Flag.HB:
            if len(frame.payload) == 8:
                self.head = int.from_bytes(frame.payload, "big")
            return []
        if not frame.count or frame.first < self.next:
            return []  # Nothing in it, or had already: a session never goes back.
        self.next += frame.count
        self.head = max(self.head, self.next)
        self._arrived_bytes += len(frame.payload) + len(frame.notes)
        self._side.window.arrived(frame.count, now)
        self._must_answer |= bool(frame.flags & Flag.ACK)
        return [Take(frame)]

    def _failed(self, frame: Frame, now: float) -> list[Effect]:
        try:
            message = decode(frame.payload)
        except ProtocolViolation as violation:
            return [Finish(violation)]
        if not isinstance(message, OnError):
            return [Finish(ProtocolViolation(f"an error frame with {type(message).__name__} in it"))]
        return self.message(message, now)

    def _overtaken(self, frame: Frame, now: float) -> list[Effect]:
        missing, self.next = self.next, frame.first
        if self._side.wishes.on_gap is None:
            text = (
                f"records {missing} to {frame.first - 1} are gone, because this subscriber was too slow and "
                "asked not to be kept; subscribe with keep=True, or go on from the oldest with on_gap"
            )
            return [Finish(Overtaken(text, first=frame.first, head=self.head))]
        self._side.wishes.on_gap(missing, frame.first)
        self.handed = max(self.handed, missing)
        return []

    # ---------------------------------------------------------------- messages and time
    def message(self, message: Any, now: float) -> list[Effect]:
        """The gateway says something outside the stream: only errors matter."""
        if not isinstance(message, OnError):
            return []
        details = terms(message.x)
        code = details.code if details is not None else None
        if code in ("SESSION", "LEASE"):
            return self._side.lost(message.message, now)
        if details is not None and code in ("BUSY", "CLOSING"):
            return self._side.rest(details, now)
        return [Finish(error_from(message))]

    def hand_on(self, offset: int, nbytes: int) -> None:
        """Records before ``offset`` were handed on, so many bytes of them since the last time."""
        self.handed = offset
        stale = min(nbytes, self._stale_bytes)
        self._stale_bytes -= stale
        self._handed_bytes += nbytes - stale

    def tick(self, now: float) -> list[Effect]:
        """Grant more if enough was handed on; repeat a grant that nothing came of; notice silence."""
        if self.ended:
            return []
        if now - self._heard > _SILENCE:
            return self._side.lost(f"nothing was heard for {_SILENCE:g} s", now)
        window = self._side.window
        due = (
            self._must_answer
            or self.handed + window.size - self._limit >= max(1, window.size // 4)
            or self._byte_limit() - self._limit_bytes >= max(1, window.nbytes // 4)
            or (self.acknowledged > self._told and now - self._spoke >= _LINGER)
            or now - self._spoke >= self._patience()
        )
        return self._grant(now) if due else []

    def deadline(self) -> float:
        """When :meth:`tick` may have something to do, if nothing happens before."""
        if self.ended:
            return float("inf")
        linger = self._spoke + _LINGER if self.acknowledged > self._told else float("inf")
        return min(linger, self._spoke + self._patience(), self._heard + _SILENCE)

    def _patience(self) -> float:
        # Something was granted and did not come: it may be there soon, or a message was lost.
        return min(_REPEAT, self._side.wishes.lease / 3)

    def _byte_limit(self) -> int:
        return self._handed_bytes + self._side.window.nbytes - self._stale_bytes

    def _grant(self, now: float) -> list[Effect]:
        window = self._side.window
        self._limit = max(self._limit, self.handed + window.size)
        self._limit_bytes = max(self._limit_bytes, self._byte_limit())
        self._told = self.acknowledged
        self._spoke = now
        self._must_answer = False
        grant = Grant(limit=self._limit, limitb=self._limit_bytes, ack=self.acknowledged, got=self.next)
        return [Say(Next(window.size, x=grant))]

    def goodbye(self) -> list[Effect]:
        """Acknowledge what was dealt with, and leave; a durable subscriber keeps its place."""
        grant = Grant(limit=self._limit, ack=self.acknowledged, got=self.next)
        return [
            Say(Next(1, x=grant)),
            Say(Subscribe(cancel=True, x=SubscribeTerms(v=1, keep=self._side.wishes.name is not None))),
        ]

"""Reading frames: absolute credit, gaps seen and mended, everything in order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, ClassVar, Final

import msgspec
from msgspec import UNSET

from penstock.aquifer.errors import Overtaken, ProtocolViolation, SourceFailed
from penstock.aquifer.protocol.effects import Effect, Finish, Say, Take
from penstock.aquifer.protocol.frames import Flag, Frame
from penstock.aquifer.protocol.messages import (
    Next,
    NextFields,
    OnError,
    OnSubscribeFields,
    decode,
    extension,
)
from penstock.aquifer.protocol.pieces import FrameAssembly, Misfit
from penstock.aquifer.protocol.remote_errors import error_from
from penstock.aquifer.protocol.subscribe_options import Shelf

if TYPE_CHECKING:
    from penstock.aquifer.protocol.subscriber_side import SubscriberSide

__all__ = ["ExtendedReader"]

# As plain numbers: to ask a Flag takes ten times as long, for each frame.
_SPECIAL: Final = int(Flag.ERR | Flag.GAP | Flag.END | Flag.HB)
_ACK: Final = int(Flag.ACK)
_SHELF: Final = int(Flag.SHARED)
_PIECE: Final = int(Flag.PIECE)
_REPEAT: Final = 0.5
"""Seconds after which a grant is repeated if nothing came of it: the first may have been lost."""
_LINGER: Final = 0.1
"""Seconds that an acknowledgement may wait for a grant to ride on."""


class ExtendedReader:
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
        self._lease = side.wishes.lease
        """The one that was asked for, or the shorter one that was granted."""
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
        self._owed: deque[int] = deque()
        """The offsets whose acknowledgement the gateway waits for."""
        self._ack_every: int | None = None
        """How many records to acknowledge at the latest: the log has room for a few times as many."""
        self._shelf: Shelf | None = None
        """Memory that this session's gateway shares with us, if it does."""
        self.puzzle = FrameAssembly()
        """The frame that comes in pieces at the moment."""
        self._pieces = False
        """Whether this session's gateway sends pieces, and so wants to know how many bytes have come."""
        self._jumps: deque[tuple[int, int]] = deque()
        """Gaps that were told, but lie after what was handed on: first missing and next available offset."""

    def resumed(self, answer: OnSubscribeFields, now: float) -> list[Effect]:
        """A gateway has welcomed us, for the first time or again: grant it a window."""
        start = answer.next if answer.next is not UNSET else self.next
        if start != self.next:
            text = f"the gateway starts at offset {start}, and {self.next} was asked for"
            return [Finish(ProtocolViolation(text))]
        if answer.head is not UNSET:
            self.head = answer.head
        if answer.lease is not UNSET and answer.lease > 0:
            self._lease = min(self._side.wishes.lease, answer.lease / 1000)
        if answer.ackevery is not UNSET:
            self._ack_every = max(answer.ackevery, 1)
        shelves = self._side.wishes.shelves
        if shelves is not None and answer.shelf is not UNSET:
            self._shelf = shelves.open(answer.shelf)
        else:
            self._shelf = None
        self._pieces = answer.pieces is not UNSET and answer.pieces
        # Bytes are counted by session, and what still waits here belongs to the one before. A frame of which
        # only pieces are here does not wait yet: it would stand in its own way.
        in_pieces = self.puzzle.have - self.puzzle.carried
        self._stale_bytes += self._arrived_bytes - self._handed_bytes - in_pieces
        self.puzzle.carry_over()
        self._handed_bytes = self._arrived_bytes = self._limit_bytes = 0
        self._limit = self.next
        self._heard = now
        return self._grant(now)

    def bytes_came(self, now: float) -> None:
        """A part of a frame has come: the gateway is there, and the line is slow."""
        self._heard = now

    # ---------------------------------------------------------------- frames
    def frame(self, frame: Frame, now: float) -> list[Effect]:
        """A frame came."""
        self._heard = now
        self._side.flowing(now)
        effects = self._read(frame, now)
        if any(isinstance(effect, Finish) for effect in effects):
            # What has come is still handed on and acknowledged, but nothing is asked for any more: who was
            # told that another has its id now must not take it back.
            self.ended = True
        return effects

    def _read(self, frame: Frame, now: float) -> list[Effect]:
        if self.ended:
            return []
        if frame.flags & _SPECIAL:
            return self._read_special(frame, now)
        if frame.first > self.next:
            return self._missed(frame, now)
        if not frame.count or frame.first < self.next:
            return []  # Nothing in it, or had already: a session never goes back.
        try:
            if frame.flags & _PIECE:
                return self._read_piece(frame, now)
            if frame.flags & _SHELF:
                frame = self._from_shelf(frame)
        except ProtocolViolation as violation:
            return [Finish(violation)]
        if self.puzzle.have:
            self._drop_pieces()  # It came as a whole after all.
        self._arrived_bytes += len(frame.payload) + len(frame.metadata)
        return self._take(frame, now)

    def _take(self, frame: Frame, now: float) -> list[Effect]:
        self.next += frame.count
        self.head = max(self.head, self.next)
        self._side.window.arrived(frame.count, now)
        if frame.flags & _ACK:
            # Now, for what has arrived; and once more, when it has been dealt with.
            self._must_answer = True
            self._owed.append(self.next)
        return [Take(frame)]

    def _read_piece(self, frame: Frame, now: float) -> list[Effect]:
        self._arrived_bytes += len(frame.payload)
        if frame.flags & _ACK:
            self._must_answer = True
        puzzle = self.puzzle
        if puzzle.is_begun_by(frame):
            self._drop_pieces()
        try:
            whole = puzzle.add(frame)
        except Misfit as misfit:
            self.gaps += 1
            self._handed_bytes += len(frame.payload)
            if puzzle.have == puzzle.carried:
                # The first piece of the session does not fit to what is here: begin this frame anew.
                self._drop_pieces()
            return self._side.lost(f"a part of the records from {self.next} on was lost: {misfit}", now)
        if whole is None:
            return []
        # It waits here from now on, and what of it came before this session counts like all that did.
        self._stale_bytes += puzzle.carried
        puzzle.drop()
        return self._take(whole, now)

    def _drop_pieces(self) -> None:
        self._handed_bytes += self.puzzle.drop()

    def _from_shelf(self, frame: Frame) -> Frame:
        if self._shelf is None:
            raise ProtocolViolation("the gateway says that a payload is on a shelf, but there is none")
        return msgspec.structs.replace(frame, payload=self._shelf.payload(frame.payload))

    def _read_special(self, frame: Frame, now: float) -> list[Effect]:
        flags = Flag(frame.flags)
        if Flag.ERR in flags:
            return self._failed(frame, now)
        if Flag.GAP in flags:
            return self.skip_to(frame.first, now)
        if frame.first > self.next:
            return self._missed(frame, now)
        if Flag.END in flags:
            self.ended = True
        elif len(frame.payload) == 8:
            self.head = int.from_bytes(frame.payload, "big")
        return []

    def _failed(self, frame: Frame, now: float) -> list[Effect]:
        try:
            message = decode(bytes(frame.payload))
        except ProtocolViolation as violation:
            return [Finish(violation)]
        if not isinstance(message, OnError):
            return [Finish(ProtocolViolation(f"an error frame with {type(message).__name__} in it"))]
        details = extension(message.x)
        if details is not None and details.code == SourceFailed.code and frame.first > self.next:
            return self._missed(frame, now)  # What came before the failure comes first.
        return self.message(message, now)

    def _missed(self, frame: Frame, now: float) -> list[Effect]:
        self.gaps += 1
        return self._side.lost(f"records {self.next} to {frame.first - 1} did not arrive", now)

    def skip_to(self, first: int, now: float) -> list[Effect]:
        """The records before ``first`` that have not come are gone from the log: go on there, or fail."""
        if first <= self.next:
            return []
        missing, self.next = self.next, first
        self._drop_pieces()
        if self._side.wishes.on_gap is None:
            text = (
                f"records {missing} to {first - 1} are gone, because this subscriber was too slow and "
                "asked not to be kept; subscribe with keep=True, or go on from the oldest with on_gap"
            )
            return [Finish(Overtaken(text, first=first, head=self.head))]
        self._side.wishes.on_gap(missing, first)
        self._jumps.append((missing, first))
        self._jump()
        return []

    def _jump(self) -> None:
        # What will never come must not count against the window, or a gap wider than that would close it.
        while self._jumps and self.handed >= self._jumps[0][0]:
            self.handed = max(self.handed, self._jumps.popleft()[1])

    # ---------------------------------------------------------------- messages and time
    def message(self, message: Any, now: float) -> list[Effect]:
        """The gateway says something outside the stream: only errors matter, and none after the end."""
        if self.ended or not isinstance(message, OnError):
            return []
        details = extension(message.x)
        code = details.code if details is not None else None
        if code in ("SESSION", "LEASE"):
            return self._side.lost(message.message, now)
        if details is not None and code in ("BUSY", "CLOSING"):
            return self._side.rest(message, details, now)
        return [Finish(error_from(message))]

    def hand_on(self, offset: int, nbytes: int) -> None:
        """Records before ``offset`` were handed on, so many bytes of them since the last time."""
        self.handed = offset
        self._jump()
        stale = min(nbytes, self._stale_bytes)
        self._stale_bytes -= stale
        self._handed_bytes += nbytes - stale

    def tick(self, now: float) -> list[Effect]:
        """NextFields more if enough was handed on; repeat a grant that nothing came of; notice silence."""
        if not self.ended and now - self._heard > self._side.silence:
            return self._side.lost(f"nothing was heard for {self._side.silence:g} s", now)
        due = self._must_answer or self._acknowledgement_is_due(now) or now - self._spoke >= self._patience()
        if due or (not self.ended and self._has_room()):
            return self._grant(now)
        return []

    def _has_room(self) -> bool:
        window = self._side.window
        return self.handed + window.size - self._limit >= max(
            1, window.size // 4
        ) or self._byte_limit() - self._limit_bytes >= max(1, window.nbytes // 4)

    def _acknowledgement_is_due(self, now: float) -> bool:
        if self.acknowledged <= self._told:
            return False
        return (
            (bool(self._owed) and self._owed[0] <= self.acknowledged)
            or (self._ack_every is not None and self.acknowledged - self._told >= self._ack_every)
            or now - self._spoke >= _LINGER
        )

    def deadline(self) -> float:
        """When :meth:`tick` may have something to do, if nothing happens before."""
        linger = self._spoke + _LINGER if self.acknowledged > self._told else float("inf")
        silence = float("inf") if self.ended else self._heard + self._side.silence
        return min(linger, self._spoke + self._patience(), silence)

    def _patience(self) -> float:
        # Something was granted and did not come: it may be there soon, or a message was lost. After the end
        # nothing more can come, but until all of it was handed on the lease has to be kept up.
        lease = self._lease / 3
        return lease if self.ended else min(_REPEAT, lease)

    def _byte_limit(self) -> int:
        return self._handed_bytes + self._side.window.nbytes - self._stale_bytes

    def _grant(self, now: float) -> list[Effect]:
        window = self._side.window
        self._limit = max(self._limit, self.handed + window.size)
        self._limit_bytes = max(self._limit_bytes, self._byte_limit())
        self._told = self.acknowledged
        while self._owed and self._owed[0] <= self.acknowledged:
            self._owed.popleft()
        self._spoke = now
        self._must_answer = False
        grant = NextFields(limit=self._limit, limitb=self._limit_bytes, ack=self.acknowledged, got=self.next)
        if self._pieces:
            grant.gotb = self._arrived_bytes
        if self._shelf is not None:
            grant.shelf = self._shelf.in_use()
        return [Say(Next(window.size, x=grant))]

    def goodbye(self) -> list[Effect]:
        """Acknowledge what was dealt with, and leave; a durable subscriber keeps its place."""
        grant = NextFields(limit=self._limit, ack=self.acknowledged, got=self.next)
        return [Say(Next(1, x=grant)), *self._side.goodbye()]

"""Reading frames of the extended dialect: absolute credit, gaps noticed and filled, everything in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec
from msgspec import UNSET

from penstock.aquifer.errors import ErrorCode, Overtaken, ProtocolViolation, SourceFailed
from penstock.aquifer.protocol.effects import Effect, Finish, ReaderMessage, Send, Take
from penstock.aquifer.protocol.frames import Flag, Frame, FrameAssembly, parse, with_positions
from penstock.aquifer.protocol.gateway_errors import error_from
from penstock.aquifer.protocol.messages import Next, NextFields, OnError, OnSubscribeFields, decode, extension
from penstock.aquifer.protocol.subscribe_options import Segment
from penstock.aquifer.records.compression import ZSTD
from penstock.spec import UNBOUNDED

if TYPE_CHECKING:
    from penstock.aquifer.protocol.subscriber_side import SubscriberSide

__all__ = ["ExtendedReader"]

# As plain numbers: testing a Flag takes ten times as long, for each frame.
_SPECIAL: Final = int(Flag.ERR | Flag.GAP | Flag.END | Flag.HB)
_ACK: Final = int(Flag.ACK)
_SHARED: Final = int(Flag.SHARED)
_PIECE: Final = int(Flag.PIECE)
_ZSTD: Final = int(Flag.ZSTD)
_REPEAT: Final = 0.5
"""Seconds after which credit is sent again if nothing arrived: the message may have been lost."""
_SETTLED: Final = 1.0
"""Seconds after which what was told over a connection has arrived, if that was lost later."""
_LINGER: Final = 0.1
"""Seconds that an acknowledgement may wait, so that it can travel with the next credit."""


class ExtendedReader:
    """The state of an extended subscriber."""

    dialect: ClassVar[str] = "extended"

    def __init__(self, side: SubscriberSide, start: int) -> None:
        self.next = start
        """The offset of the next record to arrive."""
        self.handed = start
        """Records before this offset were handed on."""
        self.acknowledged = start
        """The gateway may drop the records before this offset."""
        self.head = start
        """The log's head, as the gateway last said."""
        self.gaps = 0
        """How often frames were lost on the way and asked for again."""
        self.redelivered = 0
        """How many records were delivered again, as the gateway's status shows."""
        self.ended = False
        self.complete = False
        """Whether the stream has ended, by completion or by a failure of its source: no record follows."""
        self._side = side
        self._lease = side.options.lease
        """The lease that we asked for, or the shorter one that the gateway gave."""
        self._credit = start
        """The gateway may send records before this offset."""
        self._credit_bytes = 0
        """The gateway may send this many bytes in this session."""
        self._handed_bytes = 0
        """Bytes of this session that were handed on."""
        self._arrived_bytes = 0
        self._stale_bytes = 0
        """Bytes that still wait here and arrived in an earlier session."""
        self._told = -1
        """The acknowledgement that was last sent."""
        self._spoke = self._heard = 0.0
        self._must_answer = False
        self._owed: deque[int] = deque()
        """The offsets whose acknowledgement the gateway waits for."""
        self._ack_every: int | None = None
        """Acknowledge at least every this many records: the log holds a few times as many."""
        self._segment: Segment | None = None
        """The memory that this session's gateway shares with us, if it does."""
        self.assembly = FrameAssembly()
        """The frame that arrives in pieces at the moment."""
        self._pieces = False
        """Whether this session's gateway sends pieces, and so wants to know how many bytes have arrived."""
        self._chooses = side.options.is_choosy
        """Whether frames may have only some of the records that they stand for."""
        self._jumps: deque[tuple[int, int]] = deque()
        """Reported gaps that lie after what was handed on: first missing and next available offset."""

    def resumed(self, answer: OnSubscribeFields, now: float) -> list[Effect]:
        """A gateway has welcomed us, for the first time or again: give it credit for a window."""
        start = answer.next if answer.next is not UNSET else self.next
        if start != self.next:
            text = f"the gateway starts at offset {start}, but {self.next} was asked for"
            return [Finish(ProtocolViolation(text))]
        if self._chooses and answer.keys is not True:
            text = (
                f"the gateway at {self._side.endpoint} cannot choose records by their keys, because it is of "
                "an earlier version; update it, or read without keys"
            )
            return [Finish(ProtocolViolation(text))]
        if answer.head is not UNSET:
            self.head = answer.head
        if answer.lease is not UNSET and answer.lease > 0:
            self._lease = min(self._side.options.lease, answer.lease / 1000)
        if answer.ackevery is not UNSET:
            self._ack_every = max(answer.ackevery, 1)
        segments = self._side.options.segments
        if segments is not None and answer.shelf is not UNSET:
            self._segment = segments.open(answer.shelf)
        else:
            self._segment = None
        self._pieces = answer.pieces is not UNSET and answer.pieces
        # Bytes are counted by session, and what still waits here belongs to the last one. An incomplete
        # frame does not count as waiting: it would keep its own missing pieces away.
        in_pieces = self.assembly.have - self.assembly.carried
        self._stale_bytes += self._arrived_bytes - self._handed_bytes - in_pieces
        self.assembly.carry_over()
        self._handed_bytes = self._arrived_bytes = self._credit_bytes = 0
        self._credit = self.next
        self._heard = now
        return self._give_credit(now)

    def bytes_came(self, now: float) -> None:
        """A part of a frame arrived: the gateway is there, and the line is slow."""
        self._heard = now

    # ---------------------------------------------------------------- frames
    def receive(self, parts: Sequence[bytes | memoryview], now: float) -> list[Effect]:
        """A message arrived over the data connection; a ``ProtocolViolation`` if it is not a frame."""
        return self.frame(parse(parts), now)

    def frame(self, frame: Frame, now: float) -> list[Effect]:
        """A frame arrived."""
        self._heard = now
        self._side.flowing(now)
        effects = self._read(frame, now)
        finish = next((effect for effect in effects if isinstance(effect, Finish)), None)
        if finish is not None:
            self.complete = isinstance(finish.error, SourceFailed)
            # What has arrived is still handed on and acknowledged, but we ask for nothing more. If another
            # subscriber has taken over our id, we must not take it back.
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
            return []  # It is empty, or we have it already.
        if frame.flags & _ZSTD and ZSTD not in self._side.options.compressions:
            text = f"the frame at offset {frame.first} is compressed, and that was not asked for"
            return [Finish(ProtocolViolation(text))]
        try:
            if frame.flags & _PIECE:
                return self._read_piece(frame, now)
            if frame.flags & _SHARED:
                frame = self._from_segment(frame)
        except ProtocolViolation as violation:
            return [Finish(violation)]
        if self.assembly.have:
            self._drop_pieces()  # The frame came in one piece after all.
        self._arrived_bytes += len(frame.payload) + len(frame.metadata)
        return self._take(frame, now)

    def _take(self, frame: Frame, now: float) -> list[Effect]:
        if self._chooses:
            try:
                frame = with_positions(frame)
            except ProtocolViolation as violation:
                return [Finish(violation)]
            if frame.chosen is not None:
                # Credit is for records that come. The gateway counts in the same way when it sends them.
                self._credit = min(self._credit + frame.count - len(frame.chosen), UNBOUNDED)
        if self.next + frame.count > self._credit:
            text = f"the gateway sent records up to {self.next + frame.count - 1}, and has credit up to "
            return [Finish(ProtocolViolation(f"{text}{self._credit - 1}"))]
        self.next += frame.count
        self.head = max(self.head, self.next)
        self._side.ahead.arrived(frame.records, now)
        if frame.flags & _ACK:
            # Answer now for what has arrived, and once more when it has been processed.
            self._must_answer = True
            self._owed.append(self.next)
        return [Take(frame)]

    def _read_piece(self, frame: Frame, now: float) -> list[Effect]:
        self._arrived_bytes += len(frame.payload)
        if frame.flags & _ACK:
            self._must_answer = True
        assembly = self.assembly
        if assembly.is_begun_by(frame):
            self._drop_pieces()
        misfit = assembly.misfit(frame)
        if misfit is not None:
            self.gaps += 1
            self._handed_bytes += len(frame.payload)
            if assembly.have == assembly.carried:
                # The first piece of the session does not fit what is here: start this frame over.
                self._drop_pieces()
            return self._side.lost(f"pieces of the frame at offset {self.next} were lost: {misfit}", now)
        whole = assembly.add(frame)
        if whole is None:
            return []
        # It waits here from now on. Its pieces of earlier sessions count like other bytes of these.
        self._stale_bytes += assembly.carried
        assembly.drop()
        return self._take(whole, now)

    def _drop_pieces(self) -> None:
        self._handed_bytes += self.assembly.drop()

    def _from_segment(self, frame: Frame) -> Frame:
        if self._segment is None:
            raise ProtocolViolation("the gateway put a payload into a shared segment, but there is none")
        return msgspec.structs.replace(frame, payload=self._segment.payload(frame.payload))

    def _read_special(self, frame: Frame, now: float) -> list[Effect]:
        flags = Flag(frame.flags)
        if Flag.ERR in flags:
            return self._failed(frame, now)
        if Flag.GAP in flags:
            return self.skip_to(frame.first, now)
        if frame.first > self.next:
            return self._missed(frame, now)
        if Flag.END in flags:
            self.ended = self.complete = True
        elif len(frame.payload) == 8:
            self.head = int.from_bytes(frame.payload, "big")
        return []

    def _failed(self, frame: Frame, now: float) -> list[Effect]:
        try:
            message = decode(bytes(frame.payload))
        except ProtocolViolation as violation:
            return [Finish(violation)]
        if not isinstance(message, OnError):
            return [Finish(ProtocolViolation(f"an error frame holds {type(message).__name__}"))]
        details = extension(message.x)
        if details is not None and details.code == SourceFailed.code and frame.first > self.next:
            return self._missed(frame, now)  # Everything before the failure comes first.
        return self.message(message, now)

    def _missed(self, frame: Frame, now: float) -> list[Effect]:
        self.gaps += 1
        return self._side.lost(f"records {self.next} to {frame.first - 1} did not arrive", now)

    def skip_to(self, first: int, now: float) -> list[Effect]:
        """The log no longer has the records before ``first``: continue there, or fail."""
        if first <= self.next:
            return []
        missing, self.next = self.next, first
        self._drop_pieces()
        if self._side.options.on_gap is None:
            text = (
                f"records {missing} to {first - 1} are gone, because this optional reader was too "
                "slow; subscribe with keep=True, or continue at the oldest record with on_gap"
            )
            return [Finish(Overtaken(text, first=first, head=self.head))]
        self._side.options.on_gap(missing, first)
        self._jumps.append((missing, first))
        self._jump()
        return []

    def _jump(self) -> None:
        # Records that never come must not count against the window: a wide gap would close it.
        while self._jumps and self.handed >= self._jumps[0][0]:
            self.handed = max(self.handed, self._jumps.popleft()[1])

    # ---------------------------------------------------------------- messages and time
    def message(self, message: ReaderMessage, now: float) -> list[Effect]:
        """A control message arrived: only errors matter. After the end, only that there is no session."""
        if not isinstance(message, OnError) or (self.ended and not self.complete):
            return []
        details = extension(message.x)
        code = details.code if details is not None else None
        if code in (ErrorCode.SESSION, ErrorCode.LEASE):
            return (self._come_back if self.ended else self._side.lost)(message.message, now)
        if self.ended:
            return []
        if details is not None and code in (ErrorCode.BUSY, ErrorCode.CLOSING):
            return self._side.rest(message, details, now)
        return [Finish(error_from(message))]

    def disconnected(self, now: float) -> list[Effect]:
        """The control connection is gone. After the end nothing else shows that the gateway was lost."""
        if not self.complete or (self.acknowledged >= self.next and now - self._spoke > _SETTLED):
            return []
        return self._come_back("the connection was lost after the end of the stream", now)

    def _come_back(self, reason: str, now: float) -> list[Effect]:
        """A durable subscriber comes back after the end, with what it has acknowledged, or will.

        Otherwise the gateway would never hear of it, and the next one with this id would get it again.
        """
        return self._side.lost(reason, now) if self._side.options.is_durable else []

    def hand_on(self, offset: int, nbytes: int) -> None:
        """Records before ``offset`` were handed on, ``nbytes`` bytes of them since the last call."""
        self.handed = offset
        self._jump()
        stale = min(nbytes, self._stale_bytes)
        self._stale_bytes -= stale
        self._handed_bytes += nbytes - stale

    def tick(self, now: float) -> list[Effect]:
        """Give credit if enough was handed on; repeat credit that may have been lost; notice silence."""
        if not self.ended and now - self._heard > self._side.silence:
            return self._side.lost(f"nothing was heard for {self._side.silence:g} s", now)
        due = self._must_answer or self._acknowledgement_is_due(now) or now - self._spoke >= self._patience()
        if due or (not self.ended and self._credit_is_due()):
            return self._give_credit(now)
        return []

    def tell(self, now: float) -> list[Effect]:
        """Acknowledge at once what was processed: somebody waits for that."""
        return self._give_credit(now) if self.acknowledged > self._told else []

    def _credit_is_due(self) -> bool:
        ahead = self._side.ahead
        if self.handed + ahead.size - self._credit >= max(1, ahead.size // 4):
            return True
        return self._demand_bytes() - self._credit_bytes >= max(1, ahead.nbytes // 4)

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
        # If credit is not used, the records may be on their way, or a message was lost. After the end nothing
        # more can come, but the lease has to be renewed until everything was handed on.
        lease = self._lease / 3
        return lease if self.ended else min(_REPEAT, lease)

    def _demand_bytes(self) -> int:
        return self._handed_bytes + self._side.ahead.nbytes - self._stale_bytes

    def _give_credit(self, now: float) -> list[Effect]:
        ahead = self._side.ahead
        self._credit = max(self._credit, self.handed + ahead.size)
        self._credit_bytes = max(self._credit_bytes, self._demand_bytes())
        self._told = self.acknowledged
        while self._owed and self._owed[0] <= self.acknowledged:
            self._owed.popleft()
        self._spoke = now
        self._must_answer = False
        credit = NextFields(
            limit=self._credit, limitb=self._credit_bytes, ack=self.acknowledged, got=self.next
        )
        if self.redelivered:
            credit.again = self.redelivered
        if self._pieces:
            credit.gotb = self._arrived_bytes
        if self._segment is not None:
            credit.shelf = self._segment.in_use()
        return [Send(Next(ahead.size, x=credit))]

    def goodbye(self) -> list[Effect]:
        """Acknowledge what was processed, and leave; a durable subscriber keeps its cursor."""
        credit = NextFields(limit=self._credit, ack=self.acknowledged, got=self.next)
        return [Send(Next(1, x=credit)), *self._side.goodbye()]

"""A gateway without sockets and threads: the table, a log in memory, a source, and a loop that is one call.

It sends what its sessions may have, as the server of a real gateway does, and metadata every frame, so that a
test can see what went out and whether it had been granted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from penstock.aquifer.limits import Limits
from penstock.aquifer.log import MemoryJournal
from penstock.aquifer.log.log import Log
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.frames import Flag, header
from penstock.aquifer.protocol.messages import SegmentFields, encode
from penstock.aquifer.protocol.pieces import CutFrame
from penstock.aquifer.protocol.session import Event, Reply, Session, State, refusal
from penstock.aquifer.protocol.session_table import SessionTable
from penstock.aquifer.records.batch import Batch, RecordMetadata, in_format, pack_metadata, pack_values, part


def batch_of(first: int, count: int, width: int = 8) -> Batch:
    """Records that begin with their own offset."""
    values = [str(offset).encode().ljust(width, b".") for offset in range(first, first + count)]
    return Batch(first, count, pack_values(values), pack_metadata(RecordMetadata(first)))


def offset_in(value: bytes) -> int:
    """The offset that a record of :func:`batch_of` claims to have."""
    return int(value.rstrip(b"."))


@dataclass
class Source:
    """So many records, in batches of random sizes; then the end, or a failure."""

    total: int
    batch: int = 7
    width: int = 8
    failure: str | None = None
    available: int = 1 << 60
    """How many of them there are by now."""


Send = Callable[[bytes, list[bytes]], None]


@dataclass
class SimulatedGateway:
    """Everything a gateway does in one turn of its loop, in :meth:`turn`."""

    source: Source
    limits: Limits = field(default_factory=Limits)
    max_records: int = 1000
    max_bytes: int = 1 << 20
    random: Random = field(default_factory=lambda: Random(0))
    reply: Callable[[Reply], None] = lambda reply: None
    send: Send = lambda topic, parts: None
    frames_a_turn: int = 4
    piece: int = 0
    """So many bytes are in a piece, if not as many as the pace says."""
    readers: int = 1
    """The source waits until so many have come: who comes later may find the first records gone."""

    def __post_init__(self) -> None:
        self.journal = MemoryJournal(self.max_records, self.max_bytes)
        self.log = Log(self.journal)
        self._everybody_came = False
        self.pieces = 0
        """How many pieces were sent."""
        self.closed: list[tuple[Session, Event]] = []
        self.table = self._new_desk()

    def _new_desk(self) -> SessionTable:
        return SessionTable(self.log, self.limits, self, cursors=self.journal.cursors)

    # ---------------------------------------------------------------- the data ports of the session table
    def open(self, session: Session) -> int:
        return 5557

    def segment(self, session: Session, token: str) -> SegmentFields | None:
        return None

    def close(self, session: Session, event: Event) -> None:
        self.closed.append((session, event))
        codes = {Event.EXPIRED: "LEASE", Event.TAKEN_OVER: "TAKEN"}
        if isinstance(session, ExtendedSession) and event in codes:
            error = encode(refusal("over", codes[event]))
            self._frame(session, Flag.ERR, session.cursor, 0, error)

    # ---------------------------------------------------------------- what happens
    def restart(self, *, crash: bool) -> None:
        """A new session table on the same log; a crash loses unsaved cursors, but no name."""
        if crash:
            for name in self.journal.cursors:
                self.table.cursors.changed.pop(name, None)
        self._write_cursors()
        self.table = self._new_desk()

    def receive(self, parts: list[bytes], now: float) -> None:
        for reply in self.table.receive(parts, now):
            self.reply(reply)

    def topic(self, topic: bytes, event: Event, now: float) -> None:
        session = self.table.by_topic.get(topic)
        if session is not None:
            session.handle(event, now)

    def turn(self, now: float) -> None:
        """One turn of the loop: serve, tick, beat, write."""
        for session in list(self.table.sessions.values()):
            for reply in session.tick(now):
                self.reply(reply)
            if isinstance(session, ExtendedSession):
                self._serve(session, now)
        for reply in self.table.tick(now):
            self.reply(reply)
        for session in self.table.by_topic.values():
            if now - session.spoke >= self.limits.heartbeat and session.state is State.STREAMING:
                self._frame(session, Flag.HB, session.cursor, 0, self.log.head.to_bytes(8, "big"))
                session.spoke = now
        self.log.low_watermark = self.table.low_watermark()
        if self.random.random() < 0.3:
            self._write_cursors()
        self.write()

    def write(self) -> None:
        """Append what there is room for, from when everybody has come."""
        self._everybody_came |= len(self.table.sessions) >= self.readers
        while self.log.end is None and self._everybody_came:
            if self.log.head >= self.source.total:
                self.log.finish(self.source.failure)
                return
            left = min(self.source.total, self.source.available) - self.log.head
            if left <= 0:
                return
            batch = batch_of(
                self.log.head, min(left, self.random.randint(1, self.source.batch)), self.source.width
            )
            if not self.journal.make_room(batch.count, batch.nbytes, self.log.low_watermark):
                return
            self.journal.append([batch])

    def _write_cursors(self) -> None:
        for name, cursor in self.table.cursors.take_changed().items():
            self.journal.save_cursor(name, cursor)
        self.journal.flush()

    # ---------------------------------------------------------------- what goes out
    def _serve(self, session: ExtendedSession, now: float) -> None:
        for _ in range(self.frames_a_turn):
            if not session.line_has_room():
                break
            if session.cut is not None:
                self._piece(session, session.cut, now)
                continue
            allowed = min(session.credit(), self.limits.max_frame_records)
            if not allowed:
                break
            if session.overtaken:
                missed = session.cursor
                session.skip_to(self.log.first)
                self._frame(session, Flag.GAP, session.cursor, 0, missed.to_bytes(8, "big"))
                continue
            room = session.credit_bytes()
            batch = self.log.find(session.cursor)
            if room <= 0 or batch is None:
                break
            count = min(batch.end - session.cursor, allowed)
            if batch.nbytes > room:
                count = min(count, max(1, batch.count * room // batch.nbytes))
            if 0 < session.begun <= min(allowed, batch.end - session.cursor):
                count = session.begun
            batch = in_format(part(batch, session.cursor, session.cursor + count), session.format)
            if session.cut_up(batch):
                continue
            flag = Flag.ACK if session.wants_acknowledgement(batch.count, batch.nbytes) else 0
            self._frame(session, flag, batch.first, batch.count, batch.payload, batch.metadata)
            session.sent(batch.count, batch.nbytes)
            session.spoke = now
            if flag:
                session.asked(now)
        if session.exhausted:
            if session.failed:
                error = encode(refusal(self.log.failure or "", "SOURCE"))
                self._frame(session, Flag.ERR, session.cursor, 0, error)
            else:
                self._frame(session, Flag.END, session.cursor, 0, b"")
            session.ended()

    def _piece(self, session: ExtendedSession, cut: CutFrame, now: float) -> None:
        assert session.pace is not None
        data, place, last = cut.piece(self.piece or session.pace.message)
        count = cut.count if last else 0
        flags = Flag.PIECE | (Flag.ACK if session.wants_acknowledgement(count, len(data)) else 0)
        self._frame(session, flags, cut.first, cut.count, bytes(data), place)
        session.sent(count, len(data))
        session.spoke = now
        self.pieces += 1
        if last:
            session.cut = None
        if flags & Flag.ACK:
            session.asked(now)

    def _frame(
        self, session: ExtendedSession, flags: int, first: int, count: int, payload: bytes, *metadata: bytes
    ) -> None:
        self.send(session.topic, [session.topic, header(flags, first, count), payload, *metadata])

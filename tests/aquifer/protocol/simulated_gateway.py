"""A gateway without sockets and threads: the table, a log in memory, a source, and a loop that is one call.

It sends what its sessions may have, as the server of a real gateway does, and metadata every frame, so that a
test can see what went out and whether it had been granted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from zlib import crc32

from penstock.aquifer.limits import Limits
from penstock.aquifer.log import MemoryJournal
from penstock.aquifer.log.log import Log
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.frames import Flag, Frame, header
from penstock.aquifer.protocol.messages import SegmentFields
from penstock.aquifer.protocol.session import FAREWELLS, Reply, Session, SessionEvent
from penstock.aquifer.protocol.session_table import SessionTable
from penstock.aquifer.records.batch import Batch, RecordMetadata, pack_metadata, pack_values


def key_at(offset: int, keys: int) -> bytes | None:
    """The key of a record, of so many: in no order, and now and then none."""
    number = crc32(str(offset).encode()) % (keys + 1)
    return b"k%d" % number if number < keys else None


def batch_of(first: int, count: int, width: int = 8, keys: int = 0) -> Batch:
    """Records that begin with their own offset."""
    values = [str(offset).encode().ljust(width, b".") for offset in range(first, first + count)]
    known = [key_at(offset, keys) for offset in range(first, first + count)] if keys else None
    return Batch(first, count, pack_values(values), pack_metadata(RecordMetadata(first, known)))


def offset_in(value: bytes) -> int:
    """The offset that a record of :func:`batch_of` claims to have."""
    return int(value.rstrip(b"."))


@dataclass
class Source:
    """So many records, in batches of random sizes; then the end, or a failure."""

    total: int
    batch: int = 7
    width: int = 8
    keys: int = 0
    """How many keys the records have; none if 0."""
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
        # Frames as small as the batches of the source: more of them can get lost.
        small = min(self.limits.max_frame_records, self.source.batch)
        self.limits = replace(self.limits, max_frame_records=small)
        self.journal = MemoryJournal(self.max_records, self.max_bytes)
        self.log = Log(self.journal)
        self._everybody_came = False
        self.pieces = 0
        """How many pieces were sent."""
        self.closed: list[tuple[Session, SessionEvent]] = []
        self.table = self._new_desk()

    def _new_desk(self) -> SessionTable:
        return SessionTable(self.log, self.limits, self)

    # ---------------------------------------------------------------- the data ports of the session table
    def open(self, session: Session) -> int:
        return 5557

    def segment(self, session: Session, token: str) -> SegmentFields | None:
        return None

    def close(self, session: Session, event: SessionEvent) -> None:
        self.closed.append((session, event))
        if isinstance(session, ExtendedSession) and event in FAREWELLS:
            self._send(session, session.error_frame(FAREWELLS[event], session.spoke))

    # ---------------------------------------------------------------- what happens
    def restart(self, *, crash: bool) -> None:
        """A new session table on the same log; a crash loses unsaved cursors, but no name."""
        if crash:
            for name in self.journal.cursors:
                self.log._unsaved.pop(name, None)
        self._write_cursors()
        self.table = self._new_desk()

    def receive(self, parts: list[bytes], now: float) -> None:
        for reply in self.table.receive(parts, now):
            self.reply(reply)

    def topic(self, topic: bytes, event: SessionEvent, now: float) -> None:
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
            if (frame := session.heartbeat(now)) is not None:
                self._send(session, frame)
        self.log.set_low_watermark(self.table.low_watermark())
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
            count = min(left, self.random.randint(1, self.source.batch))
            batch = self.log.compressed(batch_of(self.log.head, count, self.source.width, self.source.keys))
            if not self.log.make_space(batch.count, batch.nbytes):
                return
            self.log.append([batch])

    def _write_cursors(self) -> None:
        self.log.flush()

    # ---------------------------------------------------------------- what goes out
    def _serve(self, session: ExtendedSession, now: float) -> None:
        for _ in range(self.frames_a_turn):
            frame = session.next_frame(now, self.piece or None)
            if frame is None:
                break
            self.pieces += bool(frame.flags & Flag.PIECE)
            self._send(session, frame)

    def _send(self, session: ExtendedSession, frame: Frame) -> None:
        metadata = [frame.metadata] if frame.metadata else []
        head = header(frame.flags, frame.first, frame.count)
        self.send(session.topic, [session.topic, head, bytes(frame.payload), *metadata])

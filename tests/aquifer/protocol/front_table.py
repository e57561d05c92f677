"""A session table, a log that is four numbers, and a clock by hand: enough to talk to a gateway's side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Cursor, Held, Log, MemoryJournal
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.messages import (
    Control,
    Next,
    NextFields,
    SegmentFields,
    Subscribe,
    SubscribeFields,
    decode,
    encode,
)
from penstock.aquifer.protocol.session import Reply, Session, SessionEvent
from penstock.aquifer.protocol.session_table import SessionTable
from penstock.aquifer.records import Batch
from penstock.aquifer.security.access import ALL_RIGHTS, LOCAL, Access, Caller


class PretendedJournal(MemoryJournal):
    """A journal that says how far it has come, and has no records."""

    def __init__(self, first: int, head: int) -> None:
        super().__init__(max_records=1000, max_bytes=100_000)
        self.epoch = "epoch-1"
        self.first, self.head = first, head
        self.stored: Mapping[str, Cursor] = {}
        self.marked: dict[str, str] = {}

    @property
    def cursors(self) -> Mapping[str, Cursor]:
        return self.stored

    def save_cursor(self, name: str, cursor: Cursor | None) -> None:
        kept = {other: it for other, it in self.stored.items() if other != name}
        self.stored = kept if cursor is None else kept | {name: cursor}

    @property
    def marks(self) -> Mapping[str, str]:
        return self.marked

    def find(self, offset: int) -> Batch | None:
        return None


class PretendedLog(Log):
    """A log that is a few numbers; the test sets ``first`` and ``head``."""

    def __init__(
        self,
        first: int = 0,
        head: int = 0,
        *,
        record_bytes: int = 100,
        ack_every_records: int = 100,
        ack_every_bytes: int = 100_000,
    ) -> None:
        self.journal = PretendedJournal(first, head)
        super().__init__(self.journal)
        self.low_watermark = 0
        self.codec = "bytes"
        self.record_bytes = record_bytes
        self._ack_every = ack_every_records, ack_every_bytes
        self.submitted = self._submitted

    @property
    def unsaved(self) -> dict[str, Cursor | None]:
        """What was saved of the cursors since the journal was given some."""
        return self._unsaved

    @property
    def ack_every_records(self) -> int:
        return self._ack_every[0]

    @property
    def ack_every_bytes(self) -> int:
        return self._ack_every[1]

    @property
    def held(self) -> Held:
        return Held(self.head, self.head * self.record_bytes)

    def measure(self, start: int, nbytes: int) -> tuple[int, int]:
        count = min(self.head - start, nbytes // self.record_bytes)
        return count, count * self.record_bytes

    def fitting(self, start: int, most: int, nbytes: int) -> int:
        return max(min(most, nbytes // self.record_bytes), min(most, 1))

    def finish(self, failure: str | None = None) -> None:
        super().finish(failure)


WITH_A_KEY = Caller("alice", "127.0.0.1", ALL_RIGHTS)
"""Somebody whose key is proven, on each of its connections."""


@dataclass
class FrontTable:
    """Says things to a session table as a peer would, and reads its answers as they come over the wire."""

    limits: Limits = field(default_factory=Limits)
    log: PretendedLog = field(default_factory=PretendedLog)
    cursors: Mapping[str, Cursor] = field(default_factory=dict)
    keep_plain: bool = True
    has_shelves: bool = True
    access: Access | None = None
    caller: Caller = LOCAL
    """Who says what is said."""
    writable: bool = False

    def __post_init__(self) -> None:
        self.now = 100.0
        self.opened: list[Session] = []
        self.closed: list[tuple[Session, SessionEvent]] = []
        self.answers: list[tuple[bytes, Control]] = []
        """Everything that was ever answered, to whom."""
        self.log.journal.stored = self.cursors
        self.table = SessionTable(
            self.log,
            self.limits,
            self,
            keep_plain=self.keep_plain,
            writable=self.writable,
            access=self.access,
        )

    # ---------------------------------------------------------------- the data ports
    def open(self, session: Session) -> int:
        self.opened.append(session)
        return 5557

    def segment(self, session: Session, token: str) -> SegmentFields | None:
        return SegmentFields(1, 2, 3, token or "new") if self.has_shelves else None

    def close(self, session: Session, event: SessionEvent) -> None:
        self.closed.append((session, event))

    # ---------------------------------------------------------------- talking
    def say(self, message: Control | bytes, peer: bytes = b"peer") -> list[Control]:
        """Send a message; what the gateway answers at once."""
        data = message if isinstance(message, bytes) else encode(message)
        return self._read(self.table.receive([peer, b"", data], self.now, self.caller))

    def ask(self, message: Control | bytes, peer: bytes = b"peer") -> Control:
        """Send a message that is answered at once."""
        (answer,) = self.say(message, peer)
        return answer

    def late_answers(self) -> list[Control]:
        """What the gateway answers to those that have waited."""
        return self._read(self.table.answers(self.now))

    def grant(self, peer: bytes = b"peer", **figures: int) -> list[Control]:
        """Send a Next with these figures in x."""
        return self.say(Next(1, x=NextFields(**figures)), peer)

    def pass_time(self, seconds: float) -> list[Control]:
        """Let time pass, and look at the clock now and then, as a gateway does that is running."""
        answers = self._read(self.table.tick(self.now))
        end = self.now + seconds
        while self.now < end:
            self.now = min(self.now + 0.5, end)
            answers += self._read(self.table.tick(self.now))
        return answers

    def stand_still(self, seconds: float) -> list[Control]:
        """The gateway's process is stopped, or its machine asleep, and then goes on."""
        self.now += seconds
        return self._read(self.table.tick(self.now))

    def happen(self, event: SessionEvent, peer: bytes = b"peer") -> list[Control]:
        return self._read(self.session(peer).handle(event, self.now))

    def _read(self, replies: list[Reply]) -> list[Control]:
        read = [(envelope[0], decode(encode(message))) for envelope, message in replies]
        self.answers += read
        return [message for _, message in read]

    # ---------------------------------------------------------------- sessions
    def subscribe(self, peer: bytes = b"peer", **wishes: Any) -> ExtendedSession:
        """An extended subscriber that has joined."""
        self.say(Subscribe(x=SubscribeFields(v=1, **wishes)), peer)
        session = self.session(peer)
        assert isinstance(session, ExtendedSession)
        session.handle(SessionEvent.JOINED, self.now)
        return session

    def subscribe_plainly(self, peer: bytes = b"peer") -> Session:
        """A plain subscriber that has joined."""
        self.say(b'{"jsonClass":"Subscribe","cancel":false}', peer)
        self.happen(SessionEvent.JOINED, peer)
        return self.session(peer)

    def session(self, peer: bytes = b"peer") -> Session:
        return self.table.sessions[peer]


def send_all(session: Session, *, frame: int = 1 << 30, width: int = 10) -> list[int]:
    """Send what may be sent, in frames of so many records; the offsets that went out."""
    sent: list[int] = []
    while allowed := min(session.credit(), frame):
        if isinstance(session, ExtendedSession) and session.credit_bytes() <= 0:
            break
        sent += range(session.cursor, session.cursor + allowed)
        session.sent(allowed, allowed * width)
    return sent

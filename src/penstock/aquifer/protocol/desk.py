"""The front desk of a gateway: every control message comes here, and finds, opens or closes a session.

Still no socket: :class:`Doors` stands for the data ports. Whatever a peer sends, the desk answers it or
counts it; nothing that arrives can raise.
"""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol

from msgspec import UNSET

from penstock.aquifer.batches import ARROW, MSGPACK
from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.journal.interface import SavedCursor
from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.frames import TOPIC_BYTES
from penstock.aquifer.protocol.messages import (
    VERSION,
    Complete,
    CompleteTerms,
    Control,
    Error,
    Next,
    OnComplete,
    OnSubscribe,
    SessionTerms,
    Subscribe,
    SubscribeTerms,
    decode,
    terms,
)
from penstock.aquifer.protocol.plain_session import PlainSession
from penstock.aquifer.protocol.sessions import Event, LogView, Reply, Session, State, refusal
from penstock.spec import UNBOUNDED

__all__ = ["Desk", "Doors"]

_EVENTS: Final[Mapping[type, Event]] = {Next: Event.NEXT, Complete: Event.COMPLETE, Error: Event.ERROR}
_REMEMBERED: Final = 1024
"""How many sessions that have ended are remembered, to tell their late messages from new ones."""


class Doors(Protocol):
    """The data ports, as far as the desk has to know."""

    def open(self, session: Session) -> int:
        """Make the session reachable, and return the port on which its records will come."""
        ...

    def close(self, session: Session, event: Event) -> None:
        """The session is over because of ``event``."""
        ...


class Desk:
    """All sessions of a gateway, by the routing id of their control connection."""

    def __init__(
        self,
        log: LogView,
        limits: Limits,
        doors: Doors,
        *,
        cursors: Mapping[str, SavedCursor] | None = None,
        keep_plain: bool = True,
        status: Callable[[], dict[str, Any]] = dict,
        clock: Callable[[], float],
    ) -> None:
        self.sessions: dict[bytes, Session] = {}
        self.by_topic: dict[bytes, ExtendedSession] = {}
        self.counters: Counter[str] = Counter()
        """What came in that should not have, by kind."""
        self.absent: dict[str, SavedCursor] = dict(cursors or {})
        """Durable subscribers that are away, and for which records are kept until their lease ends."""
        self.changed: dict[str, SavedCursor | None] = {}
        """Cursors that are to be written to the journal; whoever does so takes them out."""
        self._log = log
        self._limits = limits
        self._doors = doors
        self._keep_plain = keep_plain
        self._status = status
        self._clock = clock
        """Seconds since 1970: leases of durable subscribers outlive the process."""
        self._budgets: dict[bytes, tuple[float, float]] = {}
        self._over: OrderedDict[bytes, SubscribeTerms | None] = OrderedDict()

    # ---------------------------------------------------------------- messages
    def receive(self, parts: Sequence[bytes], now: float) -> list[Reply]:
        """Deal with a message from the control socket: routing id, perhaps more, a delimiter, the body."""
        envelope, body = _unwrap(parts)
        peer = envelope[0]
        if len(body) > self._limits.max_message:
            text = f"a control message of {len(body)} bytes; the limit is {self._limits.max_message}"
            return self._refuse(envelope, "oversized", text, "BAD")
        if not self._within_budget(peer, now):
            text = f"more than {self._limits.requests_per_second} requests per second: slow down"
            return self._refuse(envelope, "too many requests", text, "BUSY", retry=1000)
        try:
            message = decode(body)
        except ProtocolViolation as violation:
            return self._refuse(envelope, "malformed", str(violation), "BAD")
        session = self.sessions.get(peer)
        if session is not None:
            session.heard = now
        if isinstance(message, Subscribe):
            if message.cancel:
                return self._cancel(message, session, envelope, now)
            return self._subscribe(message, session, envelope, now)
        event = _EVENTS.get(type(message))
        if event is None:
            return self._refuse(
                envelope, "unexpected", f"{type(message).__name__} is what a gateway says", "BAD"
            )
        if session is None:
            if isinstance(message, Complete):
                return [Reply(envelope, OnComplete())]
            text = "no subscription here, perhaps because the gateway was restarted: send Subscribe first"
            return self._refuse(envelope, "no session", text, "SESSION")
        return self._pass_on(session, event, message, envelope, now)

    def _pass_on(
        self, session: Session, event: Event, message: Control, envelope: tuple[bytes, ...], now: float
    ) -> list[Reply]:
        before = session.acknowledged
        replies = session.handle(event, now, message=message, envelope=envelope)
        if any(isinstance(reply.message, type(_REFUSAL)) for reply in replies):
            self.counters["out of order"] += 1
        if session.state is State.CLOSED:
            self._close(session, event)
        elif session.acknowledged != before:
            self._note(session)
        return replies

    def _refuse(
        self, envelope: tuple[bytes, ...], counter: str, text: str, code: str, **more: Any
    ) -> list[Reply]:
        self.counters[counter] += 1
        return [Reply(envelope, refusal(text, code, **more))]

    def _within_budget(self, peer: bytes, now: float) -> bool:
        # A token bucket. Peers without a session share one, or their number alone would fill the memory.
        peer = peer if peer in self.sessions else b""
        rate = self._limits.requests_per_second
        tokens, since = self._budgets.get(peer, (float(rate), now))
        tokens = min(tokens + (now - since) * rate, rate)
        self._budgets[peer] = (max(tokens - 1, 0), now)
        return tokens >= 1

    # ---------------------------------------------------------------- coming
    def _subscribe(
        self, message: Subscribe, session: Session | None, envelope: tuple[bytes, ...], now: float
    ) -> list[Reply]:
        wishes = terms(message.x)
        if wishes is None or wishes.v is UNSET:
            return self._subscribe_plain(session, envelope, now)
        if wishes.probe is True:
            status = SessionTerms(v=VERSION, epoch=self._log.epoch, status=self._status())
            return [Reply(envelope, OnSubscribe(UNBOUNDED, 0, x=status))]
        if isinstance(session, ExtendedSession) and session.wishes == wishes:
            # The same again: the answer was lost, or the request came twice. Nothing changes.
            self.counters["repeated Subscribe"] += 1
            return [self._welcome(session, envelope, self._doors.open(session))]
        peer = envelope[0]
        if peer in self._over and self._over[peer] == wishes:
            text = "this subscription is over: open a new connection to subscribe again"
            return self._refuse(envelope, "replayed Subscribe", text, "SESSION")
        if session is not None:
            self._close(session, Event.CANCEL)
        return self._subscribe_extended(wishes, envelope, now)

    def _subscribe_plain(
        self, session: Session | None, envelope: tuple[bytes, ...], now: float
    ) -> list[Reply]:
        if session is not None:
            self._close(session, Event.CANCEL)
        if len(self.sessions) >= self._limits.max_subscribers:
            return self._refuse(envelope, "too many subscribers", self._full(), "BUSY", retry=1000)
        session = PlainSession(envelope[0], self._log, self._log.first, self._limits, now)
        session.keep = self._keep_plain
        self.sessions[session.peer] = session
        return [Reply(envelope, OnSubscribe(UNBOUNDED, self._doors.open(session)))]

    def _subscribe_extended(
        self, wishes: SubscribeTerms, envelope: tuple[bytes, ...], now: float
    ) -> list[Reply]:
        name = wishes.id if wishes.id is not UNSET else None
        for other in [other for other in self.sessions.values() if name and other.name == name]:
            other.handle(Event.TAKEN_OVER, now)
            self._close(other, Event.TAKEN_OVER)
        if len(self.sessions) >= self._limits.max_subscribers:
            return self._refuse(envelope, "too many subscribers", self._full(), "BUSY", retry=1000)
        problem = self._problem(wishes)
        if problem is not None:
            text, code = problem
            where = {"first": self._log.first, "head": self._log.head, "epoch": self._log.epoch}
            return self._refuse(envelope, f"refused: {code}", text, code, **where)
        saved = self.absent.pop(name, None) if name else None
        session = ExtendedSession(
            envelope[0],
            self._log,
            self._start(wishes, saved),
            self._limits,
            now,
            wishes=wishes,
            topic=secrets.token_bytes(TOPIC_BYTES),
            format=_first_known(wishes.fmt if wishes.fmt is not UNSET else ()),
        )
        if saved is not None:
            session.acknowledged = min(session.acknowledged, max(saved.acknowledged, self._log.first))
        self.sessions[session.peer] = session
        self.by_topic[session.topic] = session
        self._note(session)
        return [self._welcome(session, envelope, self._doors.open(session))]

    def _problem(self, wishes: SubscribeTerms) -> tuple[str, str] | None:
        log = self._log
        if wishes.v != VERSION:
            return f"version {wishes.v} of the dialect; this gateway speaks {VERSION}", "BAD"
        if wishes.epoch is not UNSET and wishes.epoch != log.epoch:
            return f"epoch {wishes.epoch} is over, this is {log.epoch}: its offsets start anew", "EPOCH"
        if isinstance(wishes.from_, str) and wishes.from_ not in ("earliest", "latest"):
            return f"from {wishes.from_!r}: give an offset, 'earliest' or 'latest'", "BAD"
        if isinstance(wishes.from_, int) and not log.first <= wishes.from_ <= log.head:
            return (
                f"offset {wishes.from_} is not available: there are {log.first} to {log.head - 1}",
                "OFFSET",
            )
        if wishes.to is not UNSET and wishes.to < 0:
            return f"to {wishes.to}: offsets are never negative", "BAD"
        if wishes.lease is not UNSET and wishes.lease <= 0:
            return f"a lease of {wishes.lease} ms: give at least 1", "BAD"
        if wishes.fmt is not UNSET and _first_known(wishes.fmt) not in (MSGPACK, ARROW):
            return f"none of the formats {wishes.fmt} is known here: there are {MSGPACK} and {ARROW}", "BAD"
        return None

    def _start(self, wishes: SubscribeTerms, saved: SavedCursor | None) -> int:
        log = self._log
        if wishes.from_ == "latest":
            return log.head
        if isinstance(wishes.from_, int):
            return wishes.from_
        if wishes.from_ is UNSET and saved is not None:
            return min(max(saved.acknowledged, log.first), log.head)
        return log.first

    def _welcome(self, session: ExtendedSession, envelope: tuple[bytes, ...], port: int) -> Reply:
        answer = SessionTerms(
            v=VERSION,
            topic=session.topic.hex(),
            epoch=self._log.epoch,
            first=self._log.first,
            next=session.cursor,
            head=self._log.head,
            fmt=session.format,
            ackevery=self._log.ack_every_records,
            maxframe=self._limits.max_frame,
            lease=round(session.lease * 1000),
        )
        size = UNBOUNDED if session.to is None else max(session.to - session.cursor, 0)
        return Reply(envelope, OnSubscribe(size, port, x=answer))

    def _full(self) -> str:
        return f"{len(self.sessions)} subscribers are here already, and there is room for no more: try later"

    # ---------------------------------------------------------------- going
    def _cancel(
        self, message: Subscribe, session: Session | None, envelope: tuple[bytes, ...], now: float
    ) -> list[Reply]:
        if session is None:
            # Once is enough, twice does no harm (§3.7).
            return [Reply(envelope, OnComplete(x=CompleteTerms(cancelled=True)))]
        wishes = terms(message.x)
        if wishes is not None and wishes.keep is False:
            session.keep = False  # A goodbye for good.
        replies = session.handle(Event.CANCEL, now, envelope=envelope)
        self._close(session, Event.CANCEL)
        return replies

    def _close(self, session: Session, event: Event) -> None:
        self.sessions.pop(session.peer, None)
        self._budgets.pop(session.peer, None)
        wishes = None
        if isinstance(session, ExtendedSession):
            self.by_topic.pop(session.topic, None)
            wishes = session.wishes
        self._over[session.peer] = wishes
        if len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)
        if session.name is not None:
            if event is not Event.EXPIRED and session.keep:
                # A name lasts: its owner may come back, for as long as its lease.
                self.changed[session.name] = self.absent[session.name] = self._saved(session)
            else:
                self.changed[session.name] = None
        self._doors.close(session, event)

    def give_up(self, session: Session) -> None:
        """The gateway cannot serve this session any more; a durable subscriber may try again."""
        session.state = State.CLOSED
        self._close(session, Event.CANCEL)

    def _note(self, session: Session) -> None:
        if session.name is not None and session.keep:
            self.changed[session.name] = self._saved(session)

    def _saved(self, session: Session) -> SavedCursor:
        return SavedCursor(session.acknowledged, round(session.lease * 1000), self._clock())

    # ---------------------------------------------------------------- as time goes by
    def tick(self, now: float) -> list[Reply]:
        """End the leases that have run out, and answer the requests that have waited long enough."""
        replies = []
        for session in list(self.sessions.values()):
            if session.expired(now):
                session.handle(Event.EXPIRED, now)
                self.counters["leases ended"] += 1
                self._close(session, Event.EXPIRED)
            else:
                replies += session.tick(now)
        wall = self._clock()
        for name, saved in list(self.absent.items()):
            if wall - saved.seen > saved.lease_ms / 1000:
                del self.absent[name]
                self.changed[name] = None
                self.counters["leases ended"] += 1
        return replies

    def floor(self) -> int:
        """The lowest offset that has to be kept for somebody."""
        kept: Iterable[int] = [session.acknowledged for session in self.sessions.values() if session.keep]
        kept = [*kept, *(saved.acknowledged for saved in self.absent.values())]
        if kept:
            return max(min(kept), self._log.first)
        # Nobody has to be waited for. With nobody there at all, nothing is forgotten: the first to come
        # shall find the oldest records, and the source waits.
        return self._log.head if self.sessions else self._log.first


_REFUSAL = refusal("", "")


def _unwrap(parts: Sequence[bytes]) -> tuple[tuple[bytes, ...], bytes]:
    """The envelope to send the answer in, and the body.

    A REQ puts an empty delimiter before the body, and with REQ_CORRELATE a number before that; the answer
    needs them all. A DEALER may have left them out.
    """
    body = parts[-1] if len(parts) > 1 else b""
    return tuple(parts[:-1]) or (parts[0],), body


def _first_known(formats: Iterable[str]) -> str:
    formats = list(formats)
    if not formats:
        return MSGPACK
    return next((format for format in formats if format in (MSGPACK, ARROW)), formats[0])

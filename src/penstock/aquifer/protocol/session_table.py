"""The session table of a gateway: every control message comes here, and finds, opens or closes a session.

There is no socket in here: :class:`DataPorts` stands for the data ports. The table answers or counts whatever
a peer sends; no message can make it raise.
"""

from __future__ import annotations

import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from msgspec import UNSET

from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.limits import Limits
from penstock.aquifer.log.journal import Cursor
from penstock.aquifer.protocol.administration import Administration
from penstock.aquifer.protocol.admission import (
    Budgets,
    acknowledged_for,
    format_for,
    problem_with,
    start_for,
    too_many_ids,
    too_many_sessions,
    why_not,
)
from penstock.aquifer.protocol.cursors import Cursors, LeaseClock, LowWatermark
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.frames import TOPIC_BYTES
from penstock.aquifer.protocol.messages import (
    VERSION,
    Complete,
    CompleteFields,
    Control,
    Error,
    Next,
    OnComplete,
    OnError,
    OnSubscribe,
    OnSubscribeFields,
    Subscribe,
    SubscribeFields,
    commit_in,
    decode,
    extension,
    for_plain_peers,
    put_in,
    unwrap,
)
from penstock.aquifer.protocol.plain_session import PlainSession
from penstock.aquifer.protocol.probes import Probes
from penstock.aquifer.protocol.session import (
    FAREWELLS,
    DataPorts,
    Event,
    LogView,
    Reply,
    Session,
    State,
    refusal,
)
from penstock.aquifer.protocol.transactions import PendingTransaction, Transactions
from penstock.aquifer.records.batch import MSGPACK
from penstock.aquifer.security.access import LOCAL, Access, Caller, Right
from penstock.spec import UNBOUNDED

__all__ = ["DataPorts", "SessionTable"]

_EVENTS: Final[Mapping[type, Event]] = {Next: Event.NEXT, Complete: Event.COMPLETE, Error: Event.ERROR}
_REMEMBERED: Final = 1024
"""How many sessions that have ended are remembered, to tell their late messages from new ones."""


class SessionTable:
    """All sessions of a gateway, by the routing id of their control connection."""

    def __init__(
        self,
        log: LogView,
        limits: Limits,
        doors: DataPorts,
        *,
        cursors: Mapping[str, Cursor] | None = None,
        keep_plain: bool = True,
        status: Callable[[], dict[str, Any]] = dict,
        marks: Callable[[], Mapping[str, str]] = dict,
        has_room_for_mark: Callable[[str], bool] = lambda name: True,
        submit: Callable[[PendingTransaction], None] | None = None,
        access: Access | None = None,
    ) -> None:
        self.sessions: dict[bytes, Session] = {}
        self.by_topic: dict[bytes, ExtendedSession] = {}
        self.counters: Counter[str] = Counter()
        """What came in that should not have, by kind."""
        self.departed = {"subscribers": 0, "records": 0, "bytes": 0, "to": 0}
        """Who has left: how many, with how much, and how far the furthest of them had come."""
        self._low_watermark = LowWatermark(log, limits)
        self._lease_clock = LeaseClock()
        self.cursors = Cursors(cursors or {}, self._lease_clock)
        """Durable subscribers, and for how long those that are away are remembered."""
        self._log = log
        self._limits = limits
        self._ports = doors
        self._keep_plain = keep_plain
        self.transactions = Transactions(limits, marks, submit, lambda: log.head, has_room_for_mark)
        """What others write to this gateway, if it lets them."""
        self._probes = Probes(log, limits, self.cursors, status)
        self._budgets = Budgets(limits.requests_per_second)
        self._revocation = Revocation(access, self.all, self.end, self._probes, self.transactions)
        self._farewells: list[Reply] = []
        """Answers to requests that waited in a session when it ended."""
        self._numbers = count(1)
        self.administration = Administration(
            self, self.cursors, self.transactions, log, limits, access.name_of if access is not None else str
        )
        """Lists, ends, deletes and hands over sessions and ids."""
        self._over: OrderedDict[bytes, tuple[SubscribeFields | None, Event]] = OrderedDict()
        """Of sessions that have ended: what they had asked for, and why they ended."""

    @property
    def absent(self) -> dict[str, Cursor]:
        """Durable subscribers that are away, and for which records are kept until their lease ends."""
        return self.cursors.absent

    # ---------------------------------------------------------------- messages
    def receive(self, parts: Sequence[bytes], now: float, caller: Caller = LOCAL) -> list[Reply]:
        """Deal with a message from the control socket: routing id, perhaps more, a delimiter, the body."""
        self._lease_clock.advance(now)
        if len(parts) == 2 and not parts[1]:
            # No question, but how a socket with ZMQ_PROBE_ROUTER introduces itself. An answer without a
            # question would make a REQ close the connection.
            self.counters["introductions"] += 1
            return []
        envelope, body, attached = unwrap(parts)
        extended = isinstance(self.sessions.get(envelope[0]), ExtendedSession)
        replies = self._deal(envelope, body, attached, now, caller)
        if extended or b'"x"' in body:
            return replies
        # It knows nothing but the document, as far as we know: it gets nothing but the document.
        return [Reply(back, for_plain_peers(message)) for back, message in replies]

    def _deal(
        self,
        envelope: tuple[bytes, ...],
        body: bytes,
        attached: Sequence[bytes],
        now: float,
        caller: Caller,
    ) -> list[Reply]:
        peer = envelope[0]
        if len(body) > self._limits.max_message:
            text = f"a control message of {len(body)} bytes; the limit is {self._limits.max_message}"
            return self._refuse(envelope, "oversized", text, "BAD")
        if not self._budgets.allow(peer if peer in self.sessions else caller.owner or caller.address, now):
            text = f"more than {self._limits.requests_per_second} requests per second: slow down"
            return self._refuse(envelope, "too many requests", text, "BUSY", retry=1000)
        try:
            message = decode(body)
        except ProtocolViolation as violation:
            return self._refuse(envelope, "malformed", str(violation), "BAD")
        if (why := why_not(message, caller)) is not None:
            return self._refuse(envelope, "not allowed", why, "AUTH")
        if (put := put_in(message)) is not None and isinstance(message, Next):
            return self.transactions.put(message, put, attached, envelope, now, caller)
        if (commit := commit_in(message)) is not None:
            return self.transactions.commit(commit, envelope, caller)
        session = self.sessions.get(peer)
        if session is not None:
            if session.owner != caller.owner:
                # Routing ids are what peers make of them. A session belongs to the key that opened it.
                text = "this session belongs to another key: open a connection of your own"
                return self._refuse(envelope, "not allowed", text, "AUTH")
            session.heard = self._lease_clock.now
        if isinstance(message, Subscribe):
            if message.cancel:
                return self._cancel(message, session, envelope, now)
            return self._subscribe(message, session, envelope, now, caller)
        event = _EVENTS.get(type(message))
        if event is None:
            return self._refuse(
                envelope, "unexpected", f"{type(message).__name__} is what a gateway says", "BAD"
            )
        if session is None:
            if isinstance(message, Complete):
                return [Reply(envelope, OnComplete())]
            _, event = self._over.get(peer, (None, Event.NEXT))
            if event in (Event.CONTESTED, Event.EVICTED):
                return [Reply(envelope, FAREWELLS[event])]
            text = "no subscription here, perhaps because the gateway was restarted: send Subscribe first"
            return self._refuse(envelope, "no session", text, "SESSION")
        return self._pass_on(session, event, message, envelope, now)

    def _pass_on(
        self, session: Session, event: Event, message: Control, envelope: tuple[bytes, ...], now: float
    ) -> list[Reply]:
        before = session.acknowledged
        replies = session.handle(event, now, message=message, envelope=envelope)
        if any(isinstance(reply.message, OnError) for reply in replies):
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

    # ---------------------------------------------------------------- coming
    def _subscribe(
        self,
        message: Subscribe,
        session: Session | None,
        envelope: tuple[bytes, ...],
        now: float,
        caller: Caller,
    ) -> list[Reply]:
        fields = extension(message.x)
        if fields is None or fields.v is UNSET:
            return self._subscribe_plain(session, envelope, now, caller)
        if fields.id is not UNSET and self.owner_of(fields.id) not in (None, caller.owner):
            text = (
                f"the id {fields.id!r} belongs to another key: choose another id, or use the key of its owner"
            )
            return self._refuse(envelope, "not allowed", text, "AUTH")
        if fields.probe is True and fields.admin is not UNSET:
            return [Reply(envelope, self.administration.answer(fields.admin))]
        if fields.probe is True:
            if any(other.name == fields.id for other in self.sessions.values() if other.name):
                text = f"somebody is reading as {fields.id!r}, and says for itself how far it has come"
                return self._refuse(envelope, "refused: TAKEN", text, "TAKEN")
            return self._probes.ask(fields, envelope, now, caller)
        if isinstance(session, ExtendedSession) and session.fields == fields:
            # The same again: the answer was lost, or the request came twice. Nothing changes.
            self.counters["repeated Subscribe"] += 1
            return [self._welcome(session, envelope, self._ports.open(session))]
        peer = envelope[0]
        if peer in self._over and self._over[peer][0] == fields:
            text = "this subscription is over: open a new connection to subscribe again"
            return self._refuse(envelope, "replayed Subscribe", text, "SESSION")
        if session is not None:
            self._close(session, Event.CANCEL)
        return self._subscribe_extended(fields, envelope, now, caller)

    def _subscribe_plain(
        self, session: Session | None, envelope: tuple[bytes, ...], now: float, caller: Caller
    ) -> list[Reply]:
        if session is not None:
            self._close(session, Event.CANCEL)
        if (text := self._full(caller)) is not None:
            return self._refuse(envelope, "too many subscribers", text, "BUSY", retry=1000)
        session = PlainSession(envelope[0], self._log, self._log.first, self._limits, now)
        session.keep = self._keep_plain
        self._belongs_to(caller, session)
        try:
            port = self._ports.open(session)
        except Exception as error:
            # No more ports, or no more files: that is no reason to fail those who are here already.
            text = f"no port could be opened for this subscriber: {error}; try later"
            return self._refuse(envelope, "no port", text, "BUSY", retry=1000)
        session.heard = self._lease_clock.now
        self.sessions[session.peer] = session
        return [Reply(envelope, OnSubscribe(self._size(session.cursor, None), port))]

    def _subscribe_extended(
        self, fields: SubscribeFields, envelope: tuple[bytes, ...], now: float, caller: Caller
    ) -> list[Reply]:
        problem = problem_with(fields, self._log, self._limits)
        if problem is not None:
            text, code = problem
            where = {"first": self._log.first, "head": self._log.head, "epoch": self._log.epoch}
            return self._refuse(envelope, f"refused: {code}", text, code, **where)
        name = fields.id if fields.id is not UNSET else None
        before = self._sessions_before(fields, caller)
        if any(_is_older(fields, other.fields) for other in before):
            text = "a later request of this subscriber was here before this one"
            return self._refuse(envelope, "overtaken Subscribe", text, "SESSION")
        for other in before:
            event = Event.CANCEL if _same_subscriber(fields, other.fields) else Event.TAKEN_OVER
            other.handle(event, now)
            self._close(other, event)
        if (full := self._full(caller)) is not None:
            return self._refuse(envelope, "too many subscribers", full, "BUSY", retry=1000)
        if name is not None and name not in self.absent:
            if (full := self._no_more_ids(caller)) is not None:
                return self._refuse(envelope, "too many durable subscribers", full, "BUSY", retry=1000)
            self.cursors.came_from(name, caller)
        saved = self.cursors.come_back(name) if name is not None else None
        session = ExtendedSession(
            envelope[0],
            self._log,
            start_for(fields, saved, self._log),
            self._limits,
            now,
            fields=fields,
            topic=secrets.token_bytes(TOPIC_BYTES),
            format=format_for(fields) or MSGPACK,
        )
        self._belongs_to(caller, session)
        # It may have read further than it has acknowledged: what was kept for it is kept on.
        needed = [other.acknowledged for other in before if _same_subscriber(fields, other.fields)]
        if saved is not None:
            needed.append(saved.acknowledged)
        session.acknowledged = acknowledged_for(fields, session.cursor, needed, self._log)
        session.heard = self._lease_clock.now
        self.sessions[session.peer] = session
        self.by_topic[session.topic] = session
        self._note(session)
        return [self._welcome(session, envelope, self._ports.open(session))]

    def _belongs_to(self, caller: Caller, session: Session) -> None:
        session.owner, session.address, session.number = caller.owner, caller.address, next(self._numbers)

    def owner_of(self, name: str) -> str | None:
        """The key that an id belongs to, empty if that is none; None if nobody has it, or nobody knows."""
        for session in self.by_topic.values():
            if session.name == name:
                return session.owner
        return self.cursors.owner_of(name)

    def _sessions_before(self, fields: SubscribeFields, caller: Caller) -> list[ExtendedSession]:
        """The sessions in whose place a new one comes: of the same id, or of the same subscriber."""
        return [
            other
            for other in self.by_topic.values()
            if other.owner == caller.owner
            and (
                (fields.id is not UNSET and fields.id == other.fields.id)
                or _same_subscriber(fields, other.fields)
            )
        ]

    def _welcome(self, session: ExtendedSession, envelope: tuple[bytes, ...], port: int) -> Reply:
        answer = OnSubscribeFields(
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
        if session.fields.pieces is not UNSET:
            answer.pieces = True
        if session.fields.shelf is not UNSET:
            answer.shelf = self._ports.segment(session, session.fields.shelf) or UNSET
        return Reply(envelope, OnSubscribe(self._size(session.cursor, session.to), port, x=answer))

    def _size(self, start: int, to: int | None) -> int:
        """How many records will come, as far as is known."""
        # After a failure, a plain subscriber that counts must not take the last record for the end.
        end = self._log.end if self._log.failure is None else None
        return max(min(UNBOUNDED if stop is None else stop - start for stop in (to, end)), 0)

    def _full(self, caller: Caller) -> str | None:
        if len(self.sessions) >= self._limits.max_subscribers:
            there = len(self.sessions)
            return f"{there} subscribers are here already, and there is room for no more: try later"
        return too_many_sessions(caller, self.sessions.values(), self._limits)

    def _no_more_ids(self, caller: Caller) -> str | None:
        if len(self.absent) >= self._limits.max_durable:
            return f"{len(self.absent)} durable subscribers are remembered already, and no more can be"
        return too_many_ids(caller, self.sessions.values(), self.cursors, self._limits)

    def all(self) -> list[Session]:
        """The sessions that are here."""
        return list(self.sessions.values())

    def end(self, session: Session, event: Event) -> None:
        """End a session, for a reason that is not its own."""
        session.state = State.CLOSED
        self._close(session, event)

    # ---------------------------------------------------------------- going
    def _cancel(
        self, message: Subscribe, session: Session | None, envelope: tuple[bytes, ...], now: float
    ) -> list[Reply]:
        if session is None:
            # Once is enough, twice does no harm (§3.7).
            return [Reply(envelope, OnComplete(x=CompleteFields(cancelled=True)))]
        fields = extension(message.x)
        if fields is not None and fields.keep is False:
            session.keep = False  # A goodbye for good.
        replies = session.handle(Event.CANCEL, now, envelope=envelope)
        self._close(session, Event.CANCEL)
        return replies

    def _close(self, session: Session, event: Event) -> None:
        if (farewell := FAREWELLS.get(event)) is not None:
            if isinstance(session, PlainSession):
                farewell = OnError(farewell.message)
            self._farewells += [Reply(envelope, farewell) for envelope in session.waiting()]
        self.sessions.pop(session.peer, None)
        self._budgets.forget(session.peer)
        self._count(session)
        fields = None
        if isinstance(session, ExtendedSession):
            self.by_topic.pop(session.topic, None)
            fields = session.fields
        self._over[session.peer] = fields, event
        if len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)
        if session.name is not None:
            if event is not Event.EXPIRED and session.keep:
                # A name lasts: its owner may come back, for as long as its lease.
                self.cursors.leave(session.name, self._saved(session))
            else:
                self.cursors.forget(session.name)
        self._ports.close(session, event)

    def _count(self, session: Session) -> None:
        departed = self.departed
        departed["subscribers"] += 1
        departed["records"] += session.sent_records
        departed["bytes"] += session.sent_bytes
        if session.sent_records:
            departed["to"] = max(departed["to"], session.acknowledged)

    def give_up(self, session: Session) -> None:
        """The gateway cannot serve this session any more; a durable subscriber may try again."""
        self.end(session, Event.CANCEL)

    def _note(self, session: Session) -> None:
        if session.name is not None and session.keep:
            self.cursors.note(session.name, self._saved(session))

    def _saved(self, session: Session) -> Cursor:
        silent = self._lease_clock.now - session.heard
        lease = round(session.lease * 1000)
        return Cursor(session.acknowledged, lease, session.lease - silent, session.owner)

    # ---------------------------------------------------------------- as time goes by
    def tick(self, now: float) -> list[Reply]:
        """End the leases that have run out, and answer the requests that have waited long enough."""
        self._lease_clock.advance(now)
        replies = self._revocation.tick()
        farewells, self._farewells = self._farewells, []
        replies += farewells
        for session in list(self.sessions.values()):
            if session.state is State.CLOSED:
                # It ended by itself while it answered: a plain subscriber that was overtaken.
                self._close(session, Event.NEXT)
            elif session.expired(self._lease_clock.now):
                session.handle(Event.EXPIRED, now)
                self.counters["leases ended"] += 1
                self._close(session, Event.EXPIRED)
            else:
                replies += session.tick(now)
        replies += self._probes.tick(now)
        replies += self.transactions.tick()
        self._note_the_idle()
        for _ in self.cursors.expired():
            self.counters["leases ended"] += 1
        return replies

    def _note_the_idle(self) -> None:
        # Who is here but has nothing to acknowledge is alive all the same. If the gateway were restarted, its
        # lease would be counted from what was written last.
        for session in self.by_topic.values():
            if session.name is not None and self.cursors.is_stale(session.name, session.lease):
                self._note(session)

    def note_all(self) -> None:
        """Put down how much of every lease is left: the gateway is about to end."""
        for session in self.by_topic.values():
            self._note(session)
        for name in list(self.absent):
            self.cursors.store(name)

    def low_watermark(self) -> int:
        """The lowest offset that must not be forgotten to make room."""
        return self._low_watermark.lowest(self.sessions.values(), self.absent.values(), self._lease_clock.now)

    def needed(self) -> int:
        """The lowest offset that a reader needs, here or away; the log's head if there is none."""
        return self._low_watermark.needed(self.sessions.values(), self.absent.values())


class Revocation:
    """Looks whether the list of clients has changed, and cuts off who may not be here any more."""

    def __init__(
        self,
        access: Access | None,
        sessions: Callable[[], list[Session]],
        end: Callable[[Session, Event], None],
        bookmarks: Probes,
        deliveries: Transactions,
    ) -> None:
        self._access = access
        self._version = access.version if access is not None else 0
        self._sessions = sessions
        self._end = end
        self._probes = bookmarks
        self._deliveries = deliveries

    def tick(self) -> list[Reply]:
        """If there is a new list, end what it does not allow."""
        access = self._access
        if access is None or access.version == self._version:
            return []
        self._version = access.version
        for session in self._sessions():
            if not self._may(session.owner, Right.READ):
                self._end(session, Event.REVOKED)
        for owner in self._deliveries.owners():
            if not self._may(owner, Right.WRITE):
                self._deliveries.withdraw(owner)
        replies: list[Reply] = []
        for owner in self._probes.owners():
            if not self._may(owner, Right.READ):
                replies += self._probes.turn_away(owner)
        return replies

    def _may(self, owner: str, right: Right) -> bool:
        # Those without a key have the rights of the endpoint that they came to, whatever the list says.
        assert self._access is not None
        return not owner or right in (self._access.rights_of(owner) or Right(0))


def _same_subscriber(fields: SubscribeFields, others: SubscribeFields) -> bool:
    return fields.me is not UNSET and fields.me == others.me


def _is_older(fields: SubscribeFields, others: SubscribeFields) -> bool:
    if not _same_subscriber(fields, others) or fields.nth is UNSET or others.nth is UNSET:
        return False
    return fields.nth < others.nth

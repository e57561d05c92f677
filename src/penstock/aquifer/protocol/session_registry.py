"""All sessions of a gateway: how they begin and end, who owns which id, and what readers still need."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Container
from itertools import count, islice
from typing import Any, Final, Protocol

from msgspec import UNSET

from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.hop_clock import Doing, HopClock
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Cursor, Log
from penstock.aquifer.protocol.admission import Budgets, too_many_ids, too_many_sessions
from penstock.aquifer.protocol.cursors import Cursors, LeaseClock, LowWatermark
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.messages import OnError, SubscribeFields
from penstock.aquifer.protocol.plain_session import PlainSession
from penstock.aquifer.protocol.session import FAREWELLS, DataPorts, Reply, Session, SessionEvent, refusal
from penstock.aquifer.security import Caller
from penstock.aquifer.status import (
    CursorStatus,
    DepartedStatus,
    GatewayStatus,
    QueryReport,
    SourceStatus,
    StreamStatus,
)

__all__ = ["SessionRegistry", "SourceView", "is_older", "same_subscriber"]

_BATCHES: Final = 16
"""How many batches of a query are remembered."""
_PHASES: Final = 16
_LONGEST: Final = 256
_REMEMBERED: Final = 1024
"""How many sessions that have ended are remembered, to tell their late messages from new ones."""


class SourceView(Protocol):
    """The source of a gateway, as far as its status shows it."""

    def sample(self, now: float) -> None:
        """Note what the source does at this moment."""
        ...

    def status(self) -> SourceStatus:
        """What there is to know of the source."""
        ...


class WatchedCursor:
    """A saved cursor whose reader asks for ranges, and what that reader has said about its batches."""

    __slots__ = ("batches", "clock")

    def __init__(self) -> None:
        self.clock = HopClock()
        self.batches: deque[QueryReport] = deque(maxlen=_BATCHES)


def bounded(report: QueryReport) -> QueryReport:
    """The report with no more text than a gateway keeps: anybody who may read can send one."""
    report.name, report.query = report.name[:_LONGEST], report.query[:_LONGEST]
    report.sink = report.sink[:_LONGEST]
    report.phases = {name[:_LONGEST]: spent for name, spent in islice(report.phases.items(), _PHASES)}
    return report


class SessionRegistry:
    """The sessions by the routing id of their control connection, and the cursors of those that are away."""

    def __init__(
        self,
        log: Log,
        limits: Limits,
        ports: DataPorts,
        source: SourceView | None = None,
        stream: str = "",
    ) -> None:
        self.stream = stream
        """The name of the stream that they read."""
        self.all_streams: Callable[[], list[StreamStatus]] = lambda: [self.summary()]
        """All streams of the gateway, for the status."""
        self.sessions: dict[bytes, Session] = {}
        self.by_topic: dict[bytes, ExtendedSession] = {}
        self.counters: Counter[str] = Counter()
        """What came in that should not have, by kind."""
        self.departed = DepartedStatus()
        self.clock = LeaseClock()
        self.cursors = Cursors(log, self.clock)
        self.budgets = Budgets(limits.requests_per_second)
        self.ended: OrderedDict[bytes, tuple[SubscribeFields | None, SessionEvent]] = OrderedDict()
        """Of sessions that have ended: what they had asked for, and why they ended."""
        self._log = log
        self._limits = limits
        self._ports = ports
        self._source = source
        self.watched: dict[str, WatchedCursor] = {}
        """The ids whose readers ask for ranges, as Spark queries do."""
        self._watermark = LowWatermark(log, limits)
        self._numbers = count(1)
        self._farewells: list[Reply] = []
        """Answers to requests that waited in a session when it ended."""

    # ---------------------------------------------------------------- who is here
    def all(self) -> list[Session]:
        """The sessions that are here."""
        return list(self.sessions.values())

    def named(self, name: str) -> Session | None:
        """The session with this id, if it is here."""
        return next((session for session in self.by_topic.values() if session.name == name), None)

    def owner_of(self, name: str) -> str | None:
        """The key that owns an id, empty for no key; None if there is no such id, or its owner is unknown."""
        session = self.named(name)
        return self.cursors.owner_of(name) if session is None else session.owner

    def replaced_by(self, fields: SubscribeFields, caller: Caller) -> list[ExtendedSession]:
        """The sessions that a new one replaces: of the same id, or of the same subscriber."""
        return [
            other
            for other in self.by_topic.values()
            if other.owner == caller.owner
            and (
                (fields.id is not UNSET and fields.id == other.fields.id)
                or same_subscriber(fields, other.fields)
            )
        ]

    def was_evicted(self, fields: SubscribeFields) -> bool:
        """Whether an administrator has ended a session of the same subscriber, or of the same group member.

        It may not have heard of that: its connection was lost, or it has asked over another one meanwhile.
        """
        return any(
            event is SessionEvent.EVICTED
            and before is not None
            and (same_subscriber(fields, before) or _same_member(fields, before))
            for before, event in self.ended.values()
        )

    def why_no_session(self, caller: Caller) -> str | None:
        """Why this peer cannot have another session at the moment; None if it can."""
        here = len(self.sessions)
        if here >= self._limits.max_subscribers:
            return f"{here} subscribers are here already, and no more can be: try later"
        return too_many_sessions(caller, self.sessions.values(), self._limits)

    def why_no_id(self, caller: Caller) -> str | None:
        """Why this peer cannot have another durable id; None if it can."""
        saved = len(self.cursors.saved)
        if saved >= self._limits.max_durable:
            return f"{saved} durable subscribers are remembered already, and no more can be"
        return too_many_ids(caller, self.sessions.values(), self.cursors, self._limits)

    def refuse(
        self, envelope: tuple[bytes, ...], counter: str, text: str, code: ErrorCode, **more: Any
    ) -> list[Reply]:
        """Refuse what came in, and count it."""
        self.counters[counter] += 1
        return [Reply(envelope, refusal(text, code, **more))]

    # ---------------------------------------------------------------- coming and going
    def next_number(self) -> int:
        """A number for a new session."""
        return next(self._numbers)

    def add(self, session: Session) -> None:
        """A session begins."""
        session.heard = self.clock.now
        self.sessions[session.peer] = session
        if isinstance(session, ExtendedSession):
            self.by_topic[session.topic] = session
        self.note(session)

    def end(self, session: Session, event: SessionEvent) -> None:
        """End a session, for a reason that is not its own."""
        session.handle(event, self.clock.looked or 0.0)
        self.close(session)

    def close(self, session: Session) -> None:
        """A session has ended, for the reason that it names itself."""
        event = session.ended_by
        assert event is not None, f"a session that is {session.state.name.lower()} cannot be closed"
        if (farewell := FAREWELLS.get(event)) is not None:
            if isinstance(session, PlainSession):
                farewell = OnError(farewell.message)
            self._farewells += [Reply(envelope, farewell) for envelope in session.waiting()]
        self.sessions.pop(session.peer, None)
        self.budgets.forget(session.peer)
        self._count(session)
        fields = None
        if isinstance(session, ExtendedSession):
            self.by_topic.pop(session.topic, None)
            fields = session.fields
        self.ended[session.peer] = fields, event
        if len(self.ended) > _REMEMBERED:
            self.ended.popitem(last=False)
        if session.name is not None:
            if event is not SessionEvent.EXPIRED and session.required:
                # An id lasts: its owner may come back, for as long as its lease.
                self.cursors.leave(session.name, self._cursor_of(session))
            else:
                self.cursors.forget(session.name)
        self._ports.close(session, event)

    def _count(self, session: Session) -> None:
        departed = self.departed
        departed.subscribers += 1
        departed.records += session.sent_records
        departed.bytes += session.sent_bytes
        if session.sent_records:
            departed.to = max(departed.to, session.acknowledged)

    def take_farewells(self) -> list[Reply]:
        """The answers to requests that waited in sessions when they ended."""
        farewells, self._farewells = self._farewells, []
        return farewells

    # ---------------------------------------------------------------- cursors
    def note(self, session: Session) -> None:
        """Save the cursor of a session, if it has an id."""
        if session.name is not None and session.required:
            self.cursors.note(session.name, self._cursor_of(session))

    def note_idle(self) -> None:
        """Save the cursors of sessions that have had nothing to acknowledge for a while.

        Otherwise, if the gateway were restarted, their lease would be counted from what was saved last.
        """
        for session in self.by_topic.values():
            if session.name is not None and self.cursors.is_stale(session.name, session.lease):
                self.note(session)

    def note_all(self) -> None:
        """Save how much of every lease is left: the gateway is about to end."""
        for session in self.by_topic.values():
            self.note(session)
        for name in list(self.cursors.saved):
            self.cursors.store(name)

    def _cursor_of(self, session: Session) -> Cursor:
        silent = self.clock.now - session.heard
        lease = round(session.lease * 1000)
        return Cursor(session.acknowledged, lease, session.lease - silent, session.owner)

    # ---------------------------------------------------------------- what the readers need
    def low_watermark(self) -> int:
        """The lowest offset that must not be forgotten to make room."""
        return self._watermark.lowest(self.sessions.values(), self.cursors.saved.values(), self.clock.now)

    def needed(self) -> int:
        """The lowest offset that a reader needs, here or away; the log's head if there is none."""
        return self._watermark.needed(self.sessions.values(), self.cursors.saved.values())

    def is_drained(self) -> bool:
        """Whether the stream has ended, a reader has had all of it, and no required reader lacks anything."""
        end = self._log.end
        if end is None:
            return False
        required = [session.acknowledged for session in self.sessions.values() if session.required]
        required += [saved.acknowledged for saved in self.cursors.saved.values()]
        return min(required, default=end) >= end and max([*required, self.departed.to]) >= end

    # ---------------------------------------------------------------- where time goes
    def watch(self, name: str, report: QueryReport | None) -> None:
        """The reader of a saved cursor has asked something, perhaps with news of its last batch."""
        watched = self.watched.get(name)
        if watched is None:
            if name not in self.cursors.saved:
                return
            watched = self.watched[name] = WatchedCursor()
        if report is not None and report.batch not in [known.batch for known in watched.batches]:
            watched.batches.append(bounded(report))

    def sample(self, now: float, waiting: Container[str]) -> None:
        """Note what each session, each saved cursor and the source do; the probes of ``waiting`` ids wait."""
        for session in self.sessions.values():
            session.clock.now(session.doing(), now)
        head = self._log.head
        for name, watched in list(self.watched.items()):
            cursor = self.cursors.saved.get(name)
            if cursor is None:
                del self.watched[name]
                continue
            idle = name in waiting or cursor.acknowledged >= head
            watched.clock.now(Doing.WAITING_FOR_DATA if idle else Doing.WAITING_FOR_DEMAND, now)
        if self._source is not None:
            self._source.sample(now)

    def _saved(self) -> dict[str, CursorStatus]:
        saved, log = self.cursors.status(), self._log
        for name, status in saved.items():
            status.lag = max(log.head - status.acknowledged, 0)
            status.lag_seconds = round(log.age(status.acknowledged), 3)
            if (watched := self.watched.get(name)) is not None:
                status.times = watched.clock.times()
                if watched.batches:
                    status.batches = list(watched.batches)
        return saved

    def status(self) -> GatewayStatus:
        """The log, the source, the sessions and the counters at this moment."""
        log, held = self._log, self._log.held
        departed = self.departed
        return GatewayStatus(
            stream=self.stream,
            streams=self.all_streams(),
            epoch=log.epoch,
            uptime=round(self.clock.uptime, 3),
            first=log.first,
            head=log.head,
            low_watermark=log.low_watermark,
            end=log.end,
            failure=log.failure,
            durable=log.durable,
            records=held.records,
            max_records=log.max_records,
            bytes=held.nbytes,
            max_bytes=log.max_bytes,
            stalled=log.stalled,
            codec=log.codec,
            source=SourceStatus() if self._source is None else self._source.status(),
            subscribers=[session.status() for session in self.sessions.values()],
            saved=self._saved(),
            departed=DepartedStatus(
                subscribers=departed.subscribers,
                records=departed.records,
                bytes=departed.bytes,
                to=departed.to,
            ),
            counters=dict(self.counters),
            log=log.figures(),
        )

    def summary(self, *, default: bool = True) -> StreamStatus:
        """The stream in a list of streams."""
        log, held = self._log, self._log.held
        return StreamStatus(
            name=self.stream,
            default=default,
            epoch=log.epoch,
            first=log.first,
            head=log.head,
            end=log.end,
            failure=log.failure,
            stalled=log.stalled,
            durable=log.durable,
            records=held.records,
            max_records=log.max_records,
            bytes=held.nbytes,
            max_bytes=log.max_bytes,
            codec=log.codec,
            subscribers=len(self.sessions),
            absent=len(self.cursors.saved),
        )


def same_subscriber(fields: SubscribeFields, others: SubscribeFields) -> bool:
    """Whether two requests come from the same running subscriber."""
    return fields.me is not UNSET and fields.me == others.me


def _same_member(fields: SubscribeFields, others: SubscribeFields) -> bool:
    group, other = fields.group, others.group
    if group is UNSET or other is UNSET:
        return False
    return (group.name, group.member) == (other.name, other.member)


def is_older(fields: SubscribeFields, others: SubscribeFields) -> bool:
    """Whether the first request was made before the second one, by the same subscriber."""
    if not same_subscriber(fields, others) or fields.nth is UNSET or others.nth is UNSET:
        return False
    return fields.nth < others.nth

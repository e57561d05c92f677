"""The gateway's side of one subscription, as a table: what may happen when, and what follows.

There is no socket in here. The gateway tells a session what happened (:meth:`Session.handle`), sends the
replies that it gets back, and asks the session for the records to send. Plain and extended peers differ in
their tables and in how they get credit: see :mod:`~penstock.aquifer.protocol.plain_session`,
:mod:`~penstock.aquifer.protocol.credited_session` and :mod:`~penstock.aquifer.protocol.extended_session`.

Every change of :attr:`Session.state` is in the table. What a session finds out by itself, that it was
overtaken for instance, is an event like any other.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias

from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.hop_clock import Doing, HopClock
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Log
from penstock.aquifer.protocol.messages import Control, OnError, OnErrorFields, SegmentFields
from penstock.aquifer.security import Caller
from penstock.aquifer.status import SessionStatus

__all__ = [
    "ENDINGS",
    "FAREWELLS",
    "WHY_ENDED",
    "DataPorts",
    "Reply",
    "Session",
    "SessionEvent",
    "SessionState",
    "Table",
    "refusal",
]


class SessionState(Enum):
    """How far a subscription has come."""

    JOINING = auto()
    """Subscribed; without its data connection nothing may be sent, because it would be lost."""
    STREAMING = auto()
    ENDED = auto()
    """The subscriber was told the end; it is told again if it asks."""
    CLOSED = auto()


class SessionEvent(Enum):
    """What can happen to a subscription."""

    NEXT = auto()
    CANCEL = auto()
    COMPLETE = auto()
    """The original implementation's way to cancel."""
    ERROR = auto()
    """The original implementation's way to ask for the last batch again."""
    JOINED = auto()
    """Its data connection is there."""
    LEFT = auto()
    """Its data connection is gone."""
    EXPIRED = auto()
    """It was silent for longer than its lease."""
    TAKEN_OVER = auto()
    """Another subscriber came with its id."""
    REVOKED = auto()
    """Its key may not read here any more."""
    EVICTED = auto()
    """An administrator has ended it."""
    CONTESTED = auto()
    """Two peers have connected to its data port, and the gateway cannot tell which one is the subscriber."""
    FAILED = auto()
    """The gateway cannot serve it any more."""
    VIOLATED = auto()
    """It broke a rule that ends the subscription."""
    OVERTAKEN = auto()
    """Records that it has not got are gone, and its dialect cannot say so."""
    END_TOLD = auto()
    """It was told the end."""
    END_MISSED = auto()
    """It asks again although it has everything: it does not know of the end."""


class Reply(NamedTuple):
    """A control message and the envelope it goes back in."""

    envelope: tuple[bytes, ...]
    message: Control


Handler: TypeAlias = Callable[..., list[Reply]]
"""A method of the session: (session, message, envelope, now) -> replies."""
Table: TypeAlias = Mapping[SessionState, Mapping[SessionEvent, tuple[Handler | None, SessionState | None]]]
"""For each state and event: the method that handles it, and the state that follows (None: the same)."""
ENDINGS: Final[Mapping[SessionEvent, tuple[None, SessionState]]] = dict.fromkeys(
    (
        SessionEvent.EXPIRED,
        SessionEvent.TAKEN_OVER,
        SessionEvent.REVOKED,
        SessionEvent.EVICTED,
        SessionEvent.CONTESTED,
        SessionEvent.FAILED,
    ),
    (None, SessionState.CLOSED),
)
"""These events close a session of either dialect in any state."""


class Session(ABC):
    """What both dialects have in common."""

    dialect: ClassVar[str]
    table: ClassVar[Table]

    def __init__(
        self,
        peer: bytes,
        log: Log,
        start: int,
        limits: Limits,
        now: float,
        caller: Caller,
        number: int = 0,
    ) -> None:
        self.peer = peer
        """The routing id of its control connection."""
        self.log = log
        self.limits = limits
        self.cursor = start
        """The offset of the next record to send."""
        self.acknowledged = start
        """Records before this offset need not be kept for this subscriber."""
        self.required = True
        """Whether the source waits for it."""
        self.name: str | None = None
        """Its durable id, if it has one."""
        self.owner = caller.owner
        """The key of its subscriber, if it has one."""
        self.address = caller.address
        """Where its subscriber is."""
        self.number = number
        """Identifies it, also without an id, for as long as the gateway runs."""
        self.lease = limits.lease
        self.heard = now
        """When its last control message came."""
        self.connections = 0
        """How many data connections are open that can be the subscriber's,"""
        self.strangers = 0
        """and how many that cannot: they have another address, or another key."""
        self.sent_records = 0
        self.sent_bytes = 0
        self.clock = HopClock()
        """Where its time goes."""
        self.ended_by: SessionEvent | None = None
        """What closed it; None while it is not closed."""
        self._state = SessionState.JOINING
        self._joined_once = False

    @property
    def state(self) -> SessionState:
        """How far it has come; only :meth:`handle` changes it."""
        return self._state

    # ---------------------------------------------------------------- what happens to it
    def handle(
        self, event: SessionEvent, now: float, *, message: Any = None, envelope: tuple[bytes, ...] = ()
    ) -> list[Reply]:
        """Deal with an event as the table says, and return the answers.

        An event that the table does not have is refused if a peer caused it. A session that causes one itself
        has a defect.
        """
        step = self.table[self._state].get(event)
        if step is None:
            if event in _ITS_OWN:
                text = f"{event.name} cannot happen in state {self._state.name} ({self.dialect} dialect)"
                raise AssertionError(text)
            return [Reply(envelope, self._refusal_of(event))] if envelope else []
        self._joined_once |= event is SessionEvent.JOINED
        handler, following = step
        if following is not None:
            self._state = following
            if following is SessionState.CLOSED:
                self.ended_by = event
        return [] if handler is None else handler(self, message, envelope, now)

    def _refusal_of(self, event: SessionEvent) -> OnError:
        text = (
            f"{event.name.capitalize()} is not possible while a subscription is {self._state.name.lower()}: "
            "to get records again, send Subscribe"
        )
        return refusal(text, ErrorCode.BAD)

    def is_of(self, caller: Caller) -> bool:
        """Whether this can be the subscriber: by its key if it has one, or else by its address."""
        if self.owner or caller.owner:
            return caller.owner == self.owner
        return caller.address == self.address

    def tick(self, now: float) -> list[Reply]:
        """Time has passed, or the log has grown."""
        return []

    @abstractmethod
    def waiting(self) -> list[tuple[bytes, ...]]:
        """The envelopes of requests without an answer; if the session ends, that is their answer."""

    def expired(self, now: float) -> bool:
        """Whether nothing was heard for longer than the lease.

        A session without an id and without a data connection is not kept for longer than usual, whatever
        lease it has asked for, and only for a moment if it never had one: its peer is gone.
        """
        lease = self.lease
        if self.name is None and self._state is SessionState.JOINING:
            lease = min(lease, self.limits.lease if self._joined_once else self.limits.join_time)
        return now - self.heard > lease

    # ---------------------------------------------------------------- what it may get
    @abstractmethod
    def credit(self) -> int:
        """How many records may be sent now."""

    def doing(self) -> Doing:
        """What the gateway does for this subscriber at the moment."""
        if self.cursor >= self.log.head:
            return Doing.WAITING_FOR_DATA
        return Doing.WORKING if self.credit() else Doing.WAITING_FOR_DEMAND

    def sent(self, count: int, nbytes: int) -> None:
        """So many records, from the cursor on, were sent."""
        self.cursor += count
        self.sent_records += count
        self.sent_bytes += nbytes

    def skip_to(self, offset: int) -> None:
        """The log no longer has what comes next: continue at ``offset``."""
        self.cursor = offset
        self.acknowledged = max(self.acknowledged, offset)

    @property
    def overtaken(self) -> bool:
        """Whether records that it has not got yet are gone."""
        return self.cursor < self.log.first and self._state in _LIVE

    def status(self) -> SessionStatus:
        """What ``penstock gateway status`` shows of it."""
        return SessionStatus(
            number=self.number,
            id=self.name,
            owner=self.owner,
            address=self.address,
            dialect=self.dialect,
            state=self._state.name.lower(),
            cursor=self.cursor,
            acknowledged=self.acknowledged,
            lag=self.log.head - self.cursor,
            required=self.required,
            records=self.sent_records,
            bytes=self.sent_bytes,
            lag_seconds=round(self.log.age(self.cursor), 3),
            times=self.clock.times(),
        )


_LIVE: Final = (SessionState.JOINING, SessionState.STREAMING)
_ITS_OWN: Final = frozenset(
    {SessionEvent.VIOLATED, SessionEvent.OVERTAKEN, SessionEvent.END_TOLD, SessionEvent.END_MISSED}
)
"""What a session finds out by itself."""


class DataPorts(Protocol):
    """The data ports, as far as the protocol uses them."""

    def open(self, session: Session) -> int:
        """Make the session reachable, and return the port on which its records will come."""
        ...

    def segment(self, session: Session, token: str) -> SegmentFields | None:
        """Memory to share with the session, if there is any: that of the token, if possible."""
        ...

    def close(self, session: Session, event: SessionEvent) -> None:
        """The session is over because of ``event``."""
        ...


def refusal(text: str, code: ErrorCode, **more: Any) -> OnError:
    """An ``OnError`` that an extended peer recognizes by its code, and a plain one can read."""
    # The path of a journal, for instance, may hold what UTF-8 cannot encode.
    shown = text.encode(errors="backslashreplace").decode()
    return OnError(message=shown, x=OnErrorFields(code=code, **more))


FAREWELLS: Final[Mapping[SessionEvent, OnError]] = {
    SessionEvent.EXPIRED: refusal(
        "nothing was heard for longer than the lease: subscribe again", ErrorCode.LEASE
    ),
    SessionEvent.TAKEN_OVER: refusal("another subscriber came with the same id", ErrorCode.TAKEN),
    SessionEvent.REVOKED: refusal(
        "this key may not read here any more: it was taken off the access list", ErrorCode.AUTH
    ),
    SessionEvent.EVICTED: refusal(
        "an administrator of the gateway has ended this session", ErrorCode.EVICTED
    ),
    SessionEvent.CONTESTED: refusal(
        "a second connection came to the data port of this subscriber, and without keys the gateway cannot "
        "tell which one is the subscriber: subscribe again",
        ErrorCode.SESSION,
    ),
}
"""The answers to requests that wait in a session when the gateway ends it."""

WHY_ENDED: Final[Mapping[SessionEvent, str]] = {
    SessionEvent.CANCEL: "the subscription was cancelled",
    SessionEvent.COMPLETE: "the subscription was cancelled",
    SessionEvent.EXPIRED: "the lease of the subscription has ended, because nothing was heard for longer",
    SessionEvent.TAKEN_OVER: "another subscriber came with the same id",
    SessionEvent.REVOKED: "the key was taken off the access list",
    SessionEvent.EVICTED: "an administrator of the gateway has ended the session",
    SessionEvent.CONTESTED: "a second connection came to the data port",
    SessionEvent.FAILED: "the gateway could not send the records",
    SessionEvent.VIOLATED: "the subscription broke a rule",
    SessionEvent.OVERTAKEN: "the subscriber was too slow, and records that it had not got are gone",
}
"""Why a session is closed, for a peer that does not know it yet: each event that leads to CLOSED."""

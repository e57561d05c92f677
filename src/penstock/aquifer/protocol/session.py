"""The gateway's side of one subscription, as a table: what may happen when, and what follows.

There is no socket in here. The gateway tells a session what happened (:meth:`Session.handle`), sends the
replies it gets back, asks how many records it may send (:meth:`Session.credit`) and says how many it did
(:meth:`Session.sent`). Plain and extended peers differ in their tables and in how they pay for records: see
:mod:`~penstock.aquifer.protocol.plain_session` and :mod:`~penstock.aquifer.protocol.extended_session`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from enum import Enum, auto
from typing import Any, ClassVar, Final, NamedTuple, Protocol, TypeAlias

from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.messages import Control, OnError, OnErrorFields, SegmentFields
from penstock.aquifer.security.access import Caller

__all__ = ["FAREWELLS", "DataPorts", "Event", "LogView", "Reply", "Session", "State", "Table"]


class LogView(Protocol):
    """What a session has to know about the log."""

    @property
    def epoch(self) -> str:
        """Names this sequence of offsets."""
        ...

    @property
    def first(self) -> int:
        """The oldest offset that is there."""
        ...

    @property
    def head(self) -> int:
        """The offset that the next record will get."""
        ...

    end: int | None
    """Where the stream ends, once that is known."""
    failure: str | None
    """Why it ended there, if not by completion."""
    ack_every_records: int
    """After so many records a subscriber should say how far it has come."""
    ack_every_bytes: int

    def measure(self, start: int, nbytes: int) -> tuple[int, int]:
        """How many records from ``start`` on have no more than so many bytes, and how many they have.

        Looks at a bounded part of the log: if there may be more, the rest has to be asked for.
        """
        ...

    def fitting(self, start: int, most: int, nbytes: int) -> int:
        """How many records from ``start`` on, up to ``most``, fit into so many bytes: at least one."""
        ...


class State(Enum):
    """How far a subscription has come."""

    JOINING = auto()
    """Subscribed; its data connection is not there yet, so nothing may be sent: it would be lost."""
    STREAMING = auto()
    ENDED = auto()
    """The end was told; it is told again to whoever asks."""
    CLOSED = auto()


class Event(Enum):
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
    """Somebody who may do so has ended it."""
    CONTESTED = auto()
    """Two have connected to its data port, and nobody can tell which of them is the subscriber."""


class Reply(NamedTuple):
    """A control message and the envelope it goes back in."""

    envelope: tuple[bytes, ...]
    message: Control


Handler: TypeAlias = Callable[..., list[Reply]]
Table: TypeAlias = Mapping[State, Mapping[Event, tuple[str | None, State | None]]]
"""For each state and event: the method that deals with it, and the state that follows (None: the same)."""


class Session(ABC):
    """What both dialects have in common."""

    dialect: ClassVar[str]
    table: ClassVar[Table]

    def __init__(self, peer: bytes, log: LogView, start: int, limits: Limits, now: float) -> None:
        self.peer = peer
        """The routing id of its control connection."""
        self.log = log
        self.limits = limits
        self.state = State.JOINING
        self.cursor = start
        """The offset of the next record to send."""
        self.acknowledged = start
        """Records before this offset need not be kept for this subscriber."""
        self.keep = True
        self.name: str | None = None
        self.owner = ""
        """The key of its subscriber, if it has one."""
        self.address = ""
        """Where its subscriber is."""
        self.number = 0
        """Tells it from the others, also those without an id, for as long as the gateway runs."""
        self.lease = limits.lease
        self.heard = now
        """When its last control message came."""
        self._joined_once = False
        self.sent_records = 0
        self.sent_bytes = 0

    # ---------------------------------------------------------------- what happens to it
    def handle(
        self, event: Event, now: float, *, message: Any = None, envelope: tuple[bytes, ...] = ()
    ) -> list[Reply]:
        """Deal with an event, and return what is to be answered."""
        step = self.table[self.state].get(event)
        if step is None:
            return [Reply(envelope, refusal(f"{event.name} makes no sense here", "BAD"))] if envelope else []
        self._joined_once |= event is Event.JOINED
        handler, following = step
        if following is not None:
            self.state = following
        if handler is None:
            return []
        deal: Handler = getattr(self, handler)
        return deal(message, envelope, now)

    def is_of(self, caller: Caller) -> bool:
        """Whether this can be the subscriber: by its key if it has one, or else by where it comes from."""
        if self.owner or caller.owner:
            return caller.owner == self.owner
        return caller.address == self.address

    def tick(self, now: float) -> list[Reply]:
        """Time has passed, or the log has grown."""
        return []

    @abstractmethod
    def waiting(self) -> list[tuple[bytes, ...]]:
        """The envelopes of requests that have no answer yet; if the session ends, they get that as theirs."""

    def expired(self, now: float) -> bool:
        """Whether nothing was heard for longer than the lease.

        One without an id that has no data connection is not kept for longer than usual, whatever lease it has
        asked for, and only for a moment if it never had one: its peer is gone, or was never there.
        """
        lease = self.lease
        if self.name is None and self.state is State.JOINING:
            lease = min(lease, self.limits.lease if self._joined_once else self.limits.join_time)
        return now - self.heard > lease

    # ---------------------------------------------------------------- what it may get
    @abstractmethod
    def credit(self) -> int:
        """How many records may be sent now."""

    def sent(self, count: int, nbytes: int) -> None:
        """So many records, from the cursor on, were sent."""
        self.cursor += count
        self.sent_records += count
        self.sent_bytes += nbytes

    def skip_to(self, offset: int) -> None:
        """The log no longer has what comes next: go on at ``offset``."""
        self.cursor = offset
        self.acknowledged = max(self.acknowledged, offset)

    @property
    def overtaken(self) -> bool:
        """Whether records that it has not got yet are gone."""
        return self.cursor < self.log.first and self.state in (State.JOINING, State.STREAMING)

    def describe(self) -> dict[str, Any]:
        """What ``penstock gateway status`` shows of it."""
        return {
            "session": self.number,
            "id": self.name,
            "owner": self.owner,
            "address": self.address,
            "dialect": self.dialect,
            "state": self.state.name.lower(),
            "next": self.cursor,
            "acknowledged": self.acknowledged,
            "lag": self.log.head - self.cursor,
            "keep": self.keep,
            "records": self.sent_records,
            "bytes": self.sent_bytes,
        }


class DataPorts(Protocol):
    """The data ports, as far as the session table has to know."""

    def open(self, session: Session) -> int:
        """Make the session reachable, and return the port on which its records will come."""
        ...

    def segment(self, session: Session, token: str) -> SegmentFields | None:
        """Memory to share with the session, if there is any: that of the token, if possible."""
        ...

    def close(self, session: Session, event: Event) -> None:
        """The session is over because of ``event``."""
        ...


def refusal(text: str, code: str, **more: Any) -> OnError:
    """An ``OnError`` that an extended peer can tell by its code, and a plain one can read."""
    return OnError(message=text, x=OnErrorFields(code=code, **more))


FAREWELLS: Final[Mapping[Event, OnError]] = {
    Event.EXPIRED: refusal("nothing was heard for longer than the lease: subscribe again", "LEASE"),
    Event.TAKEN_OVER: refusal("another subscriber came with the same id", "TAKEN"),
    Event.REVOKED: refusal("this key may not read here any more: it was taken off the list", "AUTH"),
    Event.EVICTED: refusal("an administrator of the gateway has ended this session", "EVICTED"),
    Event.CONTESTED: refusal(
        "a second connection came to the data port of this subscriber, and without keys it cannot be told "
        "which of them is the subscriber: subscribe again",
        "SESSION",
    ),
}
"""What is said to a subscriber whose session ends for a reason that is not its own."""

"""The session table of a gateway: every control message comes here, and finds, opens or closes a session.

There is no socket in here: :class:`~penstock.aquifer.protocol.session.DataPorts` stands for the data ports.
The table answers or counts whatever a peer sends; no message can make it raise. One thread uses it, the
gateway's server.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from msgspec import UNSET

from penstock.aquifer.errors import ErrorCode, ProtocolViolation
from penstock.aquifer.hop_clock import Samples
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Log
from penstock.aquifer.protocol.administration import Administration
from penstock.aquifer.protocol.admission import why_not
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.frames import Flag, Frame
from penstock.aquifer.protocol.goodbyes import Goodbyes
from penstock.aquifer.protocol.groups import Groups
from penstock.aquifer.protocol.messages import (
    Complete,
    CompleteFields,
    Control,
    Error,
    Next,
    OnComplete,
    OnError,
    OnSubscribe,
    Subscribe,
    commit_in,
    decode,
    extension,
    for_plain_peers,
    put_in,
    unwrap,
)
from penstock.aquifer.protocol.probes import Probes
from penstock.aquifer.protocol.session import (
    FAREWELLS,
    WHY_ENDED,
    DataPorts,
    Reply,
    Session,
    SessionEvent,
    SessionState,
)
from penstock.aquifer.protocol.session_opener import SessionOpener
from penstock.aquifer.protocol.session_registry import SessionRegistry, SourceView
from penstock.aquifer.protocol.stream_names import stream_in
from penstock.aquifer.protocol.transactions import Transactions
from penstock.aquifer.security import LOCAL, Access, Caller, Right
from penstock.aquifer.status import GatewayStatus

__all__ = ["SessionTable"]

_EVENTS: Final[Mapping[type, SessionEvent]] = {
    Next: SessionEvent.NEXT,
    Complete: SessionEvent.COMPLETE,
    Error: SessionEvent.ERROR,
}

_GAP: Final = int(Flag.GAP)
# Peers choose their routing ids. A session belongs to the key that opened it.
_NOT_YOURS: Final = "this session belongs to another key: open a connection of your own"


class SessionTable:
    """Everything that a gateway's peers can ask for, and the state of each of them."""

    def __init__(
        self,
        log: Log,
        limits: Limits,
        ports: DataPorts,
        *,
        source: SourceView | None = None,
        keep_plain: bool = True,
        writable: bool = False,
        access: Access | None = None,
        name: str = "",
        names: Sequence[str] = (),
    ) -> None:
        self.name = name
        """The name of the stream; empty for one that needs none."""
        self.registry = registry = SessionRegistry(log, limits, ports, source, name)
        self.sessions = registry.sessions
        """The sessions by the routing id of their control connection."""
        self.by_topic = registry.by_topic
        """The extended sessions by their topic."""
        self.counters = registry.counters
        """What came in that should not have, by kind."""
        self.cursors = registry.cursors
        """The cursors of the durable subscribers."""
        self._clock = registry.clock
        self.log = log
        """What the sessions read."""
        self.transactions = Transactions(log, limits, writable=writable, stream=name)
        """What others write to this gateway, if it lets them."""
        self.administration = Administration(self.registry, self.transactions, log, limits, access)
        self.groups = Groups(registry, log, limits)
        self._goodbyes = Goodbyes(log)
        self._opener = SessionOpener(registry, self.groups, log, limits, ports, keep_plain=keep_plain)
        self.limits = limits
        self._probes = Probes(log, limits, self.registry, self.status)
        self._samples = Samples()
        self.elsewhere: Callable[[bytes], SessionRegistry | None] = lambda peer: None
        """Finds the session of a peer that reads another stream of this gateway."""
        self._names = names
        """Those of all streams of the gateway."""
        self._access = access
        self._access_version = access.version if access is not None else 0

    # ---------------------------------------------------------------- what there is to know
    def low_watermark(self) -> int:
        """The lowest offset that must not be forgotten to make room."""
        return self.registry.low_watermark()

    def needed(self) -> int:
        """The lowest offset that a reader needs, here or away; the log's head if there is none."""
        return self.registry.needed()

    def tell_log_what_is_needed(self) -> None:
        """Let the log forget what nobody needs any more, and keep the rest."""
        self.log.set_low_watermark(self.low_watermark(), self.needed())

    def status(self) -> GatewayStatus:
        """The log, the source, the sessions and the counters at this moment."""
        status = self.registry.status()
        status.producers = self.transactions.producers()
        status.groups = self.groups.all() or UNSET
        return status

    def is_drained(self) -> bool:
        """Whether the stream has ended, and every required reader has read it and has received the end."""
        return self.registry.is_drained() and self.groups.is_at_rest

    # ---------------------------------------------------------------- messages
    def receive(self, parts: Sequence[bytes], now: float, caller: Caller = LOCAL) -> list[Reply]:
        """Deal with a message from the control socket: routing id, perhaps more, a delimiter, the body."""
        self._clock.advance(now)
        if len(parts) == 2 and not parts[1]:
            # Not a question, but how a socket with ZMQ_PROBE_ROUTER introduces itself. An answer without a
            # question would make a REQ close the connection.
            self.counters["introductions"] += 1
            return []
        envelope, body, attached = unwrap(parts)
        extended = isinstance(self.sessions.get(envelope[0]), ExtendedSession)
        replies = self._deal(envelope, body, attached, now, caller)
        if extended or b'"x"' in body:
            return replies
        # As far as we know, the peer knows nothing but the document: it gets nothing but the document.
        return [Reply(back, for_plain_peers(message)) for back, message in replies]

    def _deal(
        self,
        envelope: tuple[bytes, ...],
        body: bytes,
        attached: Sequence[bytes],
        now: float,
        caller: Caller,
    ) -> list[Reply]:
        registry, peer = self.registry, envelope[0]
        if len(body) > self.limits.max_message:
            text = f"a control message of {len(body)} bytes; the limit is {self.limits.max_message}"
            return registry.refuse(envelope, "oversized", text, ErrorCode.BAD)
        session = registry.sessions.get(peer)
        if session is not None and session.state is SessionState.CLOSED:
            registry.close(session)  # It ended by itself since the last tick.
            session = None
        if not registry.budgets.allow(peer if session is not None else caller.owner or caller.address, now):
            text = f"more than {self.limits.requests_per_second} requests per second: slow down"
            return registry.refuse(envelope, "too many requests", text, ErrorCode.BUSY, retry=1000)
        try:
            message = decode(body)
        except ProtocolViolation as violation:
            return registry.refuse(envelope, "malformed", str(violation), ErrorCode.BAD)
        if (why := why_not(message, caller)) is not None:
            return registry.refuse(envelope, "not allowed", why, ErrorCode.AUTH)
        if (asked := stream_in(message)) not in ("", self.name):
            return registry.refuse(envelope, "unknown stream", self._no_stream(asked), ErrorCode.STREAM)
        if (put := put_in(message)) is not None and isinstance(message, Next):
            return self.transactions.put(message, put, attached, envelope, now, caller)
        if (commit := commit_in(message)) is not None:
            return self.transactions.commit(commit, envelope, caller)
        if session is not None:
            if session.owner != caller.owner:
                return registry.refuse(envelope, "not allowed", _NOT_YOURS, ErrorCode.AUTH)
            session.heard = self._clock.now
        if isinstance(message, Subscribe):
            if message.cancel:
                return self._cancel(message, session, envelope, now)
            if (other := self.elsewhere(peer)) is not None and other.sessions[peer].owner != caller.owner:
                return registry.refuse(envelope, "not allowed", _NOT_YOURS, ErrorCode.AUTH)
            return self._subscribe(message, session, envelope, now, caller)
        event = _EVENTS.get(type(message))
        if event is None:
            text = f"{type(message).__name__} is what a gateway says"
            return registry.refuse(envelope, "unexpected", text, ErrorCode.BAD)
        if session is None:
            if isinstance(message, Complete):
                return [Reply(envelope, OnComplete())]
            _, ended_by = registry.ended.get(peer, (None, None))
            if ended_by in (SessionEvent.CONTESTED, SessionEvent.EVICTED):
                return [Reply(envelope, FAREWELLS[ended_by])]
            why = "perhaps the gateway was restarted" if ended_by is None else WHY_ENDED[ended_by]
            text = f"there is no subscription here: {why}; send Subscribe first"
            return registry.refuse(envelope, "no session", text, ErrorCode.SESSION)
        return self._pass_on(session, event, message, envelope, now)

    def _pass_on(
        self,
        session: Session,
        event: SessionEvent,
        message: Control,
        envelope: tuple[bytes, ...],
        now: float,
    ) -> list[Reply]:
        before = session.acknowledged
        replies = session.handle(event, now, message=message, envelope=envelope)
        if any(isinstance(reply.message, OnError) for reply in replies):
            self.counters["out of order"] += 1
        if session.state is SessionState.CLOSED:
            self.registry.close(session)
        elif session.acknowledged != before:
            self.registry.note(session)
        return replies

    def _no_stream(self, asked: str) -> str:
        named = sorted(name for name in self._names if name)
        if not named:
            return f"there is no stream {asked!r} here: this gateway serves one stream, without a name"
        without = ", and the default one without a name" if "" in self._names else ""
        return f"there is no stream {asked!r} here: there are {', '.join(named)}{without}"

    # ---------------------------------------------------------------- coming
    def _subscribe(
        self,
        message: Subscribe,
        session: Session | None,
        envelope: tuple[bytes, ...],
        now: float,
        caller: Caller,
    ) -> list[Reply]:
        registry, fields = self.registry, extension(message.x)
        if fields is None or fields.v is UNSET:
            if session is not None:
                registry.end(session, SessionEvent.CANCEL)
            self._leave_elsewhere(envelope[0])
            return self._opener.open_plain(envelope, now, caller)
        if fields.id is not UNSET and registry.owner_of(fields.id) not in (None, caller.owner):
            text = (
                f"the id {fields.id!r} belongs to another key: choose another id, or use the key of its owner"
            )
            return registry.refuse(envelope, "not allowed", text, ErrorCode.AUTH)
        if fields.probe is True and fields.admin is not UNSET:
            return [Reply(envelope, self.administration.answer(fields.admin))]
        leaves = fields.group is not UNSET and fields.group.leave is True
        if not leaves and registry.was_evicted(fields):
            return [Reply(envelope, FAREWELLS[SessionEvent.EVICTED])]
        if fields.probe is True and fields.group is not UNSET:
            reply = Reply(envelope, self.groups.answer(fields, caller))
            if leaves and isinstance(reply.message, OnSubscribe):
                return self._goodbyes.answer(reply, now)
            return [reply]
        if fields.probe is True:
            if fields.id is not UNSET and fields.id and registry.named(fields.id) is not None:
                text = f"somebody is reading as {fields.id!r}, and acknowledges for itself"
                return registry.refuse(envelope, "refused: TAKEN", text, ErrorCode.TAKEN)
            if fields.id is not UNSET and (wrong := self.groups.why_not(fields, caller)) is not None:
                text, code = wrong
                return registry.refuse(envelope, f"refused: {code}", text, code)
            return self._probes.ask(fields, envelope, now, caller)
        if isinstance(session, ExtendedSession) and session.fields == fields:
            # The same again: the answer was lost, or the request came twice. Nothing changes.
            self.counters["repeated Subscribe"] += 1
            return [self._opener.welcome(session, envelope)]
        peer = envelope[0]
        if peer in registry.ended and registry.ended[peer][0] == fields:
            text = "this subscription is over: open a new connection to subscribe again"
            return registry.refuse(envelope, "replayed Subscribe", text, ErrorCode.SESSION)
        if session is not None:
            registry.end(session, SessionEvent.CANCEL)
        self._leave_elsewhere(peer)
        return self._opener.open_extended(fields, envelope, now, caller)

    def _leave_elsewhere(self, peer: bytes) -> None:
        """A connection has one session: if it read another stream until now, that is over."""
        if (other := self.elsewhere(peer)) is not None:
            other.end(other.sessions[peer], SessionEvent.CANCEL)

    # ---------------------------------------------------------------- going
    def _cancel(
        self, message: Subscribe, session: Session | None, envelope: tuple[bytes, ...], now: float
    ) -> list[Reply]:
        if session is None:
            # To cancel twice is the same as to cancel once (§3.7).
            return [Reply(envelope, OnComplete(x=CompleteFields(cancelled=True)))]
        fields = extension(message.x)
        if fields is not None and fields.keep is False:
            session.required = False  # It will not come back.
        replies = session.handle(SessionEvent.CANCEL, now, envelope=envelope)
        self.registry.close(session)
        return replies

    def fail(self, session: Session) -> None:
        """The gateway cannot serve this session any more; a durable subscriber may try again."""
        self.registry.end(session, SessionEvent.FAILED)

    # ---------------------------------------------------------------- data connections
    def connected(self, session: Session, caller: Caller, now: float) -> tuple[bool, list[Reply]]:
        """Somebody has connected to the data port of a session; whether it may have the records."""
        if isinstance(session, ExtendedSession):
            if caller.owner != session.owner:
                return False, []  # It knows the topic of another subscriber; that is not enough.
        elif not session.is_of(caller):
            session.strangers += 1
            self.counters["strangers at a data port"] += 1
            return False, []
        elif session.connections and not session.owner:
            self.counters["contested data ports"] += 1
            self.registry.end(session, SessionEvent.CONTESTED)
            return False, []
        session.connections += 1
        # A subscriber that comes back may be here before its old connection is known to be gone.
        return True, session.handle(SessionEvent.JOINED, now) if session.connections == 1 else []

    def disconnected(self, session: Session, now: float) -> list[Reply]:
        """A data connection of a session is gone; which one is not known."""
        if session.strangers:
            # If it was the subscriber, that one comes back, and is the second.
            session.strangers -= 1
            return []
        session.connections -= 1
        return session.handle(SessionEvent.LEFT, now) if session.connections == 0 else []

    def next_frame(self, session: ExtendedSession, now: float) -> Frame | None:
        """The next frame to send to an extended subscriber; None if nothing may be sent."""
        frame = session.next_frame(now)
        if frame is not None and frame.flags & _GAP:
            self.counters["overtaken"] += 1
        return frame

    # ---------------------------------------------------------------- as time goes by
    def tick(self, now: float) -> list[Reply]:
        """End the leases that have run out, and answer the requests that have waited long enough."""
        registry = self.registry
        self._clock.advance(now)
        replies = self.revoke()
        replies += registry.take_farewells()
        for session in registry.all():
            if session.state is SessionState.CLOSED:
                registry.close(session)  # It ended by itself while it answered.
            elif session.expired(registry.clock.now):
                self.counters["leases ended"] += 1
                registry.end(session, SessionEvent.EXPIRED)
            else:
                replies += session.tick(now)
        replies += self.answers(now)
        if self._samples.due(now):
            registry.sample(now, self._probes.names())
            self.transactions.sample(now)
        registry.note_idle()
        if ended := registry.cursors.expired():
            self.counters["leases ended"] += len(ended)
        return replies

    def answers(self, now: float) -> list[Reply]:
        """The answers that peers wait for, and that there are now: to probes, goodbyes and commits."""
        return [*self._probes.tick(now), *self._goodbyes.tick(now), *self.transactions.tick()]

    def revoke(self) -> list[Reply]:
        """If there is a new access list, end what it does not allow."""
        access = self._access
        if access is None or access.version == self._access_version:
            return []
        self._access_version = access.version
        for session in self.registry.all():
            if not _may(access, session.owner, Right.READ):
                self.registry.end(session, SessionEvent.REVOKED)
        for owner in self.transactions.owners():
            if not _may(access, owner, Right.WRITE):
                self.transactions.withdraw(owner)
        replies: list[Reply] = []
        for owner in self._probes.owners():
            if not _may(access, owner, Right.READ):
                replies += self._probes.turn_away(owner)
        return replies


def _may(access: Access, owner: str, right: Right) -> bool:
    # Peers without a key have the rights of the endpoint that they came to, whatever the list says.
    return not owner or right in (access.rights_of(owner) or Right(0))

"""Opens sessions: a peer has subscribed, and gets a session and a welcome, or the reason why not.

Whether the request is one for a session at all, and what becomes of the session that the connection had
before, is decided by the :mod:`~penstock.aquifer.protocol.session_table`.
"""

from __future__ import annotations

import logging
import secrets
from typing import Final

from msgspec import UNSET

from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Log
from penstock.aquifer.protocol.admission import (
    acknowledged_for,
    format_for,
    is_ahead,
    problem_with,
    start_for,
)
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.frames import TOPIC_BYTES
from penstock.aquifer.protocol.groups import Groups
from penstock.aquifer.protocol.messages import VERSION, OnSubscribe, OnSubscribeFields, SubscribeFields
from penstock.aquifer.protocol.plain_session import PlainSession
from penstock.aquifer.protocol.session import DataPorts, Reply, SessionEvent
from penstock.aquifer.protocol.session_registry import SessionRegistry, is_older, same_subscriber
from penstock.aquifer.records import MSGPACK
from penstock.aquifer.security import Caller
from penstock.spec import UNBOUNDED

__all__ = ["SessionOpener"]

_log = logging.getLogger("penstock.aquifer")

_AHEAD: Final = "ahead of the log"


class SessionOpener:
    """Opens the sessions of one stream, in both dialects."""

    def __init__(
        self,
        registry: SessionRegistry,
        groups: Groups,
        log: Log,
        limits: Limits,
        ports: DataPorts,
        *,
        keep_plain: bool,
    ) -> None:
        self._registry = registry
        self._groups = groups
        self._log = log
        self._limits = limits
        self._ports = ports
        self._keep_plain = keep_plain
        """Whether the source waits for plain subscribers."""

    def open_plain(self, envelope: tuple[bytes, ...], now: float, caller: Caller) -> list[Reply]:
        """A peer has subscribed that knows nothing but the document."""
        registry, log = self._registry, self._log
        if (text := registry.why_no_session(caller)) is not None:
            return registry.refuse(envelope, "too many subscribers", text, ErrorCode.BUSY, retry=1000)
        number = registry.next_number()
        session = PlainSession(envelope[0], log, log.first, self._limits, now, caller, number)
        session.required = self._keep_plain
        try:
            port = self._ports.open(session)
        except Exception as error:
            # Ports or files have run out, which must not fail the subscribers that are here already.
            text = f"no port could be opened for this subscriber: {error}; try later"
            return registry.refuse(envelope, "no port", text, ErrorCode.BUSY, retry=1000)
        registry.add(session)
        return [Reply(envelope, OnSubscribe(self._size(session.cursor, None), port))]

    def open_extended(
        self, fields: SubscribeFields, envelope: tuple[bytes, ...], now: float, caller: Caller
    ) -> list[Reply]:
        """A peer has subscribed in the extended dialect; its new session may replace others."""
        registry, log = self._registry, self._log
        problem = problem_with(fields, log, self._limits) or self._groups.why_not(fields, caller)
        if problem is not None:
            text, code = problem
            if is_ahead(fields, log):
                if not registry.counters[_AHEAD]:
                    stream = registry.stream or "the stream"
                    _log.error("a reader of %s is ahead of the log: %s", stream, text)
                registry.counters[_AHEAD] += 1
            more = {"first": log.first, "head": log.head, "epoch": log.epoch}
            if code is ErrorCode.SESSION:
                more["retry"] = 1000
            return registry.refuse(envelope, f"refused: {code}", text, code, **more)
        name = fields.id if fields.id is not UNSET else None
        before = registry.replaced_by(fields, caller)
        if any(is_older(fields, other.fields) for other in before):
            text = "a later request of this subscriber was here before this one"
            return registry.refuse(envelope, "overtaken Subscribe", text, ErrorCode.SESSION)
        for other in before:
            same = same_subscriber(fields, other.fields)
            registry.end(other, SessionEvent.CANCEL if same else SessionEvent.TAKEN_OVER)
        if (full := registry.why_no_session(caller)) is not None:
            return registry.refuse(envelope, "too many subscribers", full, ErrorCode.BUSY, retry=1000)
        if name is not None and name not in registry.cursors.saved:
            if (full := registry.why_no_id(caller)) is not None:
                counter = "too many durable subscribers"
                return registry.refuse(envelope, counter, full, ErrorCode.BUSY, retry=1000)
            registry.cursors.came_from(name, caller)
        saved = registry.cursors.come_back(name) if name is not None else None
        session = ExtendedSession(
            envelope[0],
            log,
            start_for(fields, saved, log),
            self._limits,
            now,
            caller,
            registry.next_number(),
            fields=fields,
            topic=secrets.token_bytes(TOPIC_BYTES),
            format=format_for(fields) or MSGPACK,
        )
        # It may have read further than it has acknowledged: what was kept for it stays.
        kept = [other.acknowledged for other in before if same_subscriber(fields, other.fields)]
        if saved is not None:
            kept.append(saved.acknowledged)
        session.acknowledged = acknowledged_for(fields, session.cursor, kept, log)
        registry.add(session)
        return [self.welcome(session, envelope)]

    def welcome(self, session: ExtendedSession, envelope: tuple[bytes, ...]) -> Reply:
        """The answer to a peer that has this session: its port, and what there is to know of the stream."""
        port, log = self._ports.open(session), self._log
        answer = OnSubscribeFields(
            v=VERSION,
            topic=session.topic.hex(),
            epoch=log.epoch,
            first=log.first,
            next=session.cursor,
            head=log.head,
            fmt=session.format,
            ackevery=log.ack_every_records,
            maxframe=self._limits.max_frame,
            lease=round(session.lease * 1000),
            stream=self._registry.stream or UNSET,
        )
        if session.fields.pieces is not UNSET:
            answer.pieces = True
        if session.filter is not None:
            answer.keys = True
        if session.fields.shelf is not UNSET:
            answer.shelf = self._ports.segment(session, session.fields.shelf) or UNSET
        # How many records have one of the keys is not known.
        size = self._size(session.cursor, session.to) if session.filter is None else UNBOUNDED
        return Reply(envelope, OnSubscribe(size, port, x=answer))

    def _size(self, start: int, to: int | None) -> int:
        """How many records will come, as far as is known."""
        # After a failure, a plain subscriber that counts must not take the last record for the end.
        end = self._log.end if self._log.failure is None else None
        return max(min(UNBOUNDED if stop is None else stop - start for stop in (to, end)), 0)

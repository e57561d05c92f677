"""The streams of a gateway: each has a log and a session table of its own, and all share the sockets.

A request may name its stream, in ``x.stream``. Without a name it is about the session of its connection, if
there is one, and otherwise about the default stream; so peers that know of no names get that.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.messages import Subscribe, decode, unwrap
from penstock.aquifer.protocol.session import Session
from penstock.aquifer.protocol.session_registry import SessionRegistry
from penstock.aquifer.protocol.session_table import SessionTable
from penstock.aquifer.protocol.stream_names import stream_in
from penstock.aquifer.status import StreamStatus

__all__ = ["StreamDirectory"]

_NAMES_A_STREAM: Final = (b'"stream"', b'"Subscribe"')
"""Only a message with one of these can be about another stream than that of its session."""


class StreamDirectory:
    """Finds the session table for a message; used by the thread of the server."""

    def __init__(self, tables: Sequence[SessionTable]) -> None:
        self.tables = tuple(tables)
        """Those of all streams, that of the default stream first."""
        self.default = self.tables[0]
        self._by_name = {table.name: table for table in self.tables}
        for table in self.tables:
            table.registry.all_streams = self.summaries
            table.elsewhere = partial(self._elsewhere, table)
            # A peer has one budget of requests, however many streams it asks for.
            table.registry.budgets = self.default.registry.budgets

    def __getitem__(self, name: str) -> SessionTable:
        """The table of the stream with this name; with an empty name that of the default one."""
        try:
            return self._by_name[name] if name else self.default
        except KeyError:
            names = ", ".join(sorted(filter(None, self._by_name))) or "one stream, without a name"
            raise LookupError(f"this gateway has no stream {name!r}: it has {names}") from None

    def table_for(self, parts: Sequence[bytes]) -> SessionTable:
        """The table that deals with a message; one about an unknown stream is refused by the default one."""
        if len(self.tables) == 1:
            return self.default
        before = self._table_of_peer(parts[0]) or self._last_table_of(parts[0])
        _, body, _ = unwrap(parts)
        if len(body) > self.default.limits.max_message or not any(mark in body for mark in _NAMES_A_STREAM):
            return before or self.default
        try:
            message = decode(body)
        except ProtocolViolation:
            return before or self.default
        named = stream_in(message)
        if not named and not (isinstance(message, Subscribe) and not message.cancel):
            return before or self.default
        return self._by_name.get(named, self.default) if named else self.default

    def _elsewhere(self, here: SessionTable, peer: bytes) -> SessionRegistry | None:
        table = self._table_of_peer(peer)
        return table.registry if table is not None and table is not here else None

    def _table_of_peer(self, peer: bytes) -> SessionTable | None:
        return next((table for table in self.tables if peer in table.sessions), None)

    def _last_table_of(self, peer: bytes) -> SessionTable | None:
        """The table that knows why the session of this peer has ended: it has to answer its late messages."""
        return next((table for table in self.tables if peer in table.registry.ended), None)

    def table_of(self, session: Session) -> SessionTable:
        """The table that a session is in."""
        return next(table for table in self.tables if table.sessions.get(session.peer) is session)

    def session_with_topic(self, topic: bytes) -> ExtendedSession | None:
        """The session whose data have this topic."""
        for table in self.tables:
            if (session := table.by_topic.get(topic)) is not None:
                return session
        return None

    def knows(self, peer: bytes) -> bool:
        """Whether a peer has a session."""
        return self._table_of_peer(peer) is not None

    def sessions(self) -> list[Session]:
        """The sessions of all streams."""
        return [session for table in self.tables for session in table.registry.all()]

    def summaries(self) -> list[StreamStatus]:
        """All streams, for the status."""
        return [table.registry.summary(default=table is self.default) for table in self.tables]

"""What an administrator may ask of a gateway: list ids and sessions, end, delete and hand them over.

The questions ride on a probe, in ``x.admin``, and need the right to administer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import UNSET

from penstock.aquifer.limits import Limits
from penstock.aquifer.log.journal import Cursor
from penstock.aquifer.protocol.cursors import Cursors
from penstock.aquifer.protocol.messages import VERSION, AdminRequest, Control, OnSubscribe, OnSubscribeFields
from penstock.aquifer.protocol.session import Event, LogView, Session, refusal
from penstock.aquifer.protocol.transactions import Transactions
from penstock.spec import UNBOUNDED

__all__ = ["Administration", "NotThere"]


class NotThere(LookupError):
    """There is no such id or session."""


class Sessions(Protocol):
    """The sessions of a gateway, as far as they can be administered."""

    def all(self) -> list[Session]:
        """Those that are here."""
        ...

    def end(self, session: Session, event: Event) -> None:
        """End one, and tell its subscriber."""
        ...


class Administration:
    """Lists, evicts, forgets and gives away."""

    def __init__(
        self,
        sessions: Sessions,
        cursors: Cursors,
        deliveries: Transactions,
        log: LogView,
        limits: Limits,
        name_of: Callable[[str], str],
    ) -> None:
        self._sessions = sessions
        self._cursors = cursors
        self._deliveries = deliveries
        self._log = log
        self._limits = limits
        self._name_of = name_of

    def answer(self, wanted: AdminRequest) -> Control:
        """Do what is wanted, and what to answer."""
        try:
            done = self.ask(wanted)
        except (NotThere, ValueError) as problem:
            return refusal(str(problem), "BAD")
        return OnSubscribe(UNBOUNDED, 0, x=OnSubscribeFields(v=VERSION, epoch=self._log.epoch, status=done))

    def ask(self, wanted: AdminRequest) -> dict[str, Any]:
        """Do what is wanted; NotThere or ValueError if that makes no sense."""
        if wanted.evict is not UNSET:
            return self.evict(wanted.evict)
        if wanted.forget is not UNSET:
            return self.forget(wanted.forget)
        if wanted.give is not UNSET or wanted.writer is not UNSET:
            if wanted.to is UNSET or len(wanted.to) not in (0, 40):
                raise ValueError("x.admin.to is the public key of the new owner, or empty for nobody's")
            if wanted.give is not UNSET:
                return self.give(wanted.give, wanted.to)
            return self.give_writer(str(wanted.writer), wanted.to)
        return self.list(wanted.after if wanted.after is not UNSET else "")

    def list(self, after: str = "") -> dict[str, Any]:
        """The ids behind ``after`` in the order of the alphabet, and the sessions without one."""
        here = {session.name: session for session in self._sessions.all() if session.name is not None}
        away = self._cursors.describe()
        names = sorted(name for name in here.keys() | away.keys() if name > after)
        shown = names[: self._limits.max_listed]
        nameless = [] if after else [one.describe() for one in self._sessions.all() if one.name is None]
        return {
            "ids": [
                {**self._told(name, away.get(name)), "id": name}
                if name not in here
                else {**here[name].describe(), "here": True, "name": self._name_of(here[name].owner)}
                for name in shown
            ],
            "sessions": [
                {**session, "name": self._name_of(session["owner"])}
                for session in nameless[: self._limits.max_listed]
            ],
            "left_out": max(len(nameless) - self._limits.max_listed, 0),
            "next": shown[-1] if len(shown) < len(names) else None,
            "total": len(here.keys() | away.keys()),
        }

    def _told(self, name: str, cursor: dict[str, Any] | None) -> dict[str, Any]:
        assert cursor is not None
        lag = max(self._log.head - cursor["acknowledged"], 0)
        return {**cursor, "here": False, "lag": lag, "name": self._name_of(cursor["owner"] or "")}

    def evict(self, who: str | int) -> dict[str, Any]:
        """End a session, by its id or its number; an id keeps its place."""
        for session in self._sessions.all():
            if who == (session.name if isinstance(who, str) else session.number):
                self._sessions.end(session, Event.EVICTED)
                return {"evicted": session.describe()}
        if isinstance(who, str) and who in self._cursors.absent:
            raise NotThere(f"nobody reads as {who!r} at the moment; to delete the id, forget it")
        raise NotThere(f"there is no session {who!r}")

    def forget(self, name: str) -> dict[str, Any]:
        """Delete an id: nothing is kept for it any more, and a session that has it ends."""
        before = self._cursors.describe().get(name)
        for session in self._sessions.all():
            if session.name == name:
                before = session.describe()
                session.keep = False
                self._sessions.end(session, Event.EVICTED)
        if before is None:
            raise NotThere(f"there is no id {name!r}")
        self._cursors.forget(name)
        return {"forgotten": before}

    def give(self, name: str, owner: str) -> dict[str, Any]:
        """Let an id belong to another key from now on."""
        for session in self._sessions.all():
            if session.name == name:
                self._sessions.end(session, Event.EVICTED)
        cursor: Cursor | None = self._cursors.absent.get(name)
        if cursor is None:
            raise NotThere(f"there is no id {name!r}")
        self._cursors.leave(name, cursor._replace(owner=owner, remaining=cursor.lease_ms / 1000))
        return {"given": {"id": name, "owner": owner, "acknowledged": cursor.acknowledged}}

    def give_writer(self, query: str, owner: str) -> dict[str, Any]:
        """Let a writer's name belong to another key from now on."""
        if not self._deliveries.give(query, owner):
            raise NotThere(f"nobody has published anything as {query!r}")
        return {"given": {"writer": query, "owner": owner}}

"""What an administrator may ask of a gateway: list ids and sessions, end, delete, move and hand them over.

The questions come with a probe, in ``x.admin``, and need the right to administer.
"""

from __future__ import annotations

from msgspec import UNSET, structs

from penstock.aquifer.errors import ErrorCode
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Log
from penstock.aquifer.protocol.messages import (
    VERSION,
    AdminRequest,
    Control,
    OnSubscribe,
    OnSubscribeFields,
    raw_status,
)
from penstock.aquifer.protocol.session import Session, SessionEvent, refusal
from penstock.aquifer.protocol.session_registry import SessionRegistry
from penstock.aquifer.protocol.transactions import Transactions
from penstock.aquifer.security import Access
from penstock.aquifer.status import (
    AdminAnswer,
    CursorMove,
    CursorStatus,
    Handover,
    IdList,
    IdStatus,
    SessionStatus,
)
from penstock.spec import UNBOUNDED

__all__ = ["Administration"]


class Administration:
    """Lists, evicts, forgets, moves and gives away; LookupError if there is no such id or session."""

    def __init__(
        self,
        registry: SessionRegistry,
        transactions: Transactions,
        log: Log,
        limits: Limits,
        access: Access | None,
    ) -> None:
        self._registry = registry
        self._transactions = transactions
        self._log = log
        self._limits = limits
        self._access = access

    def answer(self, request: AdminRequest) -> Control:
        """Do what is requested, and return the answer."""
        try:
            done = self._do(request)
        except (LookupError, ValueError) as problem:
            return refusal(str(problem.args[0]), ErrorCode.BAD)
        stream = self._registry.stream or UNSET
        fields = OnSubscribeFields(v=VERSION, epoch=self._log.epoch, status=raw_status(done), stream=stream)
        return OnSubscribe(UNBOUNDED, 0, x=fields)

    def _do(self, request: AdminRequest) -> AdminAnswer | IdList:
        if request.evict is not UNSET:
            return AdminAnswer(evicted=self.evict(request.evict))
        if request.forget is not UNSET:
            return AdminAnswer(forgotten=self.forget(request.forget))
        if request.give is not UNSET or request.writer is not UNSET:
            if request.to is UNSET or len(request.to) not in (0, 40):
                raise ValueError("x.admin.to is the public key of the new owner, or empty for no owner")
            if request.give is not UNSET:
                return AdminAnswer(given=self.give(request.give, request.to))
            return AdminAnswer(given=self.give_writer(str(request.writer), request.to))
        if request.move is not UNSET:
            if request.offset is UNSET:
                raise ValueError("x.admin.offset is missing: where is the id to continue?")
            return AdminAnswer(moved=self.move(request.move, request.offset))
        return self.list(request.after if request.after is not UNSET else "")

    def list(self, after: str = "") -> IdList:
        """The ids behind ``after`` in alphabetical order, and the sessions without one."""
        here = {session.name: session for session in self._registry.all() if session.name is not None}
        away = self._registry.cursors.status()
        names = sorted(name for name in here.keys() | away.keys() if name > after)
        shown = names[: self._limits.max_listed]
        nameless = [] if after else [one.status() for one in self._registry.all() if one.name is None]
        for session in nameless:
            session.name = self._name_of(session.owner)
        return IdList(
            ids=[
                self._live(name, here[name]) if name in here else self._saved(name, away[name])
                for name in shown
            ],
            sessions=nameless[: self._limits.max_listed],
            left_out=max(len(nameless) - self._limits.max_listed, 0),
            next=shown[-1] if len(shown) < len(names) else None,
            total=len(here.keys() | away.keys()),
        )

    def _live(self, name: str, session: Session) -> IdStatus:
        status = structs.asdict(session.status()) | {"id": name, "here": True}
        return IdStatus(**status | {"name": self._name_of(session.owner)})

    def _saved(self, name: str, cursor: CursorStatus) -> IdStatus:
        return IdStatus(
            id=name,
            name=self._name_of(cursor.owner or ""),
            owner=cursor.owner,
            acknowledged=cursor.acknowledged,
            lag=max(self._log.head - cursor.acknowledged, 0),
            lag_seconds=round(self._log.age(cursor.acknowledged), 3),
            lease_ms=cursor.lease_ms,
            remaining=cursor.remaining,
        )

    def _name_of(self, owner: str) -> str:
        return owner if self._access is None else self._access.name_of(owner)

    def evict(self, who: str | int) -> SessionStatus:
        """End a session, by its id or its number; an id keeps its cursor."""
        for session in self._registry.all():
            if who == (session.name if isinstance(who, str) else session.number):
                self._registry.end(session, SessionEvent.EVICTED)
                return session.status()
        if isinstance(who, str) and who in self._registry.cursors.saved:
            raise LookupError(f"nobody reads as {who!r} at the moment; to delete the id, forget it")
        raise _unknown("session", who)

    def forget(self, name: str) -> IdStatus:
        """Delete an id and its cursor; a session that uses it ends."""
        cursor = self._registry.cursors.status().get(name)
        before = None if cursor is None else self._saved(name, cursor)
        for session in self._registry.all():
            if session.name == name:
                before = self._live(name, session)
                session.required = False
                self._registry.end(session, SessionEvent.EVICTED)
        if before is None:
            raise _unknown("id", name)
        self._registry.cursors.forget(name)
        return before

    def give(self, name: str, owner: str) -> Handover:
        """Let an id belong to another key from now on."""
        for session in self._registry.all():
            if session.name == name:
                self._registry.end(session, SessionEvent.EVICTED)
        cursors = self._registry.cursors
        cursor = cursors.saved.get(name)
        if cursor is None:
            raise _unknown("id", name)
        cursors.leave(name, cursor._replace(owner=owner, remaining=cursor.lease_ms / 1000))
        return Handover(id=name, owner=owner, acknowledged=cursor.acknowledged)

    def move(self, name: str, offset: int) -> CursorMove:
        """Let an id continue at another offset that the log has; a session that uses it ends."""
        log, cursors = self._log, self._registry.cursors
        if not log.first <= offset <= log.head:
            raise ValueError(
                f"{name!r} cannot be moved to {offset}: the log has the offsets {log.first} to "
                f"{log.head - 1}, and the next record gets {log.head}"
            )
        for session in self._registry.all():
            if session.name == name:
                self._registry.end(session, SessionEvent.EVICTED)
        cursor = cursors.saved.get(name)
        if cursor is None:
            raise _unknown("id", name)
        moved = cursor._replace(acknowledged=offset, remaining=cursor.lease_ms / 1000)
        cursors.leave(name, moved)
        # At once, under the caller's lock: what the id needs from now on must not be forgotten meanwhile.
        log.set_low_watermark(self._registry.low_watermark(), self._registry.needed())
        return CursorMove(id=name, acknowledged=cursor.acknowledged, offset=offset)

    def give_writer(self, query: str, owner: str) -> Handover:
        """Let a writer's name belong to another key from now on."""
        if not self._transactions.give(query, owner):
            raise LookupError(f"nobody has published anything as {query!r}")
        return Handover(writer=query, owner=owner)


def _unknown(kind: str, name: object) -> LookupError:
    return LookupError(f"there is no {kind} {name!r}; `penstock gateway ls` lists them")

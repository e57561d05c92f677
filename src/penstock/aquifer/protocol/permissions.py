"""Which right a message needs, and what becomes of those who have lost theirs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import UNSET

from penstock.aquifer.protocol.bookmarks import Bookmarks
from penstock.aquifer.protocol.deliveries import Deliveries, commit_in, put_in
from penstock.aquifer.protocol.messages import Control, Subscribe, terms
from penstock.aquifer.protocol.sessions import Event, Reply, Session
from penstock.aquifer.rights import Access, Caller, Right

__all__ = ["Revocation", "why_not"]

_WHAT: Final = {Right.READ: "read", Right.WRITE: "write", Right.ADMIN: "administer this gateway"}


def why_not(message: Control, caller: Caller) -> str | None:
    """Why this caller may not send this message; None if it may."""
    wishes = terms(message.x) if isinstance(message, Subscribe) else None
    if put_in(message) is not None or commit_in(message) is not None:
        needed = Right.WRITE
    elif wishes is not None and wishes.probe is True and wishes.admin is not UNSET:
        needed = Right.ADMIN
    elif wishes is not None and wishes.probe is True and wishes.id is UNSET and caller.rights:
        return None  # How the gateway is: anybody may ask who may do anything.
    else:
        needed = Right.READ
    return None if caller.may(needed) else _told(needed, caller)


def _told(needed: Right, caller: Caller) -> str:
    if not caller.owner:
        return f"without a key, nobody may {_WHAT[needed]} from {caller.address}"
    if not caller.rights:
        return "this key may do nothing here: it is not on the list of clients, or without any rights"
    return (
        f"this key may not {_WHAT[needed]}: its rights are {caller.rights}. "
        f'Where the gateway runs, put rights = "{caller.rights | needed}" into its .pub file'
    )


class Revocation:
    """Looks whether the list of clients has changed, and cuts off who may not be here any more."""

    def __init__(
        self,
        access: Access | None,
        sessions: Callable[[], list[Session]],
        end: Callable[[Session, Event], None],
        bookmarks: Bookmarks,
        deliveries: Deliveries,
    ) -> None:
        self._access = access
        self._version = access.version if access is not None else 0
        self._sessions = sessions
        self._end = end
        self._bookmarks = bookmarks
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
        for owner in self._bookmarks.owners():
            if not self._may(owner, Right.READ):
                replies += self._bookmarks.turn_away(owner)
        return replies

    def _may(self, owner: str, right: Right) -> bool:
        # Those without a key have the rights of the endpoint that they came to, whatever the list says.
        assert self._access is not None
        return not owner or right in (self._access.rights_of(owner) or Right(0))

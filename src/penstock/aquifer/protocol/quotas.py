"""How much one peer may ask of a gateway, so that it cannot keep the others out.

A peer is a key, where there are keys, and otherwise an address. Programs on the gateway's own machine that
have no keys cannot be told apart, so for them there are only the bounds that hold for everybody together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.cursors import Cursors
from penstock.aquifer.protocol.sessions import Session
from penstock.aquifer.rights import Caller

__all__ = ["Budgets", "too_many_ids", "too_many_sessions"]

_MOST_BUDGETS = 4096


class Budgets:
    """Token buckets: each peer may send so many requests per second, with a burst of as many."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._tokens: OrderedDict[bytes | str, tuple[float, float]] = OrderedDict()

    def allow(self, who: bytes | str, now: float) -> bool:
        """Whether there is a token left, which is then taken."""
        tokens, since = self._tokens.pop(who, (float(self._rate), now))
        tokens = min(tokens + (now - since) * self._rate, self._rate)
        self._tokens[who] = (max(tokens - 1, 0), now)
        if len(self._tokens) > _MOST_BUDGETS:
            self._tokens.popitem(last=False)
        return tokens >= 1

    def __len__(self) -> int:
        return len(self._tokens)

    def forget(self, who: bytes) -> None:
        """It is gone."""
        self._tokens.pop(who, None)


def too_many_sessions(caller: Caller, sessions: Iterable[Session], limits: Limits) -> str | None:
    """Why this peer may not have another session, if so."""
    if not caller.owner and caller.is_local:
        return None
    theirs = sum(
        session.owner == caller.owner and (bool(caller.owner) or session.address == caller.address)
        for session in sessions
    )
    if theirs < limits.max_per_peer:
        return None
    return f"{theirs} subscribers {_of(caller)} are here already, and it may have no more: try later"


def too_many_ids(caller: Caller, sessions: Iterable[Session], cursors: Cursors, limits: Limits) -> str | None:
    """Why this peer may not have another durable id, if so."""
    if not caller.owner and caller.is_local:
        return None
    theirs = sum(
        session.name is not None
        and session.owner == caller.owner
        and (bool(caller.owner) or session.address == caller.address)
        for session in sessions
    )
    theirs += cursors.count(caller)
    if theirs < limits.max_ids_per_peer:
        return None
    return f"{theirs} ids {_of(caller)} are remembered already, and it may have no more"


def _of(caller: Caller) -> str:
    return "with this key" if caller.owner else f"from {caller.address}"

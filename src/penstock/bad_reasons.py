"""Why elements could not become records: the newest reasons, each with a count, for those who look later.

A warning in a log has gone by when somebody opens the dashboard. What is kept here is bounded, however many
bad elements come, and however long their reasons are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Protocol, runtime_checkable

__all__ = ["BadReason", "BadReasons", "ExplainingSource"]

_KEPT: Final = 5
"""How many different reasons are kept."""
_LONGEST: Final = 500
"""Characters of a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BadReason:
    """One reason, and how often it was given."""

    reason: str
    count: int = 0
    at: float = 0.0
    """When it was given last, in seconds since 1970."""
    is_kept: bool = False
    """Whether the elements were kept as dead letters; otherwise they were left out."""


class BadReasons:
    """The newest reasons; any thread may note one, and any thread may read them."""

    def __init__(self, *, are_kept: bool = False) -> None:
        """``are_kept`` says that the elements become dead letters."""
        self._are_kept = are_kept
        self._mutex = threading.Lock()
        self._newest: tuple[BadReason, ...] = ()

    def note(self, reasons: Iterable[str]) -> None:
        """Elements were bad, for these reasons."""
        now = time.time()
        with self._mutex:
            known = {each.reason: each for each in self._newest}
            for reason in reasons:
                shown = reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 1]}…"
                seen = known.pop(shown, BadReason(reason=shown, is_kept=self._are_kept))
                known[shown] = replace(seen, count=seen.count + 1, at=now)
                if len(known) > _KEPT:
                    del known[next(iter(known))]
            self._newest = tuple(known.values())

    @property
    def newest(self) -> tuple[BadReason, ...]:
        """The reasons, in the order in which each was last given."""
        return self._newest


@runtime_checkable
class ExplainingSource(Protocol):
    """A source that says why it has left elements out."""

    @property
    def bad_reasons(self) -> tuple[BadReason, ...]:
        """The newest reasons; from any thread."""
        ...

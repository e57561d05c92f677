"""The marks of a journal: small facts stored together with records, and bounded in number.

A mark says, for instance, which batch of a producer was published last. If it were dropped, and the producer
repeated its last batch, that batch would be published twice. So a mark stays as long as there is space for
it. When a new name needs space, marks that were not written for ``KEPT_FOR`` go, the oldest first. If there
is none, the new name has to wait.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

__all__ = ["KEPT_FOR", "MOST", "Mark", "Marks"]

MOST: Final = 100_000
"""How many marks there can be: some 20 MB of memory."""
KEPT_FOR: Final = 30 * 24 * 3600.0
"""Seconds for which a mark is kept in any case, after it was written last."""


class Mark(NamedTuple):
    """A mark as it is stored."""

    value: str
    written: float
    """Seconds since 1970."""


class Marks:
    """One thread changes them; any other may look into :attr:`values`, and ask :meth:`have_space_for`."""

    def __init__(self, stored: Iterable[tuple[str, Mark]] = ()) -> None:
        self._marks = dict(sorted(stored, key=lambda item: item[1].written))
        """The one that was written first is the first."""
        self._values = {name: mark.value for name, mark in self._marks.items()}
        self.values: Mapping[str, str] = MappingProxyType(self._values)
        """The marks by name, as they are now: a view, not a copy."""
        self._oldest = math.inf
        self._find_oldest()

    def have_space_for(self, name: str, now: float) -> bool:
        """Whether a mark of this name can be written."""
        return name in self._values or len(self._values) < MOST or self._oldest < now - KEPT_FOR

    def changes(self, new: Mapping[str, str | None], now: float) -> dict[str, Mark | None]:
        """What has to be stored for these new values; None deletes a mark."""
        changes: dict[str, Mark | None] = {
            name: None if value is None else Mark(value, now) for name, value in new.items()
        }
        added = sum(mark is not None and name not in self._values for name, mark in changes.items())
        excess = len(self._values) + added - MOST
        if excess > 0:
            for name, mark in self._marks.items():
                if excess == 0 or mark.written >= now - KEPT_FOR:
                    break
                if name not in changes:
                    changes[name] = None
                    excess -= 1
        return changes

    def apply(self, changes: Mapping[str, Mark | None]) -> None:
        """The changes are stored."""
        for name, mark in changes.items():
            self._marks.pop(name, None)
            if mark is None:
                self._values.pop(name, None)
            else:
                self._marks[name] = mark
                self._values[name] = mark.value
        self._find_oldest()

    def reload(self, stored: Iterable[tuple[str, Mark]]) -> None:
        """Take over what is stored: it is not known which of the last changes are."""
        self._marks = dict(sorted(stored, key=lambda item: item[1].written))
        self._values.clear()
        self._values.update((name, mark.value) for name, mark in self._marks.items())
        self._find_oldest()

    def _find_oldest(self) -> None:
        self._oldest = next((mark.written for mark in self._marks.values()), math.inf)

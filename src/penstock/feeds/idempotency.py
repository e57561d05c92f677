"""Idempotency keys: what was sent again is recognised, also after a restart; stored with the records."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

__all__ = ["KeyLog", "StoredKey"]

_PREFIX: Final = "key:"


@dataclass(frozen=True, slots=True)
class StoredKey:
    """What was stored under a key."""

    number: int
    """Later keys have higher numbers."""
    records: int
    digest: str
    """Identifies the body."""

    def __str__(self) -> str:
        return f"{self.number} {self.records} {self.digest}"


class KeyLog:
    """The last keys, up to a number of them. One thread uses it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, StoredKey] = {}
        """By the name of the mark, the oldest first."""
        self._next = 0

    def resume(self, marks: Mapping[str, str]) -> None:
        """Learn the keys that the journal has."""
        for name, text in marks.items():
            if name.startswith(_PREFIX):
                number, records, digest = text.split(" ")
                self._known[name] = StoredKey(int(number), int(records), digest)
        self._known = dict(sorted(self._known.items(), key=lambda item: item[1].number))
        self._next = 1 + max((key.number for key in self._known.values()), default=-1)

    @staticmethod
    def name_of(key: str) -> str:
        """The name of the mark of a key; keys may be long, so it is a digest."""
        return _PREFIX + hashlib.sha256(key.encode()).hexdigest()[:40]

    @staticmethod
    def digest_of(body: bytes) -> str:
        """Identifies a body."""
        return hashlib.sha256(body).hexdigest()[:32]

    def find(self, name: str) -> StoredKey | None:
        """What was stored under this name."""
        return self._known.get(name)

    def add(self, name: str, records: int, digest: str) -> dict[str, str | None]:
        """The marks to store with the records of a new key; the oldest keys go, if there are too many."""
        key = StoredKey(self._next, records, digest)
        self._next += 1
        marks: dict[str, str | None] = {name: str(key)}
        self._known[name] = key
        while len(self._known) > self._most:
            oldest = next(iter(self._known))
            del self._known[oldest]
            marks[oldest] = None
        return marks

    def withdraw(self, name: str) -> None:
        """The records of a new key were not taken."""
        self._known.pop(name, None)

"""Idempotency keys: what was sent again is recognised, also after a restart; stored with the records."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
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
        self._replaced: dict[str, list[str]] = {}
        """By the name of a key that is being stored: the oldest ones, which go when it is."""
        self._going: set[str] = set()
        """All of those."""

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
        """The marks to store with the records of a new key; the oldest keys go, if there are too many.

        They are known until :meth:`stored` is called: a request that is refused must not cost an old key.
        """
        key = StoredKey(self._next, records, digest)
        self._next += 1
        marks: dict[str, str | None] = {name: str(key)}
        self._known[name] = key
        too_many = max(0, len(self._known) - len(self._going) - self._most)
        self._replaced[name] = []
        stored = (it for it in self._known if it not in self._going and it not in self._replaced)
        oldest = list(islice(stored, too_many))
        self._replaced[name] = oldest
        self._going.update(oldest)
        return marks | dict.fromkeys(oldest)

    def stored(self, name: str) -> None:
        """The records of a new key are in the journal."""
        for oldest in self._replaced.pop(name):
            self._going.discard(oldest)
            del self._known[oldest]

    def withdraw(self, name: str) -> None:
        """The records of a new key were not taken."""
        self._going.difference_update(self._replaced.pop(name))
        del self._known[name]

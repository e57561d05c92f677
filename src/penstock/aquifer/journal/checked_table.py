"""A small table of a journal file, each row with a name and a checksum: cursors, and marks.

The sum of all checksums is kept in the journal's state. So a row that has changed is noticed, and also one
that is missing, or that came back.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from penstock.aquifer.journal.checksums import row_checksum
from penstock.aquifer.journal.failures import damaged

__all__ = ["CURSORS", "MARKS", "CheckedTable"]

CURSORS: Final = "cursors"
MARKS: Final = "marks"
_TYPES: Final[Mapping[str, tuple[tuple[type, ...], ...]]] = {
    CURSORS: ((int,), (int,), (float,), (str, type(None))),
    MARKS: ((str,), (float,)),
}
"""What the columns between the name and the checksum may hold."""


class CheckedTable:
    """Reads a table once, and then writes what has changed."""

    def __init__(self, connection: sqlite3.Connection, path: str, table: str) -> None:
        self._connection = connection
        self._path = path
        self._table = table
        self._checksums: dict[str, int] = {}
        self.total = 0
        """The sum of the checksums of all rows that are stored."""
        marks = ", ".join("?" * (len(_TYPES[table]) + 2))
        self._insert = f"insert or replace into {table} values ({marks})"
        self._delete = f"delete from {table} where name = ?"

    def load(self, total: int) -> Iterator[tuple[str, tuple[object, ...]]]:
        """The rows, each as its name and its values; JournalDamaged if they are not what was written."""
        for name, *values, crc in self._connection.execute(f"select * from {self._table}"):
            sound = type(name) is str and self._fit(values)
            if not sound or crc != row_checksum(self._table, name, *values):
                raise damaged(self._path, f"an entry of its {self._table} is not what was written")
            self._checksums[name] = crc
            self.total += crc
            yield name, tuple(values)
        if self.total != total:
            raise damaged(self._path, f"its {self._table} are not those that were written last")

    def write(self, changes: Mapping[str, tuple[object, ...] | None]) -> int:
        """Write these rows, and delete those with None, inside a transaction; returns the total after it."""
        total = self.total
        for name, values in changes.items():
            total -= self._checksums.get(name, 0)
            if values is None:
                self._connection.execute(self._delete, (name,))
                continue
            if not self._fit(values):
                # SQLite would convert some of these without a word, and the checksum would not fit any more.
                raise TypeError(f"{values!r} cannot be stored among the {self._table} of a journal")
            crc = row_checksum(self._table, name, *values)
            self._connection.execute(self._insert, (name, *values, crc))
            total += crc
        return total

    def _fit(self, values: Sequence[object]) -> bool:
        return all(type(value) in kinds for value, kinds in zip(values, _TYPES[self._table], strict=True))

    def written(self, changes: Mapping[str, tuple[object, ...] | None], total: int) -> None:
        """The transaction of :meth:`write` was committed."""
        for name, values in changes.items():
            if values is None:
                self._checksums.pop(name, None)
            else:
                self._checksums[name] = row_checksum(self._table, name, *values)
        self.total = total

"""Whether the files of an open journal are still where they were.

SQLite goes on with a file that was removed, moved or replaced, and says nothing. What it writes is then found
by nobody.
"""

from __future__ import annotations

import os

from penstock.aquifer.errors import JournalDamaged

__all__ = ["JournalFiles"]


class JournalFiles:
    """The journal and what SQLite has beside it, as they were when it was opened."""

    def __init__(self, path: str) -> None:
        self._main, self._wal, self._index = path, f"{path}-wal", f"{path}-shm"
        self._inodes = {name: self._status(name).st_ino for name in (self._main, self._wal, self._index)}

    def check(self) -> int:
        """JournalDamaged if one of them is not there any more, or is another one.

        Returns how long the write-ahead log is.
        """
        if self._status(self._main).st_ino != self._inodes[self._main]:
            raise JournalDamaged(self._what_happened(self._main))
        log = self._status(self._wal)
        if log.st_ino != self._inodes[self._wal]:
            raise JournalDamaged(self._what_happened(self._wal))
        return log.st_size

    def check_all(self) -> None:
        """The same, and for the index of the log: without it, another program would make one of its own."""
        self.check()
        if self._status(self._index).st_ino != self._inodes[self._index]:
            raise JournalDamaged(self._what_happened(self._index))

    def _status(self, name: str) -> os.stat_result:
        try:
            return os.stat(name)
        except OSError as error:
            raise JournalDamaged(self._what_happened(name)) from error

    def _what_happened(self, name: str) -> str:
        happened = "replaced by another file" if os.path.exists(name) else "removed or moved away"
        return (
            f"the file {name} was {happened} while the journal was in use, and nothing can be stored any "
            f"more. Stop the gateway. If {name} was moved, move it back, and start the gateway again; "
            "otherwise the records in it are lost: move away what is left of the journal, and a new one with "
            "a new epoch is begun"
        )

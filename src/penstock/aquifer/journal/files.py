"""Whether the files of an open journal are still where they were.

SQLite goes on with a file that was removed, moved or replaced, and says nothing. What it writes is then found
by nobody.
"""

from __future__ import annotations

import os
from typing import Final

from penstock.aquifer.errors import JournalDamaged

__all__ = ["JournalFiles"]

_SUFFIXES: Final = ("", "-wal", "-shm")


class JournalFiles:
    """The journal and what SQLite has beside it, as they were when it was opened."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files = [(path + suffix, _identity(path + suffix)) for suffix in _SUFFIXES]

    def check(self) -> None:
        """JournalDamaged if one of them is not there any more, or is another one. Takes microseconds."""
        for name, identity in self._files:
            if _identity(name) != identity:
                raise JournalDamaged(self._what_happened(name))

    def wal_bytes(self) -> int:
        """How long the write-ahead log is."""
        return os.stat(self._path + "-wal").st_size

    def _what_happened(self, name: str) -> str:
        happened = "replaced by another file" if os.path.exists(name) else "removed or moved away"
        return (
            f"the file {name} was {happened} while the journal was in use, and nothing can be stored any "
            f"more. Stop the gateway. If {name} was moved, move it back, and start the gateway again; "
            "otherwise the records in it are lost: move away what is left of the journal, and a new one with "
            "a new epoch is begun"
        )


def _identity(name: str) -> tuple[int, int] | None:
    try:
        status = os.stat(name)
    except OSError:
        return None
    return status.st_dev, status.st_ino

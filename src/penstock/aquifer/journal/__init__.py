"""Where a gateway keeps its records: in memory, or in a file that survives it.

:class:`MemoryJournal` is the fastest and forgets everything with its process, and a restarted gateway begins
a new epoch. Use it when the source can be read again, or when missing some records is no harm.

:class:`SqliteJournal` has every record on the disk before a subscriber sees it. Use it when a subscriber that
comes back after a crash, its own or the gateway's, must find what it has not dealt with yet.
"""

from __future__ import annotations

from penstock.aquifer.journal.interface import Held, Journal, SavedCursor
from penstock.aquifer.journal.memory import MemoryJournal
from penstock.aquifer.journal.sqlite import SqliteJournal

__all__ = ["Held", "Journal", "MemoryJournal", "SavedCursor", "SqliteJournal"]

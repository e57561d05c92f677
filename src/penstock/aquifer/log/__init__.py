"""Where a gateway keeps its records: in memory, or in a file that survives it.

:class:`MemoryJournal` is the fastest and forgets everything with its process, and a restarted gateway begins
a new epoch. Use it when the source can be read again, or when missing some records is no harm.

:class:`SqliteJournal` has every record on the disk before a subscriber sees it. Use it when a subscriber that
comes back after a crash, its own or the gateway's, must find what it has not dealt with yet.
"""

from __future__ import annotations

from penstock.aquifer.log.journal import Cursor, Held, Journal
from penstock.aquifer.log.memory import MemoryJournal
from penstock.aquifer.log.sqlite import SqliteJournal

__all__ = ["Cursor", "Held", "Journal", "MemoryJournal", "SqliteJournal"]

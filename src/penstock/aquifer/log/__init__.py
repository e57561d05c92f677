"""Where a gateway keeps its records: in memory, in a file that survives the process, or in Kafka.

:class:`MemoryJournal` is the fastest. It loses everything with its process, and a restarted gateway begins a
new epoch. Use it when the source can be read again, or when missing some records does not matter.

:class:`SqliteJournal` has every record on the disk before a subscriber sees it. Use it when a subscriber that
comes back after a crash, its own or the gateway's, must find the records that it has not dealt with yet.

:class:`KafkaJournal` has every record in a Kafka topic before a subscriber sees it. Use it when the log must
survive the machine of the gateway, and you run Kafka already.

:class:`Log` is what the threads of a gateway share: a journal with the low watermark of its readers.
"""

from __future__ import annotations

from penstock.aquifer.log.inspection import (
    JournalCompaction,
    JournalVerification,
    compact_journal,
    verify_journal,
)
from penstock.aquifer.log.journal import Cursor, Held, Journal
from penstock.aquifer.log.kafka import KafkaJournal
from penstock.aquifer.log.log import Log, PendingAppend
from penstock.aquifer.log.memory import MemoryJournal
from penstock.aquifer.log.spool import Spool
from penstock.aquifer.log.sqlite import SqliteJournal
from penstock.aquifer.log.unpacked import UnpackedBatch

__all__ = [
    "Cursor",
    "Held",
    "Journal",
    "JournalCompaction",
    "JournalVerification",
    "KafkaJournal",
    "Log",
    "MemoryJournal",
    "PendingAppend",
    "Spool",
    "SqliteJournal",
    "UnpackedBatch",
    "compact_journal",
    "verify_journal",
]

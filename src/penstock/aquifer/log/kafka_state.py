"""What the topic ``NAME-state`` of a log in Kafka says: the log as a whole, its cursors and its marks.

The topic is compacted, so the last message of each key counts. Segments of the index are in it as well: see
:mod:`~penstock.aquifer.log.kafka_segments`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from penstock.aquifer.errors import JournalTooNew
from penstock.aquifer.log.journal import Cursor
from penstock.aquifer.log.marks import Mark

__all__ = [
    "FORMAT",
    "FORMAT_WITH_ZSTD",
    "KafkaLogState",
    "changes_of",
    "cursors_in",
    "log_state_in",
    "marks_in",
]

FORMAT: Final = 1
FORMAT_WITH_ZSTD: Final = 2
"""The same with batches that are compressed, which earlier versions could not read."""
_STATE: Final = "log"
_CURSOR: Final = "cursor "
_MARK: Final = "mark "


class KafkaLogState(msgspec.Struct, array_like=True, frozen=True):
    """What the topic says about the log as a whole."""

    format: int
    epoch: str
    codec: str
    first: int
    before: int
    owner: str
    topic_id: str = ""
    """Of the topic with the batches; empty if the brokers are too old to tell."""


def log_state_in(stored: Mapping[str, bytes], path: str) -> KafkaLogState | None:
    """The state of the log; None if it is new, JournalTooNew if a later version has written it."""
    value = stored.get(_STATE)
    if value is None:
        return None
    if msgspec.msgpack.decode(value)[0] > FORMAT_WITH_ZSTD:
        raise JournalTooNew(f"the log {path} was written by a later version of Penstock; update this one")
    return msgspec.msgpack.decode(value, type=KafkaLogState)


def cursors_in(stored: Mapping[str, bytes]) -> dict[str, Cursor]:
    """The cursors, by the id of their subscriber."""
    return {
        key.removeprefix(_CURSOR): Cursor(*msgspec.msgpack.decode(value))
        for key, value in stored.items()
        if key.startswith(_CURSOR)
    }


def marks_in(stored: Mapping[str, bytes]) -> Iterator[tuple[str, Mark]]:
    """The marks, with their names."""
    for key, value in stored.items():
        if key.startswith(_MARK):
            yield key.removeprefix(_MARK), Mark(*msgspec.msgpack.decode(value))


def changes_of(
    state: KafkaLogState | None, cursors: Mapping[str, Cursor | None], marks: Mapping[str, Mark | None]
) -> dict[str, bytes | None]:
    """The messages that store these changes, by key; None deletes a cursor or a mark."""
    changes: dict[str, bytes | None] = {}
    if state is not None:
        changes[_STATE] = msgspec.msgpack.encode(state)
    for name, cursor in cursors.items():
        changes[_CURSOR + name] = None if cursor is None else msgspec.msgpack.encode(cursor)
    for name, mark in marks.items():
        changes[_MARK + name] = None if mark is None else msgspec.msgpack.encode(mark)
    return changes

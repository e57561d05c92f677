"""Elements that cannot become records: they fail the stream, are left out, or become dead letters.

A dead letter is a JSON object with the reason, the time, where it would have stood, and its bytes. It is in
its log before the records around it are in theirs, so a crash in between may repeat a dead letter, and loses
none.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from penstock.aquifer.gateway.intake import Intake
from penstock.aquifer.log import Log, PendingAppend
from penstock.aquifer.options import OnBadRecord
from penstock.aquifer.records import Record
from penstock.aquifer.records.batch import Batch, RecordMetadata, pack_metadata, pack_values
from penstock.aquifer.records.dead_letter import LONGEST, dead_letter
from penstock.aquifer.records.packer import Packer
from penstock.bad_reasons import BadReasons
from penstock.delivery import BadRecord

__all__ = ["BadRecords", "DeadLetters", "Misfit"]

_log = logging.getLogger("penstock.aquifer")

_BETWEEN_WARNINGS: Final = 1.0
"""Seconds. A source of nothing but bad elements must not fill a log file."""
_GLANCE: Final = 0.25
_BATCH_BYTES: Final = 256 * 1024


class Misfit(NamedTuple):
    """An element that cannot become a record, and the offset that the record after it gets."""

    offset: int
    record: BadRecord


class DeadLetters:
    """The stream of dead letters of another stream; its own writer stores them."""

    def __init__(self, log: Log, intake: Intake) -> None:
        self._log = log
        self._intake = intake

    def submit(self, letters: Sequence[tuple[dict[str, Any], bytes | None]]) -> list[PendingAppend]:
        """Hand them, with their keys, to the writer of their log, in batches."""
        pending = [PendingAppend(batches=[batch]) for batch in self._batches(letters)]
        for each in pending:
            self._log.submit(each)
        return pending

    def _batches(self, letters: Sequence[tuple[dict[str, Any], bytes | None]]) -> list[Batch]:
        """Small ones for a small log, because the oldest batches are dropped as a whole."""
        most, most_bytes = self._log.ack_every_records, min(self._log.ack_every_bytes, _BATCH_BYTES)
        made: list[Batch] = []
        values: list[bytes] = []
        keys: list[bytes | None] = []
        size = 0
        for letter, key in letters:
            values.append(msgspec.json.encode(letter))
            keys.append(key)
            size += len(values[-1])
            if size >= most_bytes or len(values) >= most:
                made.append(_batch(values, keys))
                values, keys, size = [], [], 0
        return [*made, _batch(values, keys)] if values else made

    def wait(self, pending: PendingAppend, seconds: float) -> None:
        """Wait until it is stored or refused, for some time."""
        with self._log.changed:
            if not pending.is_done:
                self._log.changed.wait(seconds)

    def end(self) -> None:
        """The stream that they come from has ended."""
        self._intake.on_complete()


class BadRecords:
    """What a writer does with the elements that cannot become records."""

    def __init__(self, policy: OnBadRecord, letters: DeadLetters | None = None, stream: str = "") -> None:
        self.policy = policy
        self.count = 0
        """How many were left out of the stream."""
        self.reasons = BadReasons(are_kept=letters is not None)
        self._letters = letters
        self._stream = stream
        self._told = float("-inf")

    def sieve(self, elements: Sequence[Any], packer: Packer, offset: int) -> tuple[list[Any], list[Misfit]]:
        """The elements that can become records, and the others; the first record gets this offset."""
        rest = [element for element in elements if not isinstance(element, BadRecord)]
        source_told_all = packer.pack(rest, 0).error is None  # Usually it has.
        good: list[Any] = []
        bad: list[Misfit] = []
        for element in elements:
            if isinstance(element, BadRecord):
                bad.append(Misfit(offset, element))
            elif not source_told_all and (error := packer.problem_with(element)) is not None:
                key = element.key if isinstance(element, Record) and isinstance(element.key, bytes) else None
                reason = f"{type(error).__name__}: {_shown(str, error)}"
                bad.append(Misfit(offset, BadRecord(_bytes_of(element), reason, key=key)))
            else:
                good.append(element)
                offset += packer.records_in(element)
        return good, bad

    def take(self, bad: Sequence[Misfit], epoch: str) -> list[PendingAppend]:
        """Count and report them; the dead letters that have to be stored before the stream goes on."""
        if not bad:
            return []
        self.count += len(bad)
        self.reasons.note(each.record.reason for each in bad)
        now = time.monotonic()
        if now - self._told >= _BETWEEN_WARNINGS:
            self._told = now
            where = "skipped" if self._letters is None else "a dead letter"
            _log.warning(
                "an element could not become a record: %s; it is %s (so far: %d)",
                bad[-1].record.reason,
                where,
                self.count,
                extra={"stream": self._stream, "bad_records": self.count},
            )
        if self._letters is None:
            return []
        return self._letters.submit(
            [
                (
                    dead_letter(
                        each.value,
                        each.reason,
                        longest=LONGEST,
                        size=each.size,
                        offset=offset,
                        epoch=epoch,
                        position=each.position,
                    ),
                    each.key,
                )
                for offset, each in bad
            ]
        )

    def wait(self, pending: PendingAppend) -> str | None:
        """Wait a moment for a dead letter; why it will never be stored, if so."""
        assert self._letters is not None
        self._letters.wait(pending, _GLANCE)
        return pending.failure

    def end(self) -> None:
        """The stream has ended."""
        if self._letters is not None:
            self._letters.end()


def _batch(values: list[bytes], keys: list[bytes | None]) -> Batch:
    known = keys if any(key is not None for key in keys) else None
    metadata = pack_metadata(RecordMetadata(time.time_ns() // 1000, known))
    return Batch(0, len(values), pack_values(values), metadata)


def _bytes_of(element: object) -> bytes:
    value = element.value if isinstance(element, Record) else element
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    return (value if isinstance(value, str) else _shown(repr, value)).encode(errors="backslashreplace")


def _shown(how: Callable[[object], str], what: object) -> str:
    """A text for an object of a user, whose own methods may raise."""
    try:
        return how(what)
    except Exception as error:
        return f"<{type(what).__name__}, which cannot be shown: {type(error).__name__}>"

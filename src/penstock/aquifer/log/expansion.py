"""Compressed batches of a log, expanded for readers that need their records one by one.

A reader that may have a whole batch and knows zstd gets it as it is stored. For all others it is expanded
here. Several of them read the same batches, and a plain reader comes back to a batch many times, so those
that were expanded last are kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from penstock.aquifer.errors import JournalDamaged
from penstock.aquifer.records import Batch
from penstock.aquifer.records.compression import expanded, expanded_bytes

__all__ = ["ExpandedBatches"]

_MOST_BYTES: Final = 8 * 1024 * 1024
"""Of expanded batches that are kept. One alone may have more."""


class ExpandedBatches:
    """The batches that were expanded last. Any thread may ask."""

    def __init__(self, epoch: str) -> None:
        self._epoch = epoch
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[int, int], Batch] = OrderedDict()
        """By first offset and end; the most recently used is the last."""
        self._bytes = 0

    def of(self, batch: Batch) -> Batch:
        """The batch expanded; JournalDamaged if that is not possible."""
        if not batch.compressed:
            return batch
        key = batch.first, batch.end
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None:
                self._kept.move_to_end(key)
                return kept
        try:
            made = expanded(batch)
        except ValueError as error:
            raise self._damaged(batch, error) from error
        with self._lock:
            self._forget(key)
            self._kept[key] = made
            self._bytes += made.nbytes
            while self._bytes > _MOST_BYTES and len(self._kept) > 1:
                self._forget(next(iter(self._kept)))
        return made

    def size_of(self, batch: Batch) -> int:
        """How many bytes the batch has when it is expanded; JournalDamaged if it does not say so."""
        try:
            return expanded_bytes(batch)
        except ValueError as error:
            raise self._damaged(batch, error) from error

    def _forget(self, key: tuple[int, int]) -> None:
        gone = self._kept.pop(key, None)
        if gone is not None:
            self._bytes -= gone.nbytes

    def _damaged(self, batch: Batch, error: ValueError) -> JournalDamaged:
        return JournalDamaged(
            f"the records {batch.first} to {batch.end - 1} of the log {self._epoch} cannot be read: {error}; "
            "start behind them"
        )

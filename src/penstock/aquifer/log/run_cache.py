"""Runs of batches that were read back for subscribers that are behind, as many as fit into a bound.

Such a subscriber reads one batch after the other. So a batch is never read alone, but in a run with some of
those that follow. Several runs are kept, and the least recently used goes first, so that subscribers at
different offsets do not push each other's batches out.
"""

from __future__ import annotations

from typing import Final

from penstock.aquifer.log.batch_sequence import BatchSequence

__all__ = ["RUN_BATCHES", "RunCache"]

RUN_BATCHES: Final = 1024
"""A run ends at this number or at its size: many tiny batches take as long to read as a few large ones."""
_RUN_BYTES: Final = 1024 * 1024
_LEAST_RUNS: Final = 16
"""With little memory the runs are shorter, so that this many still fit."""


class RunCache:
    """The runs of one reader, which has a lock of its own for them.

    ``least`` runs stay even if they are larger than ``cache_bytes``.
    """

    def __init__(self, cache_bytes: int, *, least: int = 0) -> None:
        self.run_bytes = min(_RUN_BYTES, cache_bytes // _LEAST_RUNS)
        """The size at which a run ends."""
        self._cache_bytes = cache_bytes
        self._least = least
        self._runs: list[BatchSequence] = []
        """The most recently used is the last."""
        self._cached_bytes = 0

    def run_with(self, offset: int) -> BatchSequence | None:
        """The run with this offset in it, which is the most recently used from now on."""
        for run in reversed(self._runs):
            if run.start.offset <= offset < run.end.offset:
                if run is not self._runs[-1]:
                    self._runs.remove(run)
                    self._runs.append(run)
                return run
        return None

    def keep(self, run: BatchSequence) -> None:
        """Add a run, and let the least recently used ones go."""
        self._runs.append(run)
        self._cached_bytes += run.nbytes
        while self._cached_bytes > self._cache_bytes and len(self._runs) > self._least:
            self._cached_bytes -= self._runs.pop(0).nbytes

    def clear(self) -> None:
        """Let all of them go."""
        self._runs.clear()
        self._cached_bytes = 0

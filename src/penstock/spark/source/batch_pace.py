"""How much the next batch of a stream takes, when it begins, and in how many tasks it runs.

The limits of the options hold for every batch. With ``targetBatchSeconds`` or ``targetLatencySeconds``, the
source learns from the batches that have run.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from typing import Final

from penstock.aquifer import QueryReport
from penstock.spark.options import SourceOptions
from penstock.spark.source.batch_times import BatchTimes
from penstock.spark.source.demand import FIRST_BATCH, AdaptiveDemand
from penstock.spark.source.latency_target import LatencyTarget
from penstock.spark.source.positions import QueryPosition, partition_count

__all__ = ["UNBOUNDED", "BatchPace"]

UNBOUNDED: Final = 2**63 - 1
_BUSY_SHARE: Final = 0.8
"""If a batch took less than this share of the time until the next one, Spark has waited in between."""


class BatchPace:
    """Follows the batches of one query, in the process that plans them."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        most = options.max_records or UNBOUNDED
        self._latency: LatencyTarget | None = None
        self._demand: AdaptiveDemand | None = None
        if options.target_latency is not None:
            self._latency = LatencyTarget(options.target_latency, most=most)
            self._demand = self._latency.demand
        elif options.target_seconds is not None:
            self._demand = AdaptiveDemand(options.target_seconds, start=min(FIRST_BATCH, most), most=most)
        self._times = BatchTimes()
        self._is_warm = False
        """Whether a batch has run."""
        self._asked: tuple[float, int, Mapping[str, int]] | None = None
        """When the last batch was planned, how many records it has, and where it ends."""
        self._has_pauses = False
        """Whether Spark waits between batches, as with a trigger that has an interval."""
        self._drained_at: float | None = None
        """When the logs had no more records than were taken; None if some were left."""

    def size(self, most: int) -> int:
        """How many records the next batch may have, of ``most`` that Spark allows."""
        return min(most, self._demand.size) if self._demand is not None else most

    def reports(self, endpoints: Iterable[str]) -> dict[str, QueryReport]:
        """What the driver says about the batch that has ended last, for each gateway."""
        return self._times.reports(endpoints)

    # ---------------------------------------------------------------- latency
    def nothing_until(self, moment: float) -> None:
        """Note that the logs had no records for the next batch until then."""
        self._drained_at = moment

    def wait(self, waiting: int) -> float:
        """Seconds to wait for more records than are waiting; 0 if the batch should begin now."""
        if self._latency is None or self._has_pauses or self._drained_at is None:
            return 0.0  # With an interval, the trigger decides when a batch begins.
        return self._latency.wait(waiting, time.monotonic() - self._drained_at)

    # ---------------------------------------------------------------- the batches
    def tasks(self, counts: Collection[int]) -> int:
        """The number of ranges for each gateway, of which the batch has so many records each."""
        wanted, least = self._options.partitions, self._options.min_partitions
        if self._latency is not None and wanted is None:
            return partition_count(1, counts, max(self._latency.tasks(sum(counts)), least or 1))
        return partition_count(wanted, counts, least)

    def planned(self, end: QueryPosition, records: int, left: int) -> None:
        """Note that a batch is about to run, and how many records it leaves for the next one."""
        self._times.request(end.name)
        now = time.monotonic()
        self._drained_at = None if left else now
        if self._demand is not None:
            self._asked = now, records, end.offsets

    def note_duration(self) -> None:
        """Learn from the last batch: Spark asks for the next one."""
        if self._asked is not None and self._demand is not None:
            since, records, end = self._asked
            elapsed = time.monotonic() - since
            seconds = self._times.seconds(end)
            if seconds is not None:
                self._has_pauses = seconds < _BUSY_SHARE * elapsed
                self._demand.is_sure = True
            elif not self._has_pauses:
                seconds = elapsed  # Batches follow each other. The report comes a moment later.
            if self._is_warm and seconds is not None:
                (self._latency or self._demand).observed(records, min(seconds, elapsed))
            # The first batch includes the warm-up of Java, and says nothing about later ones.
            self._is_warm = True
        self._asked = None

    def close(self) -> None:
        """Stop the reports."""
        self._times.close()

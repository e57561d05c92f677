"""What a running pipeline shows of itself: its figures, from the reports that Spark makes of a query.

Spark keeps the last hundred reports. To read them all takes a hundred calls of Java, so that is done only if
more than one batch has ended since the last look. A query that waits for records reports the batch that is
to come, without rows; its own report comes later, under the same number.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.spark.queries import reported_offsets

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Progress", "ReportReader"]


@dataclass(frozen=True, slots=True)
class Progress:
    """Figures of a running pipeline."""

    batch: int
    records: int
    """Records in all batches of this run."""
    records_per_second: float
    batch_seconds: float
    lag: int
    """Records in the source's log that are not in a batch yet."""


class ReportReader:
    """Reads the reports of one query, and counts the records of its batches; for any number of threads.

    It has to look before Spark has made another hundred reports.
    """

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._records = 0
        self._counted = -1
        """The last batch whose records were counted."""
        self._lock = threading.Lock()

    def read(self) -> Progress | None:
        """The latest figures; None before the first report."""
        with self._lock:
            last = self._query.lastProgress
            if last is None:
                return None
            self._count(last)
            return Progress(
                batch=last.batchId,
                records=self._records,
                records_per_second=last.processedRowsPerSecond,
                batch_seconds=last.batchDuration / 1000,
                lag=_lag(last),
            )

    def _count(self, last: StreamingQueryProgress) -> None:
        ended = last.batchId if last.numInputRows else last.batchId - 1
        if ended <= self._counted:
            return
        alone = ended == self._counted + 1 == last.batchId
        for report in [last] if alone else self._query.recentProgress:
            if report.numInputRows and report.batchId > self._counted:
                self._counted = report.batchId
                self._records += report.numInputRows
        self._counted = max(self._counted, ended)  # Some batches have no rows.


def _lag(progress: StreamingQueryProgress) -> int:
    lag = 0
    for latest, end in reported_offsets(progress):
        ends = end.get("offsets", {})
        for endpoint, head in latest.get("offsets", {}).items():
            lag += max(head - ends.get(endpoint, head), 0)
    return lag

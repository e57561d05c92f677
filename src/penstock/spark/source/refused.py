"""A streaming read that cannot be: it says why as soon as it is asked anything.

If a data source raises when its stream reader is made, Spark stumbles over the reader that it did not get,
and the user reads about that instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

__all__ = ["RefusedStream"]


class RefusedStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Raises what was wrong, whatever it is asked."""

    def __init__(self, reason: Exception) -> None:
        self._reason = reason

    def initialOffset(self) -> dict[str, Any]:
        """Says why not."""
        raise self._reason

    def getDefaultReadLimit(self) -> ReadLimit:
        """Says why not."""
        raise self._reason

    def prepareForTriggerAvailableNow(self) -> None:
        """Says why not."""
        raise self._reason

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Says why not."""
        raise self._reason

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Says why not."""
        raise self._reason

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Says why not."""
        raise self._reason

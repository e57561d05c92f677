"""The stream reader for Spark 4.0 and 4.1, where a reader has to remember where its query is.

These versions ask ``latestOffset()`` without saying from where, and how much a batch may have. So the reader
continues after its own last answer. After a restart, Spark names the last position in its log, as an empty
range for which it wants partitions, before it asks anything else.

They do not tell a reader about the trigger, either. With AvailableNow and Once, Spark asks for the end of the
log once, and a batch that leaves something out would be the last one. The driver notes the trigger of a query
in the environment of the process that plans it: see :func:`~penstock.spark.register`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.source.readers import AquiferStreamReader, RefusedStreamReader
from penstock.spark.spark_interface import ReadAllAvailable

if TYPE_CHECKING:
    from pyspark.sql.datasource import InputPartition

__all__ = ["TRIGGER_VARIABLE", "RefusedSelfPacedReader", "SelfPacedStreamReader"]

_log = logging.getLogger("penstock.spark")

TRIGGER_VARIABLE: Final = "PENSTOCK_TRIGGER"
"""The environment variable in which the driver notes the trigger of the query that starts next."""
_ONE_BATCH: Final = ("AvailableNowTrigger", "OneTimeTrigger")
"""The triggers with which these versions of Spark run one batch for a reader such as ours."""


class SelfPacedStreamReader(AquiferStreamReader):
    """Plans batches without being told where the query is."""

    _here: dict[str, Any] | None = None
    """Where the last batch that was planned or logged ends."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Return where the next batch ends."""
        if self._here is None:
            self._here = self.initialOffset()
        one_batch = os.environ.get(TRIGGER_VARIABLE) in _ONE_BATCH
        limit = ReadAllAvailable() if one_batch else self.getDefaultReadLimit()
        self._here = super().latestOffset(self._here, limit)
        return self._here

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch; none for the empty range that names the last logged position."""
        if start == end:
            self._here = end
            return []
        return super().partitions(start, end)


class RefusedSelfPacedReader(RefusedStreamReader):
    """Raises its reason whenever Spark asks it anything."""

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        """Raise the reason."""
        raise self._reason

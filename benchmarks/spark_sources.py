"""Python data sources for Spark that have their rows in memory: what a source can be at best, and at worst.

Spark's own processes import this module, so it is found by name and has nothing of the benchmark's state.
Both sources do what the interface asks for and nothing else: a trigger has a number of rows, and a partition
yields the same rows again and again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows

from benchmarks.spark_rows import ROW_PAYLOAD, ROW_SENSOR, ROWS_A_BATCH, SCHEMA, arrow_rows

__all__ = ["ArrowInMemory", "TuplesInMemory"]


class _Rows(InputPartition):
    """So many rows."""

    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.count = count


class _InMemory(DataSource):
    def schema(self) -> str:
        return SCHEMA

    @property
    def _sizes(self) -> tuple[int, int, int]:
        options = self.options
        return int(options["rows"]), int(options["rowsPerTrigger"]), int(options["partitions"])


class ArrowInMemory(_InMemory):
    """Yields Arrow batches that are there already: nothing but Spark takes time."""

    @classmethod
    def name(cls) -> str:
        """What stands in ``format("…")``."""
        return "arrow_in_memory"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """For ``spark.readStream``."""
        return _ArrowReader(*self._sizes)


class TuplesInMemory(_InMemory):
    """Yields a tuple for each row, as the first example of Spark's documentation does."""

    @classmethod
    def name(cls) -> str:
        """What stands in ``format("…")``."""
        return "tuples_in_memory"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        """For ``spark.readStream``."""
        return _TupleReader(*self._sizes)


class _Reader(DataSourceStreamReader):
    def __init__(self, rows: int, rows_per_trigger: int, partitions: int) -> None:
        self._rows = rows
        self._rows_per_trigger = rows_per_trigger
        self._partitions = partitions

    def initialOffset(self) -> dict[str, int]:
        return {"offset": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._rows_per_trigger)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        end = min(start["offset"] + self._rows_per_trigger, self._rows)
        return {"offset": end} if end > start["offset"] else start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        rows, parts = end["offset"] - start["offset"], self._partitions
        return [_Rows(rows // parts + (index < rows % parts)) for index in range(parts)]


class _ArrowReader(_Reader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Rows)
        batch = arrow_rows()
        whole, rest = divmod(partition.count, ROWS_A_BATCH)
        yield from repeat(batch, whole)
        if rest:
            yield batch.slice(0, rest)


class _TupleReader(_Reader):
    def read(self, partition: InputPartition) -> Iterator[Any]:
        assert isinstance(partition, _Rows)
        for number in range(partition.count):
            yield number, number, ROW_SENSOR, ROW_PAYLOAD

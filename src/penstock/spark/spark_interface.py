"""PySpark's names that are not in every supported version, under one name each.

The newest version is what the rest of the package is written for. What an older one lacks is defined here, so
that no other module has to ask for the version.
"""

from __future__ import annotations

import inspect
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType, VariantVal

__all__ = [
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "StreamArrowWriter",
    "SupportsTriggerAvailableNow",
    "TimeType",
    "accept_all_times",
    "arrow_schema",
    "pushes_filters",
]

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:  # before 4.2

    class ReadLimit:  # type: ignore[no-redef]
        """How much a batch may have."""

    @dataclass
    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Everything that there is."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """A number of rows at most."""

        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """For a reader that can be asked to end where its source ends now."""


try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamArrowWriter
except ImportError:  # before 4.1

    class StreamArrowWriter(DataSourceStreamWriter, DataSourceArrowWriter):  # type: ignore[no-redef, misc]
        """A writer of a stream that gets Arrow batches: 4.0 looks for the base class of batch writers."""


try:
    from pyspark.sql.types import TimeType
except ImportError:  # before 4.1

    class TimeType(DataType):  # type: ignore[no-redef]
        """A type that no column has."""

        precision = 6


_NAMES_A_ZONE = "timezone" in inspect.signature(to_arrow_schema).parameters


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of a batch that Spark accepts for these columns; instants are in UTC."""
    return to_arrow_schema(schema, timezone="UTC") if _NAMES_A_ZONE else to_arrow_schema(schema)


_FILTER_PUSHER = "pyspark.sql.worker.data_source_pushdown_filters"


class _Literal:
    """A value in a condition; None if Python cannot represent it."""

    def __init__(self, variant: VariantVal) -> None:
        self._variant = variant

    def toPython(self) -> Any:
        """Return the value; PySpark calls this before the data source sees the condition."""
        try:
            return self._variant.toPython()
        except (OverflowError, ValueError):
            return None


def accept_all_times() -> None:
    """Let the process that pushes filters down read conditions with times that Python cannot represent.

    PySpark fails for times that are not within the years 1 to 9999 in UTC: in a session in New York, that
    is so for ``9999-12-31 23:59:59``, which many tables have for ever.
    """
    pusher: Any = sys.modules.get(_FILTER_PUSHER) or sys.modules["__main__"]
    read = pusher.deserializeVariant
    pusher.deserializeVariant = lambda encoded: _Literal(read(encoded))


def pushes_filters() -> bool:
    """Whether this process is the one that pushes filters down to a data source.

    Spark refuses to read with a reader that accepts filters while ``spark.sql.python.filterPushdown.enabled``
    is false, which is the default. Where it is true, this process creates the reader.
    """
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return _FILTER_PUSHER in sys.modules or getattr(main, "name", None) == _FILTER_PUSHER

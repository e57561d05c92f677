"""The rows that Spark reads: an Arrow batch that is there already, and JSON."""

from __future__ import annotations

import json
from functools import cache

import pyarrow as pa

__all__ = ["ROWS_A_BATCH", "ROW_PAYLOAD", "ROW_SENSOR", "SCHEMA", "arrow_rows", "json_rows"]

SCHEMA = "id bigint, moment bigint, sensor string, payload string"
"""About 100 bytes in a row."""
ROWS_A_BATCH = 10_000
"""Rows in an Arrow batch."""
ROW_SENSOR = "sensor-00042"
ROW_PAYLOAD = "0123456789abcdef" * 4


@cache
def arrow_rows() -> pa.RecordBatch:
    """Rows of the schema, as many as a batch has."""
    numbers = range(ROWS_A_BATCH)
    return pa.record_batch(
        {
            "id": pa.array(numbers, pa.int64()),
            "moment": pa.array(numbers, pa.int64()),
            "sensor": pa.array([ROW_SENSOR] * ROWS_A_BATCH, pa.string()),
            "payload": pa.array([ROW_PAYLOAD] * ROWS_A_BATCH, pa.string()),
        }
    )


def json_rows(count: int) -> list[bytes]:
    """So many rows of the schema, each as a JSON object."""
    return [
        json.dumps({"id": number, "moment": number, "sensor": ROW_SENSOR, "payload": ROW_PAYLOAD}).encode()
        for number in range(count)
    ]

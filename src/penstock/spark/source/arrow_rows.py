"""Rows of a log of Arrow, fitted into the schema of a query, and columns converted as far as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from penstock.aquifer import ARROW, Batch, to_arrow_stream, values_of
from penstock.spark.arrow_layouts import has_same_layout, reinterpreted
from penstock.spark.errors import BadSchema
from penstock.spark.source.records import Reasons, one_line

__all__ = ["converted_where_possible", "fitted", "rows_as_bytes"]


def fitted(batch: pa.RecordBatch, schema: pa.Schema, endpoint: str, wrong: Reasons | None) -> pa.RecordBatch:
    """The columns of a schema, in its order and with its types.

    Without ``wrong``, a batch that does not fit raises. Otherwise a column that the batch lacks is null, a
    value that is not of the type is null, and ``wrong`` gets the reason. A batch that has none of the columns
    is wrong as a whole.
    """
    if batch.schema.equals(schema):
        return batch
    missing = [name for name in schema.names if name not in batch.schema.names]
    if missing and (wrong is None or missing == schema.names):
        text = f"have no column {', '.join(missing)}; they have {', '.join(batch.schema.names)}"
        if wrong is None:
            raise BadSchema(f"the records of {endpoint} {text}")
        wrong.update(dict.fromkeys(range(batch.num_rows), f"the records {text}"))
    arrays = []
    for field in schema:
        if field.name in missing:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        elif wrong is None:
            arrays.append(_cast(batch.column(field.name), field.type))
        else:
            cast = partial(_cast, kind=field.type)
            arrays.append(converted_where_possible(batch.column(field.name), field, cast, 0, wrong))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def rows_as_bytes(batch: pa.RecordBatch, numbers: Sequence[int]) -> list[bytes]:
    """Some of the rows, each as a JSON object; one that JSON cannot represent as an Arrow IPC stream."""
    return [_as_bytes(to_arrow_stream(batch.slice(number, 1))) for number in numbers]


def _as_bytes(row: memoryview) -> bytes:
    try:
        return values_of(Batch(0, 1, row, b"", ARROW))[0]
    except (ValueError, OverflowError, TypeError, NotImplementedError, pa.ArrowException):
        return bytes(row)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    return reinterpreted(column, kind) if has_same_layout(column.type, kind) else column.cast(kind)


def converted_where_possible(
    column: pa.Array, field: pa.Field, convert: Callable[[pa.Array], pa.Array], first: int, wrong: Reasons
) -> pa.Array:
    """Convert a column; what cannot be converted is found by halving, and is null."""
    try:
        return convert(column)
    except (ValueError, OverflowError) as error:
        if len(column) > 1:
            half = len(column) // 2
            below = converted_where_possible(column.slice(0, half), field, convert, first, wrong)
            above = converted_where_possible(column.slice(half), field, convert, first + half, wrong)
            return pa.concat_arrays([below, above])
        reason = f"{field.name}: {one_line(error)}"
    except (pa.ArrowNotImplementedError, TypeError) as error:
        reason = f"{field.name}: {one_line(error)}"  # No value of the one type is one of the other.
    for number in range(first, first + len(column)):
        wrong.setdefault(number, reason)
    return pa.nulls(len(column), field.type)

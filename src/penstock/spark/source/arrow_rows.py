"""Rows of a log of Arrow, fitted into the schema of a query, and columns converted as far as possible."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from penstock.aquifer import ARROW, Batch, to_arrow_stream, values_of
from penstock.spark.arrow_layouts import has_same_layout, reinterpreted
from penstock.spark.errors import BadSchema, UnreadableRecord
from penstock.spark.source.decimals import cast_decimals
from penstock.spark.source.misfits import misfit, type_name
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
    twice = [name for name in schema.names if batch.schema.names.count(name) > 1]
    if twice:
        text = f"the records have {batch.schema.names.count(twice[0])} columns {twice[0]}"
        if wrong is None:
            raise UnreadableRecord(text)
        wrong.update(dict.fromkeys(range(batch.num_rows), text))
    if missing and (wrong is None or missing == schema.names):
        text = f"have no column {', '.join(missing)}; they have {', '.join(batch.schema.names)}"
        if wrong is None:
            raise BadSchema(f"the records of {endpoint} {text}")
        wrong.update(dict.fromkeys(range(batch.num_rows), f"the records {text}"))
    reasons: Reasons = {} if wrong is None else wrong
    arrays = []
    for field in schema:
        if field.name in missing or field.name in twice:
            arrays.append(pa.nulls(batch.num_rows, field.type))
        else:
            cast = partial(_cast, kind=field.type)
            arrays.append(converted_where_possible(batch.column(field.name), field, cast, 0, reasons))
    if wrong is None and reasons:
        first = min(reasons)
        raise UnreadableRecord(reasons[first], first)
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
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type == kind:
        return column
    if has_same_layout(column.type, kind):
        return reinterpreted(column, kind)
    _check_meaning(column, kind)
    return cast_decimals(column, kind)


def _check_meaning(column: pa.Array, kind: pa.DataType) -> None:
    """Raise for what Arrow casts all the same, and what is not the same value afterwards.

    It makes a date of a time, true of every number but 0, infinity of a number that is too large for a float,
    and a date or a time of a number, whose unit it guesses. Of a list view it (up to 26) leaves out the last
    list.
    """
    types, one = pa.types, column.type
    if types.is_dictionary(one):
        _check_meaning(column.dictionary_decode(), kind)
    elif types.is_list_view(one) or types.is_large_list_view(one):
        raise TypeError("a list view loses its last list")
    elif types.is_struct(one) and types.is_struct(kind):
        for field, inner in zip(one, column.flatten(), strict=True):
            if kind.get_field_index(field.name) >= 0:
                _check_meaning(inner, kind.field(field.name).type)
    elif types.is_map(one) and types.is_map(kind):
        _check_meaning(column.keys, kind.key_type)
        _check_meaning(column.items, kind.item_type)
    elif _is_list(one) and types.is_list(kind):
        _check_meaning(column.flatten(), kind.value_type)
    elif _is_number(one) and types.is_temporal(kind):
        raise TypeError("a number is not a date or a time")
    elif types.is_timestamp(one) and types.is_time(kind):
        raise TypeError("a time of a day has no date")
    elif types.is_timestamp(one) and types.is_date(kind):
        local = column if one.tz is None else pc.local_timestamp(column)
        _check_all(pc.equal(local.cast(kind).cast(local.type), local))
    elif types.is_float64(one) and types.is_float32(kind):
        _check_all(pc.equal(pc.is_inf(column.cast(kind)), pc.is_inf(column)))
    elif _is_number(one) and types.is_boolean(kind):
        _check_all(pc.or_(pc.equal(column, 0), pc.equal(column, 1)))


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _check_all(true: pa.BooleanArray) -> None:
    if pc.all(true).as_py() is False:  # Nulls do not count.
        raise pa.ArrowInvalid("a value would change")


def converted_where_possible(
    column: pa.Array, field: pa.Field, convert: Callable[[pa.Array], pa.Array], first: int, wrong: Reasons
) -> pa.Array:
    """Convert a column; what cannot be converted is found by halving, and is null."""
    try:
        return convert(column)
    except (ValueError, OverflowError) as error:
        if len(column) > 1:
            half = len(column) // 2
            below = converted_where_possible(_part(column, 0, half), field, convert, first, wrong)
            above = converted_where_possible(_part(column, half), field, convert, first + half, wrong)
            return pa.concat_arrays([below, above])
        reason = f"{field.name}: {one_line(error)}"
        if isinstance(error, pa.ArrowException):
            with suppress(ValueError, OverflowError):  # Python has no such time.
                reason = misfit(field.name, column[0].as_py(), field.type)
    except (pa.ArrowNotImplementedError, TypeError):
        # No value of the one type is one of the other.
        reason = f"{field.name}: {type_name(column.type)} cannot be converted to {type_name(field.type)}"
    for number in pc.indices_nonzero(column.is_valid()).to_pylist():
        wrong.setdefault(first + number, reason)
    return pa.nulls(len(column), field.type)


def _part(column: pa.Array, start: int, stop: int | None = None) -> pa.Array:
    """Some rows of a column. A slice would still have the elements of all arrays, and a cast sees them."""
    if pa.types.is_nested(column.type):
        return column.take(pa.array(range(start, len(column) if stop is None else stop), pa.int64()))
    return column[start:stop]

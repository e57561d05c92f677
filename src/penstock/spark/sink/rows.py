"""From Arrow batches of Spark to batches of records for a gateway.

:class:`RowEncoder` writes rows as JSON or MessagePack so that the source reads the same values back. JSON has
no bytes, no infinity, and only string keys. The forms are those of Spark's ``to_json``: bytes in base64,
``"NaN"`` and ``"Infinity"`` as strings, a map as an object. Where ``to_json`` loses something (keys that are
not strings, microseconds), ours does not. A type that has no form is an error that names the column.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VariantType,
    VariantVal,
)

from penstock.aquifer import (
    ARROW,
    MSGPACK,
    Batch,
    RecordMetadata,
    pack_metadata,
    pack_values,
    to_arrow_stream,
)
from penstock.spark.arrow_layouts import columns_in_utc
from penstock.spark.errors import BadSchema, UnwritableRow
from penstock.spark.sink.csv_rows import CsvRowEncoder
from penstock.spark.sink.schema_rows import SchemaRowEncoder
from penstock.spark.spark_interface import TimeType
from penstock.spark.type_forms import check_names, check_types

__all__ = ["RowEncoder", "RowPacker"]

_BATCH_BYTES: Final = 512 * 1024
"""The approximate size of a batch."""
_BYTES: Final = ("binary", "string")


class RowPacker:
    """Packs rows as records, in the form that the option ``value`` names."""

    def __init__(
        self, schema: StructType, value: str, separator: str = ",", value_schema: str | None = None
    ) -> None:
        if not schema.fields:  # Spark drops rows without columns on their way to Python.
            raise BadSchema("this query has no columns, and rows without columns get lost: select some")
        self._value = value
        if value not in _BYTES:
            instead = "" if value == "arrow" else ', or use option("value", "arrow")'
            check_types(schema, value, "cast it to a string", instead)
        if value != "csv":
            check_names(schema)
        self._rows: RowEncoder | CsvRowEncoder | SchemaRowEncoder | None = None
        if value in ("json", "msgpack"):
            self._rows = RowEncoder(schema, value)
        elif value == "csv":
            self._rows = CsvRowEncoder(separator)
        elif value in ("avro", "protobuf"):
            self._rows = SchemaRowEncoder(schema, value, value_schema)
        names = set(schema.names)
        if value in _BYTES:
            kinds = {field.name: field.dataType for field in schema.fields}  # A text may have a collation.
            fit = all(isinstance(kind, StringType | BinaryType) for kind in kinds.values())
            if not fit or "value" not in names or names - {"value", "key"}:
                columns = ", ".join(f"{name} {kind.simpleString()}" for name, kind in kinds.items())
                raise BadSchema(
                    f'option "value" is {value!r}: rows need a column value, and may have a column key, both '
                    f"string or binary; this query has {columns}. Select these columns, or use "
                    'option("value", "json")'
                )

    def batches(self, batch: pa.RecordBatch) -> Iterator[Batch]:
        """The rows of an Arrow batch as batches of records, each about half a megabyte."""
        rows = max(1, batch.num_rows * _BATCH_BYTES // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            yield from self._split(batch.slice(start, rows))

    def _split(self, batch: pa.RecordBatch) -> Iterator[Batch]:
        records, half = self._packed(batch), batch.num_rows // 2
        if len(records.payload) <= 2 * _BATCH_BYTES or not half:
            yield records
            return
        # JSON may be much larger than Arrow, because it repeats the names of the columns in each row.
        yield from self._split(batch.slice(0, half))
        yield from self._split(batch.slice(half))

    def _packed(self, batch: pa.RecordBatch) -> Batch:
        now = time.time_ns() // 1000
        if self._value == "arrow":
            return Batch(0, batch.num_rows, to_arrow_stream(batch), pack_metadata(RecordMetadata(now)), ARROW)
        if self._rows is not None:
            values, keys = self._rows.rows(batch), None
        else:
            values = _as_bytes(batch.column("value"), "value")
            keys = batch.column("key").cast(pa.binary()).to_pylist() if "key" in batch.schema.names else None
        return Batch(0, len(values), pack_values(values), pack_metadata(RecordMetadata(now, keys)), MSGPACK)


def _as_bytes(column: Any, name: str) -> list[bytes]:
    if column.null_count:
        raise ValueError(
            f"the column {name} has {column.null_count} nulls, and a record needs a value: filter them"
        )
    values: list[bytes] = column.cast(pa.binary()).to_pylist()
    return values


Encode: TypeAlias = Callable[[Any], Any]

_AS_THEY_ARE: Final = (
    NullType,
    BooleanType,
    IntegralType,
    DecimalType,
    StringType,
    BinaryType,
    DateType,
    TimestampType,
    TimestampNTZType,
    DayTimeIntervalType,
    TimeType,
)
"""Types whose Python values msgspec writes in the right form: bytes in base64, times in ISO 8601."""
_FRACTIONS: Final = (FloatType, DoubleType)
_IN_A_VARIANT: Final = (type(None), bool, int, float, decimal.Decimal, str)
_NO_PYTHON_VALUE: Final = (ValueError, OverflowError, pa.ArrowException)
"""What pyarrow raises for the year 20000, or for a string that is not UTF-8."""


class RowEncoder:
    """Writes the rows of one schema as ``"json"`` or ``"msgpack"``."""

    def __init__(self, schema: StructType, form: str) -> None:
        self._form = form
        self._names = list(schema.names)
        self._encoders = [_encoder(field.dataType, form, field.name) for field in schema.fields]
        self._encode = (
            msgspec.json.Encoder(decimal_format="number").encode
            if form == "json"
            else msgspec.msgpack.Encoder().encode
        )

    def rows(self, batch: pa.RecordBatch) -> list[bytes]:
        """Each row of an Arrow batch as an encoded object."""
        columns = columns_in_utc(batch)
        objects = self._objects(columns, batch.num_rows)
        for name, column, change in zip(self._names, columns, self._encoders, strict=True):
            if change is not None and not _is_finite(column):
                try:
                    _change(objects, name, change)
                except ValueError as error:
                    raise self._unwritable(name, error) from error
        return [self._encode(row) for row in objects]

    def _objects(self, columns: list[pa.Array], count: int) -> list[dict[str, Any]]:
        if not columns:
            return [{} for _ in range(count)]
        try:
            objects: list[dict[str, Any]] = pa.RecordBatch.from_arrays(columns, names=self._names).to_pylist()
            return objects
        except _NO_PYTHON_VALUE:
            for name, column in zip(self._names, columns, strict=True):
                try:
                    column.to_pylist()
                except _NO_PYTHON_VALUE as error:
                    raise self._unwritable(name, error) from error
            raise

    def _unwritable(self, name: str, error: Exception) -> UnwritableRow:
        return UnwritableRow(
            f"the column {name} cannot be written as {self._form}: {error}. Cast it to a string, or use "
            'option("value", "arrow")'
        )


def _is_finite(column: pa.Array) -> bool:
    return pa.types.is_floating(column.type) and pc.all(pc.is_finite(column)).as_py() is not False


def _change(objects: list[dict[str, Any]], name: str, change: Encode) -> None:
    for row in objects:
        value = row[name]
        if value is not None:
            row[name] = change(value)


def _encoder(kind: DataType, form: str, path: str) -> Encode | None:
    """Converts a value so that it can be written; None if every value of the type can."""
    if isinstance(kind, UserDefinedType):
        return _encoder(kind.sqlType(), form, path)
    if isinstance(kind, _AS_THEY_ARE):
        return None
    if isinstance(kind, _FRACTIONS):
        return _fraction if form == "json" else None
    if isinstance(kind, StructType):
        return _struct(kind, form, path)
    if isinstance(kind, ArrayType):
        return _array(kind, form, path)
    if isinstance(kind, MapType):
        return _map(kind, form, path)
    assert isinstance(kind, VariantType), "the types were checked before"
    return _variant if form == "json" else lambda value: bytes(_variant(value)).decode()


def _struct(kind: StructType, form: str, path: str) -> Encode | None:
    encoders = [_encoder(field.dataType, form, f"{path}.{field.name}") for field in kind.fields]
    pairs = zip(kind.names, encoders, strict=True)
    changing = [(name, encode) for name, encode in pairs if encode is not None]
    if not changing:
        return None

    def encode_struct(value: dict[str, Any]) -> dict[str, Any]:
        for name, encode in changing:
            if value[name] is not None:
                value[name] = encode(value[name])
        return value

    return encode_struct


def _array(kind: ArrayType, form: str, path: str) -> Encode | None:
    encode = _encoder(kind.elementType, form, path)
    if encode is None:
        return None
    return lambda values: [None if value is None else encode(value) for value in values]


def _map(kind: MapType, form: str, path: str) -> Encode:
    text = _key(kind.keyType)
    encode = _encoder(kind.valueType, form, path)
    if text is None and encode is None:
        return dict

    def encode_map(pairs: list[tuple[Any, Any]]) -> dict[str, Any]:
        return {
            key if text is None else text(key): value if value is None or encode is None else encode(value)
            for key, value in pairs
        }

    return encode_map


def _key(kind: DataType) -> Callable[[Any], str] | None:
    """Converts a key to a string; None for keys that are strings."""
    if isinstance(kind, StringType):
        return None
    if isinstance(kind, BooleanType):
        return lambda key: "true" if key else "false"
    if isinstance(kind, IntegralType | DecimalType):
        return str
    if isinstance(kind, _FRACTIONS):
        return lambda key: str(_fraction(key))
    if isinstance(kind, DateType | TimestampType | TimestampNTZType):
        return datetime.date.isoformat if isinstance(kind, DateType) else datetime.datetime.isoformat
    assert isinstance(kind, BinaryType), "the types were checked before"
    return lambda key: base64.b64encode(key).decode()


def _fraction(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _variant(value: dict[str, bytes]) -> msgspec.Raw:
    variant = VariantVal(value["value"], value["metadata"])
    content = variant.toPython()
    if content is None:
        raise ValueError("a variant null would be read as a missing variant")
    _check_variant(content)
    return msgspec.Raw(variant.toJson().encode())


def _check_variant(content: Any) -> None:
    """Refuse values that ``toJson`` writes as strings, because they would be read as strings."""
    if isinstance(content, dict):
        content = list(content.values())
    if isinstance(content, list):
        for element in content:
            _check_variant(element)
    elif not isinstance(content, _IN_A_VARIANT) or (
        isinstance(content, float) and not math.isfinite(content)
    ):
        raise ValueError(f"a variant has {content!r} in it")

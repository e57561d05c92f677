"""The schema of a log, inferred from some of its records.

The rules for JSON are those of Spark's own reader: whole numbers are ``bigint``, the fields of an object are
in the order of their names, values of different types in one field are strings, and a field that is always
null is a string.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.aquifer import LogReader, from_arrow_stream, unpack_values
from penstock.spark.errors import BadOption, BadSchema, UnreadableRecord
from penstock.spark.options import SourceOptions
from penstock.spark.source.gateway_logs import GatewayLogs
from penstock.spark.source.metadata_columns import METADATA
from penstock.spark.source.records import one_line
from penstock.spark.type_forms import spark_schema

__all__ = ["SAMPLE", "inferred_schema"]

SAMPLE: Final = 1000
"""How many records of each gateway are looked at."""
_LARGEST: Final = 2**63
_DIGITS: Final = 38
"""The most digits of a decimal number."""
_LONG_DIGITS: Final = 20
"""The digits of the decimal type for all whole numbers of 64 bits."""
_SIMPLE: Final[dict[type, DataType]] = {
    type(None): NullType(),
    bool: BooleanType(),
    float: DoubleType(),
    str: StringType(),
    bytes: BinaryType(),
    datetime.datetime: TimestampType(),
}


def inferred_schema(options: SourceOptions) -> StructType:
    """The schema of the first records that the options name."""
    if options.value == "csv":
        raise BadOption("inferSchema", "true", "a record of CSV has no names of columns: give a schema")
    if options.value == "arrow":
        kinds = [_schema_of_arrow(payload) for payload in _payloads(options)]
    else:
        decode: Callable[[bytes], Any] = json.loads if options.value == "json" else msgspec.msgpack.decode
        kinds = list(_kinds(options, decode))
    found: DataType = NullType()
    for kind in kinds:
        found = _merged(found, kind)
    schema = _complete(found)
    if not isinstance(schema, StructType) or not schema.fields:
        raise BadSchema(
            f"there are no records at {', '.join(options.endpoints)} from which to infer a schema: give one, "
            '.schema("sensor string, reading double")'
        )
    if options.include_metadata:
        known = [StructField(name, kind) for name, kind in METADATA.items()]
        return StructType([*known, *(field for field in schema.fields if field.name not in METADATA)])
    return schema


def _payloads(options: SourceOptions) -> Iterator[bytes | memoryview]:
    logs = GatewayLogs(options)
    wire_format = "arrow" if options.value == "arrow" else "msgpack"
    try:
        for endpoint in options.endpoints:
            state = logs.state(endpoint)
            start = logs.start_of(endpoint, state)
            stop = min(logs.end_of(endpoint, state), start + SAMPLE)
            if start < stop:
                with LogReader(endpoint, patience=options.patience, curve=options.curve_client()) as log:
                    for batch in log.read(start, stop, epoch=state.epoch, format=wire_format):
                        yield batch.payload
    finally:
        logs.close()


def _kinds(options: SourceOptions, decode: Callable[[bytes], Any]) -> Iterator[DataType]:
    """The types of the records. As in Spark, the schema has a column for wrong ones if there are some."""
    for payload in _payloads(options):
        for value in unpack_values(payload):
            try:
                record = decode(value)
                if not isinstance(record, dict) or not all(isinstance(name, str) for name in record):
                    raise ValueError("it is not an object with texts as names")
                yield _kind_of(record)
            except (ValueError, RecursionError, msgspec.MsgspecError) as error:
                if options.mode == "FAILFAST":
                    reason = f"no schema can be inferred, because a record cannot be read: {one_line(error)}"
                    raise UnreadableRecord(reason) from error
                if options.mode == "PERMISSIVE":
                    yield StructType().add(options.corrupt_record, StringType())


def _schema_of_arrow(payload: bytes | memoryview) -> DataType:
    return spark_schema(from_arrow_stream(payload).schema)


def _kind_of(value: Any) -> DataType:
    if isinstance(value, dict):
        schema = StructType()
        for name in sorted(value, key=str):
            schema.add(str(name), _kind_of(value[name]))
        return schema
    if isinstance(value, list):
        element: DataType = NullType()
        for each in value:
            element = _merged(element, _kind_of(each))
        return ArrayType(element)
    if isinstance(value, int) and not isinstance(value, bool):
        if -_LARGEST <= value < _LARGEST:
            return LongType()
        digits = len(str(abs(value)))
        return DecimalType(digits, 0) if digits <= _DIGITS else DoubleType()
    return _SIMPLE.get(type(value), StringType())


def _merged(one: DataType, other: DataType) -> DataType:
    """The type that has the values of both."""
    if one == other or isinstance(other, NullType):
        return one
    if isinstance(one, NullType):
        return other
    if isinstance(one, StructType) and isinstance(other, StructType):
        kinds = {field.name: field.dataType for field in one.fields}
        for field in other.fields:
            kinds[field.name] = _merged(kinds.get(field.name, NullType()), field.dataType)
        schema = StructType()
        for name in sorted(kinds):
            schema.add(name, kinds[name])
        return schema
    if isinstance(one, ArrayType) and isinstance(other, ArrayType):
        return ArrayType(_merged(one.elementType, other.elementType))
    numbers = (LongType, DecimalType, DoubleType)
    if isinstance(one, numbers) and isinstance(other, numbers):
        if isinstance(one, DoubleType) or isinstance(other, DoubleType):
            return DoubleType()
        return DecimalType(max(map(_digits, (one, other))), 0)
    return StringType()


def _digits(kind: DataType) -> int:
    return kind.precision if isinstance(kind, DecimalType) else _LONG_DIGITS


def _complete(kind: DataType) -> DataType:
    """The type without fields of no type: always null becomes a string, and an object without fields goes."""
    if isinstance(kind, NullType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_complete(kind.elementType))
    if isinstance(kind, StructType):
        schema = StructType()
        for field in kind.fields:
            if not isinstance(field.dataType, StructType) or field.dataType.fields:
                schema.add(field.name, _complete(field.dataType))
        return schema
    return kind

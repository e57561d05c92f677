"""Which of Spark's types a format can represent; the source and the sink check that before anything runs.

Whatever the format is, Spark passes columns to Python as Arrow, and PySpark cannot do that with every type.
So a type needs a form in Arrow as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkTypeError
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
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    UserDefinedType,
    VariantType,
)

from penstock.spark.errors import BadSchema
from penstock.spark.spark_interface import TimeType, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["check_names", "check_types", "spark_schema"]

_KEYS: Final = (
    StringType,
    BooleanType,
    IntegralType,
    DecimalType,
    FloatType,
    DoubleType,
    DateType,
    TimestampType,
    TimestampNTZType,
    BinaryType,
)
"""Types of a map's keys that have a text each."""
_OBJECTS: Final = (*_KEYS, NullType, DayTimeIntervalType, VariantType)
_LEAVES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "json": _OBJECTS,
    "msgpack": _OBJECTS,
    "csv": _KEYS,
    "avro": (*_KEYS, NullType, TimeType),
    "protobuf": (*_KEYS, NullType, TimeType),
}
"""The types that a format has, apart from arrays, maps and structs. Arrow has all that Spark passes on."""
_TEXT_KEYS: Final = ("json", "msgpack")
_PYTHONS_TIMES: Final = 6
"""Digits after the second in a Python time."""


def check_types(schema: StructType, value: str, remedy: str, instead: str = "") -> None:
    """Raise BadSchema for a column that the format ``value`` has no form for.

    ``remedy`` says what to do about it, and ``instead`` what else helps if the type has a form in Arrow.
    """
    for field in schema.fields:
        _check(field.dataType, value, field.name, remedy, instead)


def check_names(kind: DataType, path: str = "") -> None:
    """Raise BadSchema if there are two columns, or two fields of a struct, of one name."""
    if isinstance(kind, UserDefinedType):
        check_names(kind.sqlType(), path)
    elif isinstance(kind, ArrayType):
        check_names(kind.elementType, path)
    elif isinstance(kind, MapType):
        check_names(kind.valueType, path)
    elif isinstance(kind, StructType):
        for field in kind.fields:
            inner = f"{path}.{field.name}" if path else field.name
            if kind.names.count(field.name) > 1:
                raise BadSchema(
                    f"there are {kind.names.count(field.name)} columns {inner}, and an object can have only "
                    "one field of a name: rename them"
                )
            check_names(field.dataType, inner)


def _check(kind: DataType, value: str, path: str, remedy: str, instead: str) -> None:
    if isinstance(kind, UserDefinedType):
        _check(kind.sqlType(), value, path, remedy, instead)
    elif isinstance(kind, StructType) and value != "csv":
        for field in kind.fields:
            _check(field.dataType, value, f"{path}.{field.name}", remedy, instead)
    elif isinstance(kind, ArrayType) and value != "csv":
        _check(kind.elementType, value, path, remedy, instead)
    elif isinstance(kind, MapType) and value != "csv":
        if value in _TEXT_KEYS and not isinstance(kind.keyType, _KEYS):
            raise BadSchema(
                f"the column {path} is a map with keys of type {kind.keyType.simpleString()}, and the keys "
                f"of an object are strings: {remedy}{instead}"
            )
        _check(kind.keyType, value, path, remedy, instead)
        _check(kind.valueType, value, path, remedy, instead)
    elif not _passes_as_arrow(kind):
        raise BadSchema(
            f"the column {path} is {kind.simpleString()}, and PySpark has no form for that: {remedy}"
        )
    elif not _has_form(kind, value):
        raise BadSchema(
            f"the column {path} is {kind.simpleString()}, and {value} has no form for that: {remedy}{instead}"
        )


def _has_form(kind: DataType, value: str) -> bool:
    if value in _TEXT_KEYS and isinstance(kind, TimeType):
        return kind.precision <= _PYTHONS_TIMES
    return isinstance(kind, _LEAVES.get(value, DataType))


def _passes_as_arrow(kind: DataType) -> bool:
    try:
        arrow_schema(StructType([StructField("column", kind)]))
    except PySparkTypeError:
        return False
    return True


def spark_schema(columns: pa.Schema) -> StructType:
    """The schema of Arrow columns; BadSchema names a column of a type that this version of Spark lacks."""
    import pyarrow as pa
    from pyspark.sql.pandas.types import from_arrow_schema

    fields: list[StructField] = []
    for column in columns:
        try:
            fields += from_arrow_schema(pa.schema([column])).fields
        except PySparkTypeError as error:
            raise BadSchema(
                f"the column {column.name} of the records is {column.type}, which is not a type of Spark: "
                "give a schema that names the type to read it as"
            ) from error
    return StructType(fields)

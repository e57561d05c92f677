"""What can be read of a wrong record: a field that cannot be read is null, and the others keep their values.

As in Spark's own reader of JSON, a field of an inner struct counts for itself, also within arrays and maps.
An array or a map with an element that cannot be read is null as a whole, and so is a record that is no
object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, UserDefinedType

from penstock.spark.source.decoders import Dialect, Zone, decoder, key_converter

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CANNOT_BE_READ", "PartialRows"]

CANNOT_BE_READ: Final = (ValueError, OverflowError, TypeError, KeyError, RecursionError, pa.ArrowException)
"""What the decoders and pyarrow raise for a value that is not what it should be."""

_Read: TypeAlias = Callable[[bytes], Any]
_NULLS: Final = {"json": b"null", "msgpack": b"\xc0"}


class PartialRows:
    """Reads wrong records of one schema."""

    def __init__(self, schema: StructType, arrow_schema: pa.Schema, form: str, zone: Zone) -> None:
        self._dialect = Dialect(form, zone, lenient=form == "json")
        self._null = _NULLS[form]
        kinds = [field.type for field in arrow_schema]
        self._read = self._struct(schema, dict(zip(schema.names, kinds, strict=True)))

    def row(self, record: bytes) -> dict[str, Any]:
        """The fields that can be read; without the others."""
        try:
            fields: dict[str, Any] = self._read(record)
        except CANNOT_BE_READ:
            return {}
        return fields

    def _reader(self, kind: DataType, arrow: pa.DataType) -> _Read:
        """Reads a value that is not null; raises if it cannot be read."""
        if isinstance(kind, UserDefinedType):
            return self._reader(kind.sqlType(), arrow)
        if isinstance(kind, StructType):
            return self._struct(kind, {field.name: field.type for field in _fields(arrow)})
        if isinstance(kind, ArrayType):
            return self._array(self._optional(kind.elementType, arrow.value_type))
        if isinstance(kind, MapType):
            return self._map(kind, arrow.key_type, self._optional(kind.valueType, arrow.item_type))
        value = decoder(kind, self._dialect)
        decode, convert = self._decode(value.wire), value.convert
        check = _check(arrow)

        def read(raw: bytes) -> Any:
            decoded = decode(raw)
            found = decoded if convert is None else convert(decoded)
            if check is not None:
                check(found)
            return found

        return read

    def _struct(self, kind: StructType, arrows: Mapping[str, pa.DataType]) -> _Read:
        decode = self._decode(dict[str, msgspec.Raw])
        readers = {field.name: self._optional(field.dataType, arrows[field.name]) for field in kind.fields}

        def read(raw: bytes) -> dict[str, Any]:
            found: dict[str, Any] = {}
            for name, value in decode(raw).items():
                if name in readers:
                    try:
                        found[name] = readers[name](value)
                    except CANNOT_BE_READ:
                        found[name] = None
            return found

        return read

    def _array(self, element: Callable[[msgspec.Raw], Any]) -> _Read:
        decode = self._decode(list[msgspec.Raw])
        return lambda raw: [element(each) for each in decode(raw)]

    def _map(self, kind: MapType, keys: pa.DataType, value: Callable[[msgspec.Raw], Any]) -> _Read:
        text = self._dialect.form == "json"
        decode = self._decode(dict[str, msgspec.Raw] if text else dict[Any, msgspec.Raw])
        convert, check = key_converter(kind.keyType, self._dialect), _check(keys)

        def key(name: Any) -> Any:
            found = name if convert is None else convert(name)
            if check is not None:
                check(found)
            return found

        return lambda raw: [(key(name), value(each)) for name, each in decode(raw).items()]

    def _optional(self, kind: DataType, arrow: pa.DataType) -> Callable[[msgspec.Raw], Any]:
        read, null = self._reader(kind, arrow), self._null
        return lambda raw: None if (value := bytes(raw)) == null else read(value)

    def _decode(self, wire: Any) -> Callable[[bytes], Any]:
        kind = msgspec.json.Decoder if self._dialect.form == "json" else msgspec.msgpack.Decoder
        decode: Callable[[bytes], Any] = kind(wire).decode
        return decode


def _check(kind: pa.DataType) -> Callable[[Any], object] | None:
    """Raises for a value that the type does not have: 300 in a tinyint. None if it has all of them."""
    types = pa.types
    if types.is_string(kind) or types.is_boolean(kind) or types.is_float64(kind) or types.is_date32(kind):
        return None
    if types.is_timestamp(kind) and kind.unit == "us":
        return None  # As many years as Python has.
    if types.is_signed_integer(kind):
        bound = 1 << (kind.bit_width - 1)

        def check(number: int | None) -> None:
            if number is not None and not -bound <= number < bound:
                raise OverflowError(f"{number} is out of bounds")

        return check
    return lambda value: pa.array([value], kind)  # Quick only for columns, so it is the last resort.


def _fields(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(index) for index in range(kind.num_fields)]

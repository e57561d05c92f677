"""Records in JSON or MessagePack as Arrow columns.

:class:`JsonRecords` lets pyarrow parse JSON by columns, which is many times faster than by records. pyarrow
gets times and bytes as strings, because it reads them differently from Spark: it takes a time without a zone
for UTC, and does not decode base64. They are converted afterwards, by columns. If anything does not fit,
:class:`TypedRecords` reads some of the records one by one, and says which of them are wrong.

:class:`TypedRecords` reads records by way of Python objects. It is needed for MessagePack, for maps, and for
the numbers and times that Spark accepts and pyarrow does not.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from penstock.spark.errors import UnreadableRecord
from penstock.spark.source.decimals import roomy
from penstock.spark.source.decoders import Dialect, Zone, binary, date, decoder, instant, local_time
from penstock.spark.source.misfits import first_misfit
from penstock.spark.source.partial_rows import CANNOT_BE_READ, PartialRows

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = [
    "JsonRecords",
    "Reasons",
    "TypedRecords",
    "may_be_null",
    "misplaced_null",
    "one_line",
    "times_of_texts",
]

Reasons: TypeAlias = dict[int, str]
"""Why records are wrong, by their numbers in a batch."""
_PIECE: Final = 256
"""How many records are read one by one if one of them is wrong."""
_SECOND_DAY: Final = datetime.datetime(1, 1, 2)
"""An earlier instant may have a text of the year 0."""
_LAST_YEAR: Final = datetime.datetime(2037, 12, 30)
"""From the year 2038 on, Arrow knows no summer time in any zone."""
_ARROWS_NUMBERS: Final = re.compile(rb"[:\[,]\s*(?:-?Inf(?!inity)|-NaN)")
"""Numbers for pyarrow alone; a text inside a record may look like one as well."""


def one_line(reason: object) -> str:
    """The text of an error without line breaks: Spark's own message is long enough."""
    return " ".join(str(reason).split())


class TypedRecords:
    """Reads the records of one schema one by one."""

    def __init__(
        self, schema: StructType, arrow_schema: pa.Schema, form: str, zone: Zone, *, partial: bool = True
    ) -> None:
        """Without ``partial``, nothing is read of a wrong record: the caller leaves it out."""
        self._schema = arrow_schema
        self._read = _reader(schema, Dialect(form, zone))
        self._decode = _decode(decoder(schema, Dialect(form, zone)).wire, form)
        self._read_leniently = _reader(schema, Dialect(form, zone, lenient=True)) if form == "json" else None
        self._partial = PartialRows(schema, arrow_schema, form, zone) if partial else None

    def batch(
        self, values: Sequence[bytes], wrong: Reasons | None = None, first: int = 0, *, odd: bool = False
    ) -> pa.RecordBatch:
        """A row for each record; fields that a record lacks are null.

        With ``wrong``, a wrong record is a row of what can be read of it, and ``wrong`` gets the reason;
        ``first`` is the number of the first record there. Otherwise a wrong record raises UnreadableRecord.
        ``odd`` says that none of them can be read as it stands, so that is not tried.
        """
        rows: list[Any] = []
        for index, value in enumerate(values):
            if odd and self._read_leniently is not None:
                rows.append(self._read_again(value, first + index, None, wrong))
                continue
            try:
                rows.append(self._read(value))
            except CANNOT_BE_READ as error:
                rows.append(self._read_again(value, first + index, error, wrong))
        try:
            return pa.RecordBatch.from_pylist(rows, schema=self._schema)
        except CANNOT_BE_READ:
            # One record does not fit, and pyarrow does not say which.
            for index, row in enumerate(rows):
                try:
                    pa.RecordBatch.from_pylist([row], schema=self._schema)
                except CANNOT_BE_READ as error:
                    reason = UnreadableRecord(first_misfit(row, self._schema) or error)
                    rows[index] = self._partial_row(values[index], first + index, reason, wrong)
            if wrong is None:
                raise
        return pa.RecordBatch.from_pylist(rows, schema=self._schema)

    def odd(self, values: Sequence[bytes], *, thoroughly: bool) -> list[int]:
        """The numbers of records that cannot be read as they stand; they may still be read in another way.

        What a text stands for, a time for instance, is looked at only ``thoroughly``, which takes longer.
        """
        read, found = self._read if thoroughly else self._decode, []
        for index, value in enumerate(values):
            try:
                read(value)
            except CANNOT_BE_READ:
                found.append(index)
        return found

    def _read_again(self, value: bytes, index: int, reason: Exception | None, wrong: Reasons | None) -> Any:
        if self._read_leniently is not None:
            try:
                if b"NaN" in value or b"Infinity" in value:
                    value = _with_quoted_constants(value)
                return self._read_leniently(value)
            except CANNOT_BE_READ as error:
                reason = error
        assert reason is not None, "it could not be read, and that has a reason"
        return self._partial_row(value, index, reason, wrong)

    def _partial_row(self, value: bytes, index: int, reason: Exception, wrong: Reasons | None) -> Any:
        if wrong is None:
            raise UnreadableRecord(reason, index) from reason
        wrong[index] = one_line(reason)
        return {} if self._partial is None else self._partial.row(value)


def _reader(schema: StructType, dialect: Dialect) -> Callable[[bytes], Any]:
    record = decoder(schema, dialect)
    decode = _decode(record.wire, dialect.form)
    convert = record.convert
    if convert is None:
        return decode
    return lambda value: convert(decode(value))


def _decode(wire: Any, form: str) -> Callable[[bytes], Any]:
    kind = msgspec.json.Decoder if form == "json" else msgspec.msgpack.Decoder
    decode: Callable[[bytes], Any] = kind(wire).decode
    return decode


def _with_quoted_constants(value: bytes) -> bytes:
    """Quote ``NaN`` and ``Infinity``: JSON has neither, but many programs write them, Python's as well."""
    record = json.loads(value, parse_constant=str, parse_float=decimal.Decimal)
    return msgspec.json.Encoder(decimal_format="number").encode(record)


def may_be_null(field: pa.Field) -> bool:
    """Whether a field and everything inside may be null."""
    kind = field.type
    if not field.nullable:
        return False
    if pa.types.is_map(kind):
        return may_be_null(kind.item_field)  # A key is never null.
    return all(may_be_null(kind.field(index)) for index in range(kind.num_fields))


def misplaced_null(column: pa.Array, field: pa.Field, path: str = "") -> str | None:
    """The path of the first field that has a null and must not."""
    path = f"{path}.{field.name}" if path else field.name
    if not field.nullable and column.null_count:
        return path
    kind = field.type
    found: str | None = None
    if pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            inner = column.drop_null().field(index) if column.null_count else column.field(index)
            found = found or misplaced_null(inner, kind.field(index), path)
    elif pa.types.is_map(kind):
        found = misplaced_null(column.items, kind.item_field, path)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = misplaced_null(column.flatten(), kind.value_field, path)
    return found


class JsonRecords:
    """Reads the records of one schema by columns, if possible."""

    def __init__(
        self, schema: StructType, arrow_schema: pa.Schema, zone: Zone, *, partial: bool = True
    ) -> None:
        self._schema = arrow_schema
        self._zone = zone
        self._one_by_one = TypedRecords(schema, arrow_schema, "json", zone, partial=partial)
        kinds = [_with_strings(field.type) for field in arrow_schema]
        self._as_strings = (
            None
            if None in kinds
            else pa.schema([field.with_type(kind) for field, kind in zip(arrow_schema, kinds, strict=True)])
        )
        """The schema that pyarrow reads; None if there is a column that it cannot read."""
        self._sieves_first = False
        """Whether the last batch had odd records: then the next one has some, too, as a rule."""

    def batch(self, values: Sequence[bytes], wrong: Reasons | None = None) -> pa.RecordBatch:
        """A row for each record; fields that a record lacks are null. ``wrong`` is as in TypedRecords."""
        objects = list(values)
        # pyarrow fails on anything but an object, and a null even crashes the process.
        for index in [index for index, value in enumerate(values) if not value.startswith(b"{")]:
            value = values[index]
            if not value.lstrip(b" \t\r\n").startswith(b"{"):
                reason = f"{value[:40]!r} is not a JSON object"
                if wrong is None:
                    raise UnreadableRecord(reason, index)
                wrong[index], objects[index] = reason, b"{}"
        if not len(self._schema):
            return self._one_by_one.batch(objects, wrong)  # No columns, but a record may still be wrong.
        if len(objects) <= _PIECE:
            return self._piece(objects, wrong, 0)
        batch = None if self._sieves_first else self._by_columns(objects)
        if batch is None:
            # Something does not fit. Most of the others do, and are still read by columns.
            batch = self._sieved(objects, wrong)
        if batch is None:
            pieces = [
                self._piece(objects[first : first + _PIECE], wrong, first)
                for first in range(0, len(objects), _PIECE)
            ]
            batch = _joined(pieces)
        return batch

    def _sieved(self, values: Sequence[bytes], wrong: Reasons | None) -> pa.RecordBatch | None:
        """Read by columns what fits the types as it stands, and the rest one by one; None if that fails."""
        if self._as_strings is None:
            return None
        tried = None if self._sieves_first else list[int]()
        """The odd records of the last attempt; at first, reading all of them by columns has failed."""
        columns: pa.RecordBatch | None = None
        for thoroughly in (False, True):
            odd = self._one_by_one.odd(values, thoroughly=thoroughly)
            if odd == tried:
                continue  # pyarrow does not like what msgspec does, or has not been asked thoroughly.
            among = set(odd)
            even = [index for index in range(len(values)) if index not in among]
            columns = self._by_columns([values[index] for index in even]) if even else None
            if columns is not None or not even:
                break
            tried = odd
        else:
            self._sieves_first = False
            return None
        self._sieves_first = bool(odd)
        if columns is not None and not odd:
            return columns
        reasons: Reasons | None = None if wrong is None else {}
        try:
            rows = self._one_by_one.batch([values[index] for index in odd], reasons, odd=True)
        except UnreadableRecord as error:
            raise UnreadableRecord(error, odd[error.index or 0]) from error
        if wrong is not None and reasons is not None:
            wrong.update((odd[number], reason) for number, reason in reasons.items())
        if columns is None:
            return rows
        places = [0] * len(values)
        for place, index in enumerate((*even, *odd)):
            places[index] = place
        return _joined([columns, rows]).take(pa.array(places, pa.int64()))

    def _piece(self, values: Sequence[bytes], wrong: Reasons | None, first: int) -> pa.RecordBatch:
        batch = self._by_columns(values)
        return self._one_by_one.batch(values, wrong, first) if batch is None else batch

    def _by_columns(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        if self._as_strings is None:
            return None
        # All of them begin with a brace. If they end with one as well, none can go on in the next.
        loose = [value for value in values if not value.endswith(b"}")]
        if not all(value.rstrip().endswith(b"}") for value in loose):
            return None
        try:
            return self._parsed(values, self._as_strings)
        except (pa.ArrowException, ValueError, OverflowError):
            return None  # TypedRecords reads them, or says why not.

    def _parsed(self, values: Sequence[bytes], schema: pa.Schema) -> pa.RecordBatch:
        text = b"\n".join(values)
        if (b"Inf" in text or b"-NaN" in text) and _ARROWS_NUMBERS.search(text):
            raise ValueError("pyarrow may read a number here that TypedRecords refuses")
        table = pa.json.read_json(
            BytesIO(text),
            read_options=pa.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
            parse_options=pa.json.ParseOptions(
                explicit_schema=schema, newlines_in_values=True, unexpected_field_behavior="ignore"
            ),
        )
        table.validate(full=True)  # The parser does not check that strings are UTF-8.
        if table.num_rows != len(values):
            raise ValueError(f"{table.num_rows} objects in {len(values)} records")
        columns = table.combine_chunks().to_batches()[0]
        arrays = [self._converted(columns.column(field.name), field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _converted(self, column: pa.Array, kind: pa.DataType) -> pa.Array:
        """Convert a column that has strings, perhaps inside, to the type of the schema."""
        if column.type == kind:
            return column
        types = pa.types
        if types.is_struct(kind):
            fields = [kind.field(index) for index in range(kind.num_fields)]
            inner = [self._converted(column.field(index), field.type) for index, field in enumerate(fields)]
            return pa.StructArray.from_arrays(inner, fields=fields, mask=column.is_null())
        if types.is_list(kind):
            elements = self._converted(column.values, kind.value_type)
            return pa.ListArray.from_arrays(column.offsets, elements, type=kind, mask=column.is_null())
        if types.is_binary(kind):
            return pa.array([None if text is None else binary(text) for text in column.to_pylist()], kind)
        if types.is_decimal(kind):
            return column.cast(kind)
        return times_of_texts(column, kind, self._zone)


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def times_of_texts(column: pa.Array, kind: pa.DataType, zone: Zone) -> pa.Array:
    """Texts as dates, timestamps, or whatever else Arrow casts texts to; a ValueError if one is wrong."""
    times = _cast_times(column, kind, zone)
    # Arrow has a year 0 and Python has none, so these texts are read as those of a single record are.
    if times is not None and not pc.any(pc.less(times, pa.scalar(_SECOND_DAY, kind))).as_py():
        return times
    convert = _conversion(kind, zone)
    return pa.array([None if text is None else convert(text) for text in column.to_pylist()], kind)


def _cast_times(column: pa.Array, kind: pa.DataType, zone: Zone) -> pa.Array | None:
    """The times as Arrow reads them; None if it cannot."""
    try:
        return column.cast(kind)
    except pa.ArrowInvalid:
        pass  # Arrow accepts neither nanoseconds nor a missing zone.
    if pa.types.is_timestamp(kind) and kind.tz is not None and zone.key is not None:
        try:
            naive = column.cast(pa.timestamp("us"))
            if pc.any(pc.greater(naive, pa.scalar(_LAST_YEAR, naive.type))).as_py():
                return None
            return pc.assume_timezone(naive, zone.key, ambiguous="earliest").cast(kind)
        except pa.ArrowInvalid:
            pass  # Some times have a zone, or the clocks skipped them.
    return None


def _conversion(kind: pa.DataType, zone: Zone) -> Callable[[str], Any]:
    if pa.types.is_date(kind):
        return date
    return local_time if kind.tz is None else lambda text: instant(text, zone)


def _with_strings(kind: pa.DataType) -> pa.DataType | None:
    """The type with which pyarrow reads a column; None if it cannot."""
    types = pa.types
    if types.is_timestamp(kind) or types.is_date(kind) or types.is_binary(kind):
        return pa.string()
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        inner = [_with_strings(field.type) for field in fields]
        if None in inner or any(field.metadata for field in fields):
            return None  # For example a variant, which is a struct with metadata.
        return pa.struct([field.with_type(text) for field, text in zip(fields, inner, strict=True)])
    if types.is_list(kind):
        element = _with_strings(kind.value_type)
        return None if element is None else pa.list_(kind.value_field.with_type(element))
    if types.is_decimal(kind):
        return roomy(kind)
    plain = types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind)
    return kind if plain or types.is_string(kind) or types.is_null(kind) else None

"""Decoders for values of Spark's types in JSON and MessagePack.

JSON is read as Spark's own ``from_json`` reads it: a number in a string column becomes its text, a number in
a timestamp column counts seconds, digits after the microseconds are cut off, decimals are rounded, bytes are
in base64, and a timestamp without a zone is in the zone of the session. Where ``from_json`` would return null
for a value, the record is wrong.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias, TypedDict
from zoneinfo import ZoneInfo

import msgspec
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

from penstock.spark.source.decimals import decimal_of
from penstock.spark.spark_interface import TimeType

__all__ = [
    "TIME_FORM",
    "Dialect",
    "ValueDecoder",
    "Zone",
    "binary",
    "date",
    "decoder",
    "instant",
    "key_converter",
    "local_time",
    "session_zone",
]

Convert: TypeAlias = Callable[[Any], Any]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
TIME_FORM: Final = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}(:[0-9]{2}(:[0-9]{2}([.,][0-9]+)?)?)?"
    r"( ?(Z|[+-][0-9]{2}(:?[0-9]{2}(:?[0-9]{2})?)?))?)?"
)
"""What a text of a time looks like, in every format: what Arrow reads, and a little more."""
_TIME: Final = re.compile(TIME_FORM)
_WHOLE: Final = re.compile(r"\s*[+-]?[0-9]+\s*")
_EXACT: Final = 2**53
"""A float represents every whole number up to here exactly."""
_NOT_FINITE: Final = {
    "NaN": float("nan"),
    **dict.fromkeys(("Infinity", "+Infinity", "+INF"), float("inf")),
    **dict.fromkeys(("-Infinity", "-INF"), float("-inf")),
}


class Dialect(NamedTuple):
    """How the records are encoded."""

    form: str
    """``"json"`` or ``"msgpack"``."""
    zone: Zone
    """The zone of timestamps that have none."""
    lenient: bool = False
    """Whether ``2.0`` is a whole number, ``"NaN"`` a number and ``5`` a string; slower, so tried second."""


class ValueDecoder(NamedTuple):
    """How to decode a value that is not null."""

    wire: Any
    """The type that msgspec decodes."""
    convert: Convert | None
    """Converts what msgspec decoded; None if there is nothing to convert."""

    @property
    def optional(self) -> Any:
        """The type that msgspec decodes if the value may be null."""
        return self.wire if self.wire in (Any, msgspec.Raw) else self.wire | None


def decoder(kind: DataType, dialect: Dialect) -> ValueDecoder:
    """The decoder for a type."""
    json = dialect.form == "json"
    if isinstance(kind, UserDefinedType):
        return decoder(kind.sqlType(), dialect)
    if isinstance(kind, StructType):
        return _struct(kind, dialect)
    if isinstance(kind, MapType):
        return _map(kind, dialect)
    if isinstance(kind, ArrayType):
        element = decoder(kind.elementType, dialect)
        convert = None if element.convert is None else _each(element.convert)
        return ValueDecoder(list[element.optional], convert)  # type: ignore[name-defined]
    if isinstance(kind, StringType):
        return ValueDecoder(msgspec.Raw, _text) if dialect.lenient else ValueDecoder(str, None)
    if isinstance(kind, IntegralType):
        return ValueDecoder(int | float, _whole) if dialect.lenient else ValueDecoder(int, None)
    if isinstance(kind, FloatType | DoubleType):
        return ValueDecoder(msgspec.Raw, _fraction) if dialect.lenient else ValueDecoder(float, None)
    if isinstance(kind, DecimalType):
        return _decimal(kind, dialect)
    if isinstance(kind, NullType):
        return ValueDecoder(msgspec.Raw, lambda value: None)  # As in Spark, whatever a record has there.
    if isinstance(kind, BinaryType):
        return ValueDecoder(str, binary) if json else ValueDecoder(Any, _bytes)
    if isinstance(kind, TimestampType):
        return _timestamp(dialect)
    if isinstance(kind, TimestampNTZType):
        return ValueDecoder(str if json else Any, local_time)
    if isinstance(kind, VariantType):
        return ValueDecoder(msgspec.Raw if json else str, _variant)
    if isinstance(kind, TimeType):
        return ValueDecoder(datetime.time, _time_of_day)
    return next(ValueDecoder(wire, None) for known, wire in _NATIVE.items() if isinstance(kind, known))


_NATIVE: Final[dict[type[DataType], Any]] = {
    BooleanType: bool,
    DateType: datetime.date,
    DayTimeIntervalType: datetime.timedelta,
}
"""Types that msgspec decodes without conversion."""


def _timestamp(dialect: Dialect) -> ValueDecoder:
    zone = dialect.zone
    if dialect.form == "json":
        return ValueDecoder(str | int, lambda value: instant(value, zone))
    # MessagePack has a timestamp type, so a number is not a timestamp.
    return ValueDecoder(Any, lambda value: instant(_moment(value), zone))


def _decimal(kind: DecimalType, dialect: Dialect) -> ValueDecoder:
    precision, scale = kind.precision, kind.scale
    if dialect.form == "msgpack":
        return ValueDecoder(str | int | float, lambda value: decimal_of(value, precision, scale))

    def convert(raw: msgspec.Raw) -> decimal.Decimal | None:
        text = _text(raw)  # A float would have lost digits.
        return None if text is None else decimal_of(text, precision, scale)

    return ValueDecoder(msgspec.Raw, convert)


def _struct(kind: StructType, dialect: Dialect) -> ValueDecoder:
    """A dictionary; missing fields are null, and unknown fields are ignored."""
    fields = {field.name: decoder(field.dataType, dialect) for field in kind.fields}
    changing = [(name, field.convert) for name, field in fields.items() if field.convert is not None]

    def convert(record: dict[str, Any]) -> dict[str, Any]:
        for name, change in changing:
            value = record.get(name)
            if value is not None:
                try:
                    record[name] = change(value)
                except (ValueError, OverflowError) as error:
                    raise ValueError(f"{name}: {error}") from error
        return record

    types = {name: field.optional for name, field in fields.items()}
    # msgspec compares names as UTF-8, which Python caches in a string after its first use, as here. Without
    # that, msgspec (up to 0.22) silently misses every field whose name is not ASCII.
    msgspec.json.encode(list(types))
    # Only this syntax allows any name for a field. The name of the class has no meaning.
    wire = TypedDict("Record", types, total=False)  # type: ignore[misc]
    return ValueDecoder(wire, convert if changing else None)


def _map(kind: MapType, dialect: Dialect) -> ValueDecoder:
    key = key_converter(kind.keyType, dialect)
    value = decoder(kind.valueType, dialect)
    change = value.convert
    text = dialect.form == "json"
    wire: Any = dict[str, value.optional] if text else dict[Any, value.optional]  # type: ignore[name-defined]
    if key is None and change is None:
        return ValueDecoder(wire, None)

    def convert(entries: dict[Any, Any]) -> list[tuple[Any, Any]]:
        return [
            (name if key is None else key(name), v if v is None or change is None else change(v))
            for name, v in entries.items()
        ]

    return ValueDecoder(wire, convert)


def key_converter(kind: DataType, dialect: Dialect) -> Convert | None:
    """Converts what is a key in a record, in JSON a string; None if there is nothing to convert."""
    zone = dialect.zone
    if isinstance(kind, StringType):
        return None if dialect.form == "json" else _text_key
    if isinstance(kind, BooleanType):
        return _truth_key
    if isinstance(kind, IntegralType):
        return _whole_key
    if isinstance(kind, FloatType | DoubleType):
        return _fraction_key
    if isinstance(kind, DecimalType):
        precision, scale = kind.precision, kind.scale
        return lambda key: decimal_of(key, precision, scale)
    if isinstance(kind, DateType):
        return date
    if isinstance(kind, TimestampType):
        return lambda key: instant(_moment(key), zone)
    if isinstance(kind, TimestampNTZType):
        return local_time
    return binary if isinstance(kind, BinaryType) else None


def _text_key(key: str | bytes) -> str:
    if not isinstance(key, str | bytes):
        raise ValueError(f"the key {key!r} is not a string")
    return key if isinstance(key, str) else key.decode()


def _truth_key(key: str | bool) -> bool:
    if not isinstance(key, bool) and key not in ("true", "false"):
        raise ValueError(f"the key {key!r} is neither true nor false")
    return key in (True, "true")


def _whole_key(key: str | int) -> int:
    if type(key) is not int and (not isinstance(key, str) or _WHOLE.fullmatch(key) is None):
        raise ValueError(f"the key {key!r} is not a whole number")
    return int(key)


def _fraction_key(key: str | float) -> float:
    if isinstance(key, bool) or not isinstance(key, str | int | float):
        raise ValueError(f"the key {key!r} is not a number")
    return float(key)


def _each(convert: Convert) -> Convert:
    return lambda values: [None if value is None else convert(value) for value in values]


# ---------------------------------------------------------------- values
def instant(value: str | int | datetime.datetime, zone: Zone) -> datetime.datetime:
    """Read a timestamp: ISO 8601, or seconds since 1970."""
    if isinstance(value, int):
        try:
            return _EPOCH + datetime.timedelta(seconds=value)
        except OverflowError:
            raise ValueError(f"{value} seconds since 1970 are not within the years 1 to 9999") from None
    moment = _moment(value)
    return zone.instant(moment) if moment.tzinfo is None else moment


def local_time(value: str | datetime.datetime) -> datetime.datetime:
    """Read a timestamp without a zone."""
    moment = _moment(value)
    if moment.tzinfo is not None:
        raise ValueError(f"{value} has a time zone, and the column is timestamp_ntz")
    return moment


def _time_of_day(value: datetime.time) -> datetime.time:
    if value.tzinfo is not None:
        raise ValueError(f"{value} has a time zone, and the column is time")
    return value


def _moment(value: str | datetime.datetime) -> datetime.datetime:
    if isinstance(value, datetime.datetime):
        return value
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a timestamp")
    if _TIME.fullmatch(value) is None:  # Python would read 20260131 as well, and +02:00 as two o'clock.
        raise ValueError(f"{value[:40]!r} is not a time such as 2026-01-31T12:00:00Z")
    return datetime.datetime.fromisoformat(value)


def date(value: str | datetime.date) -> datetime.date:
    """Read a date."""
    if isinstance(value, str):
        if _DAY.fullmatch(value) is None:  # Python would also read 20260131, and weeks.
            raise ValueError(f"{value[:40]!r} is not a date such as 2026-01-31")
        return datetime.date.fromisoformat(value)
    if isinstance(value, datetime.datetime) or not isinstance(value, datetime.date):
        raise ValueError(f"{value!r} is not a date")
    return value


def binary(value: str | bytes) -> bytes:
    """Read bytes; a string has them in base64."""
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except ValueError as error:
        raise ValueError(f"{value[:40]!r} is not base64 ({error})") from error


def _bytes(value: bytes | str) -> bytes:
    """MessagePack has a type for bytes, so a string stands for its own UTF-8 bytes, not for base64."""
    if not isinstance(value, str | bytes):
        raise ValueError(f"{value!r} is neither bytes nor a string")
    return value.encode() if isinstance(value, str) else value


def _whole(value: float) -> int:
    if isinstance(value, float) and (not value.is_integer() or abs(value) > _EXACT):
        raise ValueError(f"{value!r} is not a whole number")
    return int(value)


def _fraction(raw: msgspec.Raw) -> float | None:
    text = bytes(raw)
    if text[:1] in b"-0123456789":
        return float(text)  # 1e400 is infinite, as in Java; msgspec would refuse it.
    value = _text(raw)
    if value is not None and (text[:1] != b'"' or value not in _NOT_FINITE):
        raise ValueError(f"{value[:40]!r} is not a number")
    return None if value is None else _NOT_FINITE[value]


def _text(raw: msgspec.Raw) -> str | None:
    text = bytes(raw)
    if text[:1] == b'"':
        return msgspec.json.decode(text, type=str)
    if text == b"null":
        return None
    return (msgspec.json.format(text, indent=-1) if text[:1] in b"[{" else text).decode()


def _variant(value: msgspec.Raw | str) -> dict[str, bytes] | None:
    text = value if isinstance(value, str) else bytes(value).decode()
    if text == "null":
        return None
    variant = VariantVal.parseJson(text)
    return {"value": variant.value, "metadata": variant.metadata}


_SETTING: Final = "spark.sql.session.timeZone"
_OFFSET: Final = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d\d))?(?::?(\d\d))?")


class Zone:
    """A zone as Spark names it: ``Europe/Berlin``, ``+01:00``, ``GMT+8``; None is this machine's zone."""

    def __init__(self, name: str | None) -> None:
        self._zone = None if name is None else _zone(name)
        self.key = "UTC" if self._zone is datetime.UTC else getattr(self._zone, "key", None)
        """Its name in the tz database; None if it has none, or we do not know it."""

    def instant(self, moment: datetime.datetime) -> datetime.datetime:
        """The instant of a local time.

        As in Java, an ambiguous time is the earlier one, and a time that the clocks skipped is moved forward.
        """
        local = moment.replace(tzinfo=self._zone)
        try:
            return local.astimezone(datetime.UTC)
        except (OverflowError, ValueError):
            # In UTC it is in the year 10000, or before the year 1: Arrow can represent that, Python cannot.
            # In the zone of this machine, Python fails already if a day nearby is.
            return local if self._zone is not None else moment.replace(tzinfo=_machines_zone(moment))


def _machines_zone(moment: datetime.datetime) -> datetime.tzinfo | None:
    """The offset that this machine has on the first or the last days that there are."""
    inward = datetime.timedelta(days=2 if moment.year == 1 else -2)
    return (moment + inward).astimezone().tzinfo


@lru_cache(8)
def _zone(name: str) -> datetime.tzinfo:
    if name in ("UTC", "Z", "GMT", "UT"):
        return datetime.UTC
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, hours, minutes, seconds = offset.groups()
        ahead = datetime.timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        return datetime.timezone(ahead if sign == "+" else -ahead)
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(
            f"{_SETTING} is {name!r}, and this machine does not know that time zone: give a name of the tz "
            "database, such as Europe/Berlin, or an offset, such as +01:00. If the machine has no tz "
            "database, pip install tzdata"
        ) from error


def session_zone() -> Zone:
    """The zone of the session that this task belongs to.

    Tasks see only settings that were set. The default is the zone of the driver's machine, and
    :func:`~penstock.spark.register` sets it explicitly. If it is not set, we use the zone of this machine.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    return Zone(None if task is None else task.getLocalProperty(_SETTING))

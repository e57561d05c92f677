"""Texts as the values of a schema: the fields of a CSV row, or of an entry of Redis."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

__all__ = ["typed_fields"]


def typed_fields(fields: Mapping[str, str], schema: pyarrow.Schema) -> dict[str, Any]:
    """The values of the texts, by the columns of a schema; ValueError names a field that is not of its type.

    An empty text is null, unless its column has texts. Fields without a column are left out.
    """
    found: dict[str, Any] = {}
    for column in schema:
        text = fields.get(column.name)
        if text is None:
            continue
        convert = _conversion(column.type)
        if convert is None:
            found[column.name] = text
        elif not text:
            found[column.name] = None
        else:
            try:
                found[column.name] = convert(text)
            except (ValueError, ArithmeticError):
                raise ValueError(f"{column.name}: {text[:40]!r} is not of the type {column.type}") from None
    return found


def _conversion(kind: pyarrow.DataType) -> Callable[[str], Any] | None:
    """Makes a value of a text; None if the text is the value."""
    from pyarrow import types

    if types.is_boolean(kind):
        return _truth
    if types.is_integer(kind):
        return int
    if types.is_floating(kind):
        return float
    if types.is_decimal(kind):
        return decimal.Decimal
    if types.is_date(kind):
        return datetime.date.fromisoformat
    if types.is_timestamp(kind):
        return datetime.datetime.fromisoformat if kind.tz is None else _instant
    if types.is_time(kind):
        return datetime.time.fromisoformat
    if types.is_binary(kind):
        return str.encode
    if types.is_string(kind):
        return None
    return _structured


def _truth(text: str) -> bool:
    known = {"true": True, "false": False, "1": True, "0": False}
    if text.lower() not in known:
        raise ValueError(text)
    return known[text.lower()]


def _instant(text: str) -> datetime.datetime:
    moment = datetime.datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=datetime.UTC)


def _structured(text: str) -> Any:
    import msgspec

    return msgspec.json.decode(text)

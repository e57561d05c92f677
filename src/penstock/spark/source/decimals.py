"""Decimal numbers, as Spark's own readers read them.

Digits beyond the scale of the column are rounded, half of a unit away from zero. A number that needs more
digits than the column has does not fit.

pyarrow (up to 26) rescales a decimal of 128 bits without a check: 123456789012345678901234567890 becomes
46509284486016680345.83… in ``decimal(38,18)``. So where the product can be too large, it has 256 bits here.
"""

from __future__ import annotations

import decimal
import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["cast_decimals", "decimal_of", "decimals_of_texts", "roomy"]

_NUMBER: Final = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_DIGITS: Final = 38
"""The most digits of a decimal number of 128 bits."""
_MOST_DIGITS: Final = 76
"""The most digits of one of 256 bits."""
_SHOWN: Final = 40


def decimal_of(value: str | float, precision: int, scale: int) -> decimal.Decimal:
    """Read a number, or a text with one; ValueError if there is none, or it does not fit."""
    text = value.replace(",", "") if isinstance(value, str) else repr(value)  # "1,000", as in Spark.
    if _NUMBER.fullmatch(text) is None:
        raise ValueError(f"{text[:_SHOWN]!r} is not a number")
    rounding = decimal.Context(prec=precision, rounding=decimal.ROUND_HALF_UP)
    try:
        return decimal.Decimal(text).quantize(decimal.Decimal((0, (1,), -scale)), context=rounding)
    except decimal.InvalidOperation:
        raise ValueError(f"{text[:_SHOWN]} does not fit into decimal({precision},{scale})") from None


def decimals_of_texts(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column of texts as decimals; ValueError if one of them does not fit."""
    whole, scale = max(kind.precision - kind.scale, 1), kind.scale
    plain = pc.match_substring_regex(texts, rf"^[+-]?[0-9]{{1,{whole}}}(\.[0-9]{{0,{scale}}})?$")
    if pc.all(plain).as_py() is not False:
        return texts.cast(kind)
    read = [None if text is None else decimal_of(text, kind.precision, scale) for text in texts.to_pylist()]
    return pa.array(read, kind)


def roomy(kind: pa.DataType) -> pa.DataType:
    """A decimal type of the same digits in which no number can overflow while it is rescaled."""
    fits = kind.precision + kind.scale <= _DIGITS
    return kind if fits else pa.decimal256(kind.precision, kind.scale)


def cast_decimals(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast a column to a type that may have decimals, perhaps inside; ArrowInvalid if a value is lost."""
    if pa.types.is_decimal(kind) and (
        pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    ):
        return decimals_of_texts(column, kind)
    wide = _widened(kind)
    return column.cast(kind) if wide == kind else column.cast(wide).cast(kind)


def _widened(kind: pa.DataType) -> pa.DataType:
    """The type with decimals of as many digits as there can be."""
    types = pa.types
    if types.is_decimal(kind):
        return pa.decimal256(_MOST_DIGITS, kind.scale)
    if types.is_struct(kind):
        fields = [kind.field(index) for index in range(kind.num_fields)]
        return pa.struct([field.with_type(_widened(field.type)) for field in fields])
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_widened(kind.value_type)))
    if types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        return pa.map_(key.with_type(_widened(key.type)), item.with_type(_widened(item.type)))
    return kind

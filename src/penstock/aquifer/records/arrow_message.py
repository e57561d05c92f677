"""What an Arrow IPC message says of itself: how large its buffers are expanded, and its order of bytes.

The buffers of a record batch may be compressed, and pyarrow allocates what each of them claims. A few
kilobytes can claim gigabytes. So what a message claims is looked at before it is read. The message is a
FlatBuffer, and the few fields that matter are read here:
https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format
"""

from __future__ import annotations

import sys
from struct import Struct, error
from typing import Final

__all__ = ["MOST_EXPANDED", "claimed_by_message", "is_native_schema"]

MOST_EXPANDED: Final = 64 * 1024 * 1024
"""What claims to be larger is not expanded, whatever it is compressed with."""

_U16: Final = Struct("<H")
_I32: Final = Struct("<i")
_U32: Final = Struct("<I")
_BUFFER: Final = Struct("<qq")
_LENGTH: Final = Struct("<q")

_HEADER_TYPE: Final = 1
_HEADER: Final = 2
"""Fields of a Message: what its header is, and the header."""
_SCHEMA: Final = 1
_DICTIONARY: Final = 2
_RECORDS: Final = 3
"""The header types that have buffers."""
_ENDIANNESS: Final = 0
"""The field of a Schema with the order of the bytes in all buffers; without it, they are little-endian."""
_BYTE_ORDERS: Final = {0: "little", 1: "big"}
_DATA: Final = 1
"""The field of a DictionaryBatch with its record batch."""
_BUFFERS: Final = 2
_COMPRESSION: Final = 3
"""Fields of a RecordBatch."""


def claimed_by_message(metadata: memoryview, body: memoryview) -> int:
    """How many bytes its compressed buffers claim to have; 0 without any, a ValueError if it is damaged."""
    try:
        return _claimed(metadata, body)
    except (error, IndexError) as damage:
        raise ValueError(f"it is not an Arrow message: {damage}") from damage


def is_native_schema(metadata: memoryview) -> bool:
    """Whether a message is a schema for buffers whose bytes are in the order of this machine.

    A ValueError if it is damaged.
    """
    try:
        message = _U32.unpack_from(metadata, 0)[0]
        kind = _field(metadata, message, _HEADER_TYPE)
        schema = _table(metadata, message, _HEADER)
        if kind is None or metadata[kind] != _SCHEMA or schema is None:
            return False
        order = _field(metadata, schema, _ENDIANNESS)
        return _BYTE_ORDERS.get(0 if order is None else _U16.unpack_from(metadata, order)[0]) == sys.byteorder
    except (error, IndexError) as damage:
        raise ValueError(f"it is not an Arrow message: {damage}") from damage


def _claimed(metadata: memoryview, body: memoryview) -> int:
    message = _U32.unpack_from(metadata, 0)[0]
    kind = _field(metadata, message, _HEADER_TYPE)
    header = _table(metadata, message, _HEADER)
    if kind is None or header is None:
        return 0
    if metadata[kind] == _DICTIONARY:
        header = _table(metadata, header, _DATA)
    elif metadata[kind] != _RECORDS:
        return 0
    if header is None or _field(metadata, header, _COMPRESSION) is None:
        return 0
    buffers = _table(metadata, header, _BUFFERS)
    if buffers is None:
        return 0
    claimed = 0
    for number in range(_U32.unpack_from(metadata, buffers)[0]):
        offset, length = _BUFFER.unpack_from(metadata, buffers + _U32.size + number * _BUFFER.size)
        if length >= _LENGTH.size and 0 <= offset <= len(body) - _LENGTH.size:
            claimed += max(_LENGTH.unpack_from(body, offset)[0], 0)  # -1: this one is not compressed.
    return claimed


def _field(metadata: memoryview, table: int, number: int) -> int | None:
    """Where a field of a table is; None if the table has not got it."""
    known = table - _I32.unpack_from(metadata, table)[0]
    slot = 2 * _U16.size + number * _U16.size
    if known < 0 or slot >= _U16.unpack_from(metadata, known)[0]:
        return None
    place = _U16.unpack_from(metadata, known + slot)[0]
    return table + place if place else None


def _table(metadata: memoryview, table: int, number: int) -> int | None:
    """Where the table, or vector, is that a field refers to."""
    field = _field(metadata, table, number)
    return None if field is None else field + _U32.unpack_from(metadata, field)[0]

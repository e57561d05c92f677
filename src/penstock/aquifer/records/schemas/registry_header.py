"""The header that senders with a schema registry put in front of a record: a zero byte, and the schema's id.

Protocol Buffers have a list of numbers behind it, which says which message of the schema it is.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, TypeVar

from penstock.aquifer.records.schemas.reference import SchemaReference

__all__ = ["HEADER_BYTES", "message_indexes", "schema_ids", "strip_header"]

_HEADER: Final = struct.Struct(">bI")
HEADER_BYTES: Final = _HEADER.size
T = TypeVar("T")


def schema_ids(reference: SchemaReference) -> dict[int, str | None]:
    """The ids of the parameters ``id=7`` and ``id=7=FILE``; None is the codec's own file."""
    found: dict[int, str | None] = {}
    for value in reference.given("id"):
        number, equals, path = value.partition("=")
        found[reference.number(number)] = path if equals else None
    return found


def strip_header(data: bytes, ids: Mapping[int, T]) -> tuple[T, bytes]:
    """What belongs to the id of a record, and the record without its header; ValueError if it has none."""
    if len(data) < HEADER_BYTES or data[0] != 0:
        raise ValueError("it has no header of a schema registry, a zero byte and the id of its schema")
    number = _HEADER.unpack_from(data)[1]
    if number not in ids:
        known = ", ".join(map(str, sorted(ids)))
        raise ValueError(f"it has the id {number} of the registry, and only {known} is known")
    return ids[number], data[HEADER_BYTES:]


def message_indexes(data: bytes) -> tuple[list[int], bytes]:
    """The numbers in front of a message of Protocol Buffers, and the message."""
    count, at = _zigzag(data, 0)
    if not count:
        return [0], data[at:]  # The short form of the first message.
    if not 0 < count <= len(data):
        raise ValueError(f"its header lists {count} message indexes")
    indexes = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        indexes.append(index)
    return indexes, data[at:]


def _zigzag(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), at
        shift += 7
    raise ValueError("its header ends in the middle of the message indexes")

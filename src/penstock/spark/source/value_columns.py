"""The values of a batch as a column of Arrow.

A payload is a msgpack array of binaries: before each value stands how long it is. To find the values, one
has to go from one to the next, which makes a Python object of each. If all of them have the same length, as
the structs of a sensor or a device have, the places of all of them are known from that of the first. Arrow
then copies them from the payload itself, in a quarter of the time.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from penstock.aquifer import unpack_values

__all__ = ["value_column"]

_ARRAY_16: Final = 0xDC
_ARRAY_32: Final = 0xDD
_HEADS: Final = {0xC4: 2, 0xC5: 3, 0xC6: 5}
"""How many bytes stand before a binary, by the first of them: the others are its length."""
_MOST_BYTES: Final = 2**31 - 1
"""What a column of Arrow can have, with offsets of 32 bits."""


class _Even(NamedTuple):
    """Where values of one length are."""

    values: pa.FixedSizeBinaryArray
    """All of them, each with its head."""
    number: int
    head: int
    """How many bytes stand before each."""
    distance: int
    """How many bytes are from the beginning of one to that of the next."""


def value_column(payload: bytes | memoryview) -> pa.BinaryArray:
    """The values in a payload, copied; ``msgspec.DecodeError`` if there are none."""
    even = _even(memoryview(payload))
    if even is None:
        return pa.array(unpack_values(payload), pa.binary())
    number, head, distance = even.number, even.head, even.distance
    if distance == head:
        return pa.repeat(pa.scalar(b"", pa.binary()), number)
    values = pc.binary_slice(even.values, head, distance).buffers()[1]
    return pa.Array.from_buffers(pa.binary(), number, [None, _steps(number, distance - head), values])


# Cached, because most batches are like the one before.
@lru_cache(4)
def _steps(count: int, distance: int) -> pa.Buffer:
    """The offsets of so many values."""
    return pa.array(range(0, (count + 1) * distance, distance), pa.int32()).buffers()[1]


def _even(payload: memoryview) -> _Even | None:
    """Where the values are, if all have the same length."""
    values, count = _array(payload)
    if not count or len(values) % count or not count < len(values) <= _MOST_BYTES:
        return None
    distance, head = len(values) // count, _HEADS.get(values[0], 0)
    if not head or distance != head + int.from_bytes(values[1:head], "big"):
        return None
    with_heads = pa.Array.from_buffers(pa.binary(distance), count, [None, pa.py_buffer(values)])
    # The first value has this length, so the second has its head there, and so on.
    heads = pc.binary_slice(with_heads, 0, head).buffers()[1]
    if not heads.equals(pa.py_buffer(bytes(values[:head]) * count)):
        return None
    return _Even(with_heads, count, head, distance)


def _array(payload: memoryview) -> tuple[memoryview, int]:
    """What an array of msgpack has in it, and how many values that claims to be; 0 if it is not an array."""
    kind = payload[0] if len(payload) else 0
    if kind & 0xF0 == 0x90:
        return payload[1:], kind & 0x0F
    size = {_ARRAY_16: 2, _ARRAY_32: 4}.get(kind, 0)
    return payload[1 + size :], int.from_bytes(payload[1 : 1 + size], "big")

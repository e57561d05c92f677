"""From frames and plain records to the elements that a subscriber gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from operator import is_
from typing import Any

import msgspec

from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.protocol.frames import Frame, payload_of, unpacked_bytes
from penstock.aquifer.records import Record
from penstock.aquifer.records.batch import packed_count, unpack_metadata, unpack_values
from penstock.aquifer.records.codecs import Codec

__all__ = ["Chunk", "Unpacker"]


class Unpacker:
    """Turns frames and plain records into elements."""

    def __init__(self, codec: Codec, *, records: bool, batches: bool) -> None:
        self._codec = codec
        self._records = records
        self._batches = batches
        self._arrow = codec.name == "arrow"
        self._decode: Callable[[bytes], Any] | None = None if codec.name == "bytes" else codec.decode
        self._may_be_none = self._decode is not None and not (records or batches or self._arrow)

    def of_frame(self, frame: Frame) -> list[Any]:
        """The elements of a frame; a ValueError or a ProtocolViolation if it cannot be decoded."""
        payload = payload_of(frame)
        if self._arrow:
            return self._batch(frame, payload)
        if payload is not frame.payload:
            # Before they are unpacked: a few kilobytes can be expanded to millions of empty records.
            self._check_count(frame, packed_count(payload))
        try:
            values = unpack_values(payload)
        except msgspec.DecodeError as error:
            text = f"the frame at offset {frame.first} does not hold records: {error}"
            raise ProtocolViolation(text) from error
        self._check_count(frame, len(values))
        elements = self.of_values(values, frame.first)
        if self._records:
            elements = _as_records(elements, frame)
        return [elements] if self._batches else elements

    @staticmethod
    def size_of(frame: Frame) -> int:
        """How many bytes its records have, if it arrived compressed."""
        return unpacked_bytes(frame)

    @staticmethod
    def _check_count(frame: Frame, count: int) -> None:
        if count not in (frame.records, -1):
            text = f"the frame at offset {frame.first} holds {count} records, not {frame.records}"
            raise ProtocolViolation(text)

    def of_values(self, values: list[bytes], first: int) -> list[Any]:
        """The elements of single records, the first of which has the offset ``first``."""
        if self._decode is None:
            return values
        try:
            elements = list(map(self._decode, values))
            if len(elements) != len(values):  # A StopIteration ends a map without an error.
                raise ValueError(f"record {first + len(elements)} makes it raise StopIteration")
            return elements
        except Exception as error:
            raise ValueError(
                f"a record from offset {first} on cannot be decoded as {self._codec.name}: {error}; "
                "does the gateway use another codec?"
            ) from error

    def none_in(self, elements: list[Any]) -> int | None:
        """Where the first element is that is None: a codec has made it of a record; None if there is none."""
        if not self._may_be_none or not any(map(is_, elements, repeat(None))):
            return None
        return next(place for place, element in enumerate(elements) if element is None)

    def before_none(self, elements: list[Any], chunk: Chunk) -> list[Any]:
        """The next elements of a chunk before the first None, which cannot be an element (§2.13)."""
        place = self.none_in(elements)
        if place is None:
            return elements
        if not place:
            text = f"the record at offset {chunk.reached} is null, and None cannot be an element of a stream"
            raise ValueError(f"{text}; read it with records=True, or with codec='bytes'")
        return elements[:place]

    def _batch(self, frame: Frame, payload: bytes | memoryview) -> list[Any]:
        try:
            batch = self._codec.decode(bytes(payload))
        except ImportError:
            raise
        except Exception as error:
            raise ProtocolViolation(
                f"the frame at offset {frame.first} is not an Arrow stream: {error}"
            ) from error
        if batch.num_rows != frame.records:
            text = f"the frame at offset {frame.first} holds {batch.num_rows} rows, not {frame.records}"
            raise ProtocolViolation(text)
        return [batch]


class Chunk:
    """Elements that arrived together, and how many of them were handed on.

    They are unpacked when their turn comes, not when they arrive: waiting records stay small, and unpacked
    ones are still in the processor's cache when they are handed on.
    """

    __slots__ = ("_chosen", "_elements", "_position", "_unpack", "end", "nbytes", "records", "unpacked_bytes")

    def __init__(
        self,
        unpack: Callable[[], list[Any]],
        records: int,
        end: int,
        nbytes: int,
        chosen: list[int] | None = None,
        *,
        unpacked_bytes: int,
    ) -> None:
        self._chosen = chosen
        """The positions of its records, if it has only some of those that it stands for."""
        self._unpack = unpack
        self._elements: list[Any] | None = None
        self._position = 0
        self.records = records
        """The number of records that it stands for; a batch is one element with many records."""
        self.end = end
        """The offset after its last record."""
        self.nbytes = nbytes
        """Its size as it arrived,"""
        self.unpacked_bytes = unpacked_bytes
        """and that of its records, if it arrived compressed."""

    @property
    def at_hand(self) -> int:
        """How many elements are unpacked and were not handed on yet."""
        return 0 if self._elements is None else len(self._elements) - self._position

    def unpack(self) -> list[Any]:
        """All its elements, which are unpacked the first time."""
        if self._elements is None:
            self._elements = self._unpack()
        return self._elements

    def take(self, most: int) -> list[Any]:
        """Up to ``most`` elements that were not handed on yet; call :meth:`handed` with how many were."""
        elements = self.unpack()
        if not self._position and most >= len(elements):
            return elements
        return elements[self._position : self._position + most]

    def size_of_one(self) -> int:
        """The mean size of its elements, in bytes."""
        return self.unpacked_bytes // (len(self.unpack()) or 1)

    def handed(self, count: int) -> None:
        """``count`` more elements were handed on."""
        self._position += count

    @property
    def reached(self) -> int:
        """The offset before which everything was handed on."""
        if self.done:
            return self.end
        passed = self._position if self._chosen is None else self._chosen[self._position]
        return self.end - self.records + passed

    @property
    def delivered(self) -> int:
        """The offset after its last record, which may come before its end."""
        return self.end if self._chosen is None else self.end - self.records + self._chosen[-1] + 1

    @property
    def count(self) -> int:
        """How many records it has."""
        return self.records if self._chosen is None else len(self._chosen)

    @property
    def is_empty(self) -> bool:
        """Whether it has no records, and only says that others were left out."""
        return self._chosen is not None and not self._chosen

    @property
    def done(self) -> bool:
        """Whether all elements were handed on."""
        return self._elements is not None and self._position == len(self._elements)


def _as_records(elements: list[Any], frame: Frame) -> list[Record]:
    count = len(elements)
    offsets: Sequence[int] = range(frame.first, frame.first + count)
    if frame.chosen is not None:
        offsets = [frame.first + position for position in frame.chosen]
    if not frame.metadata:
        return [Record(value, None, None, offset) for value, offset in zip(elements, offsets, strict=True)]
    try:
        metadata = unpack_metadata(frame.metadata)
        keys = metadata.keys or [None] * count
        timestamps = metadata.timestamps or [metadata.timestamp] * count
        return [
            Record(value, key, timestamp, offset)
            for value, key, timestamp, offset in zip(elements, keys, timestamps, offsets, strict=True)
        ]
    except (msgspec.DecodeError, ValueError) as error:
        text = f"the metadata of the frame at offset {frame.first} do not fit: {error}"
        raise ProtocolViolation(text) from error

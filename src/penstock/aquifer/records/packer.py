"""From elements to batches: the one time that records are packed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import chain
from types import NoneType
from typing import Any, NamedTuple

from penstock.aquifer.limits import Limits
from penstock.aquifer.records import Record, arrow
from penstock.aquifer.records import batch as batches
from penstock.aquifer.records.batch import ARROW, MSGPACK, Batch, RecordMetadata
from penstock.aquifer.records.codecs import Codec
from penstock.aquifer.records.schemas.columns import ColumnCodec
from penstock.delivery import BadRecord

__all__ = ["Packed", "Packer"]


class Packed(NamedTuple):
    """The batches of some elements; if one cannot become a record, those of the elements before it."""

    batches: list[Batch]
    taken: int
    """How many elements are in ``batches``."""
    error: BaseException | None = None
    """Why the element after these cannot become a record."""


class _CalledBad(ValueError):
    """An element is a BadRecord: what happens to it is not for the packer to say."""


class Packer:
    """Turns elements into batches of a good size for the wire."""

    def __init__(self, codec: Codec, limits: Limits, *, batched: bool = False) -> None:
        self._codec = codec
        self._batched = batched
        self._limits = limits
        self._columns = codec if isinstance(codec, ColumnCodec) else None
        """Makes a batch of many elements, each of which is a row."""
        self._arrow = codec.name == "arrow" and self._columns is None
        self._raw = codec.name == "bytes"
        self.records_per_element = 1.0
        self.bytes_per_element = 1024.0
        """Averages of what came lately."""
        self._record_bytes = 1024.0
        """Bytes of payload in a record, lately. If that is wrong, a batch is divided, or is small."""
        self.first_request = 1 if batched or self._arrow else 64
        """How many elements to ask for while nothing is known about their size; then 0."""

    def pack(self, elements: Sequence[Any], first: int, deliveries: int | None = None) -> Packed:
        """The batches for these elements, the first record of which gets the offset ``first``.

        There are none, and an error, if an element is a :class:`~penstock.delivery.BadRecord`.

        They came in so many ``deliveries``, if the source emits deliveries: those are what is requested.
        """
        packed: list[Batch] = []
        start = 0
        # They have come together, so they have one time; batches of one time can be sent together as well.
        now = time.time_ns() // 1000
        try:
            for chunk in self._chunks(elements):
                whole, begun = len(packed), first
                try:
                    for batch in self._batches(chunk, first, now):
                        packed.append(batch)
                        first = batch.end
                except BaseException as error:
                    if isinstance(error, _CalledBad) and not self._batched:
                        return Packed([], 0, error)  # The caller sees which one it is.
                    if len(chunk) == 1:
                        return Packed(packed, start, error)
                    # One of them is at fault: pack those before it. Some are perhaps packed.
                    # If it is none of them alone, all of them are left to the caller.
                    done = next((n for n, one in enumerate(chunk) if self.problem_with(one) is not None), 0)
                    packed = packed[:whole] + list(self._batches(chunk[:done], begun, now) if done else ())
                    return Packed(packed, start + done, error)
                start += len(chunk)
        except TypeError as error:  # From _chunks: an element that is not a list of records.
            return Packed([], 0, error)
        if packed:
            self._learn(deliveries or len(elements), packed)
        return Packed(packed, len(elements))

    def records_in(self, element: Any) -> int:
        """How many records such an element becomes, if it is not a list of them."""
        return int(element.num_rows) if self._arrow else 1

    def _chunks(self, elements: Sequence[Any]) -> Iterator[Sequence[Any]]:
        """The records in portions of a good size."""
        size = self._elements_per_batch()
        if not self._batched:
            yield from _cut(elements, size)
            return
        small: list[Sequence[Any]] = []
        for records in elements:
            if not isinstance(records, list | tuple):
                text = f"batched=True takes lists of records, not {type(records).__name__}: see buffer()"
                raise TypeError(text)
            if size <= 2 * len(records) <= 4 * size:
                # Good as it is.
                yield from _cut(list(chain.from_iterable(small)), size)
                small = []
                yield records
            else:
                small.append(records)
        yield from _cut(list(chain.from_iterable(small)), size)

    def _elements_per_batch(self) -> int:
        if self._arrow:
            return 1
        fit = int(self._limits.max_frame / self._record_bytes)
        return max(1, min(fit, self._limits.max_frame_records))

    def _batches(self, chunk: Sequence[Any], first: int, now: int) -> Iterator[Batch]:
        values: Sequence[bytes]
        if self._raw and list(map(type, chunk)).count(bytes) == len(chunk):
            yield from self._batches_of(chunk, chunk, RecordMetadata(now), first)
            return
        types = set(map(type, chunk))
        if BadRecord in types:
            raise _CalledBad(next(one.reason for one in chunk if isinstance(one, BadRecord)))
        if self._arrow:
            for element in chunk:
                packed = arrow.to_arrow_stream(element)
                if element.num_rows:
                    yield Batch(
                        first, element.num_rows, packed, batches.pack_metadata(RecordMetadata(now)), ARROW
                    )
                    first += element.num_rows
            return
        if self._columns is not None:
            yield from self._batch_of_rows(self._columns, chunk, types, first, now)
            return
        if Record in types:
            values, metadata = self._with_metadata(chunk, now)
        else:
            values, metadata = [self._codec.encode(element) for element in chunk], RecordMetadata(now)
        yield from self._batches_of(chunk, values, metadata, first)

    def _batches_of(
        self, chunk: Sequence[Any], values: Sequence[bytes], metadata: RecordMetadata, first: int
    ) -> Iterator[Batch]:
        payload, notes = batches.pack_values(values), batches.pack_metadata(metadata)
        if len(payload) + len(notes) > 2 * self._limits.max_frame and len(chunk) > 1:
            # Records have become larger than those before them.
            middle = len(chunk) // 2
            yield from self._batches(chunk[:middle], first, metadata.timestamp)
            yield from self._batches(chunk[middle:], first + middle, metadata.timestamp)
        else:
            yield Batch(first, len(values), payload, notes, MSGPACK)

    def _batch_of_rows(
        self, codec: ColumnCodec, chunk: Sequence[Any], types: set[type], first: int, now: int
    ) -> Iterator[Batch]:
        rows, metadata = chunk, RecordMetadata(now)
        if Record in types:
            records = [element if type(element) is Record else Record(element) for element in chunk]
            rows, metadata = [record.value for record in records], self._metadata(records, now)
        payload = arrow.to_arrow_stream(codec.batch_of(rows))
        if len(payload) > 2 * self._limits.max_frame and len(chunk) > 1:
            middle = len(chunk) // 2
            yield from self._batches(chunk[:middle], first, now)
            yield from self._batches(chunk[middle:], first + middle, now)
        else:
            yield Batch(first, len(chunk), payload, batches.pack_metadata(metadata), ARROW)

    def _with_metadata(self, chunk: Sequence[Any], now: int) -> tuple[list[bytes], RecordMetadata]:
        records = [element if type(element) is Record else Record(element) for element in chunk]
        values = [record.value for record in records]
        if not (self._raw and set(map(type, values)) == {bytes}):
            values = list(map(self._codec.encode, values))
        return values, self._metadata(records, now)

    @staticmethod
    def _metadata(records: Sequence[Record], now: int) -> RecordMetadata:
        keys = [record.key for record in records]
        times = [record.timestamp for record in records]
        # All are of one or two types, so a look at each type takes less time than one at each record.
        kinds_of_keys, kinds_of_times = (set(map(type, given)) - {NoneType} for given in (keys, times))
        for kind in kinds_of_keys:
            if not issubclass(kind, bytes):
                raise TypeError(f"the key of a record is bytes, not {kind.__name__}")
        if not all(issubclass(kind, int) for kind in kinds_of_times):
            raise TypeError("the timestamp of a record is a whole number of microseconds since 1970")
        return RecordMetadata(
            now,
            keys if kinds_of_keys else None,
            [now if given is None else given for given in times] if kinds_of_times else None,
        )

    def problem_with(self, element: Any) -> BaseException | None:
        """Why this element cannot become a record; None if it can."""
        try:
            for _ in self._batches([element], 0, 0):
                pass
        except BaseException as error:  # A codec may raise anything; the caller has to know.
            return error
        return None

    def _learn(self, elements: int, packed: list[Batch]) -> None:
        self.first_request = 0
        count, size = sum(batch.count for batch in packed), sum(batch.nbytes for batch in packed)
        self._record_bytes = max(sum(len(batch.payload) for batch in packed) / count, 1.0)
        records, nbytes = count / elements, max(size / elements, 1.0)
        # Growth is believed at once, for the sake of the bounds; shrinking slowly.
        self.records_per_element = max(records, (self.records_per_element * 3 + records) / 4, 1.0)
        self.bytes_per_element = max(nbytes, (self.bytes_per_element * 3 + nbytes) / 4)


def _cut(records: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    return (records[start : start + size] for start in range(0, len(records), size))

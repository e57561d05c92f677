"""The records of the chaos tests, and what a subscriber has of them in a form that survives SIGKILL.

What a record looks like follows from its offset alone, so that a source can be read again from anywhere, and
whoever holds a record can tell whether it is the right one.

Every subscriber keeps one digest for each :data:`BLOCK` records, in a file of nothing but digests: how long
the file is says how far the subscriber has come. A digest is appended with one ``write``. What a process has
written stays written when it is killed, and what it had of the next block is simply gone and will be asked
for again. Two files are equal if, and only if, all the records behind them are (as far as SHA-256 goes), and
the first digest that differs says where.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

import msgspec

__all__ = ["BLOCK", "Differs", "Output", "digest_of", "digests_of_source", "offset_in", "record", "records"]

BLOCK: Final = 200
_DIGEST: Final = 32
_POOL: Final = random.Random("what records are made of").randbytes(8192)
_SHORTEST, _LONGEST = 20, 200
_pack: Final = msgspec.msgpack.Encoder().encode


def record(offset: int) -> bytes:
    """The record at this offset: 20 to 200 bytes, no two alike."""
    mixed = offset * 2654435761 >> 7
    start = mixed % 7919
    length = _SHORTEST + mixed % (_LONGEST - _SHORTEST + 1)
    return b"%012d" % offset + _POOL[start : start + length - 12]


def records(start: int, stop: int) -> Iterator[bytes]:
    """The records from ``start`` up to, but not with, ``stop``."""
    return map(record, range(start, stop))


def digest_of(values: list[bytes]) -> bytes:
    """The digest of a block; packed first, so that it also says where each value ends."""
    return sha256(_pack(values)).digest()


def digests_of_source(total: int) -> bytes:
    """What the file of a subscriber has to be in the end."""
    if total % BLOCK:
        raise ValueError(f"{total} records: give a multiple of {BLOCK}")
    return b"".join(digest_of([*records(start, start + BLOCK)]) for start in range(0, total, BLOCK))


def offset_in(path: Path) -> int:
    """How far the subscriber with this file has come; 0 if there is none yet."""
    try:
        return os.stat(path).st_size // _DIGEST * BLOCK
    except FileNotFoundError:
        return 0


class Differs(AssertionError):
    """A subscriber got something that the source never gave, or not at this place."""


class Output:
    """What a subscriber has: whole blocks in a file, and the beginning of the next one in memory."""

    def __init__(self, path: Path, expected: bytes) -> None:
        self._expected = expected
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        blocks = os.fstat(self._file).st_size // _DIGEST
        os.ftruncate(self._file, blocks * _DIGEST)
        self.offset = blocks * BLOCK
        """Records before this offset are safe."""
        self._block: list[bytes] = []

    @property
    def count(self) -> int:
        """How many records have come, safe or not."""
        return self.offset + len(self._block)

    def take(self, value: bytes) -> bool:
        """Take the next record; whether a block became safe by it."""
        block = self._block
        block.append(value)
        if len(block) < BLOCK:
            return False
        digest = digest_of(block)
        place = self.offset // BLOCK * _DIGEST
        if digest != self._expected[place : place + _DIGEST]:
            raise Differs(self._difference())
        os.write(self._file, digest)
        self.offset += BLOCK
        self._block = []
        return True

    def finish(self) -> None:
        """Nothing more will come: the count has to be exact now."""
        total = len(self._expected) // _DIGEST * BLOCK
        if self.count != total:
            raise Differs(f"the stream ended after {self.count} records, and the source has {total}")

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def _difference(self) -> str:
        total = len(self._expected) // _DIGEST * BLOCK
        for offset, value in enumerate(self._block, self.offset):
            if offset >= total:
                return f"first differing offset {offset}: the source has no more, but {value!r} came"
            if value != record(offset):
                return f"first differing offset {offset}: {value!r} instead of {record(offset)!r}"
        return f"the expected digest of the block at {self.offset} is not that of the source's records"

"""The reader's side of a shared segment: payloads in memory that a gateway on the same machine shares.

Shared memory is optional. A reader that cannot see the segment (it is on another machine, belongs to another
user, or does not run on Linux) does not mention it, and the gateway sends it the payloads.
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
import weakref
from pickle import PickleBuffer
from typing import Final

from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.protocol.frames import PLACE, TOKEN_BYTES
from penstock.aquifer.protocol.messages import SegmentFields

__all__ = ["SegmentFinder", "SegmentReader"]

_idle: Final[dict[str, SegmentReader]] = {}
"""Mapped segments that nothing reads at the moment, by endpoint: for the next read from there."""
_MOST_IDLE: Final = 4


class SegmentReader:
    """Views of the payloads in a segment; it knows which of them are still in use."""

    def __init__(self, memory: mmap.mmap, token: str) -> None:
        self.token = token
        self._memory = memoryview(memory)
        self._seen = 0
        self._held: dict[int, weakref.ref[memoryview]] = {}

    def payload(self, place: bytes | memoryview) -> memoryview:
        """The payload at a place. It stays there while the returned view, or a part of it, is referenced."""
        if len(place) != PLACE.size:
            raise ProtocolViolation(f"a place in a shared segment has {PLACE.size} bytes, not {len(place)}")
        number, start, length = PLACE.unpack(place)
        if number < self._seen or start + length > len(self._memory):
            raise ProtocolViolation(
                f"payload {number} of {length} bytes at {start} cannot be in a shared segment of "
                f"{len(self._memory)} bytes in which {self._seen} have been seen"
            )
        self._seen = number + 1
        payload = self._memory[start : start + length]
        self._held[number] = weakref.ref(payload)
        # A part of a view refers to what the view was made of, and not to the view. A view that was made of
        # ours directly would refer to the whole segment. Through a PickleBuffer it refers to ours.
        return memoryview(PickleBuffer(payload))

    def in_use(self) -> list[int]:
        """How many payloads have arrived, and the numbers of those that are still referenced."""
        for number in [number for number, payload in self._held.items() if payload() is None]:
            del self._held[number]
        return [self._seen, *self._held]


class SegmentFinder:
    """Finds the segment that a gateway offers, or has it still from the last read."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._reader = _idle.pop(endpoint, None)

    @property
    def token(self) -> str:
        """The token of the segment that is mapped already, or an empty string."""
        return "" if self._reader is None else self._reader.token

    def open(self, offer: SegmentFields) -> SegmentReader | None:
        """Map the segment that a gateway offers; None if this process cannot see it."""
        if self.token != offer.token:
            self._reader = _mapped(offer)
        return self._reader

    def close(self) -> None:
        """Leave the segment to the next read."""
        if self._reader is not None:
            if len(_idle) >= _MOST_IDLE:
                _idle.clear()
            _idle[self._endpoint] = self._reader
        self._reader = None


def _mapped(offer: SegmentFields) -> SegmentReader | None:
    if sys.platform != "linux":
        return None
    import fcntl

    try:
        # Not blocking, whatever kind of file it turns out to be.
        file = os.open(f"/proc/{offer.pid}/fd/{offer.fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or not TOKEN_BYTES <= offer.size == status.st_size:
            return None
        if not fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            return None  # If it shrank while we read it, this process would be killed.
        memory = mmap.mmap(file, offer.size, prot=mmap.PROT_READ)
    except OSError:
        return None
    finally:
        os.close(file)
    if memory[:TOKEN_BYTES].hex() != offer.token:
        # It belongs to another gateway: process numbers differ between machines.
        memory.close()
        return None
    return SegmentReader(memory, offer.token)


if hasattr(os, "register_at_fork"):
    # Otherwise parent and child would both use a segment that only one of them may use.
    os.register_at_fork(after_in_child=_idle.clear)

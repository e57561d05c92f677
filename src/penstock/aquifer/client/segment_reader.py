"""The reader's side of a shelf: payloads in memory that a gateway on the same machine shares.

Nothing of this is needed to read. Who cannot see the shelf, being on another machine, of another user or on
another system than Linux, does not mention it, and is sent the payloads.
"""

from __future__ import annotations

import mmap
import os
import stat
import sys
import weakref
from typing import Final

from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.protocol.frames import PLACE, TOKEN_BYTES
from penstock.aquifer.protocol.messages import SegmentFields

__all__ = ["Lookout", "ShelfView"]

_idle: Final[dict[str, ShelfView]] = {}
"""Shelves that nobody here looks at, by endpoint: for whoever reads from there next."""
_MOST_IDLE: Final = 4


class ShelfView:
    """Looks at payloads, and knows which of them somebody still looks at."""

    def __init__(self, memory: mmap.mmap, token: str) -> None:
        self.token = token
        self._memory = memoryview(memory)
        self._seen = 0
        self._held: dict[int, weakref.ref[memoryview]] = {}

    def payload(self, place: bytes | memoryview) -> memoryview:
        """What stands at a place. It stays there for as long as somebody has the returned object."""
        if len(place) != PLACE.size:
            raise ProtocolViolation(f"a place on a shelf has {PLACE.size} bytes, not {len(place)}")
        number, start, length = PLACE.unpack(place)
        if number < self._seen or start + length > len(self._memory):
            raise ProtocolViolation(
                f"payload {number} of {length} bytes at {start} cannot be on a shelf of "
                f"{len(self._memory)} bytes on which {self._seen} have been seen"
            )
        self._seen = number + 1
        payload = self._memory[start : start + length]
        self._held[number] = weakref.ref(payload)
        return payload

    def in_use(self) -> list[int]:
        """How many payloads have come, and the numbers of those that somebody still looks at."""
        for number in [number for number, payload in self._held.items() if payload() is None]:
            del self._held[number]
        return [self._seen, *self._held]


class Lookout:
    """For one reading: finds the shelf that its gateway offers, or has it still from the time before."""

    def __init__(self, endpoint: str) -> None:
        self._endpoint = endpoint
        self._view = _idle.pop(endpoint, None)

    @property
    def token(self) -> str:
        """Of the shelf that is here already; empty if there is none."""
        return "" if self._view is None else self._view.token

    def open(self, terms: SegmentFields) -> ShelfView | None:
        """The shelf that a gateway offers; None if it cannot be seen from here."""
        if self.token != terms.token:
            self._view = _found(terms)
        return self._view

    def close(self) -> None:
        """The reading is over."""
        if self._view is not None:
            if len(_idle) >= _MOST_IDLE:
                _idle.clear()
            _idle[self._endpoint] = self._view
        self._view = None


def _found(terms: SegmentFields) -> ShelfView | None:
    if sys.platform != "linux":
        return None
    import fcntl

    try:
        # Whatever it is that is open there: to open it must not wait.
        file = os.open(f"/proc/{terms.pid}/fd/{terms.fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or not TOKEN_BYTES <= terms.size == status.st_size:
            return None
        if not fcntl.fcntl(file, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            return None  # If it shrank while it is looked at, this process would be killed.
        memory = mmap.mmap(file, terms.size, prot=mmap.PROT_READ)
    except OSError:
        return None
    finally:
        os.close(file)
    if memory[:TOKEN_BYTES].hex() != terms.token:
        # That of another gateway: numbers of processes are not the same on all machines.
        memory.close()
        return None
    return ShelfView(memory, terms.token)


if hasattr(os, "register_at_fork"):
    # Parent and child would both use the shelf that only one of them may.
    os.register_at_fork(after_in_child=_idle.clear)

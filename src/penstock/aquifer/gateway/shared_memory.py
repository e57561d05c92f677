"""Shared memory between the gateway and a reader on the same machine, for large payloads.

A large payload need not go through a socket. The gateway copies it into a shared segment, the frame says
where it is, and the reader uses it there. With each ``Next`` the reader says which payloads it still uses;
the gateway keeps those and reuses the rest. If the segment is full, the payload goes through the socket.

A segment is anonymous memory (``memfd_create``). The reader finds it among the open files of this process,
which only a process of the same user can do. The memory goes away with the last process that has it open, so
nothing is left behind, however the two processes end.
"""

from __future__ import annotations

import logging
import mmap
import os
import secrets
import sys
from collections.abc import Sequence
from typing import Final

from penstock.aquifer.protocol.frames import PLACE, TOKEN_BYTES
from penstock.aquifer.protocol.messages import SegmentFields
from penstock.aquifer.protocol.session import Session

__all__ = ["SharedSegment", "SharedSegments"]

_log = logging.getLogger("penstock.aquifer")

_PARKED: Final = 8
"""How many segments are kept for readers that may come back,"""
_PARKED_SECONDS: Final = 60.0
"""and for how long."""
_ALIGNMENT: Final = 64
"""Bytes that the beginning of a payload is a multiple of: Arrow works best with that."""


class SharedSegment:
    """Memory for the payloads of one reader."""

    def __init__(self, size: int) -> None:
        if sys.platform != "linux":
            raise OSError("this system cannot share memory that has no name")
        if size <= _ALIGNMENT:
            raise ValueError(f"a shared segment of {size} bytes is too small for any payload")
        import fcntl

        self._file = os.memfd_create("penstock-segment", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._file, size)
            # A process that reads memory beyond the end of its file is killed, so the size is sealed.
            fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self._memory = mmap.mmap(self._file, size)
        except (OSError, ValueError):
            os.close(self._file)
            raise
        token = secrets.token_bytes(TOKEN_BYTES)
        self._memory[:TOKEN_BYTES] = token
        self.fields = SegmentFields(os.getpid(), self._file, size, token.hex())
        """How the reader finds it."""
        self._size = size
        self._taken: dict[int, tuple[int, int]] = {}
        """The payloads in the segment, by number: first byte and end."""
        self._number = 0
        self._before = 0
        """Payloads with a lower number were for a session that is over."""
        self.rests_since = 0.0
        """When the last session was over."""

    def put(self, *parts: bytes | memoryview) -> bytes | None:
        """Copy the parts of a payload into the segment and return its position; None if they do not fit."""
        size = sum(map(len, parts))
        start = _ALIGNMENT
        # The lowest position that fits: memory that was used a moment ago is still in the cache.
        for low, high in sorted(self._taken.values()):
            if low - start >= size:
                break
            start = high
        if start + size > self._size:
            return None
        stop = start
        for part in parts:
            begin, stop = stop, stop + len(part)
            self._memory[begin:stop] = part
        number, self._number = self._number, self._number + 1
        self._taken[number] = (start, -(-stop // _ALIGNMENT) * _ALIGNMENT)
        return PLACE.pack(number, start, size)

    def keep_only(self, in_use: list[int]) -> None:
        """Free the payloads that the reader has seen and does not use any more."""
        seen, held = max(in_use[0], self._before), set(in_use[1:])
        for number in [number for number in self._taken if number < seen and number not in held]:
            del self._taken[number]

    def rest(self, now: float) -> None:
        """The session is over: its reader will not look at payloads that it has not seen yet."""
        self._before = self._number
        self.rests_since = now

    def close(self) -> None:
        """Close the memory here; a reader that still uses a payload can go on using it."""
        self._memory.close()
        os.close(self._file)


class SharedSegments:
    """The segments of all sessions, and those of readers that may come back.

    New memory takes longer to get than to fill. A process that reads range after range, as a worker of Spark
    does, gets the same segment again.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._lent: dict[Session, SharedSegment] = {}
        self._parked: dict[str, SharedSegment] = {}
        """By their tokens; the one that has waited longest is the first."""

    def lend(self, session: Session, token: str) -> SegmentFields | None:
        """A segment for a session: the one with the token, if it is still there; None if none can be had."""
        segment = self._lent.get(session) or self._parked.pop(token, None)
        if segment is None:
            try:
                segment = SharedSegment(self._size)
            except (OSError, ValueError) as error:
                _log.info("no memory to share with a reader: %s; its payloads go through the socket", error)
                return None
        self._lent[session] = segment
        return segment.fields

    def put(
        self,
        session: Session,
        payload: bytes | memoryview,
        in_use: list[int],
        more: Sequence[bytes | memoryview] = (),
    ) -> bytes | None:
        """Copy a payload, and what follows it, into a session's segment.

        None if the session has none, or they do not fit.
        """
        segment = self._lent.get(session)
        if segment is None:
            return None
        segment.keep_only(in_use)
        return segment.put(payload, *more)

    def take_back(self, session: Session, now: float) -> None:
        """A session is over."""
        segment = self._lent.pop(session, None)
        if segment is None:
            return
        segment.rest(now)
        self._parked[segment.fields.token] = segment
        self.tick(now)

    def tick(self, now: float) -> None:
        """Free the memory of readers that have not come back, or of too many of them."""
        for token, segment in list(self._parked.items()):
            if len(self._parked) <= _PARKED and now - segment.rests_since <= _PARKED_SECONDS:
                break
            self._parked.pop(token).close()

    def close(self) -> None:
        """Free all memory."""
        for segment in (*self._lent.values(), *self._parked.values()):
            segment.close()
        self._lent.clear()
        self._parked.clear()

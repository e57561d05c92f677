"""Shelves: memory that the gateway shares with readers on the same machine.

What is large need not go through a socket to get from one process to another. The gateway puts the payload on
a shelf, the frame says where it stands, and the reader looks at it there. The reader says with each grant
what it still looks at, and only that stays where it is. If there is no room, a payload is sent as ever.

A shelf is memory without a name (``memfd_create``). The reader finds it among the open files of this process,
which only a process of the same user can. It goes away with the last one who has it open, so nothing is left
behind, however the two end.
"""

from __future__ import annotations

import logging
import mmap
import os
import secrets
import sys
from typing import Final

from penstock.aquifer.protocol.frames import PLACE, TOKEN_BYTES
from penstock.aquifer.protocol.messages import ShelfTerms
from penstock.aquifer.protocol.sessions import Session

__all__ = ["Shelf", "Shelves"]

_log = logging.getLogger("penstock.aquifer")

_PARKED: Final = 8
"""How many shelves are kept for readers that may come back,"""
_PARKED_SECONDS: Final = 60.0
"""and for how long."""
_ALIGNMENT: Final = 64
"""Bytes that the beginning of a payload is a multiple of: Arrow works best with that."""


class Shelf:
    """Memory for the payloads of one reader."""

    def __init__(self, size: int) -> None:
        if sys.platform != "linux":
            raise OSError("this system has no memory without a name to share")
        if size <= _ALIGNMENT:
            raise ValueError(f"a shelf of {size} bytes has room for nothing")
        import fcntl

        self._file = os.memfd_create("penstock-shelf", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self._file, size)
            # Who looks at memory that its file has lost is killed: this one stays as large as it is.
            fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            self._memory = mmap.mmap(self._file, size)
        except (OSError, ValueError):
            os.close(self._file)
            raise
        token = secrets.token_bytes(TOKEN_BYTES)
        self._memory[:TOKEN_BYTES] = token
        self.terms = ShelfTerms(os.getpid(), self._file, size, token.hex())
        """How the reader finds it."""
        self._size = size
        self._taken: dict[int, tuple[int, int]] = {}
        """The payloads that stand here, by number: from where to where."""
        self._number = 0
        self._before = 0
        """Payloads with a lower number were for a session that is over."""
        self.rests_since = 0.0
        """When the last session was over."""

    def put(self, payload: bytes | memoryview) -> bytes | None:
        """Put a payload on the shelf and return its place; None if there is no room for it."""
        start = _ALIGNMENT
        # The lowest place that will do: what was used a moment ago is still in the processor's cache.
        for low, high in sorted(self._taken.values()):
            if low - start >= len(payload):
                break
            start = high
        stop = start + len(payload)
        if stop > self._size:
            return None
        self._memory[start:stop] = payload
        number, self._number = self._number, self._number + 1
        self._taken[number] = (start, -(-stop // _ALIGNMENT) * _ALIGNMENT)
        return PLACE.pack(number, start, len(payload))

    def keep_only(self, in_use: list[int]) -> None:
        """Clear what the reader has seen and does not use any more: see ``Grant.shelf``."""
        seen, held = max(in_use[0], self._before), set(in_use[1:])
        for number in [number for number in self._taken if number < seen and number not in held]:
            del self._taken[number]

    def rest(self, now: float) -> None:
        """The session is over: what its reader has not seen, it will never see."""
        self._before = self._number
        self.rests_since = now

    def close(self) -> None:
        """Needed no more; who still looks at a payload may go on."""
        self._memory.close()
        os.close(self._file)


class Shelves:
    """The shelves of all sessions, and those of readers that may come back.

    New memory takes longer to get than to fill. A process that reads range after range, as a worker of Spark
    does, gets the same shelf again.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._lent: dict[Session, Shelf] = {}
        self._parked: dict[str, Shelf] = {}
        """By their tokens; the one that has waited longest is the first."""

    def lend(self, session: Session, token: str) -> ShelfTerms | None:
        """A shelf for a session: the one with the token, if it is still there; None if none can be had."""
        shelf = self._lent.get(session) or self._parked.pop(token, None)
        if shelf is None:
            try:
                shelf = Shelf(self._size)
            except (OSError, ValueError) as error:
                _log.info("no memory to share with a reader: %s; payloads are sent instead", error)
                return None
        self._lent[session] = shelf
        return shelf.terms

    def put(self, session: Session, payload: bytes | memoryview, in_use: list[int]) -> bytes | None:
        """Put a payload on the shelf of a session; None if it has none, or no room."""
        shelf = self._lent.get(session)
        if shelf is None:
            return None
        shelf.keep_only(in_use)
        return shelf.put(payload)

    def take_back(self, session: Session, now: float) -> None:
        """A session is over."""
        shelf = self._lent.pop(session, None)
        if shelf is None:
            return
        shelf.rest(now)
        self._parked[shelf.terms.token] = shelf
        self.tick(now)

    def tick(self, now: float) -> None:
        """Let go of memory whose reader has not come back, or that is too much."""
        for token, shelf in list(self._parked.items()):
            if len(self._parked) <= _PARKED and now - shelf.rests_since <= _PARKED_SECONDS:
                break
            self._parked.pop(token).close()

    def close(self) -> None:
        """Let go of all memory."""
        for shelf in (*self._lent.values(), *self._parked.values()):
            shelf.close()
        self._lent.clear()
        self._parked.clear()

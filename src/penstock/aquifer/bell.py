"""A bell: how one thread wakes another that waits on sockets."""

from __future__ import annotations

import socket

__all__ = ["Bell"]


class Bell:
    """Can be polled like a socket, is readable after :meth:`ring`, and quiet again after :meth:`hush`."""

    def __init__(self) -> None:
        self._outside, self._inside = socket.socketpair()
        self._outside.setblocking(False)
        self._inside.setblocking(False)
        self._rung = False

    def fileno(self) -> int:
        """What to poll."""
        return self._inside.fileno()

    def ring(self) -> None:
        """Wake whoever waits; costs next to nothing if it was rung already."""
        if self._rung:
            return
        self._rung = True
        try:
            self._outside.send(b"!")
        except (BlockingIOError, OSError):
            # Full: it rings already. Closed: nobody waits any more.
            return

    def hush(self) -> None:
        """Say that the ringing was heard; look for work only after this."""
        try:
            while self._inside.recv(64):
                pass
        except BlockingIOError:
            pass
        self._rung = False

    def close(self) -> None:
        """Let go of the sockets."""
        self._outside.close()
        self._inside.close()

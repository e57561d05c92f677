"""Wakes a thread that waits on sockets: a pair of connected sockets that a poller can watch."""

from __future__ import annotations

import socket

__all__ = ["Waker"]


class Waker:
    """One thread polls :meth:`fileno`, which becomes readable after :meth:`wake`, until :meth:`drain`.

    The order matters on both sides. The thread that wakes leaves the work first and then calls :meth:`wake`;
    the thread that waits calls :meth:`drain` first and then looks for work. So no work is missed.
    """

    def __init__(self) -> None:
        self._outside, self._inside = socket.socketpair()
        self._outside.setblocking(False)
        self._inside.setblocking(False)
        self._woken = False

    def fileno(self) -> int:
        """The descriptor to poll."""
        return self._inside.fileno()

    @property
    def wakeup_fd(self) -> int:
        """The other end, for :func:`signal.set_wakeup_fd`: a byte that is written there wakes, too."""
        return self._outside.fileno()

    def wake(self) -> None:
        """Wake the waiting thread, from any thread. Again before :meth:`drain` it costs next to nothing."""
        if self._woken:
            return
        self._woken = True
        try:
            self._outside.send(b"!")
        except OSError:
            # A full socket wakes already; a closed one has nobody waiting.
            return

    def drain(self) -> None:
        """Make the descriptor unreadable again. Look for work after this, not before."""
        try:
            while len(self._inside.recv(64)) == 64:  # With fewer, nothing is left.
                pass
        except BlockingIOError:
            pass
        self._woken = False

    def close(self) -> None:
        """Close both sockets."""
        self._outside.close()
        self._inside.close()

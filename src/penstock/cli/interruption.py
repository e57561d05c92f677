"""Ctrl-C and SIGTERM as something to wait for, so that a command ends where it wants to and not anywhere.

Between :meth:`Interruption.__enter__` and the end of the block a signal only leaves a note and wakes
:meth:`Interruption.wait`. The handler takes no lock: it runs on the main thread in the middle of whatever
that is doing, and a lock that the main thread holds would never be free again.
"""

from __future__ import annotations

import contextlib
import select
import signal
import socket
from types import FrameType, TracebackType
from typing import Any, Final

__all__ = ["Interrupted", "Interruption"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LONGEST: Final = 3600.0


class Interrupted(Exception):
    """A signal came while we waited for something that may never come."""


class Interruption:
    """Waits for signals, for time, and for :meth:`wake`; on the main thread, where signals are delivered."""

    def __init__(self) -> None:
        self.signal: int | None = None
        """The signal that came."""
        self._handlers: dict[signal.Signals, Any] = {}
        self._descriptor = -1
        self._outside, self._inside = socket.socketpair()
        self._outside.setblocking(False)
        self._inside.setblocking(False)

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, as shells expect; 0 after SIGTERM, which is how a service is ended."""
        return 130 if self.signal == signal.SIGINT else 0

    def wait(self, seconds: float) -> bool:
        """Until a signal comes, somebody wakes us or the time is over; whether a signal has come."""
        if self.signal is None and select.select([self._inside], [], [], min(max(seconds, 0), _LONGEST))[0]:
            with contextlib.suppress(BlockingIOError):
                self._inside.recv(4096)
        return self.signal is not None

    def wake(self) -> None:
        """Make :meth:`wait` return; from any thread."""
        with contextlib.suppress(OSError):  # Full: it is being woken already. Closed: nobody waits.
            self._outside.send(b"!")

    def wait_to_write(self, descriptor: int) -> None:
        """Until something can be written to a pipe, a socket or a terminal; Interrupted if a signal comes."""
        while self.signal is None:
            woken, writable, _ = select.select([self._inside], [descriptor], [])
            if woken:
                with contextlib.suppress(BlockingIOError):
                    self._inside.recv(4096)
            if writable:
                return
        raise Interrupted

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signal = number

    def __enter__(self) -> Interruption:
        self._handlers = {number: signal.signal(number, self._note) for number in _SIGNALS}
        # The byte that Python itself sends here wakes a select that began just before the signal came.
        self._descriptor = signal.set_wakeup_fd(self._outside.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._descriptor)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._outside.close()
        self._inside.close()

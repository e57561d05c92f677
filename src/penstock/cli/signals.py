"""Ctrl-C, SIGTERM and SIGHUP as something to wait for, so that a command stops at a point of its choice.

Inside ``with Interruption()`` a signal is only recorded, and wakes :meth:`Interruption.wait`. The handler
takes no lock: it runs on the main thread, in the middle of whatever that is doing, and would wait for ever
for a lock that the main thread holds.

SIGHUP means that the terminal is gone, and ends a command as SIGTERM does. If it is ignored from the start,
which is what ``nohup`` does, it stays ignored. A command that can reload its settings does so on SIGHUP if
the terminal is still there or there never was one: then it was sent on purpose.
"""

from __future__ import annotations

import os
import select
import signal
from types import FrameType, TracebackType
from typing import Any, Final

from penstock.waker import Waker

__all__ = ["Interrupted", "Interruption"]

_HANGUP: Final[signal.Signals | None] = getattr(signal, "SIGHUP", None)
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, *((_HANGUP,) if _HANGUP is not None else ()))
_LONGEST: Final = 3600.0


class Interrupted(Exception):
    """A signal arrived during a wait that might never end."""


class Interruption:
    """Waits for a signal, a time, or :meth:`wake`; on the main thread, where signals are delivered."""

    def __init__(self, *, reloads: bool = False) -> None:
        self.signal: int | None = None
        """The signal that arrived, if any."""
        self._reloads = reloads
        self._reload_wanted = False
        self._has_terminal = _has_terminal()
        self._handlers: dict[signal.Signals, Any] = {}
        self._descriptor = -1
        self._waker = Waker()

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, as shells expect; 0 after SIGTERM and SIGHUP, which stop a service."""
        return 130 if self.signal == signal.SIGINT else 0

    def wait(self, seconds: float) -> bool:
        """Wait for a signal, for :meth:`wake`, or for some seconds; return whether a signal has arrived."""
        if self.signal is None and select.select([self._waker], [], [], min(max(seconds, 0), _LONGEST))[0]:
            self._waker.drain()
        return self.signal is not None

    def take_reload(self) -> bool:
        """Return whether a reload of the settings was requested since the last call."""
        wanted, self._reload_wanted = self._reload_wanted, False
        return wanted

    def wake(self) -> None:
        """Make :meth:`wait` return; from any thread."""
        self._waker.wake()

    def wait_to_write(self, descriptor: int) -> None:
        """Wait until a pipe, a socket or a terminal can be written to; Interrupted if a signal arrives."""
        while self.signal is None:
            woken, writable, _ = select.select([self._waker], [descriptor], [])
            if woken:
                self._waker.drain()
            if writable:
                return
        raise Interrupted

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == _HANGUP and self._reloads and _has_terminal() == self._has_terminal:
            self._reload_wanted = True
        else:
            self.signal = number

    def __enter__(self) -> Interruption:
        heeded = [
            number
            for number in _SIGNALS
            if number != _HANGUP or signal.getsignal(number) is not signal.SIG_IGN
        ]
        self._handlers = {number: signal.signal(number, self._note) for number in heeded}
        # The byte that Python itself writes there wakes a select that began just before the signal.
        self._descriptor = signal.set_wakeup_fd(self._waker.wakeup_fd, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(self._descriptor)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._waker.close()


def _has_terminal() -> bool:
    """Return whether this process has a controlling terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True

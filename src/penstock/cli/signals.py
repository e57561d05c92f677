"""Ctrl-C, SIGTERM and SIGHUP as something to wait for: a command ends where it wants to and not anywhere.

Between :meth:`Interruption.__enter__` and the end of the block a signal only leaves a note and wakes
:meth:`Interruption.wait`. The handler takes no lock: it runs on the main thread in the middle of whatever
that is doing, and a lock that the main thread holds would never be free again.

SIGHUP says that the terminal is gone, and ends a command as SIGTERM does. If it is ignored from the start, as
``nohup`` arranges it, it stays ignored. A command that can read its settings again does so when SIGHUP comes
and the terminal is still there, or there never was one: then somebody has sent it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
from types import FrameType, TracebackType
from typing import Any, Final

__all__ = ["Interrupted", "Interruption"]

_HANGUP: Final[signal.Signals | None] = getattr(signal, "SIGHUP", None)
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, *((_HANGUP,) if _HANGUP is not None else ()))
_LONGEST: Final = 3600.0


class Interrupted(Exception):
    """A signal came while we waited for something that may never come."""


class Interruption:
    """Waits for signals, for time, and for :meth:`wake`; on the main thread, where signals are delivered."""

    def __init__(self, *, reloads: bool = False) -> None:
        self.signal: int | None = None
        """The signal that came."""
        self._reloads = reloads
        self._reload_wanted = False
        self._has_terminal = _has_terminal()
        self._handlers: dict[signal.Signals, Any] = {}
        self._descriptor = -1
        self._outside, self._inside = socket.socketpair()
        self._outside.setblocking(False)
        self._inside.setblocking(False)

    @property
    def exit_code(self) -> int:
        """130 after Ctrl-C, as shells expect; 0 after SIGTERM and SIGHUP, which is how a service is ended."""
        return 130 if self.signal == signal.SIGINT else 0

    def wait(self, seconds: float) -> bool:
        """Until a signal comes, somebody wakes us or the time is over; whether a signal has come."""
        if self.signal is None and select.select([self._inside], [], [], min(max(seconds, 0), _LONGEST))[0]:
            with contextlib.suppress(BlockingIOError):
                self._inside.recv(4096)
        return self.signal is not None

    def take_reload(self) -> bool:
        """Whether somebody has asked, since the last call, to read the settings again."""
        wanted, self._reload_wanted = self._reload_wanted, False
        return wanted

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


def _has_terminal() -> bool:
    """Whether this process belongs to a terminal that is there."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True

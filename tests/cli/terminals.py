"""A terminal for the commands under test: a pair of ends, one for the program and one to watch it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from types import TracebackType
from typing import Any, Self


class Terminal:
    """A terminal of some size. What a program writes to it is read with :meth:`read`."""

    def __init__(self, width: int = 80, height: int = 24) -> None:
        self._ours, self._theirs = pty.openpty()
        self.resize(width, height)

    def resize(self, width: int, height: int) -> None:
        """Make it this large, as a user does with the mouse."""
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def fileno(self) -> int:
        """The program's end."""
        return self._theirs

    def run(self, *command: str, controlling: bool = False, **streams: Any) -> subprocess.Popen[bytes]:
        """Start ``penstock`` with standard output and error here, unless told otherwise.

        With ``controlling`` it is the terminal that the program belongs to, and standard input comes from it.
        """

        def take_the_terminal() -> None:
            os.setsid()
            fcntl.ioctl(self._theirs, termios.TIOCSCTTY, 0)

        streams = {"stdin": subprocess.DEVNULL, "stdout": self._theirs, "stderr": self._theirs, **streams}
        if controlling:
            streams |= {"stdin": self._theirs, "preexec_fn": take_the_terminal}
        program = subprocess.Popen([sys.executable, "-m", "penstock.cli", *command], **streams)
        os.close(self._theirs)
        self._theirs = -1
        return program

    def write(self, text: bytes) -> None:
        """Type something."""
        os.write(self._ours, text)

    def read(self) -> bytes:
        """What was written since, as soon as there is something; nothing when the program has ended."""
        try:
            return os.read(self._ours, 4096)
        except OSError:
            return b""

    def read_until(self, text: bytes) -> bytes:
        """Everything up to this text."""
        shown = b""
        while text not in shown:
            piece = self.read()
            assert piece, f"ended without {text!r}, but: {shown!r}"
            shown += piece
        return shown

    def read_all(self) -> bytes:
        """Everything until the program has ended."""
        shown = b""
        while piece := self.read():
            shown += piece
        return shown

    def close(self) -> None:
        """Pull the plug."""
        for end in (self._ours, self._theirs):
            if end >= 0:
                os.close(end)
        self._ours = self._theirs = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

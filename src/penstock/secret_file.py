"""Reads a password or a token from a file, also from a pipe, and never waits for long."""

from __future__ import annotations

import errno
import os
import select
import sys
import time
from collections.abc import Callable
from typing import Final

__all__ = ["read_secret"]

_LONGEST: Final = 64 * 1024
"""Bytes."""
_PATIENCE: Final = 3.0
"""Seconds in which a program at the other end of a pipe has to write, as in ``token-file=<(pass token)``."""


def read_secret(path: str, check: Callable[[os.stat_result], object] | None = None) -> bytes:
    """The bytes of the file without white space at its ends; OSError if they cannot be had.

    ``check`` sees what was opened before anything is read, and may raise an error.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        if check is not None:
            check(os.fstat(descriptor))
        deadline, found = time.monotonic() + _PATIENCE, bytearray()
        while len(found) <= _LONGEST:
            _wait_for_bytes(descriptor, deadline)
            if not (more := os.read(descriptor, _LONGEST)):
                return bytes(found).strip()
            found += more
    finally:
        os.close(descriptor)
    raise OSError(errno.EFBIG, f"it has more than {_LONGEST} bytes, which is too much for a secret")


def _wait_for_bytes(descriptor: int, deadline: float) -> None:
    if sys.platform == "win32":
        return  # Only sockets can be waited for there.
    # poll, and not select: a descriptor may have any number.
    waiting = select.poll()
    waiting.register(descriptor, select.POLLIN)
    if not waiting.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise OSError(errno.ETIMEDOUT, f"nothing came within {_PATIENCE:.0f} s")

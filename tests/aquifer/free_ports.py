"""Ports where nobody listens, and nobody will but a test."""

from __future__ import annotations

import socket
import sys
from collections import deque

__all__ = ["free_port"]

_RESERVED: deque[socket.socket] = deque()
"""Sockets that have a port and do not listen."""
_MOST_RESERVED = 100
"""Those before belong to tests that have ended long ago."""


def free_port() -> int:
    """A port of 127.0.0.1 that stays free until the test listens there.

    The system may give a port that was only found to be free to the next that wants any: to another test
    run, or to a reader that looks for its gateway on that very port, and is then connected with itself. So
    the port stays bound here. A gateway can listen there all the same, because both sockets allow that.
    """
    probe = socket.socket()
    probe.bind(("127.0.0.1", 0))
    port: int = probe.getsockname()[1]
    if sys.platform == "linux":
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        _RESERVED.append(probe)
    else:
        probe.close()  # Another socket would be refused the port.
    while len(_RESERVED) > _MOST_RESERVED:
        _RESERVED.popleft().close()
    return port

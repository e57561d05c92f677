"""Ports where nobody listens, and nobody will but the server that a test starts, kills and starts again."""

from __future__ import annotations

import socket
import sys
from collections import deque
from typing import Final

__all__ = ["free_port"]

_KEPT: Final[deque[socket.socket]] = deque()
"""Sockets that have a port and do not listen."""
_MOST_KEPT: Final = 100
"""Those before belong to tests that have ended long ago."""


def free_port() -> int:
    """A port of 127.0.0.1 that stays free until somebody who is told of it listens there.

    Hundreds of servers and connections come and go beside a test. The system gives them any port that is
    free, also one that a server of ours is about to take, or has when it is started again; and a client that
    tries to connect to such a port can be given it for its own end, and is then connected with itself. So a
    socket that does not listen keeps the port. Those who name the port can listen there all the same, because
    both say SO_REUSEADDR, as servers do.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    port = int(kept.getsockname()[1])
    if sys.platform == "linux":
        _KEPT.append(kept)
    else:
        kept.close()  # Another socket would be refused the port.
    while len(_KEPT) > _MOST_KEPT:
        _KEPT.popleft().close()
    return port

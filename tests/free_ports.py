"""Ports for the servers that tests start, kill and start again."""

from __future__ import annotations

import socket
from typing import Final

__all__ = ["free_port"]

_KEPT: Final[list[socket.socket]] = []


def free_port() -> int:
    """A port of 127.0.0.1 at which nobody listens, and at which nobody listens who is not told of it.

    Hundreds of servers and connections come and go beside a test, and the system gives them any port that is
    free: also one that a server of ours is about to take, or has when it is started again. So a socket that
    does not listen keeps the port until this process ends. Those who name the port can listen there all the
    same, because both say SO_REUSEADDR, as servers do.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    _KEPT.append(kept)
    return int(kept.getsockname()[1])

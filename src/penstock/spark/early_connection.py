"""Starts a Python process for Spark that connects first, and imports what it needs afterwards.

Spark gives each process that plans a stream 10 seconds to connect back, and has no setting for that. The
process imports PySpark, pyarrow and numpy before it connects, which takes most of a second of CPU time: on a
machine with twenty other busy processes, it connects too late. Once it has connected, Spark waits without a
limit. So this file connects at once, and hands the connection over when PySpark connects.

It is run by its path, in place of ``python -m MODULE``, and must not import anything of this package.
"""

import os
import socket
import sys
from typing import Any

PATH = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
PORT = os.environ.get("PYTHON_WORKER_FACTORY_PORT")
ADDRESS: Any = PATH or ("127.0.0.1", int(PORT or 0))
"""Where Spark listens: before 4.1 only on a port."""


def connect_early() -> None:
    """Connect to Spark, and use that connection for the next socket that connects there."""
    early = [socket.socket(socket.AF_UNIX if PATH else socket.AF_INET, socket.SOCK_STREAM)]
    early[0].connect(ADDRESS)
    connect = socket.socket.connect

    def connect_once(self: socket.socket, address: Any) -> None:
        if address != ADDRESS or not early:
            return connect(self, address)
        connected = early.pop()
        connected.settimeout(self.gettimeout())
        os.dup2(connected.fileno(), self.fileno(), inheritable=False)
        connected.close()
        return None

    socket.socket.connect = connect_once  # type: ignore[assignment, method-assign]


if __name__ == "__main__":
    connect_early()
    import runpy

    module = sys.argv[2]  # As in: -m MODULE
    sys.argv = sys.argv[2:]
    sys.path.insert(0, os.getcwd())  # As `python -m` does.
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except (BrokenPipeError, ConnectionResetError):
        # The query was stopped. That is no reason for three tracebacks on the screen.
        sys.exit(1)

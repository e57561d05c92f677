"""Starts a Python process for Spark that connects first, and imports what it needs afterwards.

Spark gives each process that plans a stream 10 seconds to connect back, and has no setting for that. The
process imports PySpark, pyarrow and numpy before it connects, which takes most of a second of CPU time: on a
machine with twenty other busy processes, it connects too late. Over TCP, it then has another 10 seconds to
send the secret of the session. After that, Spark waits without a limit. So this file connects and sends the
secret at once, and hands the connection over when PySpark connects.

It is run by its path, in place of ``python -m MODULE``, and must not import anything of this package.
"""

import os
import socket
import sys
from typing import Any

PATH = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
PORT = os.environ.get("PYTHON_WORKER_FACTORY_PORT")
SECRET = os.environ.get("PYTHON_WORKER_FACTORY_SECRET")
FAMILY, HOST = (
    (socket.AF_INET6, "::1")
    if os.environ.get("SPARK_PREFER_IPV6", "").lower() == "true"
    else (socket.AF_INET, "127.0.0.1")
)


def connect_early() -> None:
    """Connect to Spark, and use that connection for the next socket that connects there."""
    early = [socket.socket(socket.AF_UNIX if PATH else FAMILY, socket.SOCK_STREAM)]
    early[0].connect(PATH or (HOST, int(PORT or 0)))
    address = early[0].getpeername()
    is_told = not PATH and SECRET is not None
    if is_told:
        secret = str(SECRET).encode()
        early[0].sendall(len(secret).to_bytes(4, "big") + secret)
    connect = socket.socket.connect

    def connect_once(self: socket.socket, wanted: Any) -> None:
        # With IPv6, an address also has a flow and a scope.
        if not early or (wanted != address and (*wanted, 0, 0) != address):
            return connect(self, wanted)
        connected = early.pop()
        connected.settimeout(self.gettimeout())
        os.dup2(connected.fileno(), self.fileno(), inheritable=False)
        connected.close()
        if is_told:
            _only_hear_the_answer()
        return None

    socket.socket.connect = connect_once  # type: ignore[assignment, method-assign]


def _only_hear_the_answer() -> None:
    """Let PySpark read Spark's answer to the secret, without sending the secret a second time."""
    util: Any = sys.modules["pyspark.util"]  # Whose function has just connected.
    tell, write = util._do_server_auth, util.write_with_length

    def hear(connection: Any, secret: str) -> None:
        util._do_server_auth, util.write_with_length = tell, _write_nothing
        try:
            tell(connection, secret)
        finally:
            util.write_with_length = write

    util._do_server_auth = hear


def _write_nothing(data: bytes, connection: Any) -> None:
    """Stand in for what writes the secret."""


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

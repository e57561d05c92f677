"""A PostgreSQL of its own for a test: a cluster in a temporary folder, reached by a Unix socket in it.

It refuses to run as root, so there it runs as the user that the Debian package brings.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.required_tools import missing_part

__all__ = ["postgresql"]

_PROGRAMS = Path("/usr/lib/postgresql")
_SECONDS = "300"
_SMALL = "-c listen_addresses= -c fsync=off -c shared_buffers=16MB -c max_connections=20"
"""Without a port; what is killed in these tests is not the database."""


@contextmanager
def postgresql() -> Iterator[str]:
    """Start a server; the address of its one database."""
    pg_ctl = _program("pg_ctl")
    # Not the test's own folder: another user has no way in, and the path of a socket has to be short.
    folder = Path(tempfile.mkdtemp(prefix="postgresql-"))
    user = "postgres" if os.getuid() == 0 else None
    if user is not None:
        shutil.chown(folder, user)
    data = folder / "data"

    def run(*command: str | Path) -> None:
        finished = subprocess.run(
            command, user=user, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        assert finished.returncode == 0, (finished.stdout + finished.stderr).decode(errors="replace")

    try:
        run(_program("initdb"), "-D", data, "-A", "trust", "-U", "penstock", "--no-sync")
        options = f"{_SMALL} -c unix_socket_directories={folder}"
        run(pg_ctl, "start", "-D", data, "-l", folder / "log", "-t", _SECONDS, "-w", "-o", options)
        try:
            yield f"host={folder} user=penstock dbname=postgres"
        finally:
            run(pg_ctl, "stop", "-D", data, "-m", "immediate", "-t", _SECONDS)
    finally:
        shutil.rmtree(folder)


def _program(name: str) -> Path:
    """The newest of a name; Debian keeps the servers of all versions away from the PATH."""
    found = sorted(_PROGRAMS.glob(f"*/bin/{name}"), key=lambda path: int(path.parts[-3]))
    if not found:
        missing_part("Upserts into PostgreSQL", f"{name} is missing; install: apt-get install postgresql")
    return found[-1]

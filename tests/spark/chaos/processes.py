"""The processes of the chaos test, and everything that they start: found in /proc, killed, started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

__all__ = ["Part", "Process", "driver", "in_session", "kill", "kill_session"]

_REPOSITORY = Path(__file__).parents[3]
_TO_DIE = 120.0


class Process(NamedTuple):
    """A process, as the system sees it."""

    pid: int
    parent: int
    command: str
    ticks: int
    """How long it has worked."""


class Part:
    """One part of the play: a process in a session of its own, with all that it starts."""

    def __init__(self, name: str, module: str, settings: Any, folder: Path, **environment: str) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        """What all its processes have said."""
        self._module = f"tests.spark.chaos.{module}"
        self._settings = settings
        self._environment = {**os.environ, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, for the first time or again."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, msgspec.json.encode(self._settings).decode()],
                cwd=_REPOSITORY,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def ended(self) -> int | None:
        """How it ended by itself; None if it did not."""
        return None if self._process is None else self._process.poll()

    def processes(self) -> list[Process]:
        """Its process, and those that this one has started, directly or not."""
        return [] if self._process is None else in_session(self._process.pid)

    def kill(self) -> None:
        """SIGKILL for all of it; when this returns, nothing of it is left."""
        if self._process is None:
            return
        kill_session(self._process.pid)
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(_TO_DIE)
        self._process = None

    def last_words(self, most: int = 3000) -> str:
        """The end of what it said."""
        return self.log.read_text(errors="replace")[-most:] if self.log.exists() else ""


@contextmanager
def driver(module: str, settings: msgspec.Struct, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A module of the tests as a process in a session of its own, of which nothing is left in the end."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", module, msgspec.json.encode(settings).decode()],
            cwd=_REPOSITORY,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        kill_session(process.pid)
        process.wait(2 * _TO_DIE)


def kill_session(leader: int) -> None:
    """SIGKILL for all processes of a session; when this returns, none of them is left."""
    deadline = time.monotonic() + _TO_DIE
    # More than once: somebody may have been about to start another one.
    while found := in_session(leader):
        if time.monotonic() > deadline:
            raise AssertionError(f"some of the session {leader} are not to be killed: {found}")
        for process in found:
            kill(process.pid)
        time.sleep(0.01)


def kill(pid: int) -> bool:
    """SIGKILL; False if there is no such process any more."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def in_session(leader: int) -> list[Process]:
    """The processes that one has started, directly or not, and itself."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return [process for pid in pids if (process := _look_at(pid, leader)) is not None]


def _look_at(pid: int, session: int) -> Process | None:
    """What there is to know about a process; None if it is over, or belongs to another session."""
    try:
        # The name, in brackets, may have anything in it.
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b") ")[2].split()
        state, parent, its_session = fields[0], int(fields[1]), int(fields[3])
        if its_session != session or state in (b"Z", b"X"):
            return None
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Process(pid, parent, command, int(fields[11]) + int(fields[12]))

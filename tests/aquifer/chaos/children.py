"""The processes of a chaos test: started, killed, started again, and what they weigh meanwhile."""

from __future__ import annotations

import contextlib
import os
import random
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

__all__ = ["Child", "Sample", "growth", "port_that_stays_free", "wait_for_any_end"]

REPOSITORY = Path(__file__).parents[3]
_MODULE = "tests.aquifer.chaos"


class Sample(NamedTuple):
    """What a process weighed at some time."""

    at: float
    """Seconds since it was started."""
    kilobytes: int


class Child:
    """One part of the play: a process, and the ones before it that were killed."""

    def __init__(self, name: str, module: str, settings: Any, folder: Path) -> None:
        self.name = name
        self.settings = settings
        self.log = folder / f"{name}.log"
        """What all its processes have said on their standard error."""
        self.lives: list[list[Sample]] = []
        """For each process that there has been, how its resident set went."""
        self.kills = 0
        self._module = f"{_MODULE}.{module}"
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._end = -1

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that there is now, or was last."""
        assert self._process is not None
        return self._process

    @property
    def descriptor(self) -> int:
        """Becomes readable when the process ends; -1 once that has been seen."""
        return self._end

    def start(self) -> None:
        """Start the process, with the settings as they are now."""
        with open(self.log, "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, msgspec.json.encode(self.settings).decode()],
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._started = time.monotonic()
        self._end = os.pidfd_open(self._process.pid)
        self.lives.append([])

    def kill(self) -> None:
        """SIGKILL: nothing that the process could do about it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(30)
        self.kills += 1
        self._forget()

    def tell(self, line: bytes) -> None:
        """Write a line to the standard input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def line(self, seconds: float) -> bytes:
        """The next line on the standard output; empty if none comes in time or at all."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        return self.process.stdout.readline() if ready else b""

    def ended(self) -> int | None:
        """How the process ended by itself; None if it did not."""
        status = self.process.poll()
        if status is not None:
            self._forget()
        return status

    def finish(self, seconds: float) -> bytes:
        """Close the standard input, and return what the process said before it ended for that reason."""
        said, _ = self.process.communicate(timeout=seconds)
        self._forget()
        return said

    def weigh(self) -> None:
        """Take a sample."""
        with contextlib.suppress(OSError, ValueError):
            kilobytes = _resident_kilobytes(self.process.pid)
            self.lives[-1].append(Sample(time.monotonic() - self._started, kilobytes))

    def clear_away(self) -> None:
        """End the process if it is there, and close everything; for the end of the test, however it went."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(30)
        self._forget()

    def last_words(self, most: int = 2000) -> str:
        """The end of what it said on its standard error."""
        return self.log.read_text(errors="replace")[-most:] if self.log.exists() else ""

    def _forget(self) -> None:
        if self._end >= 0:
            os.close(self._end)
            self._end = -1
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def wait_for_any_end(children: list[Child], seconds: float) -> None:
    """Until one of the processes has ended, or the time is over."""
    select.select([child.descriptor for child in children if child.descriptor >= 0], [], [], seconds)


def port_that_stays_free(chance: random.Random) -> int:
    """A port on which a gateway that was killed can listen again.

    Not one of those that the system gives to whoever connects to somewhere. While nobody listens on such a
    port, a client that keeps trying to connect to it can be given that very port for its own end, and is
    then connected with itself, and the port is taken.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    for _ in range(100):
        port = chance.randrange(10_000, lowest)
        with socket.socket() as attempt, contextlib.suppress(OSError):
            attempt.bind(("127.0.0.1", port))
            return port
    raise OSError(f"no free port between 10000 and {lowest} was found in 100 attempts")


def growth(life: list[Sample], warm_up: float) -> int:
    """By how many MB a process grew beyond the most that it weighed while it warmed up.

    ``warm_up`` is a part of the time for which it was there.
    """
    until = life[-1].at * warm_up
    before = max((sample.kilobytes for sample in life if sample.at <= until), default=life[0].kilobytes)
    after = max((sample.kilobytes for sample in life if sample.at > until), default=before)
    return round((after - before) / 1024)


def _resident_kilobytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise ValueError(f"the process {pid} has no resident set any more")

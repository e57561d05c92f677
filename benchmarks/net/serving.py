"""Servers as processes: each says its port when it is ready, and ends when its input does."""

from __future__ import annotations

import select
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from benchmarks.net import reactor_netty
from benchmarks.net.placing import Role, placed

__all__ = ["Running", "Server", "Serving", "of_python", "of_reactor_netty"]

LONGEST = 120.0
"""Seconds that a server may take to start."""
LAST = 60.0
"""Seconds that it may take to end."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server that can be started."""

    name: str
    command: Callable[[], list[str]]
    warm_up: float = 0.1
    """Seconds of load after which it is as fast as it gets."""


def of_python(name: str, kind: str) -> Server:
    """One of those in servers.py, in this interpreter."""
    return Server(name, lambda: [sys.executable, "-m", "benchmarks.net.servers", kind])


def of_reactor_netty(mode: str) -> list[Server]:
    """The real one, or nothing where there is no JDK."""
    if not reactor_netty.available():
        return []
    # The JVM compiles what is used often, at leisure.
    return [Server("Reactor Netty", lambda: reactor_netty.command(mode), warm_up=1.5)]


class Running:
    """A server's process."""

    def __init__(self, server: Server) -> None:
        with placed(Role.SERVER):
            self._process = subprocess.Popen(
                server.command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                cwd=Path(__file__).parents[2],
                text=True,
            )
        self._name = server.name
        try:
            self.port = self._announced()
        except BaseException:
            self._process.kill()
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def memory(self) -> int:
        """The bytes that it has in memory now."""
        for line in Path(f"/proc/{self._process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"{self._name} has ended")

    @property
    def exit_code(self) -> int | None:
        """What it ended with; None as long as it has not."""
        return self._process.poll()

    def close(self) -> None:
        """End its input, and wait."""
        with self._process as process:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(LAST)
            except subprocess.TimeoutExpired:
                process.kill()

    def _announced(self) -> int:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], LONGEST)
        line = self._process.stdout.readline() if ready else ""
        if not line.strip().isdecimal():
            raise RuntimeError(f"{self._name} did not start: it said {line!r} instead of its port")
        return int(line)


class Serving:
    """Servers that are started when they are first needed, and then stay until the end of the block.

    All of them have the same core, but only the one under load has work to do.
    """

    def __init__(self, warm_up: Callable[[int, float], object]) -> None:
        """``warm_up`` puts load on a port for some seconds."""
        self._warm_up = warm_up
        self._running: dict[str, Running] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def port_of(self, server: Server) -> int:
        """Where it listens, warm."""
        if server.name not in self._running:
            running = self._stack.enter_context(Running(server))
            self._warm_up(running.port, server.warm_up)
            self._running[server.name] = running
        return self._running[server.name].port

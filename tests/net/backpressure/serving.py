"""Starts the server under test, and asks it."""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[3]
PATIENCE = 60.0
"""Seconds after which something that should have happened has not."""
SMALL_BUFFERS = {"SO_RCVBUF": 65_536, "SO_SNDBUF": 65_536}
"""Little room in the kernel, so that what we hold is not lost in what it holds."""
STILL = 6
"""Looks, one after the other, that have to see the same."""

T = TypeVar("T")


class Served:
    """A server in a process of its own."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @cached_property
    def port(self) -> int:
        """Where it listens: its first line, which is waited for."""
        port: int = self._answer()
        return port

    def tell(self, command: str, *arguments: Any) -> Any:
        assert self.port
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([command, *arguments]) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def figures(self) -> dict[str, Any]:
        found: dict[str, Any] = self.tell("figures")
        return found

    def forget_peak(self) -> int:
        """Measure the peak from now on; returns what is in memory now."""
        resident: int = self.tell("forget_peak")["resident"]
        return resident

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], PATIENCE)
        line = self._process.stdout.readline() if ready else ""
        assert line, f"the server says nothing; it ended with {self._process.poll()}"
        return json.loads(line)


@contextmanager
def served(
    handler: str,
    loop: str,
    *,
    tls: Path | None = None,
    element: int = 16_384,
    fused: bool = True,
    read_ahead: int | None = None,
    options: dict[str, int] | None = None,
) -> Iterator[Served]:
    """A server with this handler, until the end of the block; it may still be starting when that begins."""
    settings = {
        "handler": handler,
        "loop": loop,
        "tls": None if tls is None else str(tls),
        "element": element,
        "fused": fused,
        "read_ahead": read_ahead,
        "options": options or {},
    }
    command = [sys.executable, "-m", "tests.net.backpressure.served", json.dumps(settings)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT, text=True) as process:
        try:
            yield Served(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()


def until(look: Callable[[], T], good: Callable[[T], bool]) -> T:
    """What is seen, as soon as it is good."""
    deadline = time.monotonic() + PATIENCE
    while not good(seen := look()):
        assert time.monotonic() < deadline, f"still not there: {str(seen)[:400]}"
        time.sleep(0.02)
    return seen


def at_rest(look: Callable[[], T], *, within: Callable[[T], bool] = lambda seen: True) -> T:
    """What is seen when nothing changes any more; until then it has to stay within its bounds."""
    deadline = time.monotonic() + PATIENCE
    seen, still = look(), 0
    while still < STILL:
        time.sleep(0.05)
        before, seen = seen, look()
        assert within(seen), f"out of bounds: {str(seen)[:400]}"
        still = still + 1 if seen == before else 0
        assert time.monotonic() < deadline, f"it never comes to rest: {str(seen)[:400]}"
    return seen

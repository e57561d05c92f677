"""A gateway in a process of its own: its memory can be measured, and it can be killed."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.aquifer.faults.rigs import resident_kib

_ROOT = Path(__file__).parents[3]
_PROGRAM = """
import sys
from pathlib import Path
from penstock.aquifer import *
from penstock.streams import Flux
from tests.aquifer.faults.rigs import *
with Gateway({arguments}) as gateway:
    print(gateway.endpoint, flush=True)
    sys.stdin.read()
"""


class GatewayProcess:
    """Serves until the end of the ``with`` block; ``arguments`` are those of Gateway, as Python text."""

    def __init__(self, arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(arguments=arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(_ROOT), *filter(None, sys.path)]),
                # What was freed goes back, so that the memory that is measured is in use.
                "MALLOC_ARENA_MAX": "1",
                "MALLOC_TRIM_THRESHOLD_": "65536",
            },
        )
        assert self._process.stdout is not None
        self.endpoint = self._process.stdout.readline().strip()
        assert self.endpoint, "the gateway did not start"

    def __enter__(self) -> GatewayProcess:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self.kill()
            self._process.stdout.close()

    def kill(self) -> None:
        """End it without a word (SIGKILL)."""
        self._process.kill()
        self._process.wait()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def memory_mib(self) -> float:
        """How much memory it has in use."""
        return resident_kib(self._process.pid) / 1024

    @contextmanager
    def watched(self) -> Iterator[Callable[[], float]]:
        """Watch its memory; the function tells the most MiB that it had, without the pages of files."""
        most, over = 0.0, threading.Event()

        def look() -> float:
            nonlocal most
            most = max(most, resident_kib(self.pid, "RssAnon") / 1024)
            return most

        def watch() -> None:
            with suppress(FileNotFoundError, ProcessLookupError):
                while not over.wait(0.01):
                    look()

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield look  # The thread may not have had its turn.
        finally:
            over.set()
            watching.join()

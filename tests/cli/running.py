"""Running the command line as a user does: processes that are waited for by what they print."""

import contextlib
import os
import queue
import re
import subprocess
import sys
import threading
from collections import deque
from types import TracebackType
from typing import IO, Any, Self

PATIENCE = 90.0
"""Seconds that anything may take on a busy machine."""


_PROGRESS = re.compile(r"(?:compact|doctor|export|in the journal|replay|send|verify)  (?: *\d+ %  )?\d")


def complaints(said: str) -> list[str]:
    """The lines on standard error, without the progress that is there if a command takes five seconds."""
    return [line for line in said.splitlines() if _PROGRESS.match(line) is None]


class Program:
    """A running ``penstock``; its standard error is read line by line, and it is gone after the block."""

    def __init__(
        self, *arguments: str, stdin: Any = subprocess.DEVNULL, stdout: Any = subprocess.PIPE
    ) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", *arguments],
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            env=environment,
        )
        self.said: list[str] = []
        """The lines of its standard error that were read by :meth:`wait_for` or :meth:`end`."""
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._before: deque[str] = deque()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._lines.put(line.decode().rstrip("\n"))
        self._lines.put(None)

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Read standard error up to a line with this in it."""
        while True:
            line = self._before.popleft() if self._before else self._lines.get(timeout=PATIENCE)
            assert line is not None, f"ended without saying {pattern!r}, but: {self.said}"
            self.said.append(line)
            match = re.search(pattern, line)
            if match is not None:
                return match

    def wait_for_start(self, pattern: str) -> re.Match[str]:
        """Wait for a line that may come after others: these can still be waited for."""
        match = self.wait_for(pattern)
        self._before.extend(self.said[:-1])
        del self.said[:-1]
        return match

    def send_lines(self, *lines: bytes | str) -> None:
        """Write lines to its standard input."""
        for line in lines:
            self.stdin.write((line.encode() if isinstance(line, str) else line) + b"\n")
        self.stdin.flush()

    def end(self, timeout: float = PATIENCE) -> int:
        """Wait until it ends by itself; its exit code."""
        code = self.process.wait(timeout)
        self._reader.join(PATIENCE)
        self.said += self._before
        self._before.clear()
        while (line := self._lines.get(timeout=PATIENCE)) is not None:
            self.said.append(line)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # What the program never read.
                    stream.close()


class Gateway(Program):
    """A running ``penstock gateway``, at any free port unless told otherwise; ready when this returns."""

    def __init__(self, *arguments: str, stdin: Any = subprocess.DEVNULL) -> None:
        if "--control" not in arguments:
            arguments = ("--control", "tcp://127.0.0.1:0", *arguments)
        super().__init__("gateway", *arguments, stdin=stdin)
        try:
            self.endpoint = self.wait_for_start(r"serving .* at (tcp://\S+)")[1]
        except BaseException:
            self.__exit__(None, None, None)
            raise


def penstock(*arguments: str, timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "penstock.cli", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )

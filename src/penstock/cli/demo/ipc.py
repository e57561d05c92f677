"""How the director of the demo and its parts talk: reports as lines of JSON, and words in return."""

from __future__ import annotations

import json
import os
import queue
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

from penstock.spark import reason_of

__all__ = [
    "EngineReport",
    "IntakeReport",
    "Part",
    "PartFailed",
    "PartReport",
    "ResultsReport",
    "SensorsReport",
    "listen",
    "tell",
]

_lock = threading.Lock()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartReport:
    """What a part says of itself several times a second; the first one says that it has started."""

    memory: int = 0
    """The peak memory of its process, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorsReport(PartReport):
    """The sensors: how much they have sent."""

    sent: int
    fingerprint: int
    blocked: bool
    blocked_for: float
    ended: bool
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeReport(PartReport):
    """The gateway for the readings: where it listens, and how full its journal is."""

    endpoint: str
    port: int
    open_demand: int = 0
    """How many readings are requested and have not arrived."""
    journalled: int = 0
    held: int = 0
    """How many readings in the journal are still needed."""
    capacity: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineReport(PartReport):
    """Spark: its last batch, and how many readings it has taken."""

    batch: int
    taken: int
    seconds: float
    lag: int
    jvm: int
    """The peak memory of Java, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsReport(PartReport):
    """The gateway for the results and its reader: what the results count."""

    endpoint: str
    received: int = 0
    counted: int = 0
    fingerprint: int = 0
    held: int = 0
    capacity: int
    error: str | None = None


R = TypeVar("R", bound=PartReport)


# ---------------------------------------------------------------- in a part
def tell(report: PartReport) -> None:
    """Send a report to the director, with the peak memory of this process."""
    report = replace(report, memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    with _lock:
        sys.stdout.write(json.dumps(asdict(report)) + "\n")
        sys.stdout.flush()


def listen(on_word: Callable[[str], object]) -> threading.Event:
    """Call ``on_word`` for each word of the director; the event is set when the director closes the pipe."""
    over = threading.Event()

    def read() -> None:
        for line in sys.stdin:
            on_word(line.strip())
        over.set()

    threading.Thread(target=read, daemon=True).start()
    return over


# ---------------------------------------------------------------- in the director
class PartFailed(RuntimeError):
    """A part of the demo ended too early, or did not start."""


class Part(Generic[R]):
    """A part of the demo: a process in a group of its own, so that whatever it starts is ended with it."""

    def __init__(
        self, name: str, kind: type[R], *arguments: str, log: Path, module: str | None = None
    ) -> None:
        self.name = name
        self._kind = kind
        self._last: R | None = None
        self._log = log
        self._reports: queue.SimpleQueue[R] = queue.SimpleQueue()
        with log.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", f"penstock.cli.demo.{module or name}", *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def report(self) -> R:
        """The last report of a part that has started; :class:`PartFailed` if it is gone."""
        last = self.look()
        assert last is not None, f"the part {self.name!r} has not started"
        return last

    def look(self) -> R | None:
        """Return the last report, None before the first; :class:`PartFailed` if the part is gone."""
        while not self._reports.empty():
            self._last = self._reports.get()
        if self._process.poll() is not None:
            raise PartFailed(f"the part {self.name!r} of the demo has ended: {self._reason()}")
        return self._last

    def wait(self, limit: float, interrupted: Callable[[float, float], bool]) -> R | None:
        """Wait until it has started, and return its first report; None if the user interrupts.

        ``interrupted`` waits for some seconds, and is given the seconds that have passed in all.
        """
        began = time.monotonic()
        while (report := self.look()) is None:
            elapsed = time.monotonic() - began
            if elapsed > limit:
                # What is in its log by now is not the reason: with an error it would have ended.
                raise PartFailed(
                    f"the part {self.name!r} has not started within {limit:g} s. On a busy machine it takes "
                    f"longer: allow more with --start-limit {2 * limit:g}s"
                )
            if interrupted(0.1, elapsed):
                return None
        return report

    def say(self, word: str) -> None:
        """Send it a word."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return  # It is gone, and look() will say so.

    def end(self, patience: float = 15.0) -> None:
        """Let it exit by itself, and kill it and its children if it does not."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                try:
                    self._reports.put(self._kind(**json.loads(line)))
                except (ValueError, TypeError):
                    continue  # Something else that the part, or a library, prints.
        except ValueError:
            return  # The pipe was closed during the read.

    def _reason(self) -> str:
        text = self._log.read_text(errors="replace")
        if "Traceback (most recent call last):" in text:
            return reason_of(text)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else "it has printed nothing"

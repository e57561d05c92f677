"""How the director of the demo and its parts talk: lines of JSON on the pipes between the processes."""

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
from pathlib import Path
from typing import Any

from penstock.spark import reason_of

__all__ = ["Part", "PartFailed", "listen", "tell"]

_lock = threading.Lock()


def tell(**facts: Any) -> None:
    """Say something to the director; the peak memory of this process is said along with it."""
    facts["memory"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with _lock:
        sys.stdout.write(json.dumps(facts) + "\n")
        sys.stdout.flush()


def listen(on_word: Callable[[str], object]) -> threading.Event:
    """Call ``on_word`` for each line from the director; the event is set when it has no more to say."""
    over = threading.Event()

    def read() -> None:
        for line in sys.stdin:
            on_word(line.strip())
        over.set()

    threading.Thread(target=read, daemon=True).start()
    return over


class PartFailed(RuntimeError):
    """A part of the demo ended before its time."""


class Part:
    """A process of its own, and a group of its own: whatever it starts is ended with it."""

    def __init__(self, name: str, *arguments: str, log: Path, module: str | None = None) -> None:
        self.name = name
        self.facts: dict[str, Any] = {}
        """The latest that it has said, by name."""
        self._log = log
        self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
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

    def look(self) -> dict[str, Any]:
        """Take in what it has said; :class:`PartFailed` if it is gone."""
        while not self._said.empty():
            self.facts.update(self._said.get())
        if self._process.poll() is not None:
            raise PartFailed(f"the part {self.name!r} of the demo has ended: {self._last_words()}")
        return self.facts

    def wait_for(self, fact: str, limit: float, interrupted: Callable[[float, float], bool]) -> Any:
        """What it says under this name, as soon as it does; None if somebody interrupts.

        ``interrupted`` waits for so many seconds, and is told how many have passed in all.
        """
        began = time.monotonic()
        while fact not in self.look():
            elapsed = time.monotonic() - began
            if elapsed > limit:
                # What is in its log by now is not the reason: it would have ended.
                raise PartFailed(
                    f"the part {self.name!r} has not started within {limit:g} s. On a busy machine it takes "
                    f"longer: allow more with --start-limit {2 * limit:g}s"
                )
            if interrupted(0.1, elapsed):
                return None
        return self.facts[fact]

    def say(self, word: str) -> None:
        """Tell it something."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(word + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return  # It is gone, and look() will say so.

    def end(self, patience: float = 15.0) -> None:
        """Let it end by itself, and end it if it does not; nothing of it is left."""
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
                    self._said.put(json.loads(line))
                except ValueError:
                    continue  # Something that prints; it is none of the facts.
        except ValueError:
            return  # Closed while we were reading.

    def _last_words(self) -> str:
        text = self._log.read_text(errors="replace")
        if "Traceback (most recent call last):" in text:
            return reason_of(text)
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        return lines[-1] if lines else "nothing"

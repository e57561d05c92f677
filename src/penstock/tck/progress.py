"""A sign of life while the tests run: which one it is, how many there are, how long it has taken."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TextIO

from penstock.tck.naming import rule_of
from penstock.tck.running import Result

EVERY: Final[float] = 10.0
"""Where nobody sits at a terminal, a line comes after so many seconds, and then again."""
_REDRAW = 0.5


class Progress:
    """Tells of the tests as they go: on a terminal in one line that changes, elsewhere now and then."""

    def __init__(self, names: Sequence[str], to: TextIO | None, *, every: float = EVERY) -> None:
        """Tell ``to`` of the tests ``names``, in this order; a program without an output has ``None``."""
        self._names = names
        self._to = to
        self._every = every
        self._on_terminal = to is not None and not to.closed and to.isatty()
        self._done = self._failed = 0
        self._began = time.monotonic()
        self._over = threading.Event()

    def over(self, results: Iterable[Result]) -> Iterator[Result]:
        """Pass results on, and tell meanwhile what happens."""
        # A test may take long, so the line is written by a thread of its own.
        teller = threading.Thread(target=self._tell, name="tck-progress", daemon=True)
        teller.start()
        try:
            for result in results:
                self._done += 1
                self._failed += result.verdict == "fail"
                yield result
        finally:
            self._over.set()
            teller.join()
            if self._on_terminal:
                self._write("\r\033[K")

    @property
    def line(self) -> str:
        """Where the run is now."""
        name = self._names[min(self._done, len(self._names) - 1)]
        rule = rule_of(name)
        label = f"§{rule}" if rule and rule[0].isdigit() else "set-up"
        failed = f", {self._failed} failed" if self._failed else ""
        took = time.monotonic() - self._began
        return f"{self._done} of {len(self._names)} tests{failed}, {took:.0f} s: {label} {name}"

    def _tell(self) -> None:
        while not self._over.wait(_REDRAW if self._on_terminal else self._every):
            if self._on_terminal:
                width = shutil.get_terminal_size().columns
                self._write(f"\r{self.line[: width - 1]}\033[K")
            else:
                self._write(f"{self.line}\n")

    def _write(self, text: str) -> None:
        if self._to is None:
            return
        try:
            self._to.write(text)
            self._to.flush()
        except (OSError, ValueError):
            # Whoever listened has left; the tests go on.
            self._over.set()

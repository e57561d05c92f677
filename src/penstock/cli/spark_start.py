"""How long Spark took to start the last time, so that those who wait for it get an estimate.

A start takes 5 seconds on one machine and 30 on another, and nothing tells how far it has come. The last one
is the best estimate there is. It is kept in the user's cache directory, one figure for each command: what
``penstock doctor`` waits for is more than a start. Without the file, or if it cannot be used, there is no
estimate, and nothing else changes.
"""

from __future__ import annotations

import json
import logging
import math
import os
import tempfile
from pathlib import Path
from typing import Final

__all__ = ["SparkStart"]

_log = logging.getLogger("penstock.cli")

_FILE: Final = "spark-start.json"
_LONGEST: Final = 3600.0
"""Seconds: what took longer was no start, but a machine that slept."""
_LARGEST: Final = 4096
"""Bytes of the file that are read: it has three figures."""


class SparkStart:
    """A start of Spark that a command waits for, and the last one of the same command."""

    def __init__(self, command: str, folder: Path | None = None) -> None:
        self._command = command
        self._folder = folder
        self.last = self._read().get(command)
        """Seconds that the last start took; None if that is not known."""

    @property
    def estimate(self) -> str:
        """``" (last time 14 s)"``, or nothing."""
        return "" if self.last is None else f" (last time {self.last:.0f} s)"

    def progress(self, seconds: float) -> str:
        """How far a start is that has taken so long: ``"8 of about 14 s"``."""
        if self.last is None:
            return f"{seconds:.0f} s"
        if seconds > self.last:
            return f"{seconds:.0f} s, longer than the last time ({self.last:.0f} s)"
        return f"{seconds:.0f} of about {self.last:.0f} s"

    def took(self, seconds: float) -> None:
        """Note how long the start took."""
        if not 0 < seconds < _LONGEST:
            return
        try:
            self._write(self._read() | {self._command: round(seconds, 1)})
        except (OSError, RuntimeError) as error:  # A disk that is full, a home that is not there.
            _log.info("cannot note how long Spark took to start: %s", error)

    # ---------------------------------------------------------------- the file
    def _place(self) -> Path:
        if self._folder is not None:
            return self._folder
        given = os.environ.get("XDG_CACHE_HOME", "")
        # A relative path is to be ignored, says the specification of the base directories.
        base = Path(given) if os.path.isabs(given) else Path.home() / ".cache"
        return base / "penstock"

    def _read(self) -> dict[str, float]:
        try:
            with (self._place() / _FILE).open("rb") as file:
                read = json.loads(file.read(_LARGEST))
        except FileNotFoundError:
            return {}
        except (OSError, RuntimeError, ValueError) as error:
            _log.info("cannot read how long Spark took to start: %s", error)
            return {}
        return {key: float(it) for key, it in read.items() if _is_time(it)} if isinstance(read, dict) else {}

    def _write(self, figures: dict[str, float]) -> None:
        place = self._place()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Two commands may end at once: one of them wins, and the file is whole.
        with tempfile.NamedTemporaryFile("w", dir=place, prefix=_FILE, delete=False) as file:
            json.dump(figures, file)
        try:
            os.replace(file.name, place / _FILE)
        except OSError:
            os.unlink(file.name)
            raise


def _is_time(value: object) -> bool:
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and 0 < value < _LONGEST
    )

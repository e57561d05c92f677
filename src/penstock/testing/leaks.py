"""Which streams still run: those that a test has subscribed to and never ended."""

from __future__ import annotations

import threading
from time import monotonic

from penstock.streams import Outcome, Stage

__all__ = ["OpenStreams"]


class OpenStreams:
    """A Listener that knows the stages of all streams that were subscribed to and have not ended."""

    def __init__(self) -> None:
        """None yet."""
        self._stages: dict[int, Stage] = {}
        self._changed = threading.Condition()

    def names(self, patience: float = 0.0) -> list[str]:
        """A line for each stage that is still open after ``patience`` seconds at most."""
        end = monotonic() + patience
        with self._changed:
            while self._stages and (left := end - monotonic()) > 0:
                self._changed.wait(left)
            states = [stage.state() for stage in self._stages.values()]
        return [f"{each.name}: {each.requested} requested, {each.emitted} emitted" for each in states]

    # ---------------------------------------------------------------- what a stage calls
    def subscribed(self, stage: Stage) -> None:
        """Remember the stage."""
        with self._changed:
            self._stages[id(stage)] = stage

    def terminated(self, stage: Stage, outcome: Outcome) -> None:
        """Forget the stage."""
        with self._changed:
            self._stages.pop(id(stage), None)
            self._changed.notify_all()

    def requested(self, stage: Stage, n: int) -> None:
        """Demand says nothing about leaks."""

    def emitted(self, stage: Stage, n: int) -> None:
        """Nor do elements."""

    def queued(self, stage: Stage, n: int) -> None:
        """Nor those that wait."""

    def waited(self, stage: Stage, seconds: float) -> None:
        """Nor how long they do."""

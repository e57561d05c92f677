"""What streams drop while a test looks: errors and elements that no subscriber could receive."""

from __future__ import annotations

import threading
from contextlib import AbstractContextManager
from typing import Any

from penstock.streams import on_dropped

__all__ = ["DroppedSignals"]


class DroppedSignals:
    """Errors and elements that were dropped between ``start()`` and ``stop()``, or in a ``with`` block.

    Several of these may look at the same time and end in any order. While one looks, the hooks of
    ``on_dropped`` that were there before are not called.
    """

    def __init__(self) -> None:
        """Nothing yet."""
        self.errors: list[BaseException] = []
        """The errors, in order."""
        self.elements: list[Any] = []
        """The elements, in order."""
        self.places: list[str] = []
        """Where each of them was dropped, in the words of the operator."""
        self._expected: list[BaseException] = []

    def start(self) -> None:
        """Begin to look."""
        _watch.add(self)

    def stop(self) -> None:
        """Look no longer; what was seen stays."""
        _watch.discard(self)

    def expect(self, error: BaseException) -> None:
        """The test has expected this error; it is not lost for anybody who looks."""
        _watch.expected(error)

    def lost(self) -> list[BaseException]:
        """The errors that no test has expected."""
        return [error for error in self.errors if not any(error is each for each in self._expected)]

    def __enter__(self) -> DroppedSignals:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _error(self, error: BaseException, where: str) -> None:
        self.errors.append(error)
        self.places.append(f"error {error!r} from {where}")

    def _element(self, element: Any, where: str) -> None:
        self.elements.append(element)
        self.places.append(f"element {element!r:.200} from {where}")


class _DropWatch:
    """The hooks of the process, set while anybody looks: they can be taken away in one order only."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lookers: list[DroppedSignals] = []
        self._hooks: AbstractContextManager[None] | None = None

    def add(self, looker: DroppedSignals) -> None:
        with self._lock:
            self._lookers.append(looker)
            if self._hooks is None:
                self._hooks = on_dropped(error=self._error, element=self._element)
                self._hooks.__enter__()

    def discard(self, looker: DroppedSignals) -> None:
        with self._lock:
            if looker in self._lookers:
                self._lookers.remove(looker)
            if not self._lookers and self._hooks is not None:
                hooks, self._hooks = self._hooks, None
                hooks.__exit__(None, None, None)

    def expected(self, error: BaseException) -> None:
        for looker in list(self._lookers):
            looker._expected.append(error)

    def _error(self, error: BaseException, where: str) -> None:
        for looker in list(self._lookers):
            looker._error(error, where)

    def _element(self, element: Any, where: str) -> None:
        for looker in list(self._lookers):
            looker._element(element, where)


_watch = _DropWatch()

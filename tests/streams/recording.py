"""A Subscriber that writes down what it gets and complains when a rule is broken."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spec import Publisher, Subscription

if TYPE_CHECKING:
    import pytest


class Recorder:
    """Requests what the test says; checks grammar, demand, overlap and ``None`` on every signal."""

    def __init__(self, first: int = 0, on_element: Callable[[Recorder, Any], object] | None = None) -> None:
        self.first = first
        self.on_element = on_element
        self.items: list[Any] = []
        self.error: BaseException | None = None
        self.completed = False
        self.broken: list[str] = []
        """Rules that the publisher broke; a test asserts that there are none with :meth:`check`."""
        self.threads: set[str] = set()
        self.finished = threading.Event()
        self.depth = self.deepest = 0
        self._subscription: Subscription | None = None
        self._requested = 0
        self._inside: int | None = None
        self._mutex = threading.Lock()

    @classmethod
    def of(cls, publisher: Publisher[Any], first: int = 0) -> Recorder:
        """Subscribe a new recorder."""
        recorder = cls(first)
        publisher.subscribe(recorder)
        return recorder

    @property
    def subscription(self) -> Subscription:
        assert self._subscription is not None, "on_subscribe has not been called"
        return self._subscription

    @property
    def terminated(self) -> bool:
        return self.completed or self.error is not None

    # ---------------------------------------------------------------- what a test does
    def request(self, n: int) -> Recorder:
        if isinstance(n, int) and n > 0:
            with self._mutex:
                self._requested += n
        self.subscription.request(n)
        return self

    def cancel(self) -> Recorder:
        self.subscription.cancel()
        return self

    def wait(self, timeout: float = 20) -> Recorder:
        """Until the stream has ended."""
        assert self.finished.wait(timeout), f"not finished: {len(self.items)} elements, {self.broken}"
        return self.check()

    def check(self) -> Recorder:
        assert self.broken == []
        return self

    # ---------------------------------------------------------------- what a publisher does
    def on_subscribe(self, subscription: Subscription, /) -> None:
        with _Signal(self, "on_subscribe"):
            if self._subscription is not None:
                self.broken.append("§2.12: on_subscribe twice")
            self._subscription = subscription
            if self.first:
                self.request(self.first)

    def on_next(self, element: Any, /) -> None:
        with _Signal(self, "on_next"):
            if self._subscription is None:
                self.broken.append("§1.9: on_next before on_subscribe")
            if element is None:
                self.broken.append("§2.13: None as element")
            if self.terminated:
                self.broken.append("§1.7: on_next after the end")
            self.items.append(element)
            if len(self.items) > self._requested:
                self.broken.append(f"§1.1: element {len(self.items)}, {self._requested} requested")
            if self.on_element is not None:
                self.on_element(self, element)

    def on_error(self, error: BaseException, /) -> None:
        with _Signal(self, "on_error"):
            self._end("on_error")
            self.error = error
            self.finished.set()

    def on_complete(self) -> None:
        with _Signal(self, "on_complete"):
            self._end("on_complete")
            self.completed = True
            self.finished.set()

    def _end(self, signal: str) -> None:
        if self._subscription is None:
            self.broken.append(f"§1.9: {signal} before on_subscribe")
        if self.terminated:
            self.broken.append(f"§1.7: {signal} after the end")


def logged_here(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What Penstock has logged on this thread; what earlier tests have left behind may log on others."""
    me = threading.get_ident()
    return [record for record in caplog.records if record.thread == me and record.name.startswith("penstock")]


class _Signal:
    """Notices when two threads are inside a signal at the same time (§1.3), and how deep it nests (§3.3)."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self._recorder = recorder
        self._name = name

    def __enter__(self) -> None:
        recorder, me = self._recorder, threading.get_ident()
        recorder.threads.add(threading.current_thread().name)
        if recorder._inside not in (None, me):
            recorder.broken.append(f"§1.3: {self._name} while another thread is inside a signal")
        recorder._inside = me
        recorder.depth += 1
        recorder.deepest = max(recorder.deepest, recorder.depth)

    def __exit__(self, *_: object) -> None:
        self._recorder.depth -= 1
        if not self._recorder.depth:
            self._recorder._inside = None

"""``create``: a stream out of callbacks."""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, Generic, TypeVar

from penstock.spec import Subscriber, none_element, none_error
from penstock.streams.arguments import a_function
from penstock.streams.dropped import drop_error
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.segment import Op
from penstock.streams.source import Source
from penstock.streams.stages.overflowing import Overflow, Overflowing
from penstock.streams.stages.relaying import below

__all__ = ["CreateSource", "Emitter"]

T = TypeVar("T")


class CreateSource(Source):
    """Calls the user's function with an :class:`Emitter` for each subscriber."""

    def __init__(self, function: Callable[[Emitter[Any]], object], overflow: Overflow, capacity: int) -> None:
        super().__init__("create", function)
        self._function = function
        self._overflow = overflow
        self.boundary = capacity

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Let the function wire its callbacks."""
        assert self.boundary is not None
        target = below(ops, downstream, self.label, self.place)
        stage = Overflowing(self.boundary, self._overflow, None, target, self.label, self.place)
        stage.context = copy_context()
        emitter: Emitter[Any] = Emitter(stage)
        stage.introduce()
        if stage.closed:
            return
        stage.on_subscribe(emitter._subscription())
        try:
            self._function(emitter)
        except BaseException as error:
            emitter.error(error)
            if asks_main_thread_to_stop(error):
                raise

    def runs_on(self) -> str:
        """Whoever calls back."""
        return "emitter"


class Emitter(Generic[T]):
    """What ``create`` gives its function. Its methods may be called from any thread."""

    def __init__(self, stage: Overflowing) -> None:
        self._stage = stage
        self._mutex = allocate_lock()
        self._ended = False
        self._when_over: list[Callable[[], object]] = []
        self._over = False

    def next(self, element: T) -> None:
        """Send an element down; what happens if nobody asked for it was said in ``create(overflow=…)``."""
        if element is None:
            raise none_element(self._stage.name)
        if not self._ended:
            self._stage.on_next(element)

    def complete(self) -> None:
        """End the stream."""
        if self._claim_end():
            self._stage.on_complete()
            self._run_over()

    def error(self, error: BaseException) -> None:
        """End the stream with an error."""
        if error is None:
            raise none_error()
        if not self._claim_end():
            drop_error(error, f"{self._stage.name}, after its end")
            return
        self._stage.on_error(error)
        self._run_over()

    def _claim_end(self) -> bool:
        with self._mutex:
            was, self._ended = self._ended, True
        return not was

    @property
    def requested(self) -> int:
        """How many elements the subscriber has asked for and not got yet."""
        return self._stage.open_demand()

    @property
    def cancelled(self) -> bool:
        """Whether the subscriber has left."""
        return self._stage.closed

    def on_dispose(self, release: Callable[[], object]) -> None:
        """Call ``release`` once when the stream is over, for whatever reason: unhook callbacks here."""
        a_function(release, "on_dispose")
        self._when_over.append(release)
        if self._over:
            self._run_over()

    def _run_over(self) -> None:
        self._over = True
        while self._when_over:
            release = self._when_over.pop()
            try:
                release()
            except BaseException as error:
                drop_error(error, f"on_dispose of {self._stage.name}")
                if asks_main_thread_to_stop(error):
                    raise

    def _subscription(self) -> _EmitterSubscription:
        return _EmitterSubscription(self)


class _EmitterSubscription:
    __slots__ = ("_emitter",)

    def __init__(self, emitter: Emitter[Any]) -> None:
        self._emitter = emitter

    def request(self, n: int, /) -> None:
        """Callbacks come by themselves."""

    def cancel(self) -> None:
        self._emitter._ended = True
        self._emitter._run_over()

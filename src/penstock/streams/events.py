"""Events of running streams, for metrics, a dashboard or a log.

A stage reports in batches, whenever it runs out of demand or elements, never for each element. A stream
without a listener pays one comparison for each batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.streams.errors import drop_error
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop

__all__ = ["Listener", "Outcome", "Stage", "StageState", "listener_for_new_streams", "listening"]


class Outcome(Enum):
    """How a stream, or its part above an operator, came to its end."""

    COMPLETE = "complete"
    ERROR = "error"
    CANCEL = "cancel"


@dataclass(frozen=True, slots=True)
class StageState:
    """What a stage of a running stream looked like at one moment."""

    name: str
    requested: int
    """The demand so far, in total."""
    emitted: int
    """Elements sent down so far."""
    queued: int
    """Elements that wait in the stage's own queue."""
    capacity: int | None
    """The bound of that queue; None where there is no queue."""
    runs_on: str
    """The scheduler that the stage emits on, or "caller"."""
    terminated: bool


class Stage(Protocol):
    """A running part of a stream: everything between two asynchronous boundaries."""

    def state(self) -> StageState:
        """What the stage looks like now."""


class Listener(Protocol):
    """Receives the events of a stream's stages, on the thread that does the work, so be quick."""

    def subscribed(self, stage: Stage) -> None:
        """A stage was subscribed to."""

    def requested(self, stage: Stage, n: int) -> None:
        """Demand for ``n`` more elements arrived."""

    def emitted(self, stage: Stage, n: int) -> None:
        """``n`` elements were sent down since the last call."""

    def queued(self, stage: Stage, n: int) -> None:
        """The stage stopped working with ``n`` elements in its queue."""

    def waited(self, stage: Stage, seconds: float) -> None:
        """Demand arrived after the stage had stood still without it for this long."""

    def terminated(self, stage: Stage, outcome: Outcome) -> None:
        """The stage ended."""


class _Careful:
    """Calls a listener, and keeps its exceptions out of the stream."""

    __slots__ = ("_listener",)

    def __init__(self, listener: Listener) -> None:
        self._listener = listener

    def subscribed(self, stage: Stage) -> None:
        self._tell("subscribed", lambda listener: listener.subscribed(stage))

    def requested(self, stage: Stage, n: int) -> None:
        self._tell("requested", lambda listener: listener.requested(stage, n))

    def emitted(self, stage: Stage, n: int) -> None:
        self._tell("emitted", lambda listener: listener.emitted(stage, n))

    def queued(self, stage: Stage, n: int) -> None:
        self._tell("queued", lambda listener: listener.queued(stage, n))

    def waited(self, stage: Stage, seconds: float) -> None:
        self._tell("waited", lambda listener: listener.waited(stage, seconds))

    def terminated(self, stage: Stage, outcome: Outcome) -> None:
        self._tell("terminated", lambda listener: listener.terminated(stage, outcome))

    def _tell(self, event: str, tell: Callable[[Listener], None]) -> None:
        try:
            tell(self._listener)
        except BaseException as error:
            drop_error(error, f"{event}() of the listener {type(self._listener).__name__}")
            if asks_main_thread_to_stop(error):
                raise


_listener: ContextVar[Listener | None] = ContextVar("penstock_listener", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send the events of every stream that is subscribed to inside the block to ``listener``.

    A stream keeps its listener when the block ends. Streams subscribed on other threads belong to the block
    as far as ``contextvars`` do, that is, through every scheduler of this package. An exception in a listener
    is reported as dropped and does not harm the stream.
    """
    token = _listener.set(_Careful(listener))
    try:
        yield
    finally:
        _listener.reset(token)


def listener_for_new_streams() -> Listener | None:
    """The listener of the present ``listening`` block; None outside of one."""
    return _listener.get()

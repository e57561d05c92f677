"""``block()`` and ``to_future()``: one value out of a stream, for threads."""

from __future__ import annotations

from _thread import allocate_lock
from concurrent.futures import Future
from threading import Event
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED, none_element, none_error
from penstock.streams.leaving.blocking import refuse_to_block
from penstock.streams.leaving.reading import Reader

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["first_future", "wait_for_one"]


class _One(Reader):
    """Keeps the last element of a stream that has at most one."""

    __slots__ = ("finished", "value")

    def __init__(self) -> None:
        super().__init__(UNBOUNDED)
        self.value: Any = None
        self.finished = Event()

    def on_next(self, element: Any, /) -> None:
        if element is None:
            raise none_element("block")
        self.value = element

    def on_error(self, error: BaseException, /) -> None:
        if error is None:
            raise none_error()
        self._keep(error)
        self._end()

    def on_complete(self) -> None:
        self._end()

    def _end(self) -> None:
        self._over = True
        self.finished.set()


def wait_for_one(stream: Stream[Any], timeout: float | None) -> Any:
    """The only element of a stream, or None; waits for it."""
    one = _One()
    stream._connect(one)
    try:
        if not one.finished.is_set():
            refuse_to_block("block()", "await")
            if not one.finished.wait(timeout):
                raise TimeoutError(f"no result within {timeout} s; the stream was cancelled")
        error = one._take_error()
        if error is not None:
            raise error
        return one.value
    finally:
        one.cancel()


class _FutureOne(_One):
    __slots__ = ("_future", "_settling")

    def __init__(self, future: Future[Any]) -> None:
        super().__init__()
        self._future = future
        self._settling = allocate_lock()
        """Taken once: by the end of the stream, or by whoever cancels the future."""
        future.add_done_callback(self._when_done)

    def _when_done(self, future: Future[Any]) -> None:
        if future.cancelled():
            self._may_settle()
            self.cancel()

    def _may_settle(self) -> bool:
        """Whether the future waits for a result; if it was cancelled, those who wait for it are told."""
        return self._settling.acquire(False) and self._future.set_running_or_notify_cancel()

    def on_error(self, error: BaseException, /) -> None:
        super().on_error(error)
        if self._may_settle():
            self._future.set_exception(self._take_error())

    def on_complete(self) -> None:
        super().on_complete()
        if self._may_settle():
            self._future.set_result(self.value)


def first_future(stream: Stream[Any]) -> Future[Any]:
    """The only element of a stream as a future; cancelling the future cancels the stream."""
    future: Future[Any] = Future()
    stream._connect(_FutureOne(future))
    return future

"""``block()`` and ``to_future()``: one value out of a stream, for threads."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Event
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED, Subscription, none_element, none_error, none_subscription
from penstock.streams.leaving.blocking import on_an_event_loop

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["first_future", "wait_for_one"]


class _One:
    """Keeps the last element of a stream that has at most one."""

    __slots__ = ("_cancelled", "_subscription", "error", "finished", "value")

    def __init__(self) -> None:
        self._subscription: Subscription | None = None
        self._cancelled = False
        self.value: Any = None
        self.error: BaseException | None = None
        self.finished = Event()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if subscription is None:
            raise none_subscription()
        if self._subscription is not None or self._cancelled:
            subscription.cancel()  # §2.5
            return
        self._subscription = subscription
        if self._cancelled:
            subscription.cancel()  # by another thread meanwhile
            return
        subscription.request(UNBOUNDED)

    def on_next(self, element: Any, /) -> None:
        if element is None:
            raise none_element("block")
        self.value = element

    def on_error(self, error: BaseException, /) -> None:
        if error is None:
            raise none_error()
        self.error = error
        self.finished.set()

    def on_complete(self) -> None:
        self.finished.set()

    def cancel(self) -> None:
        self._cancelled = True
        if self._subscription is not None and not self.finished.is_set():  # §2.4
            self._subscription.cancel()


def wait_for_one(stream: Stream[Any], timeout: float | None) -> Any:
    """The only element of a stream, or None; waits for it."""
    one = _One()
    stream._connect(one)
    try:
        if not one.finished.is_set():
            if on_an_event_loop():
                raise RuntimeError("block() would block the event loop that runs here; use 'await'")
            if not one.finished.wait(timeout):
                raise TimeoutError(f"no result within {timeout} s; the stream was cancelled")
    finally:
        one.cancel()
    if one.error is not None:
        raise one.error
    return one.value


class _FutureOne(_One):
    __slots__ = ("_future",)

    def __init__(self, future: Future[Any]) -> None:
        super().__init__()
        self._future = future
        future.add_done_callback(self._when_done)

    def _when_done(self, future: Future[Any]) -> None:
        if future.cancelled():
            self.cancel()

    def on_error(self, error: BaseException, /) -> None:
        super().on_error(error)
        if self._future.set_running_or_notify_cancel():
            self._future.set_exception(error)

    def on_complete(self) -> None:
        super().on_complete()
        if self._future.set_running_or_notify_cancel():
            self._future.set_result(self.value)


def first_future(stream: Stream[Any]) -> Future[Any]:
    """The only element of a stream as a future; cancelling the future cancels the stream."""
    future: Future[Any] = Future()
    stream._connect(_FutureOne(future))
    return future

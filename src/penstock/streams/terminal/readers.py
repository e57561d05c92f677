"""Readers on a thread: ``for x in flux``, ``block()`` and ``to_future()``, and what all readers share."""

from __future__ import annotations

import asyncio
import sys
from _thread import allocate_lock, get_ident
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.spec import UNBOUNDED, Subscription, none_element, none_error, none_subscription
from penstock.streams.errors import drop_error
from penstock.streams.fusion import ElementInbox, ExpectsLarge
from penstock.streams.home import home_here
from penstock.streams.operators.boundaries import PREFETCH, replenish_at
from penstock.streams.operators.read_ahead import ReadAhead, read_ahead_of, step_of
from penstock.streams.schedulers.scheduler import forks, renew_after_fork

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = [
    "BlockingReader",
    "QueueReader",
    "TerminalReader",
    "first_future",
    "iterate",
    "on_an_event_loop",
    "refuse_to_block",
    "wait_for_one",
]


class TerminalReader:
    """A Subscriber that asks for ``first`` elements at once; the base of everything that reads a stream."""

    __slots__ = (
        "_ahead",
        "_aheads",
        "_cancelled",
        "_first",
        "_forks",
        "_over",
        "_subscription",
        "_unheard",
        "home",
    )

    def __init__(self, first: int) -> None:
        self._first = first
        self._ahead: ReadAhead | None = None
        """Asks for elements that can be large; None if they are not."""
        self._aheads: list[ReadAhead] = []
        self.home = home_here()
        """Where the stream's coroutines run."""
        self._forks = forks()
        self._subscription: Subscription | None = None
        self._cancelled = False
        self._over = False
        """The stream has ended by itself, so its subscription must not be used any more (§2.4)."""
        self._unheard: list[BaseException] = []
        """The error of the stream, until somebody takes it."""

    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Ask for the first elements; a second subscription is cancelled (§2.5)."""
        if subscription is None:
            raise none_subscription()
        if self._subscription is not None or self._cancelled:
            subscription.cancel()
            return
        self._subscription = subscription
        if self._cancelled:
            subscription.cancel()  # by another thread meanwhile
            return
        if self._ahead is None:
            subscription.request(self._first)
        else:
            self._ahead.begin(subscription)

    def cancel(self) -> None:
        """Stop the stream; any number of times, from any thread."""
        self._cancelled = True
        if self._subscription is not None and not self._over:
            self._subscription.cancel()
        self._report_unheard()

    def _refuse_in_child(self) -> None:
        """Raise RuntimeError in a forked child of the process that reads: nobody would end the wait."""
        if self._forks != forks():
            raise _started_before_fork()

    def _keep(self, error: BaseException) -> None:
        """Keep an error for the reader; report it if the reader has left (§2.8: it may still come)."""
        self._unheard.append(error)
        self._over = True  # not before: a reader that sees the end must find the error
        if self._cancelled:
            self._report_unheard()

    def _take_error(self) -> BaseException | None:
        """The error, for the caller to raise; None if there is none."""
        try:
            return self._unheard.pop()
        except IndexError:
            return None

    def _report_unheard(self) -> None:
        error = self._take_error()
        if error is not None and error is not sys.exception():  # that one is on its way to the reader
            drop_error(error, "a stream after its reader left")


def _started_before_fork() -> RuntimeError:
    return RuntimeError(
        "this stream was started before a fork, and the threads and event loops that it has to wait for are "
        "in the parent process, which also has the elements that have arrived; start a stream of its own in "
        "the child"
    )


class QueueReader(TerminalReader, ElementInbox, ExpectsLarge):
    """Passes elements on through a queue, to a thread or to a coroutine.

    An element costs an append and one look at a flag. The reader is woken only when it had run out of
    elements, not for each of them. The order matters: a source appends and then looks at the flag, the
    reader sets the flag and then looks at the queue, so one of them sees the other.

    A forked child may go on with a stream that runs in the reader's own thread only. So the reader has to
    know whether others bring the elements, even if these are so fast that it never waits. A stream of its own
    thread gives it the first element, or the end, while it subscribes. The flag is set then as well, so that
    this element is noticed, and after each request, so that the first element of another thread is.
    """

    __slots__ = (
        "__weakref__",
        "_is_fed",
        "_is_own",
        "_queue",
        "_thread",
        "append",
        "extend",
        "idle",
        "measures",
    )
    way: ClassVar[str]
    """How the stream is read, for messages."""

    def __init__(self, prefetch: int) -> None:
        super().__init__(prefetch)
        self._queue: deque[Any] = deque()
        self.append = self._queue.append
        self.extend = self._queue.extend
        self.idle = False
        """Whether the reader waits, or is about to, or does not know yet who brings the elements."""
        self.measures = False
        """Whether what waits is bounded in bytes as well, if elements can be large."""
        self._thread = 0
        """The thread that subscribes."""
        self._is_own = False
        """Whether something has come on that thread."""
        self._is_fed = False
        """Whether others bring the elements, so that it is no plain iterator."""

    def connect(self, stream: Stream[Any]) -> None:
        """Subscribe, and see whether the stream runs in this thread."""
        self._thread = get_ident()
        self.idle = True
        stream._connect(self)
        if not self._is_own:
            self.is_fed()
        self.idle = not self._is_fed

    def is_fed(self) -> None:
        """Others bring the elements: the reader has to wait, or one has come from another thread."""
        if not self._is_fed:
            self._is_fed = True
            renew_after_fork(self)

    def renew_in_child(self) -> None:
        """Be at the end, with an error: what is in the queue will be read in the parent process."""
        self._queue.clear()
        self._unheard.clear()
        self._over = True

    def _error_at_end(self) -> BaseException | None:
        """The error to raise now that the stream is over; None if there is none."""
        if self._is_fed and self._forks != forks():
            return _started_before_fork()
        return self._take_error()

    def on_next(self, element: Any, /) -> None:
        if element is None:
            raise none_element(self.way)
        self._queue.append(element)
        if self.idle:
            self.wake()
        if (ahead := self._ahead) is not None and (type(element) is not bytes or len(element) >= ahead.small):
            ahead.came(element)

    def takes_elements(self) -> bool:
        """Whether elements need nothing but to be kept: a reader that measures them is called for each."""
        return type(self).on_next is QueueReader.on_next and self._ahead is None

    def bound_bytes(self, stream: Stream[Any]) -> None:
        """Bound what waits in bytes as well, now or when large elements are announced."""
        self.measures = True
        step = step_of(stream)
        if step is not None:
            self.expect_large(step)

    def expect_large(self, step: int) -> bool:
        """Measure what comes, unless the user has given a number of elements."""
        if self._ahead is None and self.measures:
            ahead = read_ahead_of(self._aheads, self._subscription, step, self._first, self._waiting_elements)
            if ahead is not None:
                self._ahead = ahead
        return self._ahead is not None and self._ahead.holds

    def _waiting_elements(self) -> list[Any]:
        return list(self._queue)

    def is_starving(self) -> bool:
        """Whether the reader has run out of elements."""
        return self.idle and self._is_fed

    def on_error(self, error: BaseException, /) -> None:
        if error is None:
            raise none_error()
        self._keep(error)
        self.wake()

    def on_complete(self) -> None:
        self._over = True
        self.wake()

    def unfinished(self) -> bool:
        """Whether elements wait that the reader has not taken."""
        return bool(self._queue)


class BlockingReader(QueueReader):
    """A Subscriber that another thread reads; holds at most ``prefetch`` elements."""

    __slots__ = ("_woken",)
    way = "for"

    def __init__(self, prefetch: int) -> None:
        super().__init__(prefetch)
        self._woken: SimpleQueue[None] = SimpleQueue()

    def wake(self) -> None:
        self.idle = False
        if not self._is_fed:
            if get_ident() == self._thread:
                self._is_own = True
                return  # a reader that waits has said before that it is fed
            self.is_fed()
        self._woken.put(None)  # one too many does not matter: the reader looks at the queue again

    def read(self, stream: Stream[Any]) -> Iterator[Any]:
        """The elements; subscribes at the first step, and cancels when the reader leaves."""
        queue, take = self._queue, self._queue.popleft
        batch, taken = replenish_at(self._first), 0
        try:
            self.connect(stream)
            while True:
                while queue:
                    yield take()
                    taken += 1
                    ahead = self._ahead
                    if ahead is not None and ahead.stalled and not self._over:
                        ahead.took()
                    if taken == batch and self._subscription is not None and not self._over:
                        taken = 0
                        if ahead is None or ahead.holds:
                            self._subscription.request(batch)
                        if not self._is_fed:
                            self.idle = True
                if self._over and not queue:
                    error = self._error_at_end()
                    if error is not None:
                        raise error
                    return
                self.is_fed()
                self.idle = True
                if not queue and not self._over:
                    if on_an_event_loop():
                        raise RuntimeError(
                            "this stream has to wait, and waiting here would block the event loop; "
                            "use 'async for' or 'await'"
                        )
                    self._refuse_in_child()
                    self._woken.get()
                self.idle = False
        finally:
            self.cancel()


def iterate(stream: Stream[Any], prefetch: int | None) -> Iterator[Any]:
    """A stream as an iterator that reads ``prefetch`` elements ahead; None means the default."""
    reader = BlockingReader(prefetch or PREFETCH)
    if prefetch is None:
        reader.bound_bytes(stream)
    return reader.read(stream)


def on_an_event_loop() -> bool:
    """Whether this thread is running an event loop, which must not be blocked."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def refuse_to_block(what: str, instead: str) -> None:
    """Raise RuntimeError if this thread runs an event loop, which waiting would block."""
    if on_an_event_loop():
        raise RuntimeError(f"{what} would block the event loop that runs here; use '{instead}'")


class _One(TerminalReader):
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
    """Wait for the only element of a stream; None if there is none."""
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
        """Taken once, by the end of the stream or by the cancellation of the future."""
        future.add_done_callback(self._when_done)

    def _when_done(self, future: Future[Any]) -> None:
        if future.cancelled():
            self._may_settle()
            self.cancel()

    def _may_settle(self) -> bool:
        """Whether the future waits for a result; if it was cancelled, its waiters are notified."""
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

"""Queues of the standard library as the source, or the target, of a stream.

An asyncio queue belongs to an event loop, so a task on that loop gets and puts. A queue between threads is
waited for on a thread of our own, and only while there is demand (or an element to put) and the queue makes
us wait. ``Queue.get`` and ``Queue.put`` cannot be interrupted, and a subscriber may leave at any time. So we
wait on the queue's conditions ourselves, as its own methods do, and take or put without waiting.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
from _thread import allocate_lock
from asyncio.events import _get_running_loop as running_loop_or_none
from collections.abc import AsyncIterator, Callable
from contextvars import copy_context
from threading import Condition
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.errors import drop_elements, drop_error, together
from penstock.streams.fusion import Op, Relay
from penstock.streams.fusion.fragments import NOTHING
from penstock.streams.home import home_of
from penstock.streams.operators.async_sources import AsyncIterableSource, FutureSource
from penstock.streams.operators.sources import FailedSource
from penstock.streams.schedulers import ElasticScheduler, LoopScheduler, ProcessWide
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.source import IterableSource, Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["AsyncQueueSource", "AsyncQueueTarget", "QueueSource", "QueueTarget"]

_waiters = ProcessWide(lambda: ElasticScheduler("queues", few=UNBOUNDED))
"""Threads that wait for queues. Waiting is all they do, so a new one starts as soon as it is needed."""


class _Never(Exception):
    """Stands for an exception that this version of Python does not have."""


_ShutDown: type[Exception] = getattr(queue, "ShutDown", _Never)
_AsyncShutDown: type[Exception] = getattr(asyncio, "QueueShutDown", _Never)


# ------------------------------------------------------------------------------------------ between threads


class _Waiter:
    """Waits for one condition of a queue, until the queue is ready or the subscriber has left."""

    __slots__ = ("_condition", "_queue", "_ready", "left")

    def __init__(self, queue: queue.Queue[Any], condition: Condition, ready: Callable[[], bool]) -> None:
        self._queue = queue
        self._condition = condition
        self._ready = ready
        self.left = False
        """Whether the subscriber has left."""

    def wait(self) -> None:
        """Return when the queue is ready, as far as one can tell, or has been shut down, or we have left."""
        with self._condition:
            while not (self.left or self._ready() or getattr(self._queue, "is_shutdown", False)):
                self._condition.wait()
            if self.left:
                self._condition.notify()  # this may have been meant for another thread that waits

    def leave(self) -> None:
        """Wake the thread that waits."""
        self.left = True
        # The garbage collector may have called us, in the middle of a put() on this very thread, which holds
        # the lock: so we never wait for it here.
        if self._condition.acquire(blocking=False):
            try:
                self._condition.notify_all()
            finally:
                self._condition.release()
        else:
            _waiters.get().submit(self._wake)

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()


class QueueSource(Source):
    """Takes the elements of a ``queue.Queue``, as many as there is demand for."""

    def __init__(self, queue: queue.Queue[Any], end: object) -> None:
        super().__init__("from_queue", queue)
        self.queue_of_threads = queue
        self.end = end
        self.ended = False
        """Whether the end has come out of the queue."""

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Wait for elements when the first demand comes; after the end there are none."""
        if self.ended:
            _nothing().attach(ops, downstream)
            return
        relay = Relay(ops, downstream, self.label, self.place)
        relay.introduce()
        relay.on_subscribe(_Taking(relay, self))

    def runs_on(self) -> str:
        return "queues"


class _Taking:
    """The subscription to a queue."""

    __slots__ = ("_context", "_demand", "_mutex", "_queue", "_relay", "_source", "_waiter", "_working")

    def __init__(self, relay: Relay, source: QueueSource) -> None:
        self._relay = relay
        self._source = source
        self._queue = queue = source.queue_of_threads
        self._context = copy_context()
        self._mutex = allocate_lock()
        self._demand = 0
        self._working = False
        self._waiter = _Waiter(queue, queue.not_empty, lambda: queue._qsize() > 0)

    def request(self, n: int, /) -> None:
        with self._mutex:
            self._demand += n
            if self._working or self._waiter.left:
                return
            self._working = True
        # A copy: the next turn may begin on another thread before this one has left its context.
        context = self._context.copy()
        try:
            _waiters.get().submit(lambda: context.run(self._work))
        except RuntimeError as refused:  # the system has no thread left to give
            self._relay.on_error(refused)

    def cancel(self) -> None:
        self._waiter.leave()

    def _work(self) -> None:
        while self._may_take():
            try:
                element = self._take()
            except BaseException as error:  # a queue of the user's, or one whose elements do not compare
                self._waiter.left = True
                self._relay.on_error(error)
                return
            if element is NOTHING:
                return
            if element is self._source.end:
                self._waiter.left = self._source.ended = True
                self._relay.on_complete()
                return
            if self._waiter.left:
                drop_elements([element], self._relay.name)
                return
            self._relay.on_next(element)

    def _may_take(self) -> bool:
        with self._mutex:
            self._working = self._demand > 0 and not self._waiter.left
            if self._working:
                self._demand -= 1
            return self._working

    def _take(self) -> Any:
        """The next element, or the end; NOTHING if the subscriber has left."""
        while True:
            self._waiter.wait()
            if self._waiter.left:
                return NOTHING
            try:
                return self._queue.get_nowait()
            except queue.Empty:
                continue  # another thread was faster
            except _ShutDown:
                return self._source.end


class QueueTarget(Source):
    """Puts the elements of a stream into a ``queue.Queue``, and then its end."""

    def __init__(self, upstream: Stream[Any], queue: queue.Queue[Any], end: object) -> None:
        super().__init__("to_queue", queue)
        self._upstream = upstream
        self._queue = queue
        self._end = end

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        relay = Relay(ops, downstream, self.label, self.place)
        putting = _Putting(relay, self._queue, self._end)
        relay.introduce()
        return None if relay.closed else (self._upstream, putting)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]


class _Putting:
    """Asks for one element, puts it into the queue, and asks for the next.

    A Subscriber of the stream, and the Subscription of whoever waits for its end. Where the queue is full,
    one of our threads waits for room, never the source.
    """

    __slots__ = (
        "_begun",
        "_context",
        "_end",
        "_failure",
        "_queue",
        "_relay",
        "_upstream",
        "_waiter",
        "below",
        "home",
    )

    def __init__(self, relay: Relay, queue: queue.Queue[Any], end: object) -> None:
        self._relay = relay
        self._queue = queue
        self._end = end
        self._context = copy_context()
        self._upstream: Subscription | None = None
        self._begun = False
        self._failure: BaseException | None = None
        self._waiter = _Waiter(
            queue, queue.not_full, lambda: not queue.maxsize > 0 or queue._qsize() < queue.maxsize
        )
        self.home = relay.home
        self.below = relay.below

    # ---------------------------------------------------------------- what the source calls
    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self._upstream is not None:
            subscription.cancel()
            return
        self._upstream = subscription
        self._relay.on_subscribe(self)

    def on_next(self, element: Any, /) -> None:
        self._put(element, self._ask)

    def on_error(self, error: BaseException, /) -> None:
        """The end comes in any case: a reader of the queue must not wait for ever."""
        self._failure = error
        self._put(self._end, self._fail)

    def on_complete(self) -> None:
        self._put(self._end, self._relay.on_complete)

    # ---------------------------------------------------------------- what the subscriber calls
    def request(self, n: int, /) -> None:
        """Begin; what is asked for is the end, not an element."""
        if not self._begun:
            self._begun = True
            self._ask()

    def cancel(self) -> None:
        self._waiter.leave()
        if self._upstream is not None:
            self._upstream.cancel()

    def _ask(self) -> None:
        if self._upstream is not None and not self._waiter.left:
            self._upstream.request(1)

    def _fail(self) -> None:
        assert self._failure is not None
        self._relay.on_error(self._failure)

    # ---------------------------------------------------------------- the queue
    def _put(self, element: Any, then: Callable[[], object]) -> None:
        if self._waiter.left:
            self._drop(element)
            return
        try:
            self._queue.put_nowait(element)
        except queue.Full:
            context = self._context.copy()
            try:
                _waiters.get().submit(lambda: context.run(self._put_later, element, then))
            except RuntimeError as refused:  # the system has no thread left to give
                self._refused(element, refused)
        except _ShutDown as gone:
            self._shut_down(element, gone, then)
        except BaseException as error:  # a priority queue whose elements do not compare, with its end perhaps
            self._refused(element, error)
            if asks_main_thread_to_stop(error):
                raise
        else:
            then()

    def _put_later(self, element: Any, then: Callable[[], object]) -> None:
        while True:
            self._waiter.wait()
            if self._waiter.left:
                self._drop(element)
                return
            try:
                self._queue.put_nowait(element)
            except queue.Full:
                continue  # another thread was faster
            except _ShutDown as gone:
                self._shut_down(element, gone, then)
            except BaseException as error:
                self._refused(element, error)
            else:
                then()
            return

    def _shut_down(self, element: Any, gone: Exception, then: Callable[[], object]) -> None:
        """Nobody will read the queue any more."""
        if element is self._end:
            then()  # the readers know that this is the end
        else:
            self._refused(element, gone)

    def _refused(self, element: Any, reason: BaseException) -> None:
        """The queue did not take the element, or the end."""
        self._waiter.left = True
        failures = [reason] if self._failure is None else [self._failure, reason]
        if element is not self._end:
            drop_elements([element], self._relay.name)
            if self._upstream is not None:
                self._upstream.cancel()
        self._relay.on_error(together(failures, f"{self._relay.name}, and its queue"))

    def _drop(self, element: Any) -> None:
        """What cannot be put any more: an element, or the end, with the error that caused it."""
        if element is not self._end:
            drop_elements([element], self._relay.name)
        elif self._failure is not None:
            drop_error(self._failure, f"{self._relay.name}, after its subscriber left")


# ------------------------------------------------------------------------------------------ on an event loop


class AsyncQueueSource(AsyncIterableSource):
    """Takes the elements of an ``asyncio.Queue``, as many as there is demand for."""

    def __init__(self, queue: asyncio.Queue[Any], end: object) -> None:
        elements = _Elements(queue, end)
        super().__init__(
            "from_queue", lambda: elements, queue, loop=running_loop_or_none(), reports_late=True
        )
        self._elements = elements

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Wait for elements when the first demand comes; after the end there are none."""
        if self._elements.ended:
            _nothing().attach(ops, downstream)
        elif self._loop is None and _nowhere_to_run(downstream):
            _refuse("from_queue()").attach(ops, downstream)
        else:
            super().attach(ops, downstream)


class _Elements:
    """An asynchronous iterator over a queue. A ``get`` that is cancelled leaves the element in the queue."""

    __slots__ = ("_end", "_queue", "ended")

    def __init__(self, queue: asyncio.Queue[Any], end: object) -> None:
        self._queue = queue
        self._end = end
        self.ended = False
        """Whether the end has come out of the queue."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        try:
            element = await self._queue.get()
        except _AsyncShutDown:
            self.ended = True
            raise StopAsyncIteration from None
        if element is self._end:
            self.ended = True
            raise StopAsyncIteration
        return element


class AsyncQueueTarget(FutureSource):
    """Puts the elements of a stream into an ``asyncio.Queue``, and then its end."""

    def __init__(self, upstream: Stream[Any], queue: asyncio.Queue[Any], end: object) -> None:
        super().__init__("to_queue", lambda: _fill(upstream, queue, end), queue, loop=running_loop_or_none())
        self._upstream = upstream

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        if self._loop is None and _nowhere_to_run(downstream):
            _refuse("to_queue()").attach(ops, downstream)
        else:
            super().attach(ops, downstream)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def _settle(self, relay: Relay, future: Any, scheduler: LoopScheduler | None = None) -> None:
        filled = not future.cancelled() and future.exception() is None
        failure = future.result() if filled else None
        if failure is not None:
            relay.on_error(failure)
        else:
            super()._settle(relay, future, scheduler)


async def _fill(stream: Stream[Any], queue: asyncio.Queue[Any], end: object) -> BaseException | None:
    """Returns the error of the stream.

    It is not raised: a coroutine that raises a CancelledError was cancelled, and an exit ends the event loop.
    """
    # Readers of a stream are made of operators, so they cannot be imported at the top.
    from penstock.streams.terminal.async_reader import opened

    told: list[BaseException] = []
    failure: BaseException | None = None
    try:
        async with opened(stream._as_flux().do_on_error(told.append, BaseException), prefetch=1) as elements:
            async for element in elements:
                await queue.put(element)
    except _AsyncShutDown:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not any(error is each for each in told):
            raise  # Not an error of the stream: we were cancelled, so nothing more is put.
        failure = error
    # The end comes in any case: a reader of the queue must not wait for ever.
    with contextlib.suppress(_AsyncShutDown):
        await queue.put(end)
    return failure


def _nothing() -> IterableSource:
    return IterableSource.over("from_queue", ())


def _nowhere_to_run(downstream: Subscriber[Any]) -> bool:
    return home_of(downstream).loop is None and running_loop_or_none() is None


def _refuse(what: str) -> FailedSource:
    return FailedSource(
        RuntimeError(
            f"{what} of an asyncio.Queue needs the event loop of that queue, and none runs here; "
            "call it in a coroutine, or use a queue.Queue between threads"
        )
    )

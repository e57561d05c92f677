"""Streams out of asyncio: asynchronous iterables, coroutines, futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber, none_element
from penstock.streams.assembly import KeptError, Place
from penstock.streams.dropped import drop_error
from penstock.streams.home import Home, home_of
from penstock.streams.schedulers import LoopScheduler, Scheduler, SchedulerClosed, background_loop
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.segment import Op
from penstock.streams.segment.compiling import PENDING
from penstock.streams.source import Next, Source
from penstock.streams.stages.inners import ManySources, Outer
from penstock.streams.stages.relaying import PlainRelay

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["AsyncIterableSource", "FutureSource", "MapAsyncSource", "subscribers_loop"]

FAIR_TURN = 256
"""A task that steps through an asynchronous iterable lets others run after this many elements."""


def subscribers_loop(home: Home) -> LoopScheduler:
    """The event loop of the subscriber, whatever thread we are on.

    A subscriber without one, or whose loop is closed by now, gets the loop that runs here, or the one that
    the package keeps for others.
    """
    if home.loop is not None and not home.loop.is_closed():
        return LoopScheduler(home.loop)
    try:
        return LoopScheduler(asyncio.get_running_loop())
    except RuntimeError:
        return background_loop()


def used_once(iterator: AsyncIterator[Any]) -> Callable[[], AsyncIterator[Any]]:
    """An asynchronous iterator can be walked through one time; a second subscriber must hear that."""
    unused = [iterator]

    def factory() -> AsyncIterator[Any]:
        try:
            return unused.pop()
        except IndexError:
            raise RuntimeError(
                f"this {type(iterator).__name__} was used up by an earlier subscriber; pass the function "
                "that makes it, from_async_iterable(function), and each subscriber gets a new one"
            ) from None

    return factory


class AsyncIterableSource(Source):
    """Elements of an asynchronous iterable: one step of it for each element of demand."""

    def __init__(
        self,
        label: str,
        factory: Callable[[], AsyncIterable[Any]],
        *shows: Any,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(label, *shows)
        self._factory = factory
        self._loop = loop
        """Where the steps run, if that does not depend on the subscriber."""

    @classmethod
    def over(cls, label: str, iterable: AsyncIterable[Any], *shows: Any) -> AsyncIterableSource:
        """A source over an asynchronous iterable that exists already."""
        if isinstance(iterable, AsyncIterator):
            return cls(label, used_once(iterable), *shows)
        return cls(label, lambda: iterable, *shows)

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Start when the first demand comes."""
        relay = PlainRelay(ops, downstream, self.label, self.place)
        relay.introduce()
        scheduler = subscribers_loop(relay.home) if self._loop is None else LoopScheduler(self._loop)
        relay.on_subscribe(_Stepping(relay, self._factory, scheduler))

    def runs_on(self) -> str:
        """An event loop."""
        return "loop"


class _Stepping:
    """Steps through an asynchronous iterator in a task of its own, as far as credit goes."""

    __slots__ = (
        "_cancelled",
        "_closing",
        "_context",
        "_credit",
        "_factory",
        "_relay",
        "_scheduler",
        "_task",
        "_waiting",
    )

    def __init__(
        self, relay: PlainRelay, factory: Callable[[], AsyncIterable[Any]], scheduler: LoopScheduler
    ) -> None:
        self._relay = relay
        self._factory = factory
        self._scheduler = scheduler
        self._context = copy_context()
        self._credit = 0
        self._task: asyncio.Task[None] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._cancelled = False
        self._closing = False
        """The iterator is cleaning up, which nobody may interrupt."""

    # Both may be called from any thread; everything else happens on the loop.
    def request(self, n: int, /) -> None:
        try:
            self._scheduler.submit(lambda: self._grant(n))
        except Exception as refused:
            self._relay.on_error(refused)

    def cancel(self) -> None:
        self._cancelled = True
        task = self._task
        if task is not None:
            self._relay.home.clean_up(task)
        try:
            self._scheduler.submit(self._stop)
        except SchedulerClosed:
            return  # the loop is gone, and the task with it

    def _grant(self, n: int) -> None:
        if self._cancelled:
            return
        self._credit += n
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), context=self._context)
            self._relay.home.keep(self._task)
        elif self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _stop(self) -> None:
        if self._task is not None and not self._closing:
            self._task.cancel()

    async def _run(self) -> None:
        try:
            iterator = aiter(self._factory())
        except BaseException as error:
            self._failed(error)
            return
        try:
            await self._step(iterator)
        except GeneratorExit:
            raise  # the loop was closed with this task in it: nothing can be awaited any more
        except asyncio.CancelledError:
            self._stopped()
            await self._close(iterator)
            raise
        except BaseException as error:
            await self._close(iterator)
            self._failed(error)
        else:
            await self._close(iterator)

    def _stopped(self) -> None:
        if not self._cancelled and not self._scheduler.winding_down:
            self._relay.on_error(
                RuntimeError("the task that steps through the stream's source was cancelled")
            )

    def _failed(self, error: BaseException) -> None:
        self._relay.on_error(error)
        if asks_main_thread_to_stop(error):
            raise error

    async def _close(self, iterator: AsyncIterator[Any]) -> None:
        self._closing = True
        close = getattr(iterator, "aclose", None)
        if close is not None:
            try:
                await close()
            except (GeneratorExit, asyncio.CancelledError):
                raise
            except BaseException as error:
                drop_error(error, f"closing {self._relay.name}")
                if asks_main_thread_to_stop(error):
                    raise

    async def _step(self, iterator: AsyncIterator[Any]) -> None:
        turn = 0
        while not self._cancelled:
            while not self._credit:
                self._waiting = asyncio.get_running_loop().create_future()
                await self._waiting
            try:
                element = await anext(iterator)
            except StopAsyncIteration:
                self._relay.on_complete()
                return
            if self._cancelled:
                return
            self._credit -= 1
            self._relay.on_next(element)
            turn += 1
            if turn == FAIR_TURN:  # an iterator that never waits must not keep the loop for itself
                turn = 0
                await asyncio.sleep(0)


class FutureSource(Source):
    """The result of a future, an awaitable, or a coroutine function that is called for each subscriber."""

    def __init__(
        self,
        label: str,
        factory: Callable[[], Any],
        *shows: Any,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(label, *shows)
        self._factory = factory
        self._loop = loop
        """Where a coroutine runs, if that does not depend on the subscriber."""
        self._kept: KeptError | None = None
        """The error of a future that has several subscribers."""

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Start at once: a result is held until there is demand for it."""
        relay = PlainRelay(ops, downstream, self.label, self.place)
        relay.introduce()
        if relay.closed:
            return
        try:
            awaitable = self._factory()
        except BaseException as error:
            relay.on_error(error)
            if asks_main_thread_to_stop(error):
                raise
            return
        context = copy_context()
        if isinstance(awaitable, concurrent.futures.Future):
            relay.on_subscribe(_Cancelling(awaitable.cancel))
            awaitable.add_done_callback(lambda future: context.run(self._settle, relay, future))
            return
        if isinstance(awaitable, asyncio.Future):
            scheduler = LoopScheduler(awaitable.get_loop())
        else:
            scheduler = subscribers_loop(relay.home) if self._loop is None else LoopScheduler(self._loop)

        def start() -> None:
            future = asyncio.ensure_future(awaitable)
            if future is not awaitable:
                relay.home.keep(future)

            def cancel() -> None:
                relay.home.let_go(future)
                _on(scheduler, future.cancel)

            relay.on_subscribe(_Cancelling(cancel))
            future.add_done_callback(lambda _: self._settle(relay, future, scheduler), context=context)

        try:
            scheduler.submit(lambda: context.run(start))
        except Exception as refused:
            relay.on_error(refused)

    def _settle(self, relay: PlainRelay, future: Any, scheduler: LoopScheduler | None = None) -> None:
        if future.cancelled():
            exiting = scheduler is not None and scheduler.winding_down
            if not relay.closed and not exiting:  # otherwise it was our subscriber who cancelled it
                relay.on_error(RuntimeError(f"the future of {relay.name} was cancelled"))
            return
        error = future.exception()
        if error is not None:
            if self._kept is None or self._kept.error is not error:
                self._kept = KeptError(error)
            relay.on_error(self._kept.give())
            return
        value = future.result()
        if value is not None:
            relay.on_next(value)
        relay.on_complete()

    def runs_on(self) -> str:
        """An event loop, or whoever sets the result."""
        return "loop"


def _on(scheduler: Scheduler, task: Callable[[], object]) -> None:
    try:
        scheduler.submit(task)
    except SchedulerClosed:
        return  # whatever ran there has ended with it


class _Cancelling:
    """A subscription to one value that comes by itself: all one can do is to cancel it."""

    __slots__ = ("_cancel",)

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel

    def request(self, n: int, /) -> None:
        """The value comes anyway; the relay holds it until it is asked for."""

    def cancel(self) -> None:
        self._cancel()


class MapAsyncSource(Source):
    """``map_async``: a coroutine for each element, ``concurrency`` of them at once."""

    frames = 12

    def __init__(
        self,
        upstream: Stream[Any],
        function: Callable[[Any], Awaitable[Any]],
        concurrency: int,
        ordered: bool,
    ) -> None:
        super().__init__("map_async", function)
        self._upstream = upstream
        self._function = function
        self._ordered = ordered
        self.boundary = concurrency

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Ask for as many elements as may run at once."""
        assert self.boundary is not None
        scheduler = subscribers_loop(home_of(downstream))
        stage = _AsyncMapping(
            self._function, self._ordered, scheduler, ops, downstream, self.label, self.place
        )
        stage.outer = Outer(stage, stage.open, self.boundary)
        stage.sources.add(stage.outer)
        stage.introduce()
        return None if stage.closed else (self._upstream, stage.outer)

    def upstreams(self) -> list[Stream[Any]]:
        """The stream whose elements are mapped."""
        return [self._upstream]

    def runs_on(self) -> str:
        """An event loop."""
        return "loop"


class _Call:
    __slots__ = ("element", "value")

    def __init__(self, element: Any) -> None:
        self.element = element
        self.value: Any = PENDING


class _AsyncMapping(ManySources):
    """Holds at most ``concurrency`` elements: running, or waiting for their turn to go down."""

    __slots__ = (
        "_awaited",
        "_calls",
        "_context",
        "_function",
        "_ordered",
        "_ready",
        "_scheduler",
        "_tasks",
        "outer",
    )
    outer: Outer

    def __init__(
        self,
        function: Callable[[Any], Awaitable[Any]],
        ordered: bool,
        scheduler: LoopScheduler,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._function = function
        self._ordered = ordered
        self._scheduler = scheduler
        self._context = copy_context()
        self._calls: deque[_Call] = deque()
        """All calls, oldest first."""
        self._ready: deque[_Call] = deque()
        """Those that are finished, in the order of finishing; unused if that is not the order we want."""
        self._tasks: set[asyncio.Task[Any]] = set()
        here = self.home.loop is scheduler.loop
        self._awaited: set[asyncio.Future[Any]] = self.home.running if here else set()
        """Those that a reader on the same loop waits for when it leaves."""

    def open(self, element: Any) -> None:
        call = _Call(element)
        self._calls.append(call)
        self._scheduler.submit(lambda: self._launch(call))

    def _launch(self, call: _Call) -> None:
        if self.closed:
            return
        try:
            awaitable = self._context.copy().run(self._function, call.element)
            if not isinstance(awaitable, Awaitable):
                raise TypeError(
                    f"{self.name} got {awaitable!r}, which cannot be awaited; "
                    "pass an async function, or use map() for a plain one"
                )
        except BaseException as error:
            self.fail(error)
            if asks_main_thread_to_stop(error):
                raise
            return
        # A coroutine as it is: inside a wrapper cancelled before its first step it would never be awaited.
        work = awaitable if asyncio.iscoroutine(awaitable) else _finish(awaitable)
        task = asyncio.get_running_loop().create_task(work, context=self._context.copy())
        self._tasks.add(task)
        self._awaited.add(task)
        task.add_done_callback(lambda task: self._settle(call, task))

    def _settle(self, call: _Call, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        self._awaited.discard(task)
        if self.closed:
            if not task.cancelled() and task.exception() is not None:
                drop_error(task.exception(), f"{self.name} after it was cancelled")  # type: ignore[arg-type]
            return
        if task.cancelled():
            if not self._scheduler.winding_down:
                self.fail(RuntimeError(f"a task of {self.name} was cancelled"))
        elif (error := task.exception()) is not None:
            self.fail(error)
        elif task.result() is None:
            self.fail(none_element(self.name))
        else:
            call.value = task.result()
            if not self._ordered:
                self._ready.append(call)
            self.wake()

    def poll(self) -> Any:
        if self._ordered:
            if not self._calls or self._calls[0].value is PENDING:
                return PENDING
            call = self._calls.popleft()
        else:
            if not self._ready:
                return PENDING
            call = self._ready.popleft()
            self._calls.remove(call)
        self.outer.more()
        return call.value

    def finished(self) -> bool:
        return self.outer.done and not self._calls

    def release(self) -> None:
        super().release()
        self._awaited.difference_update(tuple(self._tasks))
        _on(self._scheduler, self._abandon)

    def _abandon(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    def waiting(self) -> list[Any]:
        return [call.element for call in tuple(self._calls)]

    def runs_on(self) -> str:
        return "loop"


async def _finish(awaitable: Awaitable[Any]) -> Any:
    return await awaitable

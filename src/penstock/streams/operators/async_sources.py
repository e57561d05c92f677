"""Sources on an event loop: asynchronous iterables, coroutines, futures."""

from __future__ import annotations

import asyncio
import concurrent.futures
from asyncio.events import _get_running_loop as running_loop_or_none
from collections.abc import AsyncIterable, AsyncIterator, Callable
from contextvars import copy_context
from typing import Any

from penstock.spec import Subscriber
from penstock.streams.errors import KeptError, drop_elements, drop_error
from penstock.streams.fusion import Op, Relay
from penstock.streams.home import Home
from penstock.streams.schedulers import LoopScheduler, Scheduler, SchedulerClosed, background_loop
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.source import Source

__all__ = ["AsyncIterableSource", "FutureSource", "on_scheduler", "subscribers_loop"]

FAIR_TURN = 256
"""A task that steps through an asynchronous iterable lets others run after this many elements."""


def subscribers_loop(home: Home) -> LoopScheduler:
    """The event loop of the subscriber, whatever thread we are on.

    If the subscriber has none, or its loop is closed by now: the loop that runs here, or else the loop that
    the package keeps in a background thread.
    """
    if home.loop is not None and not home.loop.is_closed():
        return LoopScheduler(home.loop)
    try:
        return LoopScheduler(asyncio.get_running_loop())
    except RuntimeError:
        return background_loop()


def used_once(iterator: AsyncIterator[Any]) -> Callable[[], AsyncIterator[Any]]:
    """An asynchronous iterator can be used once; a second subscriber gets an error that says so."""
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
        reports_late: bool = False,
    ) -> None:
        super().__init__(label, *shows)
        self._factory = factory
        self._loop = loop
        """Where the steps run, if that does not depend on the subscriber."""
        self._reports_late = reports_late
        """Whether to report an element that came when the subscriber had left: nobody can make it again."""

    @classmethod
    def over(cls, label: str, iterable: AsyncIterable[Any], *shows: Any) -> AsyncIterableSource:
        """A source over an asynchronous iterable that exists already."""
        if isinstance(iterable, AsyncIterator):
            return cls(label, used_once(iterable), *shows)
        return cls(label, lambda: iterable, *shows)

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Start when the first demand comes."""
        relay = Relay(ops, downstream, self.label, self.place)
        relay.introduce()
        scheduler = subscribers_loop(relay.home) if self._loop is None else LoopScheduler(self._loop)
        relay.on_subscribe(_Stepping(relay, self._factory, scheduler, self._reports_late))

    def runs_on(self) -> str:
        return "loop"


class _Stepping:
    """Steps through an asynchronous iterator in a task of its own, as far as there is demand."""

    __slots__ = (
        "_cancelled",
        "_closing",
        "_context",
        "_demand",
        "_factory",
        "_relay",
        "_reports_late",
        "_scheduler",
        "_task",
        "_waiting",
    )

    def __init__(
        self,
        relay: Relay,
        factory: Callable[[], AsyncIterable[Any]],
        scheduler: LoopScheduler,
        reports_late: bool,
    ) -> None:
        self._relay = relay
        self._reports_late = reports_late
        self._factory = factory
        self._scheduler = scheduler
        self._context = copy_context()
        self._demand = 0
        self._task: asyncio.Task[None] | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._cancelled = False
        self._closing = False
        """The iterator is cleaning up, and must not be interrupted."""

    # Both may be called from any thread; everything else happens on the loop.
    def request(self, n: int, /) -> None:
        try:
            self._scheduler.submit(lambda: self._add_demand(n))
        except Exception as refused:
            if not self._scheduler.winding_down:
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

    def _add_demand(self, n: int) -> None:
        if self._cancelled:
            return
        self._demand += n
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
        except asyncio.CancelledError:
            self._stopped()
            await self._close(iterator)
            raise
        except BaseException as error:
            if isinstance(error, GeneratorExit) and not self._at_work():
                raise  # the loop was closed with this task in it: nothing can be awaited any more
            try:
                await self._close(iterator)
            finally:  # also if the closing was cancelled: the subscriber waits for the last signal
                self._failed(error)
        else:
            await self._close(iterator)

    def _at_work(self) -> bool:
        """Whether the loop is running our task just now, rather than throwing it away."""
        return running_loop_or_none() is not None and asyncio.current_task() is self._task

    def _stopped(self) -> None:
        if not self._cancelled and not self._scheduler.winding_down:
            self._relay.on_error(
                RuntimeError("somebody cancelled the task that steps through the stream's source")
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
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                if isinstance(error, GeneratorExit) and not self._at_work():
                    raise
                drop_error(error, f"closing {self._relay.name}")
                if asks_main_thread_to_stop(error):
                    raise

    async def _step(self, iterator: AsyncIterator[Any]) -> None:
        turn = 0
        while not self._cancelled:
            while not self._demand:
                self._waiting = asyncio.get_running_loop().create_future()
                await self._waiting
            try:
                element = await anext(iterator)
            except StopAsyncIteration:
                self._relay.on_complete()
                return
            if self._cancelled:
                if self._reports_late:
                    drop_elements([element], self._relay.name)
                return
            self._demand -= 1
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
        """Start at once; a result waits until there is demand for it."""
        relay = Relay(ops, downstream, self.label, self.place)
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
                on_scheduler(scheduler, future.cancel)

            relay.on_subscribe(_Cancelling(cancel))
            future.add_done_callback(lambda _: self._settle(relay, future, scheduler), context=context)

        try:
            scheduler.submit(lambda: context.run(start))
        except Exception as refused:
            if not scheduler.winding_down:
                relay.on_error(refused)

    def _settle(self, relay: Relay, future: Any, scheduler: LoopScheduler | None = None) -> None:
        if future.cancelled():
            exiting = scheduler is not None and scheduler.winding_down
            if not relay.closed and not exiting:  # otherwise our subscriber cancelled it
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
        return "loop"


def on_scheduler(scheduler: Scheduler, task: Callable[[], object]) -> None:
    """Run a task there, unless the scheduler has closed and everything on it has ended."""
    try:
        scheduler.submit(task)
    except SchedulerClosed:
        return  # whatever ran there has ended with it


class _Cancelling:
    """A subscription to one value that comes by itself, and can only be cancelled."""

    __slots__ = ("_cancel",)

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel

    def request(self, n: int, /) -> None:
        """The value comes anyway; the relay keeps it until there is demand."""

    def cancel(self) -> None:
        self._cancel()

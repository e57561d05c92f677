"""``map_async``: a coroutine for each element, several of them at once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber, none_element
from penstock.streams.errors import Place, drop_error
from penstock.streams.fusion import Op
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.home import home_of
from penstock.streams.operators.async_sources import on_scheduler, subscribers_loop
from penstock.streams.operators.flat_map import ManySources, Outer
from penstock.streams.schedulers import LoopScheduler, SchedulerClosed
from penstock.streams.schedulers.scheduler import asks_main_thread_to_stop
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["MapAsyncSource"]


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
        return [self._upstream]

    def runs_on(self) -> str:
        return "loop"


class _Call:
    __slots__ = ("element", "value")

    def __init__(self, element: Any) -> None:
        self.element = element
        self.value: Any = PENDING


class _AsyncMapping(ManySources):
    """Holds at most ``concurrency`` elements, which run or wait to be sent down."""

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
        """Finished calls, in the order in which they finished; unused if the results are ordered."""
        self._tasks: set[asyncio.Task[Any]] = set()
        here = self.home.loop is scheduler.loop
        self._awaited: set[asyncio.Future[Any]] = self.home.running if here else set()
        """Tasks that a reader on the same loop waits for when it leaves."""

    def open(self, element: Any) -> None:
        call = _Call(element)
        self._calls.append(call)
        try:
            self._scheduler.submit(lambda: self._launch(call))
        except SchedulerClosed:
            if not self._scheduler.winding_down:
                raise

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
        # No wrapper round a coroutine: one that is cancelled before its first step would never await it.
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
        self._calls.clear()
        self._ready.clear()
        self._awaited.difference_update(tuple(self._tasks))
        on_scheduler(self._scheduler, self._abandon)

    def _abandon(self) -> None:
        for task in tuple(self._tasks):
            task.cancel()

    def waiting(self) -> list[Any]:
        return [call.element for call in tuple(self._calls)]

    def runs_on(self) -> str:
        return "loop"


async def _finish(awaitable: Awaitable[Any]) -> Any:
    return await awaitable

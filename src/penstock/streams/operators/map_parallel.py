"""``map_parallel``: a function on several processes, for work that keeps a processor busy.

A pool of processes is started for each subscriber and ends with it, unless the program gives one. Everything
that crosses to a process and back is pickled here and not by the pool: a pool that meets something it cannot
pickle, or an exception that cannot be rebuilt, blames the wrong thing or breaks. So the error says which
element it was.
"""

from __future__ import annotations

import signal
import traceback
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from penstock.arguments import describe
from penstock.spec import Subscriber, none_element
from penstock.streams.errors import Place, add_note, drop_error, note_texts
from penstock.streams.fusion import Op
from penstock.streams.fusion.compiler import PENDING
from penstock.streams.operators.flat_map import ManySources, Outer
from penstock.streams.schedulers import shared_pool
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future, ProcessPoolExecutor

    from penstock.streams.stream import Stream

__all__ = ["MapParallelSource", "WorkerDied", "pickled_function"]

CALLS_PER_WORKER = 2
"""One that runs and one that waits, so that no process is idle while its result travels."""


def _dumps(value: Any) -> bytes:
    from pickle import dumps  # imported here: most programs never start a process

    return dumps(value)


def _loads(payload: bytes) -> Any:
    from pickle import loads

    return loads(payload)


class WorkerDied(RuntimeError):
    """A process of ``map_parallel`` ended by itself: it was killed, crashed, or ran out of memory."""


def pickled_function(function: Callable[[Any], Any]) -> bytes:
    """The function as it is sent to the processes, or a TypeError that says how to write it."""
    try:
        return _dumps(function)
    except Exception as error:
        raise TypeError(
            f"map_parallel() sends its function to other processes, and {describe(function)} cannot be "
            f"pickled ({error}); define it with def at the top of a module, or use map() or map_async()"
        ) from error


class MapParallelSource(Source):
    """``map_parallel``: up to twice as many elements as processes are in the works."""

    frames = 12

    def __init__(
        self,
        upstream: Stream[Any],
        function: Callable[[Any], Any],
        workers: int,
        ordered: bool,
        pool: Executor | None,
    ) -> None:
        super().__init__("map_parallel", function)
        self._upstream = upstream
        self._function = pickled_function(function)
        self._workers = workers
        self._ordered = ordered
        self._pool = pool
        self.boundary = workers * CALLS_PER_WORKER

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Ask for as many elements as may be in the works; the processes start with the first of them."""
        assert self.boundary is not None
        stage = _ParallelMapping(
            self._function, self._workers, self._ordered, self._pool, ops, downstream, self.label, self.place
        )
        stage.outer = Outer(stage, stage.open, self.boundary)
        stage.sources.add(stage.outer)
        stage.introduce()
        return None if stage.closed else (self._upstream, stage.outer)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def runs_on(self) -> str:
        return f"{self._workers} processes"


class _Job:
    """One element on its way to a process and back."""

    __slots__ = ("element", "future", "outcome")

    def __init__(self, element: Any) -> None:
        self.element = element
        self.future: Future[tuple[bool, bytes]] | None = None
        self.outcome: Any = PENDING


class _Failure:
    """The outcome of a call that did not work."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _ParallelMapping(ManySources):
    """Holds at most ``workers × CALLS_PER_WORKER`` elements, which run or wait to be sent down.

    The pool calls back on a thread that may hold the pool's lock, so a result only leaves a message there,
    and the shared pool of threads sends it down.
    """

    __slots__ = ("_function", "_jobs", "_ordered", "_own", "_pool", "_ready", "_workers", "outer")
    outer: Outer

    def __init__(
        self,
        function: bytes,
        workers: int,
        ordered: bool,
        pool: Executor | None,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._function = function
        self._workers = workers
        self._ordered = ordered
        self._pool: Executor | None = pool
        self._own = pool is None
        self._jobs: deque[_Job] = deque()
        """All of them, oldest first."""
        self._ready: deque[_Job] = deque()
        """Those with a result, in the order in which they finished; unused if the results are ordered."""

    def open(self, element: Any) -> None:
        try:
            payload = _dumps(element)
        except Exception as error:
            raise TypeError(
                f"{self.name} cannot send {describe(element)}, a {type(element).__name__}, to another "
                f"process: it cannot be pickled ({error})"
            ) from error
        job = _Job(element)
        self._jobs.append(job)
        pool = self._pool
        if pool is None:
            pool = self._pool = _start(self._workers)
        try:
            future = job.future = pool.submit(_call, self._function, payload)
        except RuntimeError as refused:
            if self.closed:
                return  # cancelled on another thread, which has shut the pool down
            raise self._died(job, refused) from refused
        future.add_done_callback(lambda future: self._came_back(job, future))
        if self.closed:
            self._shut_down()  # cancelled on another thread, perhaps before there was a pool

    def _came_back(self, job: _Job, future: Future[tuple[bool, bytes]]) -> None:
        if not (self.closed and future.cancelled()):
            shared_pool().submit(lambda: self._settle(job, future))

    def _settle(self, job: _Job, future: Future[tuple[bool, bytes]]) -> None:
        job.outcome = self._outcome(job, future)
        if self.closed:
            self._lose(job)
            return
        if not self._ordered:
            self._ready.append(job)
        self.wake()

    def _outcome(self, job: _Job, future: Future[tuple[bool, bytes]]) -> Any:
        """The result, or a failure, which takes its turn like a result."""
        try:
            worked, payload = future.result()
        except BaseException as problem:  # also if somebody has cancelled the calls of a pool of the program
            return _Failure(self._died(job, problem))
        try:
            value = _loads(payload)
        except BaseException as error:
            add_note(error, f"{self.name} could not unpickle what a process sent for {describe(job.element)}")
            return _Failure(error)
        if not worked:
            return _Failure(value)
        return _Failure(none_element(self.name)) if value is None else value

    def _lose(self, job: _Job) -> None:
        """Report an error that came too late. Of a dead process the first element under way tells."""
        failure = job.outcome
        if isinstance(failure, _Failure) and not isinstance(failure.error, WorkerDied):
            drop_error(failure.error, f"{self.name} after its end")

    def _died(self, job: _Job, problem: BaseException) -> WorkerDied:
        under_way = [one.element for one in tuple(self._jobs) if one.outcome is PENDING]
        error = WorkerDied(
            f"a process of {self.name} died while {len(under_way)} elements were under way, the oldest of "
            f"them {describe(under_way[0] if under_way else job.element)}; it was killed, crashed, or ran "
            "out of memory, or the main module of this program cannot be imported by another process"
        )
        error.__cause__ = problem
        return error

    def poll(self) -> Any:
        waiting = self._jobs if self._ordered else self._ready
        if not waiting or waiting[0].outcome is PENDING or self.error is not None:
            return PENDING
        job = waiting[0]
        if isinstance(job.outcome, _Failure):
            self._fail_with(job, job.outcome.error)
            return PENDING
        waiting.popleft()
        if not self._ordered:
            self._jobs.remove(job)
        self.outer.more()
        return job.outcome

    def _fail_with(self, job: _Job, error: BaseException) -> None:
        if not isinstance(error, WorkerDied):
            self._jobs.remove(job)  # the error tells of this element; the others are reported as dropped
        self.fail(error)

    def finished(self) -> bool:
        return self.outer.done and not self._jobs and self.error is None

    def release(self) -> None:
        """Calls that have not begun are withdrawn; the processes end after those that have."""
        jobs = tuple(self._jobs)
        super().release()
        self._jobs.clear()
        self._ready.clear()
        self._shut_down()
        for job in jobs:
            if job.future is not None:
                job.future.cancel()
            self._lose(job)

    def _shut_down(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None and self._own:
            # Not here: this may be a thread that holds the pool's lock.
            shared_pool().submit(lambda: pool.shutdown(wait=False, cancel_futures=True))

    def waiting(self) -> list[Any]:
        return [job.element for job in tuple(self._jobs)]

    def capacity(self) -> int | None:
        return self._workers * CALLS_PER_WORKER

    def runs_on(self) -> str:
        return f"{self._workers} processes"


def _start(workers: int) -> ProcessPoolExecutor:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_all_start_methods, get_context

    # Not a fork of this process, whose threads may hold locks.
    method = "forkserver" if "forkserver" in get_all_start_methods() else "spawn"
    return ProcessPoolExecutor(workers, mp_context=get_context(method), initializer=_ignore_ctrl_c)


# -------------------------------------------------------------------- in the process


def _ignore_ctrl_c() -> None:
    """Ctrl-C reaches the whole group of processes; the stream decides what happens to its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@lru_cache(maxsize=16)
def _function(payload: bytes) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = _loads(payload)
    return function


def _call(function: bytes, payload: bytes) -> tuple[bool, bytes]:
    """Call the function; returns whether it worked, and its result or its error."""
    try:
        result = _function(function)(_loads(payload))
    except BaseException as error:
        return False, _pickled_error(error)
    try:
        return True, _dumps(result)
    except Exception as error:
        refused = TypeError(
            f"map_parallel() cannot send a result back, {describe(result)}, a {type(result).__name__}: it "
            f"cannot be pickled ({error})"
        )
        return False, _dumps(refused)


def _pickled_error(error: BaseException) -> bytes:
    add_note(error, "in a worker process:\n" + "".join(traceback.format_exception(error)))
    try:
        payload = _dumps(error)
        _loads(payload)  # one with arguments of its own may not be rebuilt
    except Exception:
        stand_in = RuntimeError(f"{type(error).__name__}: {error}")
        for note in note_texts(error):
            stand_in.add_note(note)
        payload = _dumps(stand_in)
    return payload

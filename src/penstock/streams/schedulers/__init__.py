"""Where and when work runs.

Every stream runs on the thread that subscribes to it unless it is given a `Scheduler`. Pick one by what the
work does: `shared_pool` for calls that block, `loop` for code that lives on an event loop, `single` for what
must not overlap, `virtual_time` for tests. `docs/schedulers.md` has the whole table.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop

from penstock.streams.schedulers.event_loop import BackgroundLoopScheduler, LoopScheduler, background_loop
from penstock.streams.schedulers.inline import ImmediateScheduler, TrampolineScheduler, VirtualTimeScheduler
from penstock.streams.schedulers.loop_thread import LoopThread
from penstock.streams.schedulers.scheduler import (
    Alarm,
    ProcessWide,
    Scheduler,
    SchedulerClosed,
    SharedSchedulerError,
    Task,
    Timer,
)
from penstock.streams.schedulers.threads import (
    ElasticScheduler,
    PoolScheduler,
    SingleThreadScheduler,
    shared_pool,
    shared_single,
    shared_timer,
)
from penstock.streams.schedulers.timers import RealTimeScheduler

__all__ = [
    "Alarm",
    "BackgroundLoopScheduler",
    "ElasticScheduler",
    "ImmediateScheduler",
    "LoopScheduler",
    "LoopThread",
    "PoolScheduler",
    "ProcessWide",
    "RealTimeScheduler",
    "Scheduler",
    "SchedulerClosed",
    "SharedSchedulerError",
    "SingleThreadScheduler",
    "Task",
    "Timer",
    "TrampolineScheduler",
    "VirtualTimeScheduler",
    "background_loop",
    "immediate",
    "loop",
    "pool",
    "shared_pool",
    "shared_single",
    "shared_timer",
    "single",
    "trampoline",
    "virtual_time",
]


def immediate() -> ImmediateScheduler:
    """A scheduler that runs each task at once, inside `submit`."""
    return ImmediateScheduler()


def trampoline() -> TrampolineScheduler:
    """A scheduler that runs tasks on the submitting thread, one after the other, never nested."""
    return TrampolineScheduler()


def single(name: str = "single") -> SingleThreadScheduler:
    """A new scheduler with one thread, which runs tasks in order; close it when done."""
    return SingleThreadScheduler(name)


def pool(threads: int | None = None, name: str = "pool") -> PoolScheduler:
    """A new scheduler with up to `threads` threads; close it when done.

    Without a number it takes a few more than there are processors, at most 32.
    """
    return PoolScheduler(threads, name)


def loop(loop: AbstractEventLoop | None = None) -> LoopScheduler:
    """A scheduler that runs tasks on `loop`, or without it on the event loop running here."""
    return LoopScheduler(loop)


def virtual_time() -> VirtualTimeScheduler:
    """A scheduler for tests, whose clock moves only when told to."""
    return VirtualTimeScheduler()

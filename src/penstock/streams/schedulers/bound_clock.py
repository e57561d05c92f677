"""Bind the schedulers that the whole process shares to a clock of a test.

Operators take a shared scheduler when the stream is put together, often long before the test that runs it. So
a test does not replace these schedulers: it binds them, and streams that hold one already follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.streams.schedulers.event_loop import LoopScheduler, background_loop_is
from penstock.streams.schedulers.scheduler import Scheduler
from penstock.streams.schedulers.threads import shared_pool, shared_single, shared_timer

__all__ = ["bound_to"]

_METHODS = ("submit", "submit_after", "now")


@contextmanager
def bound_to(clock: Scheduler, loop: LoopScheduler) -> Iterator[None]:
    """While the block runs, the shared schedulers of this process pass their tasks on to ``clock``.

    These are `shared_timer`, `shared_pool` and `shared_single`; `background_loop()` returns ``loop``. Tasks
    and delays that were handed in before the block are not affected.

    An attribute of the object hides the method of its class, so a scheduler that is not bound pays nothing.
    """
    shared: list[Scheduler] = [shared_timer(), shared_pool(), shared_single()]
    before = [{name: vars(each).get(name) for name in _METHODS} for each in shared]
    for scheduler in shared:
        for name in _METHODS:
            setattr(scheduler, name, getattr(clock, name))
    try:
        with background_loop_is(loop):
            yield
    finally:
        for scheduler, methods in zip(shared, before, strict=True):
            for name, method in methods.items():
                if method is None:
                    delattr(scheduler, name)
                else:  # this block is inside another one
                    setattr(scheduler, name, method)

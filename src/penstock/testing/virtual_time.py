"""Virtual time: an hour passes in a microsecond, for streams that know nothing of it.

``with virtual_time() as clock:`` binds every scheduler that streams use by default to one clock: timers ring,
pools work and coroutines run on the thread of the test, when the test lets time pass, and always in the same
order. It does not matter where a stream was put together.
"""

from __future__ import annotations

import asyncio
from asyncio.events import _get_running_loop as running_loop_or_none
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import TypeVarTuple

from penstock.streams.schedulers import LoopScheduler, VirtualTimeScheduler
from penstock.streams.spi import bound_to

__all__ = ["VirtualLoop", "present_clock", "virtual_time"]

Ts = TypeVarTuple("Ts")

_present: list[VirtualTimeScheduler] = []

_MOST_TURNS = 10
"""How often a loop that closes looks for tasks that were started while others ended."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that turns when a virtual clock says so, on the thread that moves the clock.

    ``asyncio.sleep(3600)`` in a coroutine of a stream ends when the test has let an hour pass.
    """

    def __init__(self, clock: VirtualTimeScheduler) -> None:
        """Make a loop for ``clock``."""
        self._virtual = clock
        self._turn_is_queued = False
        super().__init__()

    def time(self) -> float:
        """Seconds of the virtual clock."""
        return self._virtual.now()

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Call it in the next turn, which the clock runs at its present moment."""
        handle = super().call_soon(callback, *args, context=context)
        self._queue_turn()
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """The same, from any thread."""
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        self._queue_turn()
        return handle

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call it when the clock has reached ``when``."""
        handle = super().call_at(when, callback, *args, context=context)
        if not self._virtual.closed:
            self._virtual.submit_after(max(0.0, when - self.time()), self._turn)
        return handle

    def _queue_turn(self) -> None:
        if not self._turn_is_queued and not self._virtual.closed:
            self._turn_is_queued = True
            self._virtual.submit(self._turn)

    def _turn(self) -> None:
        self._turn_is_queued = False
        # Not our own call_soon, which would queue another turn.
        super().call_soon(self.stop)
        self.run_forever()

    def wind_down(self) -> None:
        """Cancel what still runs here, and close; the clock is closed by now."""
        if running_loop_or_none() is not None:
            self.close()  # the loop of an async test runs here, so this one never did
            return
        for _ in range(_MOST_TURNS):
            tasks = asyncio.all_tasks(self)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self._turn()
        self._turn()
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()


@contextmanager
def virtual_time() -> Iterator[VirtualTimeScheduler]:
    """Within the block, everything that streams do by themselves happens in virtual time.

    >>> from penstock.streams import Flux
    >>> with virtual_time() as clock:
    ...     seen = []
    ...     running = Flux.interval(3600).subscribe(seen.append)
    ...     clock.advance_by(3 * 3600)
    ...     running.cancel()
    3
    >>> seen
    [0, 1, 2]

    ``clock.advance_by(seconds)`` lets time pass and ``clock.run_pending()`` runs what is due now. Bound are
    ``shared_timer``, which every timed operator uses by default, ``shared_pool``, ``shared_single`` and
    ``background_loop``, where coroutines run. A scheduler of your own, the event loop of an ``async`` test,
    sockets, and ``block()``, which waits for other threads, know nothing of the virtual clock.

    The binding holds for the whole process. Streams that still wait for a timer when the block ends fail with
    ``SchedulerClosed``.
    """
    clock = VirtualTimeScheduler()
    loop = VirtualLoop(clock)
    with bound_to(clock, LoopScheduler(loop, name="virtual-loop")):
        _present.append(clock)
        try:
            yield clock
        finally:
            _present.remove(clock)
            # Inside the binding: a stream that retries now must not go on in real time.
            clock.close()
            clock.run_pending()
            loop.wind_down()


def present_clock() -> VirtualTimeScheduler | None:
    """The clock of the innermost ``virtual_time`` block; None outside of one."""
    return _present[-1] if _present else None

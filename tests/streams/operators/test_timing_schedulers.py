"""Timers of streams: they ring although a pool is full, and hear of it when their scheduler closes."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams import Flux, Mono, Retry, schedulers
from penstock.streams.schedulers import Scheduler, SchedulerClosed
from penstock.testing import marble

PATIENCE = 60.0


def failing() -> Any:
    raise OSError("down")


WAITING: dict[str, Callable[[Scheduler | None, float], Any]] = {
    "interval": lambda s, t: Flux.interval(t, scheduler=s).take(1).collect_list(),
    "timer": lambda s, t: Mono.timer(t, s),
    "delay_elements": lambda s, t: Flux.just(1).delay_elements(t, s).collect_list(),
    "delay_element": lambda s, t: Mono.just(1).delay_element(t, s),
    "retry_when": lambda s, t: (
        Mono.from_callable(failing).retry_when(Retry.fixed(1, pause=t, scheduler=s)).on_error_return(1)
        if s is None
        else Mono.from_callable(failing).retry_when(Retry.fixed(1, pause=t, scheduler=s))
    ),
    "backoff": lambda s, t: Mono.error(OSError()).retry_when(
        Retry.backoff(9, first=t, longest=t, scheduler=s)
    ),
    "timeout": lambda s, t: Mono.never().timeout(t, scheduler=s),
    "timeout with a fallback": lambda s, t: Mono.never().timeout(t, Mono.just("late"), s),
}


@pytest.mark.parametrize("operator", WAITING)
@pytest.mark.parametrize("make", [schedulers.single, schedulers.pool, schedulers.virtual_time])
def test_closing_the_scheduler_ends_a_stream_that_waits_for_a_timer_of_it(
    operator: str, make: Callable[[], Scheduler]
) -> None:
    scheduler = make()
    future = WAITING[operator](scheduler, 3600).to_future()
    scheduler.close(PATIENCE)
    assert isinstance(future.exception(PATIENCE), SchedulerClosed)


@pytest.mark.parametrize("operator", WAITING)
def test_closing_the_event_loop_ends_a_stream_that_waits_for_a_timer_of_it(operator: str) -> None:
    async def main() -> Any:
        return WAITING[operator](schedulers.loop(), 3600).to_future()

    future = asyncio.run(main())
    assert isinstance(future.exception(PATIENCE), SchedulerClosed)


@pytest.fixture
def full_pool() -> Any:
    """The pool of the process with all of its threads held up."""
    pool, release = schedulers.shared_pool(), threading.Event()
    held = threading.Semaphore(0)

    def hold() -> None:
        held.release()
        release.wait(PATIENCE * 2)

    for _ in range(pool.threads):
        pool.submit(hold)
    for _ in range(pool.threads):
        assert held.acquire(timeout=PATIENCE)
    yield pool
    release.set()


@pytest.mark.parametrize(
    "stream",
    [
        Mono.timer(0.001),
        Flux.interval(0.001).take(2).count(),
        Flux.just(1).delay_elements(0.001).count(),
        Mono.error(OSError()).retry_when(Retry.fixed(2, pause=0.001)).on_error_return(1),
        Mono.never().timeout(0.001, Mono.just(1)),
    ],
    ids=["timer", "interval", "delay_elements", "retry_when", "timeout"],
)
def test_a_timer_rings_although_all_threads_of_the_pool_block(full_pool: Any, stream: Mono[Any]) -> None:
    assert stream.block(PATIENCE) is not None


def test_a_timeout_given_a_pool_rings_although_all_threads_of_it_block(full_pool: Any) -> None:
    with pytest.raises(TimeoutError, match="no element within"):
        Mono.never().timeout(0.001, scheduler=full_pool).block(PATIENCE)


def test_a_timeout_over_a_source_that_blocks_its_only_thread_rings() -> None:
    release = threading.Event()
    with schedulers.single("busy") as busy:
        slow = Mono.from_callable(lambda: release.wait(PATIENCE)).subscribe_on(busy)
        try:
            with pytest.raises(TimeoutError, match="no element within"):
                slow.timeout(0.01, scheduler=busy).block(PATIENCE)
        finally:
            release.set()


RINGING: dict[str, Callable[[Scheduler], Flux[Any]]] = {
    "timer": lambda scheduler: Mono.timer(0, scheduler).flux(),
    "marble": lambda scheduler: marble("(a|)", scheduler=scheduler),
}


@pytest.mark.parametrize("source", RINGING)
def test_what_a_timer_rings_for_never_runs_on_the_thread_that_subscribed(source: str) -> None:
    # The caller may be an event loop, or the function may raise SystemExit: both are the scheduler's affair.
    scheduler = schedulers.pool()
    stream = RINGING[source](scheduler).map(lambda _: threading.get_ident()).collect_list()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(4_000):
            assert stream.to_future().result(PATIENCE) != [threading.get_ident()]
    finally:
        sys.setswitchinterval(interval)
        scheduler.close(PATIENCE)

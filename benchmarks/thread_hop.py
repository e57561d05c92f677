"""What does an element cost that is made on one thread and used on another?"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Protocol

import reactivex
from reactivex import operators as ops
from reactivex.scheduler import EventLoopScheduler

from benchmarks.measuring import Alternative, Clock, Question
from benchmarks.workload import WINDOW, Unbounded, Windowed, sum_of_all
from penstock.streams import Flux, schedulers

__all__ = ["question"]

END: Any = object()


class _Queue(Protocol):
    def put(self, item: Any) -> None: ...

    def get(self) -> Any: ...


@contextmanager
def question() -> Iterator[Question]:
    """All elements cross; nothing else is done to them."""
    making, using = schedulers.single("making"), schedulers.single("using")
    rx_making, rx_using = EventLoopScheduler(), EventLoopScheduler()

    def hop(subscriber: Unbounded, n: int, prefetch: int = WINDOW) -> int:
        Flux.range(n).subscribe_on(making).publish_on(using, prefetch=prefetch).subscribe(subscriber)
        return subscriber.result()

    def with_reactivex(n: int) -> int:
        subscriber = Unbounded(Event())
        stream = reactivex.from_iterable(range(n)).pipe(ops.subscribe_on(rx_making), ops.observe_on(rx_using))
        stream.subscribe(subscriber.on_next, subscriber.on_error, subscriber.on_complete)
        return subscriber.result()

    try:
        yield Question(
            name="thread_hop",
            title="from one thread to another, all elements cross",
            elements=30_000,
            base="queue.Queue(256)",
            expected=sum_of_all,
            clock=Clock.ELAPSED,
            alternatives=(
                Alternative("queue.Queue(256)", lambda n: through_queue(lambda: queue.Queue(WINDOW), n)),
                Alternative("Penstock", lambda n: hop(Unbounded(Event()), n)),
                Alternative("Penstock, windows of 256", lambda n: hop(Windowed(elsewhere=Event()), n)),
                Alternative("Penstock, prefetch=1024", lambda n: hop(Unbounded(Event()), n, 1024)),
                Alternative("Penstock, for", lambda n: sum(Flux.range(n).subscribe_on(making))),
                Alternative("queue.SimpleQueue, unbounded", lambda n: through_queue(queue.SimpleQueue, n)),
                Alternative("reactivex, unbounded", with_reactivex, share=0.1),
            ),
        )
    finally:
        making.close()
        using.close()
        rx_making.dispose()
        rx_using.dispose()


def through_queue(make_queue: Callable[[], _Queue], n: int) -> int:
    """Two threads and a queue."""
    between = make_queue()
    subscriber = Unbounded()

    def produce() -> None:
        put = between.put
        for x in range(n):
            put(x)
        put(END)

    def consume() -> None:
        get, on_next = between.get, subscriber.on_next
        while (x := get()) is not END:
            on_next(x)
        subscriber.on_complete()

    threads = [Thread(target=produce), Thread(target=consume)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return subscriber.result()

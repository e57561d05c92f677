"""Every kind of publisher that the package makes, each of the numbers 0 … n-1, for the tests of the rules."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from penstock.spec import Subscriber
from penstock.streams import Flux, Mono, Overflow, Sinks, schedulers
from penstock.streams.schedulers import Scheduler, background_loop
from tests.streams.recording import Recorder


class Env:
    """The schedulers that the publishers run on, and a way to wait until these have nothing left to do."""

    def __init__(self) -> None:
        self.single = schedulers.single("rules-single")
        self.pool = schedulers.pool(3, "rules-pool")

    def settle(self) -> None:
        """Return when everything that was submitted before has run, and what that submitted, too."""
        for _ in range(3):
            for scheduler, threads in ((self.single, 1), (self.pool, 3), (background_loop(), 1)):
                self._pass_through(scheduler, threads)

    @staticmethod
    def _pass_through(scheduler: Scheduler, threads: int) -> None:
        barrier = threading.Barrier(threads + 1) if threads > 1 else None
        reached = threading.Event()
        for _ in range(threads):
            scheduler.submit((lambda: barrier.wait(10)) if barrier is not None else reached.set)
        if barrier is not None:
            barrier.wait(10)
        else:
            assert reached.wait(10)

    def close(self) -> None:
        self.single.close()
        self.pool.close()


class Elsewhere:
    """Somebody else's publisher: correct, synchronous, and none of our code."""

    def __init__(self, elements: Iterable[Any], error: BaseException | None = None) -> None:
        self.elements = elements
        self.error = error
        self.cancelled = 0
        self.requested: list[int] = []

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        _Elsewhere(self, subscriber).start()


class _Elsewhere:
    def __init__(self, owner: Elsewhere, subscriber: Subscriber[Any]) -> None:
        self._owner = owner
        self._subscriber: Subscriber[Any] | None = subscriber
        self._left = list(owner.elements)[::-1]
        self._demand = 0
        self._busy = True

    def start(self) -> None:
        assert self._subscriber is not None
        self._subscriber.on_subscribe(self)
        self._busy = False
        self._emit()

    def request(self, n: int, /) -> None:
        self._owner.requested.append(n)
        self._demand += n
        self._emit()

    def cancel(self) -> None:
        if self._subscriber is not None:
            self._owner.cancelled += 1
        self._subscriber = None

    def _emit(self) -> None:
        if self._busy:
            return
        self._busy = True
        while self._subscriber is not None and self._left and self._demand:
            self._demand -= 1
            self._subscriber.on_next(self._left.pop())
        if self._subscriber is not None and not self._left:
            subscriber, self._subscriber = self._subscriber, None
            if self._owner.error is None:
                subscriber.on_complete()
            else:
                subscriber.on_error(self._owner.error)
        self._busy = False


class Probe(Recorder):
    """A recorder that says when it was subscribed, and may do something right there."""

    def __init__(
        self,
        first: int = 0,
        on_element: Callable[[Recorder, Any], object] | None = None,
        on_start: Callable[[Recorder], object] | None = None,
    ) -> None:
        super().__init__(first, on_element)
        self.subscribed = threading.Event()
        self._on_start = on_start

    def on_subscribe(self, subscription: Any, /) -> None:
        super().on_subscribe(subscription)
        try:
            if self._on_start is not None:
                self._on_start(self)
        finally:
            self.subscribed.set()

    def to(self, flux: Any) -> Probe:
        """Subscribe, and wait until it is done."""
        flux.subscribe(self)
        assert self.subscribed.wait(10)
        return self


@dataclass(frozen=True)
class Case:
    """A publisher of the numbers 0 … n-1, in any order if ``mixed``."""

    make: Callable[[Env, int], Any]
    size: int | None = None
    """The number of elements, where it cannot be chosen."""
    mixed: bool = False
    lossy: bool = False
    """Elements that come without demand are given up."""
    knows_end: bool = True
    """Completes right after the last element; otherwise one more must be asked for."""
    once: bool = False
    """Can be subscribed to one time."""
    fails: bool = False

    def expected(self, n: int) -> list[int]:
        return list(range(n if self.size is None else self.size))


def numbers(n: int) -> Iterator[int]:
    yield from range(n)


async def numbers_async(n: int) -> AsyncIterator[int]:
    for i in range(n):
        yield i


async def same(x: int) -> int:
    return x


def filled(sink: Any, n: int) -> Flux[int]:
    for i in range(n):
        assert sink.try_emit(i).value == "ok"
    sink.try_complete()
    return sink.flux()


def emitting(n: int) -> Callable[[Any], None]:
    def emit(emitter: Any) -> None:
        for i in range(n):
            emitter.next(i)
        emitter.complete()

    return emit


def halves(n: int) -> tuple[Flux[int], Flux[int]]:
    return Flux.range(n // 2), Flux.range(n // 2, n - n // 2)


def broken(n: int) -> Flux[int]:
    return Flux.range(n).concat_with(Flux.error(ValueError("broken")))


def failing_once(n: int) -> Flux[int]:
    """Fails half-way the first time; the second attempt gives the rest."""
    attempts = iter(
        (Flux.range(n // 2).concat_with(Flux.error(ValueError())), Flux.range(n // 2, n - n // 2))
    )
    return Flux.defer(lambda: next(attempts)).retry(1)


CASES: dict[str, Case] = {
    "range": Case(lambda e, n: Flux.range(n)),
    "list": Case(lambda e, n: Flux.from_iterable(list(range(n)))),
    "generator": Case(lambda e, n: Flux.from_iterable(numbers(n)), knows_end=False, once=True),
    "generate": Case(
        lambda e, n: Flux.generate(lambda: 0, lambda i, s: (s.complete() if i == n else s.next(i)) or i + 1),
        knows_end=False,
    ),
    "just": Case(lambda e, n: Flux.just(0, 1, 2), size=3),
    "empty": Case(lambda e, n: Flux.empty(), size=0),
    "error": Case(lambda e, n: Flux.error(ValueError("broken")), size=0, fails=True),
    "map_filter": Case(lambda e, n: Flux.range(2 * n).filter(lambda x: x % 2 == 1).map(lambda x: x // 2)),
    "two_segments": Case(lambda e, n: Flux.range(n).buffer(1).map(lambda x: x[0]), knows_end=False),
    "start_with": Case(lambda e, n: Flux.range(1, n - 1).start_with(0)),
    "flat_map_iterable": Case(
        lambda e, n: Flux.range(n // 2).flat_map_iterable(lambda x: (2 * x, 2 * x + 1)), knows_end=False
    ),
    "flat_map": Case(
        lambda e, n: Flux.range(n // 2).flat_map(lambda x: Flux.just(2 * x, 2 * x + 1)), mixed=True
    ),
    "concat_map": Case(lambda e, n: Flux.range(n // 2).concat_map(lambda x: Flux.just(2 * x, 2 * x + 1))),
    "flat_map_sequential": Case(
        lambda e, n: Flux.range(n // 2).flat_map_sequential(lambda x: Flux.just(2 * x, 2 * x + 1))
    ),
    "merge": Case(lambda e, n: Flux.merge(*halves(n)), mixed=True),
    "zip": Case(lambda e, n: Flux.zip(Flux.range(n), Flux.range(n + 1), combinator=lambda a, b: a)),
    "concat": Case(lambda e, n: Flux.concat(*halves(n))),
    "on_error_resume": Case(
        lambda e, n: broken(n // 2).on_error_resume(lambda error: Flux.range(n // 2, n - n // 2))
    ),
    "retry": Case(lambda e, n: failing_once(n), once=True),
    "repeat": Case(
        lambda e, n: Flux.range(n // 2).repeat(1).index().map(lambda pair: pair[0]).take(n), size=None
    ),
    "switch_if_empty": Case(lambda e, n: Flux.empty().switch_if_empty(Flux.range(n))),
    "publish_on_single": Case(lambda e, n: Flux.range(n).publish_on(e.single, prefetch=4)),
    "publish_on_pool": Case(lambda e, n: Flux.range(n).publish_on(e.pool, prefetch=4)),
    "subscribe_on": Case(lambda e, n: Flux.range(n).subscribe_on(e.single)),
    "subscribe_on_publish_on": Case(
        lambda e, n: Flux.range(n).subscribe_on(e.pool).publish_on(e.single, prefetch=4)
    ),
    "limit_rate": Case(lambda e, n: Flux.range(n).limit_rate(4)),
    "on_backpressure_buffer": Case(lambda e, n: Flux.range(n).on_backpressure_buffer(n)),
    "on_backpressure_drop": Case(lambda e, n: Flux.range(n).on_backpressure_drop(), lossy=True),
    "on_backpressure_latest": Case(lambda e, n: Flux.range(n).on_backpressure_latest(), lossy=True),
    "cache": Case(lambda e, n: Flux.range(n).cache()),
    "cache_bounded": Case(lambda e, n: Flux.range(n).cache(n)),
    "share": Case(lambda e, n: Flux.range(n).share(prefetch=4)),
    "multicast": Case(lambda e, n: filled(Sinks.multicast(n), n)),
    "replay": Case(lambda e, n: filled(Sinks.replay(n), n)),
    "unicast": Case(lambda e, n: filled(Sinks.unicast(n), n), once=True),
    "create": Case(lambda e, n: Flux.create(emitting(n), capacity=n, overflow=Overflow.ERROR)),
    "from_async_iterable": Case(
        lambda e, n: Flux.from_async_iterable(lambda: numbers_async(n)), knows_end=False
    ),
    "map_async": Case(lambda e, n: Flux.range(n).map_async(same, concurrency=4)),
    "timeout": Case(lambda e, n: Flux.range(n).timeout(60, scheduler=e.single)),
    "from_callable": Case(lambda e, n: Mono.from_callable(lambda: 0), size=1),
    "mono_just": Case(lambda e, n: Mono.just(0), size=1),
    "defer": Case(lambda e, n: Flux.defer(lambda: Flux.range(n))),
    "using": Case(lambda e, n: Flux.using(lambda: n, Flux.range, lambda n: None)),
    "foreign": Case(lambda e, n: Flux.from_publisher(Elsewhere(range(n)))),
    "foreign_map": Case(lambda e, n: Flux.from_publisher(Elsewhere(range(n))).map(lambda x: x)),
}
NAMES = list(CASES)


def names(suits: Callable[[Case], bool]) -> list[str]:
    return [name for name, case in CASES.items() if suits(case)]

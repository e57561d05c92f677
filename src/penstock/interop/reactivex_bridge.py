"""Observables of RxPY, both ways: ``pip install 'penstock-streams[interop]'``.

An Observable cannot be told to wait: it pushes, and a slow observer has to buffer or drop elements. A Flux
sends what was requested. So one direction needs a decision from you, and the other one keeps its bound::

    import reactivex
    from penstock.interop.reactivex_bridge import from_observable, to_observable
    from penstock.streams import Flux, Overflow

    ticks = from_observable(reactivex.interval(0.01), overflow=Overflow.DROP_OLDEST, capacity=16)
    totals = to_observable(Flux.range(1_000_000), prefetch=64).pipe(reactivex.operators.sum())

What stands *below* a bridge to RxPY is RxPY: its ``observe_on`` and ``zip`` queue without bound. Put the slow
part above the bridge if the bound matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from penstock.arguments import a_count
from penstock.spec import Publisher, none_element
from penstock.streams import Emitter, Flux, Overflow, Running

try:
    from reactivex import Observable, abc
    from reactivex.disposable import CompositeDisposable, Disposable, SingleAssignmentDisposable
    from reactivex.scheduler import CurrentThreadScheduler
except ImportError as missing:
    raise ImportError(
        "penstock.interop.reactivex_bridge needs reactivex: pip install 'penstock-streams[interop]'"
    ) from missing

__all__ = ["from_observable", "to_observable"]

T = TypeVar("T")


def from_observable(
    observable: Observable[T],
    *,
    overflow: Overflow,
    capacity: int = 256,
    on_dropped: Callable[[T], object] | None = None,
    scheduler: abc.SchedulerBase | None = None,
) -> Flux[T]:
    """The elements of an Observable, which cannot be slowed down: ``overflow`` says what to drop.

    Each subscriber of the Flux subscribes to the Observable, and disposes of that when it cancels. Up to
    ``capacity`` elements wait for demand. When one more comes, ``Overflow.ERROR`` ends the stream with
    BufferOverflow, ``DROP_NEWEST`` and ``DROP_OLDEST`` give one up, which ``on_dropped`` then gets.
    ``scheduler`` is what RxPY calls the scheduler of a subscription: a default for the operators above.

    >>> import reactivex
    >>> numbers = from_observable(reactivex.range(1, 9), overflow=Overflow.DROP_OLDEST, capacity=2)
    >>> list(numbers.to_iterable(prefetch=1))
    [1, 7, 8]

    An Observable may send None, a stream may not (§2.13): the Flux then fails with a TypeError. Filter, or
    map it to something, above.
    """
    _check(observable, overflow)

    def from_observable(emitter: Emitter[T]) -> None:  # its name is what explain() shows
        _Observing(emitter).start(observable, scheduler)

    if on_dropped is None:
        return Flux.create(from_observable, overflow=overflow, capacity=capacity)
    # The buffer asks for everything, so that nothing waits, or gets lost, above it.
    return Flux.create(from_observable).on_backpressure_buffer(capacity, overflow, on_dropped)


def _check(observable: Any, overflow: Any) -> None:
    if not isinstance(observable, abc.ObservableBase):
        raise TypeError(
            f"from_observable() needs an Observable of reactivex, not {observable!r}; "
            "for a Publisher of Reactive Streams use Flux.from_publisher()"
        )
    if not isinstance(overflow, Overflow):
        raise TypeError(
            f"from_observable() needs an overflow, for example Overflow.DROP_OLDEST, not {overflow!r}"
        )


class _Observing:
    """What an Observable calls: the three signals, turned into those of an Emitter."""

    __slots__ = ("_emitter",)

    def __init__(self, emitter: Emitter[Any]) -> None:
        self._emitter = emitter

    def start(self, observable: Observable[Any], scheduler: abc.SchedulerBase | None) -> None:
        """Subscribe so that a cancel from inside the very first element already stops the Observable."""
        subscription = SingleAssignmentDisposable()
        self._emitter.on_dispose(subscription.dispose)

        def subscribe(*_: Any) -> None:
            subscription.disposable = observable.subscribe(
                self._on_next, self._on_error, self._on_completed, scheduler=scheduler
            )

        # An Observable over an iterable sends everything before its subscribe() returns, unless the queue of
        # the current thread is busy: then subscribe() returns first, with what can stop it.
        here = CurrentThreadScheduler.singleton()
        if here.schedule_required():
            here.schedule(subscribe)
        else:
            subscribe()

    def _on_next(self, element: Any) -> None:
        if element is None:
            # An exception here would surface in the Observable, or in the code that feeds it.
            self._emitter.error(none_element("from_observable"))
        else:
            self._emitter.next(element)

    def _on_error(self, error: Any) -> None:
        if not isinstance(error, BaseException):  # RxPY lets anything pass for an error
            error = RuntimeError(f"the Observable failed with {error!r}, which is not an exception")
        self._emitter.error(error)

    def _on_completed(self) -> None:
        self._emitter.complete()


def to_observable(publisher: Publisher[T], *, prefetch: int = 256) -> Observable[T]:
    """The elements of a Flux, a Mono or any other Publisher as an Observable.

    Never more than ``prefetch`` elements are asked for ahead of those that ``on_next`` has returned from; the
    next are asked for when three quarters of them are done. So a slow observer slows the Publisher down.
    Disposing cancels. If the observer raises, the Publisher is cancelled and the observer gets the error, as
    with RxPY's own ``from_iterable``; like that, it runs on the scheduler of ``subscribe(scheduler=…)``, and
    without one on the thread that subscribes.

    >>> from reactivex import operators
    >>> to_observable(Flux.range(1, 9)).pipe(operators.take(3), operators.to_list()).run()
    [1, 2, 3]
    """
    stream: Flux[T] = Flux.from_publisher(publisher)
    a_count(prefetch, "to_observable()")

    def subscribe(
        observer: abc.ObserverBase[T], scheduler: abc.SchedulerBase | None = None
    ) -> abc.DisposableBase:
        # Declared for an Exception only, although any error is passed on.
        fail = cast("Callable[[BaseException], None]", observer.on_error)
        running = Running(observer.on_next, fail, observer.on_completed, prefetch)

        def start(*_: Any) -> None:
            stream.subscribe(running)

        # Started later, so that the observer has the means to stop it before the first element comes.
        started = (scheduler or CurrentThreadScheduler.singleton()).schedule(start)
        return CompositeDisposable(started, Disposable(running.cancel))

    return Observable(subscribe)

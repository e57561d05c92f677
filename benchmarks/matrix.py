"""The rows of the operator matrix: each operator in three libraries, as a user would write it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import accumulate, chain, islice, takewhile
from typing import Any

import reactivex as rx
from reactivex import operators as ops
from reactivex.subject import ReplaySubject, Subject

from benchmarks.workload import add_one, is_even
from penstock.streams import Emitter, Flux, Sinks

__all__ = ["ROWS", "Row"]

LENGTH = 100
"""Elements of an inner stream."""
Made = Callable[[int], Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One operator: what a user writes here, by hand, and with reactivex."""

    name: str
    ours: Made
    by_hand: Callable[[int], Iterable[Any]]
    theirs: Made | None = None


def _on_range(
    name: str,
    ours: Callable[[Flux[int]], Any],
    by_hand: Callable[[range], Iterable[Any]],
    *theirs: Callable[..., Any],
) -> Row:
    made = (lambda n: rx.from_iterable(range(n)).pipe(*theirs)) if theirs else None
    return Row(name, lambda n: ours(Flux.range(n)), lambda n: by_hand(range(n)), made)


def _add(a: int, b: int) -> int:
    return a + b


def _small(x: int) -> bool:
    return x < 1 << 30


def _tenth(x: int) -> bool:
    return x % 10 == 9


def _numbers(_: int) -> range:
    return range(LENGTH)


def _groups(elements: range, size: int) -> Iterator[list[int]]:
    iterator = iter(elements)
    while group := list(islice(iterator, size)):
        yield group


def _inner(_: int) -> Flux[int]:
    return Flux.range(LENGTH)


def _mapped_inner(_: int) -> Flux[int]:
    return Flux.range(LENGTH).map(add_one)


def _rx_inner(_: int) -> rx.Observable[int]:
    return rx.from_iterable(range(LENGTH))


def _rx_mapped_inner(_: int) -> rx.Observable[int]:
    return rx.from_iterable(range(LENGTH)).pipe(ops.map(add_one))


def _nested(n: int) -> Iterator[int]:
    for i in range(n // LENGTH):
        yield from _numbers(i)


def _mapped_nested(n: int) -> Iterator[int]:
    for i in range(n // LENGTH):
        for x in _numbers(i):
            yield add_one(x)


def _with_fallback(n: int) -> Iterator[int]:
    try:
        yield from range(n)
    except ValueError:
        return


def _unique(elements: Iterable[int]) -> Iterator[int]:
    seen = set()
    for x in elements:
        if x not in seen:
            seen.add(x)
            yield x


def _observed(n: int) -> Iterator[int]:
    for x in range(n):
        add_one(x)
        yield x


def _created(n: int) -> Flux[int]:
    def emit(emitter: Emitter[int]) -> None:
        for x in range(n):
            emitter.next(x)
        emitter.complete()

    return Flux.create(emit)


def _rx_created(n: int) -> rx.Observable[int]:
    def emit(observer: Any, scheduler: Any) -> None:
        for x in range(n):
            observer.on_next(x)
        observer.on_completed()

    return rx.create(emit)  # type: ignore[arg-type]  # It need not return a Disposable.


class _Pushed:
    """A sink, or a subject, that gets its elements as soon as somebody has subscribed."""

    def __init__(self, n: int, stream: Any, push: Callable[[int], object], end: Callable[[], object]) -> None:
        self._n, self._stream, self._push, self._end = n, stream, push, end

    def subscribe(self, *observer: Any) -> None:
        self._stream.subscribe(*observer)
        push = self._push
        for x in range(self._n):
            push(x)
        self._end()


def _from_sink(n: int, make: Callable[[], Any]) -> _Pushed:
    sink = make()
    return _Pushed(n, sink.flux(), sink.try_emit, sink.try_complete)


def _from_subject(n: int, subject: Any) -> _Pushed:
    return _Pushed(n, subject, subject.on_next, subject.on_completed)


def _sums(elements: Iterable[int]) -> Iterable[int]:
    return accumulate(elements, _add)


ROWS: tuple[Row, ...] = (
    _on_range("the source alone", lambda flux: flux, lambda r: r, ops.as_observable()),
    # one in, one out
    _on_range("map", lambda f: f.map(add_one), lambda r: (add_one(x) for x in r), ops.map(add_one)),
    _on_range("cast", lambda f: f.cast(int), lambda r: (x for x in r if isinstance(x, int))),
    _on_range("index", lambda f: f.index(), enumerate, ops.map_indexed(lambda x, i: (i, x))),
    _on_range("scan", lambda f: f.scan(_add), _sums, ops.scan(_add)),
    _on_range(
        "scan_with",
        lambda f: f.scan_with(lambda: 0, _add),
        lambda r: accumulate(r, _add, initial=0),
        ops.scan(_add, 0),
        ops.start_with(0),
    ),
    _on_range(
        "handle",
        lambda f: f.handle(lambda x, sink: sink.next(x + 1)),
        lambda r: (add_one(x) for x in r),
        ops.map(add_one),
    ),
    # fewer out than in
    _on_range(
        "filter", lambda f: f.filter(is_even), lambda r: (x for x in r if is_even(x)), ops.filter(is_even)
    ),
    _on_range("map_not_none", lambda f: f.map_not_none(add_one), lambda r: (add_one(x) for x in r)),
    _on_range("of_type", lambda f: f.of_type(int), lambda r: (x for x in r if isinstance(x, int))),
    _on_range("distinct", lambda f: f.distinct(), _unique, ops.distinct()),
    _on_range(
        "distinct_until_changed",
        lambda f: f.distinct_until_changed(),
        lambda r: r,
        ops.distinct_until_changed(),
    ),
    _on_range("skip", lambda f: f.skip(9), lambda r: islice(r, 9, None), ops.skip(9)),
    _on_range(
        "skip_while",
        lambda f: f.skip_while(lambda x: x < 9),
        lambda r: r[9:],
        ops.skip_while(lambda x: x < 9),
    ),
    _on_range("take", lambda f: f.take(1 << 20), lambda r: islice(r, 1 << 20), ops.take(1 << 20)),
    _on_range(
        "take_while", lambda f: f.take_while(_small), lambda r: takewhile(_small, r), ops.take_while(_small)
    ),
    _on_range(
        "take_until",
        lambda f: f.take_until(lambda x: x < 0),
        lambda r: takewhile(_small, r),
        ops.take_while(_small, inclusive=True),
    ),
    _on_range("take_last", lambda f: f.take_last(9), lambda r: r[-9:], ops.take_last(9)),
    _on_range("element_at", lambda f: f.element_at(90), lambda r: r[90:91], ops.element_at(90)),
    _on_range("last", lambda f: f.last(), lambda r: r[-1:], ops.last()),
    _on_range(
        "ignore_elements",
        lambda f: f.ignore_elements(),
        lambda r: (x for x in r if False),
        ops.ignore_elements(),
    ),
    # lists
    _on_range("buffer", lambda f: f.buffer(10), lambda r: _groups(r, 10), ops.buffer_with_count(10)),
    _on_range("buffer_until", lambda f: f.buffer_until(_tenth), lambda r: _groups(r, 10)),
    _on_range("flat_map_iterable", lambda f: f.flat_map_iterable(lambda x: (x,)), lambda r: (x for x in r)),
    _on_range(
        "sort", lambda f: f.sort(), sorted, ops.to_list(), ops.map(sorted), ops.flat_map(rx.from_iterable)
    ),
    # one result
    _on_range("reduce", lambda f: f.reduce(_add), lambda r: [reduce(_add, r)], ops.reduce(_add)),
    _on_range(
        "reduce_with",
        lambda f: f.reduce_with(lambda: 0, _add),
        lambda r: [reduce(_add, r, 0)],
        ops.reduce(_add, 0),
    ),
    _on_range("collect_list", lambda f: f.collect_list(), lambda r: [list(r)], ops.to_list()),
    _on_range("collect_set", lambda f: f.collect_set(), lambda r: [set(r)], ops.to_set()),
    _on_range(
        "collect_dict",
        lambda f: f.collect_dict(add_one),
        lambda r: [{add_one(x): x for x in r}],
        ops.to_dict(add_one),
    ),
    _on_range("count", lambda f: f.count(), lambda r: [sum(1 for _ in r)], ops.count()),
    _on_range("all", lambda f: f.all(_small), lambda r: [all(_small(x) for x in r)], ops.all(_small)),
    _on_range(
        "any", lambda f: f.any(lambda x: x < 0), lambda r: [any(x < 0 for x in r)], ops.some(lambda x: x < 0)
    ),
    _on_range(
        "has_element", lambda f: f.has_element(-1), lambda r: [any(x == -1 for x in r)], ops.contains(-1)
    ),
    # inner streams
    Row(
        "flat_map",
        lambda n: Flux.range(n // LENGTH).flat_map(_inner),
        _nested,
        lambda n: rx.from_iterable(range(n // LENGTH)).pipe(ops.flat_map(_rx_inner)),
    ),
    Row(
        "flat_map, inners with map",
        lambda n: Flux.range(n // LENGTH).flat_map(_mapped_inner),
        _mapped_nested,
        lambda n: rx.from_iterable(range(n // LENGTH)).pipe(ops.flat_map(_rx_mapped_inner)),
    ),
    Row(
        "concat_map",
        lambda n: Flux.range(n // LENGTH).concat_map(_inner),
        _nested,
        lambda n: rx.from_iterable(range(n // LENGTH)).pipe(ops.concat_map(_rx_inner)),
    ),
    Row(
        "concat_map, inners with map",
        lambda n: Flux.range(n // LENGTH).concat_map(_mapped_inner),
        _mapped_nested,
        lambda n: rx.from_iterable(range(n // LENGTH)).pipe(ops.concat_map(_rx_mapped_inner)),
    ),
    Row("flat_map_sequential", lambda n: Flux.range(n // LENGTH).flat_map_sequential(_inner), _nested),
    Row(
        "merge",
        lambda n: Flux.merge(*[_inner(i) for i in range(n // LENGTH)]),
        _nested,
        lambda n: rx.merge(*[_rx_inner(i) for i in range(n // LENGTH)]),
    ),
    Row(
        "concat",
        lambda n: Flux.concat(*[_inner(i) for i in range(n // LENGTH)]),
        lambda n: chain.from_iterable(_numbers(i) for i in range(n // LENGTH)),
        lambda n: rx.concat(*[_rx_inner(i) for i in range(n // LENGTH)]),
    ),
    Row(
        "zip",
        lambda n: Flux.zip(Flux.range(n), Flux.range(n)),
        lambda n: zip(range(n), range(n), strict=True),
        lambda n: rx.zip(rx.from_iterable(range(n)), rx.from_iterable(range(n))),
    ),
    _on_range("start_with", lambda f: f.start_with(-1), lambda r: chain((-1,), r), ops.start_with(-1)),
    # errors, ends, observers
    _on_range(
        "on_error_resume",
        lambda f: f.on_error_resume(lambda error: Flux.empty()),
        lambda r: _with_fallback(len(r)),
        ops.catch(lambda error, source: rx.empty()),
    ),
    _on_range("on_error_return", lambda f: f.on_error_return(0), lambda r: _with_fallback(len(r))),
    _on_range("retry", lambda f: f.retry(3), lambda r: _with_fallback(len(r)), ops.retry(3)),
    Row(
        "repeat",
        lambda n: Flux.range(n // LENGTH).repeat(LENGTH - 1),
        lambda n: (x for _ in range(LENGTH) for x in range(n // LENGTH)),
        lambda n: rx.from_iterable(range(n // LENGTH)).pipe(ops.repeat(LENGTH)),
    ),
    _on_range("default_if_empty", lambda f: f.default_if_empty(0), lambda r: r, ops.default_if_empty(0)),
    _on_range("switch_if_empty", lambda f: f.switch_if_empty(Flux.just(0)), lambda r: r),
    _on_range(
        "do_on_next",
        lambda f: f.do_on_next(add_one),
        lambda r: _observed(len(r)),
        ops.do_action(add_one),  # type: ignore[arg-type]
    ),
    _on_range(
        "do_finally", lambda f: f.do_finally(lambda how: None), lambda r: r, ops.finally_action(lambda: None)
    ),
    # sharing and demand
    _on_range("share", lambda f: f.share(), lambda r: r, ops.share()),
    _on_range("cache", lambda f: f.cache(), lambda r: r),
    _on_range("limit_rate", lambda f: f.limit_rate(64), lambda r: r),
    _on_range("on_backpressure_buffer", lambda f: f.on_backpressure_buffer(256), lambda r: r),
    # pushed from outside
    Row("create", _created, range, _rx_created),
    Row(
        "Sinks.unicast",
        lambda n: _from_sink(n, Sinks.unicast),
        range,
        lambda n: _from_subject(n, Subject()),
    ),
    Row(
        "Sinks.multicast",
        lambda n: _from_sink(n, Sinks.multicast),
        range,
        lambda n: _from_subject(n, Subject()),
    ),
    Row(
        "Sinks.replay",
        lambda n: _from_sink(n, lambda: Sinks.replay(256)),
        range,
        lambda n: _from_subject(n, ReplaySubject(256)),
    ),
)

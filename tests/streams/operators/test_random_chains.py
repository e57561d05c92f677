"""Any chain of these operators gives what the same steps on a plain list give, however it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from inspect import GEN_CLOSED, GEN_CREATED, getgeneratorstate
from itertools import accumulate, dropwhile, takewhile
from logging import DEBUG
from operator import itemgetter
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spec import UNBOUNDED
from penstock.streams import Flux
from tests.streams.chains.lists import (
    Elements,
    cut,
    firsts,
    grouped,
    heaviness,
    pieces,
    runs,
    unchanged,
    up_to,
    weighed,
    weight,
)
from tests.streams.operators.rigs import Elsewhere
from tests.streams.recording import Recorder


class Step(NamedTuple):
    """An operator, twice: as we have it and as Python has it."""

    text: str
    on_stream: Callable[[Any], Any]
    on_list: Callable[[Elements], Elements]

    def __repr__(self) -> str:
        return self.text


def alone(x: Any) -> list[Any]:
    return [x]


def lazily(n: int) -> Callable[[Any], Iterator[int]]:
    return lambda x: (weight(x) + i for i in range(weight(x) % n))


def fused_steps(n: int, m: int) -> list[Step]:
    """Operators that ask the source for exactly what they need."""

    def matches(x: Any) -> bool:
        return weight(x) % (m + 1) == n % (m + 1)

    def below(x: Any) -> bool:
        return weight(x) < n * 5

    def key(x: Any) -> int:
        return weight(x) % m

    def changed(x: Any) -> int:
        return weight(x) * m - n

    def halved(x: Any) -> int | None:
        return None if matches(x) else weight(x) // 2

    def add(total: Any, x: Any) -> int:
        return weight(total) + weight(x)

    def handled(x: Any, sink: Any) -> None:
        if not matches(x):
            sink.next(changed(x))
        if weight(x) == n * 5:
            sink.complete()

    def plain_handled(xs: Elements) -> Elements:
        return [changed(x) for x in up_to(xs, lambda x: weight(x) == n * 5) if not matches(x)]

    def single(mono: Any) -> Any:
        return mono.flat_map_iterable(alone)

    return [
        Step("map", lambda f: f.map(changed), lambda xs: [*map(changed, xs)]),
        Step(
            "map_not_none",
            lambda f: f.map_not_none(halved),
            lambda xs: [y for x in xs if (y := halved(x)) is not None],
        ),
        Step(
            f"flat_map_iterable({m})",
            lambda f: f.flat_map_iterable(lazily(m)),
            lambda xs: [y for x in xs for y in lazily(m)(x)],
        ),
        Step("handle", lambda f: f.handle(handled), plain_handled),
        Step("scan", lambda f: f.scan(add), lambda xs: [*accumulate(xs, add)]),
        Step(f"scan({n})", lambda f: f.scan(add, n), lambda xs: [*accumulate(xs, add, initial=n)]),
        Step("index", lambda f: f.index(), lambda xs: [*enumerate(xs)]),
        Step("filter", lambda f: f.filter(matches), lambda xs: [*filter(matches, xs)]),
        Step("of_type", lambda f: f.of_type(int), lambda xs: [x for x in xs if isinstance(x, int)]),
        Step(f"take({n})", lambda f: f.take(n), lambda xs: xs[:n]),
        Step("take_while", lambda f: f.take_while(below), lambda xs: [*takewhile(below, xs)]),
        Step("take_until", lambda f: f.take_until(matches), lambda xs: up_to(xs, matches)),
        Step(f"take_last({n})", lambda f: f.take_last(n), lambda xs: xs[-n:] if n else []),
        Step(f"skip({n})", lambda f: f.skip(n), lambda xs: xs[n:]),
        Step("skip_while", lambda f: f.skip_while(below), lambda xs: [*dropwhile(below, xs)]),
        Step("distinct", lambda f: f.distinct(key), lambda xs: firsts(xs, key)),
        Step(
            "distinct_until_changed",
            lambda f: f.distinct_until_changed(key),
            lambda xs: unchanged(xs, key),
        ),
        Step("first", lambda f: single(f.first()), lambda xs: xs[:1]),
        Step("last", lambda f: single(f.last()), lambda xs: xs[-1:]),
        Step(
            f"element_at({n}, 7)",
            lambda f: single(f.element_at(n, 7)),
            lambda xs: xs[n : n + 1] or [7],
        ),
        Step("ignore_elements", lambda f: single(f.ignore_elements()), lambda xs: []),
        Step("reduce", lambda f: single(f.reduce(add)), lambda xs: [*accumulate(xs, add)][-1:]),
        Step(
            f"reduce({n})",
            lambda f: single(f.reduce(add, n)),
            lambda xs: [*accumulate(xs, add, initial=n)][-1:],
        ),
        Step("collect_list", lambda f: single(f.collect_list()), lambda xs: [xs]),
        Step("count", lambda f: single(f.count()), lambda xs: [len(xs)]),
        Step("any", lambda f: single(f.any(matches)), lambda xs: [any(map(matches, xs))]),
        Step("all", lambda f: single(f.all(below)), lambda xs: [all(map(below, xs))]),
        Step("has_elements", lambda f: single(f.has_elements()), lambda xs: [bool(xs)]),
        Step("sort", lambda f: f.sort(key), lambda xs: sorted(xs, key=key)),
        Step("default_if_empty", lambda f: f.default_if_empty(n), lambda xs: xs or [n]),
        Step("do_on_next", lambda f: f.do_on_next(weight), list),
        Step("do_on_complete", lambda f: f.do_on_complete(list), list),
        Step("named", lambda f: f.named("x"), list),
        Step(f"buffer({m})", lambda f: f.buffer(m), lambda xs: pieces(xs, m, m)),
        Step(
            f"buffer({m}, {n + 1})",
            lambda f: f.buffer(m, n + 1),
            lambda xs: pieces(xs, m, n + 1),
        ),
        Step(
            "buffer_until",
            lambda f: f.buffer_until(matches),
            lambda xs: cut(xs, matches, before=False),
        ),
        Step(
            "buffer_until(cut_before)",
            lambda f: f.buffer_until(matches, cut_before=True),
            lambda xs: cut(xs, matches, before=True),
        ),
        Step("buffer_while", lambda f: f.buffer_while(below), lambda xs: runs(xs, below)),
        Step(f"skip_last({n})", lambda f: f.skip_last(n), lambda xs: xs[: max(0, len(xs) - n)]),
        Step(
            f"batch_weighted({n + 1})",
            lambda f: f.batch_weighted(n + 1, heaviness),
            lambda xs: weighed(xs, n + 1),
        ),
        Step("cast", lambda f: f.cast(object), list),
        Step("checkpoint", lambda f: f.checkpoint("here"), list),
        Step("elapsed", lambda f: f.elapsed().map(itemgetter(1)), list),
        Step("timestamp", lambda f: f.timestamp().map(itemgetter(1)), list),
        Step(
            f"scan_with({n})",
            lambda f: f.scan_with(lambda: n, add),
            lambda xs: [*accumulate(xs, add, initial=n)],
        ),
        Step(
            f"reduce_with({n})",
            lambda f: single(f.reduce_with(lambda: n, add)),
            lambda xs: [*accumulate(xs, add, initial=n)][-1:],
        ),
        Step("has_element", lambda f: single(f.has_element(n)), lambda xs: [n in xs]),
        Step("collect", lambda f: single(f.collect(list, list.append)), lambda xs: [xs]),
        Step(
            "collect_dict",
            lambda f: f.collect_dict(key, weight).flat_map_iterable(dict.items),
            lambda xs: [*{key(x): weight(x) for x in xs}.items()],
        ),
        Step(
            "collect_multimap",
            lambda f: f.collect_multimap(key).flat_map_iterable(dict.values),
            lambda xs: [*grouped(xs, key).values()],
        ),
        Step(
            "collect_set",
            lambda f: f.map(weight).collect_set().flat_map_iterable(sorted),
            lambda xs: sorted({weight(x) for x in xs}),
        ),
        Step("single", lambda f: single(f.start_with(n).take(1).single()), lambda xs: [n]),
        Step(f"start_with({n})", lambda f: f.start_with(n, m), lambda xs: [n, m, *xs]),
        Step("transform", lambda f: f.transform(lambda g: g.skip(1)), lambda xs: xs[1:]),
        Step("do_on_each", lambda f: f.do_on_each(str).do_on_request(str), list),
        Step("do_on_subscribe", lambda f: f.do_on_subscribe(id).do_on_cancel(list), list),
        Step("do_on_terminate", lambda f: f.do_on_terminate(list).do_on_error(str), list),
        Step("do_finally", lambda f: f.do_finally(str).log("chains", DEBUG), list),
    ]


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """One operator with small random arguments."""
    return draw(st.sampled_from(fused_steps(draw(st.integers(0, 6)), draw(st.integers(1, 4)))))


class Asking(Recorder):
    """Asks for more inside every third ``on_next``, as a subscriber may."""

    def __init__(self, inside: int) -> None:
        super().__init__(inside, on_element=lambda _, __: self._more())
        self._more_each_time = inside

    @property
    def asked(self) -> int:
        return self._requested

    def _more(self) -> None:
        if self._more_each_time and len(self.items) % 3 == 0:
            self.request(self._more_each_time)


SOURCES: dict[str, Callable[[Elements], Flux[Any]]] = {
    "list": Flux.from_iterable,
    "generator": lambda xs: Flux.from_iterable(x for x in xs),
    "publisher": lambda xs: Flux.from_publisher(Elsewhere(*xs)),
}
Numbers = st.lists(st.integers(0, 30), max_size=20)
Chain = st.lists(steps(), max_size=6)
Requests = st.lists(st.integers(1, 7) | st.just(UNBOUNDED), min_size=1, max_size=5)


def through(chain: list[Step], flux: Any, elements: Elements) -> tuple[Any, Elements]:
    for step in chain:
        flux, elements = step.on_stream(flux), step.on_list(elements)
    return flux, elements


@pytest.mark.parametrize("source", SOURCES)
@settings(max_examples=400, deadline=None)
@given(numbers=Numbers, chain=Chain, requests=Requests, inside=st.integers(0, 3))
def test_a_subscriber_gets_what_a_list_would_give_as_far_as_it_asked(
    source: str, numbers: Elements, chain: list[Step], requests: list[int], inside: int
) -> None:
    flux, expected = through(chain, SOURCES[source](numbers), numbers)
    recorder = Asking(inside)
    flux.subscribe(recorder)

    round_ = 0
    while not recorder.completed and round_ < len(expected) + 2:
        recorder.request(requests[round_ % len(requests)])
        round_ += 1
        assert recorder.items == expected[: recorder.asked]

    recorder.check()
    assert recorder.error is None
    assert recorder.items == expected
    assert recorder.completed


@settings(max_examples=400, deadline=None)
@given(numbers=Numbers, chain=Chain)
def test_a_for_loop_gets_what_a_list_would_give(numbers: Elements, chain: list[Step]) -> None:
    flux, expected = through(chain, Flux.from_iterable(numbers), numbers)

    assert list(flux) == expected


@settings(max_examples=100, deadline=None)
@given(numbers=Numbers, chain=Chain)
def test_an_async_for_loop_gets_what_a_list_would_give(numbers: Elements, chain: list[Step]) -> None:
    flux, expected = through(chain, Flux.from_iterable(numbers), numbers)

    async def gathered() -> Elements:
        return [x async for x in flux]

    assert asyncio.run(gathered()) == expected


@settings(max_examples=300, deadline=None)
@given(numbers=Numbers, chain=Chain, before=st.integers(1, 10))
def test_after_a_cancel_nothing_comes_and_the_source_is_closed(
    numbers: Elements, chain: list[Step], before: int
) -> None:
    def source() -> Iterator[int]:
        yield from numbers

    iterator = source()
    flux, expected = through(chain, Flux.from_iterable(iterator), numbers)
    recorder = Recorder(before)
    flux.subscribe(recorder)
    recorder.cancel()
    recorder.request(5)

    recorder.check()
    assert recorder.items == expected[:before]
    assert getgeneratorstate(iterator) in (GEN_CREATED, GEN_CLOSED)

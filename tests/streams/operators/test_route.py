"""``partition`` and ``route``: one stream into a fixed number of others."""

from __future__ import annotations

import gc
import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, on_dropped, schedulers
from penstock.streams.operators import splitter
from tests.streams.operators.rigs import Counting, Oops, oops
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.operators.test_group_by import Warned
from tests.streams.recording import Recorder


def even(x: int) -> bool:
    return x % 2 == 0


def test_each_element_goes_to_one_of_the_two() -> None:
    yes, no = Flux.range(6).partition(even)
    evens, odds = Recorder.of(yes, UNBOUNDED), Recorder.of(no, UNBOUNDED)

    assert (evens.items, odds.items) == ([0, 2, 4], [1, 3, 5])
    assert evens.completed
    assert odds.completed


def test_an_element_goes_to_the_first_route_that_wants_it() -> None:
    routes = Flux.range(1, 12).route({"three": lambda x: x % 3 == 0, "two": even})
    seen = {name: Recorder.of(route, UNBOUNDED) for name, route in routes.items()}

    assert seen["three"].items == [3, 6, 9, 12]
    assert seen["two"].items == [2, 4, 8, 10]


def test_the_source_runs_once_for_both_and_anew_for_the_next_two() -> None:
    source = Driven()
    yes, no = source.flux().partition(even)
    first = [Recorder.of(yes, UNBOUNDED), Recorder.of(no, UNBOUNDED)]
    assert source.subscriptions == 1
    source.emit(1, 2).complete()
    assert [each.items for each in first] == [[2], [1]]

    second = [Recorder.of(no, UNBOUNDED), Recorder.of(yes, UNBOUNDED)]
    assert source.subscriptions == 2
    source.emit(3, 4).complete()

    assert [each.items for each in second] == [[3], [4]]


def test_a_second_subscriber_of_one_stream_starts_a_run_of_its_own() -> None:
    yes, _ = Flux.range(6).partition(even)

    assert [yes.collect_list().block() for _ in range(3)] == [[0, 2, 4]] * 3


def test_elements_that_nobody_came_for_are_reported_when_a_new_run_begins() -> None:
    yes, no = Flux.range(6).partition(even)
    dropped: list[Any] = []

    with on_dropped(element=lambda element, where: dropped.append(element)):
        yes.block_last()
        yes.block_last()

    assert dropped == [1, 3, 5]
    assert no.collect_list().block() == [1, 3, 5]


def test_each_has_its_own_demand_and_all_of_them_one_bound() -> None:
    source = Driven()
    yes, no = source.flux().partition(even, prefetch=4)
    evens, odds = Recorder.of(yes, 1), Recorder.of(no)
    assert source.requests == [4]
    source.emit(0, 2, 1, 3)
    assert (evens.items, odds.items) == ([0], [])
    assert sum(source.requests) == 5

    odds.request(2)

    assert odds.items == [1, 3]
    assert sum(source.requests) == 7
    evens.check()
    odds.check()


def test_a_stream_that_nobody_reads_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitter, "UNREAD_AFTER", 0.001)
    routes = Flux.range(100).route({"even": even, "odd": lambda _: True}, prefetch=8)
    with Warned() as warned:
        evens = Recorder.of(routes["even"], UNBOUNDED)
        assert warned.there.wait(20)

    assert "8 elements wait for 'odd' of route()" in warned.texts[0]
    assert not evens.terminated
    assert Recorder.of(routes["odd"], UNBOUNDED).wait().items == list(range(1, 100, 2))
    assert evens.wait().items == list(range(0, 100, 2))


def test_a_cancelled_stream_does_not_stop_the_other() -> None:
    yes, no = Flux.range(1000).partition(even, prefetch=4)

    seen = Flux.merge(yes.take(2), no).collect_list().block(20)

    assert seen is not None
    assert sorted(seen) == sorted([0, 2, *range(1, 1000, 2)])


def test_the_source_is_cancelled_when_everybody_has_left() -> None:
    source, closed = Counting(1000), threading.Event()
    counted = Flux.from_iterable(source).do_finally(lambda _: closed.set())
    yes, no = counted.partition(even, prefetch=4)
    evens, odds = Recorder.of(yes, 1), Recorder.of(no, 1)
    evens.cancel()
    assert not closed.is_set()

    odds.cancel()

    assert closed.wait(20)
    assert source.taken <= 10


def test_the_source_waits_for_a_stream_that_has_no_subscriber_yet() -> None:
    source = Counting(1000)
    yes, no = Flux.from_iterable(source).partition(even, prefetch=4)

    assert yes.take(1).collect_list().block() == [2]
    assert not source.closed
    assert source.taken <= 10
    assert no.take(3).collect_list().block() == [1, 3, 5]
    assert source.closed


def test_the_source_is_cancelled_when_the_program_has_let_go_of_the_other_stream() -> None:
    closed = threading.Event()
    source = Flux.range(1000).do_finally(lambda _: closed.set())
    yes, no = source.partition(even, prefetch=4)
    assert yes.take(1).collect_list().block() == [0]

    del yes, no
    gc.collect()

    assert closed.wait(20)


def test_runs_that_nobody_reads_do_not_pile_up() -> None:
    sources: list[Counting] = []

    def counting() -> Counting:
        sources.append(Counting(1000))
        return sources[-1]

    yes, no = Flux.defer(lambda: Flux.from_iterable(counting())).partition(even, prefetch=4)
    for _ in range(20):
        assert yes.take(1).collect_list().block() == [2]

    assert [source.closed for source in sources] == [True] * 19 + [False]
    assert no.take(1).collect_list().block() == [1]
    assert all(source.closed for source in sources)


def test_an_error_goes_to_both() -> None:
    source = Driven()
    yes, no = source.flux().partition(even)
    evens, odds = Recorder.of(yes, UNBOUNDED), Recorder.of(no, UNBOUNDED)

    source.emit(1).fail(Oops("gone"))

    assert (type(evens.error), type(odds.error), odds.items) == (Oops, Oops, [1])


def test_an_error_in_the_predicate_cancels_the_source() -> None:
    source = Driven()
    yes, no = source.flux().partition(oops)
    evens, odds = Recorder.of(yes, UNBOUNDED), Recorder.of(no, UNBOUNDED)

    source.emit(1)

    assert (type(evens.error), type(odds.error)) == (Oops, Oops)
    assert source.cancelled


def test_the_predicates_are_asked_in_order_and_no_further_than_needed() -> None:
    asked: list[str] = []
    routes = Flux.just(1).route(
        {"a": lambda _: asked.append("a"), "b": lambda _: asked.append("b") or True, "c": oops}
    )

    Flux.merge(*routes.values()).block_last()

    assert asked == ["a", "b"]


@pytest.mark.parametrize("wrong", [{}, [bool], None])
def test_routes_are_a_dict(wrong: Any) -> None:
    with pytest.raises(TypeError, match="a dict of names and predicates"):
        Flux.just(1).route(wrong)


def test_a_predicate_is_a_function() -> None:
    with pytest.raises(TypeError, match=r"route\(\) for 'a' needs a function"):
        Flux.just(1).route({"a": 1})  # type: ignore[dict-item]


@pytest.mark.parametrize("prefetch", [1, 7, 256])
def test_readers_on_threads_of_their_own_lose_nothing(prefetch: int) -> None:
    with schedulers.pool(4, "routes") as pool:
        routes = (
            Flux.range(3000)
            .publish_on(pool)
            .route(
                {"a": lambda x: x % 3 == 0, "b": lambda x: x % 3 == 1, "c": lambda _: True}, prefetch=prefetch
            )
        )
        parts = [route.publish_on(pool, prefetch=2).collect_list() for route in routes.values()]
        seen = Flux.merge(*parts).collect_list().block(30)

    assert seen is not None
    assert sorted(seen) == [list(range(r, 3000, 3)) for r in range(3)]


def test_subscribers_of_many_threads_get_complete_runs() -> None:
    yes, no = Flux.range(200).partition(even, prefetch=8)
    seen: list[tuple[Any, Any]] = []

    def read() -> None:
        evens, odds = Recorder.of(yes, UNBOUNDED), Recorder.of(no, UNBOUNDED)
        seen.append((evens.wait().items, odds.wait().items))

    threads = [threading.Thread(target=read) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)

    assert seen == [(list(range(0, 200, 2)), list(range(1, 200, 2)))] * 12

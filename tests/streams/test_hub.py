"""A hub: producers and consumers that come and go, under one bound."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Hub, HubClosed, TooManyProducers, on_dropped, schedulers
from tests.streams.operators.rigs import Elsewhere
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


def test_all_consumers_receive_what_all_producers_send() -> None:
    hub: Any = Hub()
    a, b = Recorder.of(hub.flux(), first=99), Recorder.of(hub.flux(), first=99)
    hub.attach(Flux.just(1, 2))
    hub.attach([3])
    assert not a.terminated, "the end of a producer is not the end of the hub"
    hub.close()

    assert a.check().items == b.check().items == [1, 2, 3]
    assert a.completed
    assert b.completed


@pytest.mark.parametrize("producers", [1, 3, 8])
def test_one_bound_holds_however_many_producers_there_are(producers: int) -> None:
    hub: Any = Hub(20, max_producers=8)
    sources = [Elsewhere(*range(1000)) for _ in range(producers)]
    for source in sources:
        hub.attach(source)
    assert sum(source.asked for source in sources) <= 12 + producers <= 20

    recorder = Recorder.of(hub.flux())
    for read in range(1, 100):
        recorder.request(1)
        assert len(recorder.check().items) == read
        assert sum(source.asked for source in sources) - read <= 20


def test_producers_that_wait_take_turns() -> None:
    hub: Any = Hub(5, max_producers=4)
    for name in "abc":
        hub.attach(Flux.just(name).repeat())
    recorder = Recorder.of(hub.flux(), first=31)

    assert {recorder.items.count(name) for name in "bc"} == {10}
    recorder.check().cancel()
    hub.close()


def test_elements_wait_for_the_first_consumer() -> None:
    hub: Any = Hub()
    hub.attach(Flux.range(10))

    assert Recorder.of(hub.flux(), first=99).check().items == list(range(10))


def test_a_consumer_that_leaves_holds_up_nobody() -> None:
    hub: Any = Hub(5, max_producers=4)
    slow, quick = Recorder.of(hub.flux()), Recorder.of(hub.flux(), first=99)
    hub.attach(Flux.range(10))
    assert len(quick.items) == 1
    slow.cancel()

    assert quick.check().items == list(range(10))
    assert hub.subscriber_count() == 1


def test_a_producer_leaves_when_it_has_ended_or_is_cancelled() -> None:
    hub: Any = Hub()
    source = Driven()
    done, open_one = hub.attach(Flux.just(1)), hub.attach(source)
    assert (done.done, open_one.done, hub.producer_count()) == (True, False, 1)
    open_one.cancel()

    assert source.cancels == 1
    assert open_one.done
    assert hub.producer_count() == 0


def test_a_producer_with_its_last_element_in_hand_is_still_there() -> None:
    hub: Any = Hub(2, max_producers=1)
    producer = hub.attach(Flux.just(1, 2))
    assert not producer.done
    recorder = Recorder.of(hub.flux(), first=2)

    assert recorder.check().items == [1, 2]
    assert producer.done


def test_a_cancelled_producer_gives_its_place_in_the_line_to_the_next() -> None:
    hub: Any = Hub(3, max_producers=2)
    a, b = hub.attach(Flux.just("a").repeat()), hub.attach(Flux.just("b").repeat())
    a.cancel()
    recorder = Recorder.of(hub.flux(), first=5)

    assert recorder.check().items == ["a", "b", "b", "b", "b"]
    b.cancel()


def test_the_error_of_a_producer_is_reported_and_the_hub_goes_on() -> None:
    hub: Any = Hub()
    dropped: list[BaseException] = []
    error = ValueError("x")
    with on_dropped(error=lambda error, where: dropped.append(error)):
        hub.attach(Flux.error(error))
    assert dropped == [error]
    hub.attach(Flux.just(1))

    assert Recorder.of(hub.flux(), first=9).items == [1]


def test_too_many_producers_are_refused_until_one_has_ended() -> None:
    hub: Any = Hub(3, max_producers=2)
    first = hub.attach(Flux.never())
    hub.attach(Flux.never())
    with pytest.raises(TooManyProducers, match="larger max_producers"):
        hub.attach(Flux.never())
    first.cancel()
    hub.attach(Flux.never())


def test_closing_cancels_the_producers_and_reports_what_they_had_in_hand() -> None:
    hub: Any = Hub(2, max_producers=1)
    source, dropped = Elsewhere(1, 2, 3), []
    hub.attach(source)
    with on_dropped(element=lambda element, where: dropped.append(element)):
        hub.close()
        hub.close()
    recorder = Recorder.of(hub.flux(), first=9)

    assert source.cancelled
    assert recorder.check().items == [1]
    assert recorder.completed
    assert dropped == [2]
    with pytest.raises(HubClosed):
        hub.attach(Flux.just(1))


def test_failing_reaches_all_consumers() -> None:
    hub: Any = Hub()
    recorder, error = Recorder.of(hub.flux(), first=9), ValueError("x")
    hub.fail(error)

    assert recorder.error is error


def test_a_bound_that_leaves_no_place_is_refused() -> None:
    with pytest.raises(ValueError, match="more capacity, or fewer producers"):
        Hub(64)


def test_a_long_synchronous_producer_needs_no_deep_stack() -> None:
    hub: Any = Hub(2, max_producers=1)
    recorder = Recorder.of(hub.flux(), first=UNBOUNDED)
    hub.attach(Flux.range(20_000))

    assert len(recorder.check().items) == 20_000
    assert recorder.deepest == 1


def test_threads_lose_nothing() -> None:
    hub: Any = Hub(12, max_producers=8)
    pool = schedulers.shared_pool()
    consumers = [Recorder.of(hub.flux().publish_on(pool), first=UNBOUNDED) for _ in range(3)]
    ended = threading.Semaphore(0)
    for n in range(8):
        numbers = Flux.range(n * 500, 500).subscribe_on(pool)
        hub.attach(numbers.do_on_complete(ended.release))
    assert all(ended.acquire(timeout=20) for _ in range(8))
    deadline = threading.Event()
    while hub.producer_count():
        assert not deadline.wait(0.001)
    hub.close()

    for consumer in consumers:
        assert sorted(consumer.wait().items) == list(range(4000))

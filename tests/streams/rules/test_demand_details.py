"""Corners of demand and cancellation that once went wrong."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Sinks, schedulers
from tests.streams.recording import Recorder
from tests.streams.rules.publishers import Elsewhere

SOURCES: dict[str, Any] = {
    "list": lambda xs: Flux.from_iterable(xs),
    "generator": lambda xs: Flux.from_iterable(x for x in xs),
    "foreign": lambda xs: Flux.from_publisher(Elsewhere(xs)),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("seeded", [lambda f: f.start_with(0), lambda f: f.scan(lambda a, b: b, 0)])
@pytest.mark.parametrize("below", [lambda f: f, lambda f: f.map(lambda x: x), lambda f: f.buffer(1).map(sum)])
def test_an_operator_that_speaks_first_waits_for_demand_before_and_after(
    source: str, seeded: Any, below: Any
) -> None:
    recorder = Recorder.of(below(seeded(SOURCES[source]([1, 2]))))
    for expected in ([0], [0, 1], [0, 1, 2]):
        recorder.request(1)
        assert recorder.check().items == expected


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize(
    "result",
    [lambda f: f.default_if_empty(7), lambda f: f.count(), lambda f: f.reduce(lambda a, b: a, 7)],
)
def test_the_result_of_an_empty_source_waits_for_demand_above_another_segment(
    source: str, result: Any
) -> None:
    recorder = Recorder.of(result(SOURCES[source]([])).map(lambda x: x))
    assert recorder.check().items == []
    recorder.request(1)
    assert len(recorder.check().items) == 1
    recorder.request(1)
    assert recorder.check().completed


@pytest.mark.parametrize(
    "operator",
    [
        lambda f: f.flat_map_iterable(lambda x: ()),
        lambda f: f.flat_map_iterable(lambda x: ()).map(lambda x: x),
        lambda f: f.flat_map_iterable(lambda x: ()).buffer(2).map(lambda x: x),
        lambda f: f.flat_map_iterable(lambda x: (1,)).flat_map_iterable(lambda x: ()),
        lambda f: f.filter(lambda x: False),
        lambda f: f.flat_map(lambda x: Flux.empty()),
        lambda f: f.flat_map_sequential(lambda x: Flux.empty()),
        lambda f: f.concat_map(lambda x: Flux.empty()),
        lambda f: f.limit_rate(4).filter(lambda x: False),
    ],
)
def test_a_cancel_from_outside_stops_an_endless_source_that_gives_nothing(operator: Any) -> None:
    started = threading.Event()
    subscribed = threading.Event()

    class Waiting(Recorder):
        def on_subscribe(self, subscription: Any, /) -> None:
            super().on_subscribe(subscription)
            subscribed.set()

    recorder = Waiting(1)
    flux = operator(Flux.from_iterable(count()).do_on_next(lambda x: started.set() if x == 50 else None))
    thread = threading.Thread(target=lambda: flux.subscribe(recorder), daemon=True)
    thread.start()
    assert subscribed.wait(60)
    assert started.wait(60)
    recorder.cancel()
    thread.join(60)
    assert not thread.is_alive()


def test_an_error_of_a_sink_waits_for_elements_that_are_still_inside_an_operator() -> None:
    sink = Sinks.multicast()
    recorder = Recorder.of(sink.flux().flat_map_iterable(lambda x: [x] * 3), 1)
    sink.try_emit(1)
    sink.try_error(ValueError())
    assert recorder.items == [1]
    assert recorder.error is None
    recorder.request(3)
    assert recorder.items == [1, 1, 1]
    assert isinstance(recorder.check().error, ValueError)


def test_a_slow_subscriber_is_not_the_fault_of_the_source() -> None:
    """The clock of timeout() stands still while the subscriber works, whatever it has asked for."""
    for demand in (1, UNBOUNDED):
        clock = schedulers.virtual_time()
        recorder = Recorder(demand, lambda r, x, clock=clock: clock.advance_by(100) if x == 0 else None)
        flux = Flux.just(0, 1).concat_with(Flux.never()).timeout(1, scheduler=clock)
        flux.subscribe(recorder)
        assert recorder.check().error is None
        clock.advance_by(0.9)
        assert recorder.error is None
        clock.advance_by(5)
        assert isinstance(recorder.error, TimeoutError) == (demand == UNBOUNDED)


def test_timeout_is_not_put_off_by_further_requests() -> None:
    clock = schedulers.virtual_time()
    recorder = Recorder.of(Flux.never().timeout(1, scheduler=clock), 1)
    for _ in range(4):
        clock.advance_by(0.4)
        if not recorder.terminated:
            recorder.request(1)
    assert isinstance(recorder.check().error, TimeoutError)

"""A meter finds where the time of a stream goes, down to the operator, by looking at it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from penstock.spec import Subscription
from penstock.streams import Flux, StageFigures, StageMeter, metering, schedulers


class Waiting:
    """A subscriber that asks for as many elements as it is told to, and keeps its subscription."""

    def __init__(self) -> None:
        self.subscription: Subscription | None = None
        self.elements: list[object] = []

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self.subscription = subscription

    def on_next(self, element: object, /) -> None:
        self.elements.append(element)

    def on_error(self, error: BaseException, /) -> None:
        raise error

    def on_complete(self) -> None: ...


_opened: list[schedulers.Scheduler] = []


def on_another_thread() -> schedulers.Scheduler:
    _opened.append(schedulers.single("metered"))
    return _opened[-1]


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def looks(meter: StageMeter, times: int = 3) -> list[StageFigures]:
    """Look some times, a second apart on the meter's clock."""
    for second in range(times + 1):
        meter.sample(1000.0 + second)
    return meter.figures()


def test_a_stage_without_demand_waits_for_demand() -> None:
    meter, subscriber = StageMeter(), Waiting()
    with metering(meter):
        Flux.range(10).map(str).subscribe(subscriber)

    (stage,) = looks(meter)
    assert (stage.waiting_for_demand, stage.waiting_for_data, stage.working) == (3.0, 0.0, 0.0)
    assert stage.name == "range(10) map(str)"
    assert stage.kind == "stage"


def test_the_operator_that_works_is_named_although_it_is_fused() -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(number: int) -> int:
        entered.set()
        leave.wait(30)
        return number

    figures = metered_while(lambda flux: flux.map(str).map(int).map(slow).filter(bool), entered, leave)
    (stage,) = [each for each in figures if each.working]
    assert stage.by_operator == {"map(slow)": 3.0}


def test_an_iterable_that_is_slow_is_waited_for() -> None:
    entered, leave = threading.Event(), threading.Event()

    def numbers() -> Iterator[int]:
        yield 1
        entered.set()
        leave.wait(30)
        yield 2

    meter = StageMeter()
    with metering(meter):
        stream = Flux.from_iterable(numbers()).map(str).subscribe_on(on_another_thread())
        running = stream.subscribe(lambda _: None)
    assert entered.wait(30)
    (stage,) = looks(meter)
    leave.set()
    assert running.wait(30)
    assert (stage.waiting_for_demand, stage.waiting_for_data, stage.working) == (0.0, 3.0, 0.0)


def metered_while(
    shape: Callable[[Flux[int]], Flux[int]], entered: threading.Event, leave: threading.Event
) -> list[StageFigures]:
    """What a meter sees of a stream on another thread while one of its operators is held up."""
    meter = StageMeter()
    with metering(meter):
        running = shape(Flux.range(3)).subscribe_on(on_another_thread()).subscribe(lambda _: None)
    assert entered.wait(30)
    figures = looks(meter)
    leave.set()
    assert running.wait(30)
    return figures


def test_stages_are_listed_from_the_source_down_with_their_links() -> None:
    entered, leave = threading.Event(), threading.Event()

    def slow(number: int) -> int:
        entered.set()
        leave.wait(30)
        return number

    pool = on_another_thread()
    figures = metered_while(lambda flux: flux.map(abs).publish_on(pool).map(slow), entered, leave)
    upper, lower = figures
    assert upper.name.endswith("map(abs)")
    assert lower.kind == "boundary"
    assert lower.upstreams == (upper.number,)
    assert lower.capacity == 256


def test_a_stream_that_is_over_is_forgotten_and_not_kept_alive() -> None:
    meter = StageMeter()
    with metering(meter):
        assert Flux.range(3).subscribe_on(on_another_thread()).collect_list().block(30) == [0, 1, 2]
    assert looks(meter) == []


def test_a_meter_follows_no_more_stages_than_its_bound() -> None:
    meter = StageMeter()
    kept = [Waiting() for _ in range(600)]
    with metering(meter):
        for subscriber in kept:
            Flux.range(10).subscribe(subscriber)
    assert len(looks(meter, 1)) == 512


def test_a_pause_of_the_process_counts_for_no_more_than_a_second() -> None:
    meter, subscriber = StageMeter(), Waiting()
    with metering(meter):
        Flux.range(10).subscribe(subscriber)
    meter.sample(10.0)
    meter.sample(4000.0)
    (stage,) = meter.figures()
    assert stage.waiting_for_demand == 1.0

"""``from_publisher``: any Reactive Streams publisher is welcome, and watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import UNBOUNDED, RuleViolation, Subscriber
from penstock.streams import Flux, Mono
from tests.streams.recording import Recorder


class Driven:
    """A publisher for one subscriber that a test drives by hand; writes down what it is asked."""

    def __init__(self) -> None:
        self.requests: list[int] = []
        self.cancels = 0
        self.subscriptions = 0
        self._subscriber: Subscriber[Any] | None = None

    def flux(self) -> Flux[Any]:
        return Flux.from_publisher(self)

    def mono(self) -> Mono[Any]:
        return Mono.from_publisher(self)

    @property
    def cancelled(self) -> bool:
        return self.cancels > 0

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        self.subscriptions += 1
        self._subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int, /) -> None:
        self.requests.append(n)

    def cancel(self) -> None:
        self.cancels += 1

    @property
    def subscriber(self) -> Subscriber[Any]:
        assert self._subscriber is not None, "nobody has subscribed"
        return self._subscriber

    def emit(self, *elements: Any) -> Driven:
        for element in elements:
            self.subscriber.on_next(element)
        return self

    def complete(self) -> Driven:
        self.subscriber.on_complete()
        return self

    def fail(self, error: BaseException) -> Driven:
        self.subscriber.on_error(error)
        return self


class Misbehaving:
    """Does what the test says as soon as it is subscribed to."""

    def __init__(self, conduct: Callable[[Subscriber[Any]], object]) -> None:
        self._conduct = conduct

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        self._conduct(subscriber)


class Deaf:
    """A subscription that does nothing."""

    def request(self, n: int, /) -> None: ...

    def cancel(self) -> None: ...


def greeted(subscriber: Subscriber[Any]) -> Subscriber[Any]:
    subscriber.on_subscribe(Deaf())
    return subscriber


def test_the_elements_the_end_and_the_demand_pass_through() -> None:
    source = Driven()
    recorder = Recorder.of(source.flux(), first=2)

    source.emit("a", "b")
    recorder.request(3)
    source.emit("c").complete()

    assert source.requests == [2, 3]
    assert (recorder.items, recorder.completed) == (["a", "b", "c"], True)
    recorder.check()


def test_the_error_passes_through() -> None:
    source, error = Driven(), ValueError("broken")
    recorder = Recorder.of(source.flux(), first=2)

    source.emit("a").fail(error)

    assert (recorder.items, recorder.error) == (["a"], error)


@pytest.mark.parametrize("operators", [lambda flux: flux, lambda flux: flux.map(str)], ids=["bare", "map"])
def test_a_cancel_reaches_the_publisher_once(operators: Callable[[Flux[Any]], Flux[Any]]) -> None:
    source = Driven()
    recorder = Recorder.of(operators(source.flux()), first=1)

    recorder.cancel().cancel()

    assert source.cancels == 1


def test_each_subscriber_subscribes_to_the_publisher() -> None:
    source = Driven()
    flux = source.flux()

    Recorder.of(flux)
    Recorder.of(flux)

    assert source.subscriptions == 2


def test_our_own_streams_are_taken_as_they_are() -> None:
    flux = Flux.just(1)

    assert Flux.from_publisher(flux)._source is flux._source


def test_a_mono_cancels_the_publisher_after_its_first_element() -> None:
    source = Driven()
    recorder = Recorder.of(source.mono(), first=UNBOUNDED)

    assert source.requests == [1]
    source.emit("a")

    assert (recorder.items, recorder.completed, source.cancels) == (["a"], True, 1)


def test_a_mono_of_an_empty_publisher_is_empty() -> None:
    source = Driven()
    recorder = Recorder.of(source.mono(), first=1)

    source.complete()

    assert (recorder.items, recorder.completed) == ([], True)


MISCONDUCT: dict[str, tuple[str, Callable[[Subscriber[Any]], object]]] = {
    "more than was asked for": ("1.1", lambda s: greeted(s).on_next(1)),
    "an element before on_subscribe": ("1.9", lambda s: s.on_next(1)),
    "an end before on_subscribe": ("1.9", lambda s: s.on_complete()),
}


@pytest.mark.parametrize("operators", [lambda flux: flux, lambda flux: flux.map(str)], ids=["bare", "map"])
@pytest.mark.parametrize(("rule", "conduct"), MISCONDUCT.values(), ids=MISCONDUCT)
def test_a_broken_rule_ends_the_stream_with_its_number(
    rule: str, conduct: Callable[[Subscriber[Any]], object], operators: Callable[[Flux[Any]], Flux[Any]]
) -> None:
    recorder = Recorder.of(operators(Flux.from_publisher(Misbehaving(conduct))))

    assert isinstance(recorder.error, RuleViolation)
    assert f"§{rule}" in str(recorder.error)
    assert recorder.items == []
    recorder.check()


def test_a_subscribe_that_raises_ends_the_stream_with_the_rule_and_the_cause() -> None:
    def conduct(subscriber: Subscriber[Any]) -> None:
        raise OSError("no route")

    recorder = Recorder.of(Flux.from_publisher(Misbehaving(conduct)), first=1)

    assert isinstance(recorder.error, RuleViolation)
    assert "§1.9" in str(recorder.error)
    assert isinstance(recorder.error.__cause__, OSError)


def test_none_as_an_element_is_raised_at_the_publisher_and_ends_the_stream() -> None:
    raised: list[BaseException] = []

    def conduct(subscriber: Subscriber[Any]) -> None:
        try:
            greeted(subscriber).on_next(None)
        except TypeError as error:
            raised.append(error)

    recorder = Recorder.of(Flux.from_publisher(Misbehaving(conduct)), first=1)

    assert recorder.error is raised[0]
    assert "§2.13" in str(recorder.error)


def test_signals_after_the_end_are_held_back() -> None:
    source = Driven()
    recorder = Recorder.of(source.flux(), first=5)

    source.emit(1).complete().emit(2).complete().fail(ValueError())

    assert (recorder.items, recorder.completed) == ([1], True)
    recorder.check()


def test_what_is_no_publisher_is_refused_where_it_is_written() -> None:
    with pytest.raises(TypeError, match="from_publisher needs a publisher"):
        Flux.from_publisher(42)  # type: ignore[arg-type]

"""A Subscription that is over keeps no element, although the program may keep the Subscription."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams import Flux, Mono
from tests.races.racing import eventually


class Element:
    """One that can be asked whether it is still there."""

    def __init__(self, number: int) -> None:
        self.number = number


async def itself(element: Any) -> Any:
    return element


def is_even(element: Any) -> bool:
    return bool(element.number % 2 == 0)


STREAMS: dict[str, Callable[[Flux[Any]], Flux[Any]]] = {
    "concat_map": lambda source: source.concat_map(Flux.just),
    "expand": lambda source: source.expand(lambda _: Flux.empty()),
    "expand_deep": lambda source: source.expand_deep(lambda _: Flux.empty()),
    "flat_map": lambda source: source.flat_map(Flux.just),
    "flat_map of Monos": lambda source: source.flat_map(lambda one: Mono.just(one).delay_until(Mono.just)),
    "flat_map_sequential": lambda source: source.flat_map_sequential(Flux.just),
    "group_by": lambda source: source.group_by(is_even).flat_map(lambda group: group),
    "map_async": lambda source: source.map_async(itself),
    "map_async, not ordered": lambda source: source.map_async(itself, ordered=False),
    "merge": lambda source: Flux.merge(source, Flux.range(5)),
    "merge_ordered": lambda source: Flux.merge_ordered(source, source, key=lambda each: each.number),
    "partition": lambda source: Flux.merge(*source.partition(is_even)),
    "switch_map": lambda source: source.switch_map(Flux.just),
    "window": lambda source: source.window(3).flat_map(lambda window: window),
    "zip": lambda source: Flux.zip(source, Flux.range(50)),
}


class Reader:
    """Asks for a few, and keeps none."""

    subscription: Any = None

    def __init__(self) -> None:
        self.missing = 2
        self.has_two = threading.Event()

    def on_subscribe(self, subscription: Any, /) -> None:
        self.subscription = subscription
        subscription.request(self.missing)

    def on_next(self, element: Any, /) -> None:
        self.missing -= 1
        if not self.missing:
            self.has_two.set()

    def on_error(self, error: BaseException, /) -> None:
        raise AssertionError(error)

    def on_complete(self) -> None:
        raise AssertionError("there were more")


@pytest.mark.parametrize("name", STREAMS)
def test_a_kept_subscription_that_was_cancelled_does_not_keep_the_elements_that_waited(name: str) -> None:
    made: list[weakref.ref[Element]] = []

    def element(number: int) -> Element:
        one = Element(number)
        made.append(weakref.ref(one))
        return one

    reader = Reader()
    STREAMS[name](Flux.range(20).map(element)).subscribe(reader)
    assert reader.has_two.wait(60)

    reader.subscription.cancel()

    def nothing_is_kept() -> bool:
        gc.collect()
        return all(one() is None for one in made)

    eventually(nothing_is_kept)

"""After an error a Subscription does not keep its Subscriber, not even through the error's traceback."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest

from penstock.streams import Flux, Mono, schedulers


class Fails(Exception):
    """What the streams fail with; raised, so that it has a traceback."""


def fail(*_: Any) -> NoReturn:
    raise Fails


def failing() -> Iterator[int]:
    yield 0
    raise Fails


STREAMS: dict[str, Callable[[], Any]] = {
    "concat_map": lambda: Flux.range(5).concat_map(fail),
    "concat_map of a failing outer stream": lambda: Flux.range(5).map(fail).concat_map(Flux.just),
    "concat_map of a failing inner stream": lambda: Flux.range(5).concat_map(
        lambda x: Flux.just(x).map(fail)
    ),
    "concat_with": lambda: Flux.range(5).concat_with(Flux.just(1).map(fail)),
    "create": lambda: Flux.create(fail),
    "defer": lambda: Flux.defer(fail),
    "error": lambda: Flux.error(fail),
    "expand": lambda: Flux.just(1).expand(fail),
    "flat_map": lambda: Flux.range(5).flat_map(fail),
    "flat_map of failing streams": lambda: Flux.range(5).flat_map(lambda x: Flux.just(x).map(fail)),
    "from_callable": lambda: Mono.from_callable(fail),
    "from_iterable": lambda: Flux.from_iterable(failing()),
    "generate": lambda: Flux.generate(lambda: 0, fail),
    "map": lambda: Flux.range(5).map(fail),
    "merge": lambda: Flux.merge(Flux.range(5).map(fail), Flux.range(5)),
    "on_error_map": lambda: Flux.error(Fails).on_error_map(fail),
    "on_error_resume": lambda: Flux.error(Fails).on_error_resume(fail),
    "publish_on": lambda: Flux.range(5).map(fail).publish_on(schedulers.immediate()),
    "retry": lambda: Mono.error(Fails).retry(1),
    "retry of a Flux": lambda: Flux.range(5).map(fail).retry(1),
    "share": lambda: Flux.range(5).map(fail).share(),
    "switch_if_empty": lambda: Flux.empty().switch_if_empty(Flux.range(5).map(fail)),
    "timeout": lambda: Flux.range(5).map(fail).timeout(60),
    "using": lambda: Flux.using(fail, Flux.range, lambda _: None),
    "zip": lambda: Flux.range(5).zip_with(Flux.range(5), fail),
}


class Reader:
    """Asks for everything, and does not keep the error."""

    failed = False
    subscription: Any = None

    def on_subscribe(self, subscription: Any, /) -> None:
        self.subscription = subscription
        subscription.request(100)

    def on_next(self, element: Any, /) -> None:
        pass

    def on_error(self, error: BaseException, /) -> None:
        self.failed = True

    def on_complete(self) -> None:
        pass


@pytest.mark.parametrize("name", STREAMS)
def test_a_kept_subscription_does_not_keep_the_subscriber(name: str) -> None:
    stream, reader = STREAMS[name](), Reader()
    gone = weakref.ref(reader)
    stream.subscribe(reader)
    assert reader.failed
    subscription = reader.subscription

    del reader
    gc.collect()

    assert gone() is None
    subscription.cancel()


@pytest.mark.parametrize(
    "stream",
    [
        lambda: Flux.range(5).map(fail).cache(),
        lambda: Flux.range(5).map(fail).cache(ttl=60),
        lambda: Flux.range(5).map(fail).publish().auto_connect(),
        lambda: Flux.range(5).map(fail).replay(3).auto_connect(),
        lambda: Mono.from_callable(fail).cache(),
    ],
    ids=["Flux.cache", "Flux.cache(ttl)", "publish", "replay", "Mono.cache"],
)
def test_a_kept_subscription_of_a_cache_does_not_keep_the_subscriber(stream: Callable[[], Any]) -> None:
    """The cache itself keeps its error for the next subscriber, with the traceback."""
    reader = Reader()
    gone = weakref.ref(reader)
    stream().subscribe(reader)
    assert reader.failed
    subscription = reader.subscription

    del reader
    gc.collect()

    assert gone() is None
    subscription.cancel()

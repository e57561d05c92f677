"""Two streams that announce large elements at the same moment, each on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import Subscriber
from penstock.streams import Flux, schedulers
from penstock.streams.spi import Pausable, PublisherSource, announce_large, flux_of

PATIENCE = 60.0
ELEMENTS = 4


class Twice:
    """Sends large elements, which two threads have announced.

    One of them stands still in the middle of its announcement until the other has announced them as well, and
    the first element has come and paused the source.
    """

    def subscribe(self, subscriber: Subscriber[Any]) -> None:
        subscriber.on_subscribe(_Twice(subscriber))


class _Twice(Pausable):
    def __init__(self, subscriber: Subscriber[Any]) -> None:
        self.subscriber = subscriber
        self.left = ELEMENTS
        self.demand = 0
        self.busy = self.paused = self.over = False
        self.other: threading.Thread | None = None
        self.stands = threading.Event()
        self.goes_on = threading.Event()

    def can_pause(self) -> bool:
        if threading.current_thread() is self.other:
            self.stands.set()
            assert self.goes_on.wait(PATIENCE)
        return True

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.work()

    def request(self, n: int, /) -> None:
        self.demand += n
        if self.other is None:
            self.other = threading.Thread(target=announce_large, args=(self.subscriber, 2))
            self.other.start()
            assert self.stands.wait(PATIENCE)
            announce_large(self.subscriber, 2)
            self.work()
            assert self.paused
            self.goes_on.set()
            self.other.join(PATIENCE)
        self.work()

    def work(self) -> None:
        if self.busy:
            return
        self.busy = True
        while self.demand and self.left and not self.paused and not self.over:
            self.demand -= 1
            self.left -= 1
            self.subscriber.on_next(bytes(1 << 20))
        self.busy = False
        if not self.left and not self.over:
            self.over = True
            self.subscriber.on_complete()

    def cancel(self) -> None:
        self.over = True


WAYS: dict[str, Callable[[Flux[Any]], Flux[Any]]] = {
    "a loop": lambda stream: stream,
    "publish_on": lambda stream: stream.publish_on(schedulers.immediate()),
    "merge": lambda stream: Flux.merge(stream, Flux.empty()),
    "groups": lambda stream: stream.group_by(len).flat_map(lambda group: group),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_bound_that_has_paused_the_source_is_the_one_that_resumes_it(way: str) -> None:
    stream = WAYS[way](flux_of(PublisherSource(Twice())))
    got: list[Any] = []
    reader = threading.Thread(target=lambda: got.extend(stream), daemon=True)

    reader.start()
    reader.join(PATIENCE)

    assert len(got) == ELEMENTS

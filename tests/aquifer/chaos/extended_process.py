"""An extended subscriber, as a process: ``python -m tests.aquifer.chaos.extended_process SETTINGS``.

It goes on where its file ends. With an ``id`` it leaves that to the gateway: it acknowledges what is safe in
its file, says nothing of where to start when it comes back, and may get again what was safe but whose
acknowledgement did not arrive. It must never get less.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock.aquifer import AquiferPublisher, AquiferSubscription
from penstock.spec import UNBOUNDED, Subscription
from tests.aquifer.chaos.records import Differs, Output


class ExtendedSettings(msgspec.Struct):
    """What the test tells the process."""

    name: str
    endpoint: str
    output: str
    summary: str
    """Where to say, after the end, how it went."""
    expected: str
    id: str | None = None
    """A durable id, with acknowledgements by hand; without it the subscriber says where to start."""
    window: int = 65_536
    burst: int = UNBOUNDED
    """The most records to ask for at a time."""
    first_burst: int = UNBOUNDED
    """How many to ask for at first; twice as many each time."""
    pause: float = 0.0
    """Seconds between a burst and the next request."""
    lease: float = 60.0
    patience: float = 60.0


class Keeper:
    """A Subscriber that puts what it gets into its file, and asks for it in bursts."""

    def __init__(self, output: Output, durable: bool) -> None:
        self.redelivered = 0
        """Records that came again, after they were safe."""
        self.failure: BaseException | None = None
        self.over = threading.Event()
        self._output = output
        self._durable = durable
        self._next: int | None = None
        """The offset of the next record, if it is known from records that came."""
        self._left = 0
        self._served = threading.Event()

    def on_subscribe(self, subscription: Subscription, /) -> None:
        assert isinstance(subscription, AquiferSubscription)
        self.subscription = subscription

    def on_next(self, element: Any, /) -> None:
        try:
            if self._durable:
                self._keep_record(element)
            else:
                self._output.take(element)
        except BaseException as error:
            self._fail(error)
        self._left -= 1
        if not self._left:
            self._served.set()

    def on_error(self, error: BaseException, /) -> None:
        self._fail(error)

    def on_complete(self) -> None:
        try:
            self._output.finish()
        except Differs as error:
            self._fail(error)
        self.over.set()
        self._served.set()

    def ask(self, bursts: Iterator[int], pause: float) -> None:
        """Ask for one burst after the other until the stream is over."""
        while not self.over.is_set():
            self._served.clear()
            self._left = next(bursts)
            self.subscription.request(self._left)
            self._served.wait()
            self.over.wait(pause)

    def _keep_record(self, element: Any) -> None:
        output, offset = self._output, element.offset
        # At first anything that is safe may come again; from then on it is one after the other.
        expected = min(offset, output.count) if self._next is None else self._next
        if offset != expected:
            raise Differs(f"first differing offset {expected}: the record at {offset} came instead")
        self._next = offset + 1
        if offset < output.count:
            self.redelivered += 1
        elif output.take(element.value):
            self.subscription.acknowledge(output.offset)

    def _fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
        self.subscription.cancel()
        self.over.set()
        self._served.set()


def bursts(first: int, most: int) -> Iterator[int]:
    """Twice as many each time, up to a bound."""
    size = min(first, most)
    while True:
        yield size
        size = min(2 * size, most)


def main() -> None:
    """Read to the end."""
    settings = msgspec.json.decode(sys.argv[1], type=ExtendedSettings)
    output = Output(Path(settings.output), Path(settings.expected).read_bytes())
    began_at = output.offset
    durable = settings.id is not None
    publisher = AquiferPublisher(
        settings.endpoint,
        id=settings.id,
        start=None if durable else output.offset,
        records=durable,
        acknowledge="manual" if durable else "auto",
        dialect="extended",
        window=settings.window,
        max_window=4 * settings.window,
        lease=settings.lease,
        patience=settings.patience,
    )
    keeper = Keeper(output, durable)
    publisher.subscribe(keeper)
    keeper.ask(bursts(settings.first_burst, settings.burst), settings.pause)
    if keeper.failure is not None:
        raise keeper.failure
    output.close()
    metrics = keeper.subscription.metrics()
    summary = {
        "count": output.count,
        "began_at": began_at,
        "redelivered": keeper.redelivered,
        "subscriptions": metrics.subscriptions,
        "gaps": metrics.gaps,
        "window": metrics.window,
    }
    Path(settings.summary).write_bytes(msgspec.json.encode(summary))


if __name__ == "__main__":
    main()

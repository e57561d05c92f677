"""A real pipeline whose readers a test makes slow: an endless source, a gateway, and two required readers."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Self

from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal, StreamOptions
from penstock.observe import Observer
from penstock.spec import Subscription
from penstock.streams import Flux
from tests.aquifer.faults.rigs import eventually

READERS = ("archive", "billing")
RECORDS = 2000
"""How many records the log holds: a reader that stops is a full log behind in no time."""


def endless() -> Flux[bytes]:
    return Flux.from_iterable(b"record %d" % number for number in itertools.count())


class HeldReader:
    """A Subscriber that takes one record after the other, until it is told to stop."""

    def __init__(self) -> None:
        self.is_held = False
        self.received = 0
        self._subscription: Subscription | None = None

    def on_subscribe(self, subscription: Subscription) -> None:
        self._subscription = subscription
        subscription.request(64)

    def on_next(self, element: object) -> None:
        self.received += 1
        if not self.is_held and self.received % 32 == 0:
            assert self._subscription is not None
            self._subscription.request(32)

    def on_error(self, error: BaseException) -> None: ...

    def on_complete(self) -> None: ...

    def let_go(self) -> None:
        self.is_held = False
        assert self._subscription is not None
        self._subscription.request(64)

    def cancel(self) -> None:
        if self._subscription is not None:
            self._subscription.cancel()


class HeldPipeline:
    """The pipeline, for the length of a block."""

    def __init__(self, control: str = "tcp://127.0.0.1:0") -> None:
        self.gateway = Gateway(endless(), control, journal=MemoryJournal(max_records=RECORDS), codec="bytes")
        self.readers = {name: HeldReader() for name in READERS}

    def __enter__(self) -> Self:
        self.gateway.start()
        for name, reader in self.readers.items():
            AquiferPublisher(self.gateway.endpoint, id=name, codec="bytes", max_window=128).subscribe(reader)
            eventually(partial(self._has, name))  # the hops of readers stand in the order of their arrival
        return self

    def _has(self, name: str) -> bool:
        return any(session.id == name for session in self.gateway.status().subscribers)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for reader in self.readers.values():
            reader.cancel()
        self.gateway.close()

    @property
    def observer(self) -> Observer:
        return Observer(self.gateway.endpoint, looks={self.gateway.endpoint: self.gateway.status})


@contextmanager
def held_streams() -> Iterator[Gateway]:
    """A gateway with two streams whose readers do not read, and one that had a bad element."""
    streams = {name: StreamOptions(endless(), journal=MemoryJournal(max_records=500)) for name in ("a", "b")}
    streams["letters"] = StreamOptions(Flux.just({}, 1j), codec="json", on_bad_record="dead-letter")
    readers = [HeldReader() for _ in "ab"]
    with Gateway(control="tcp://127.0.0.1:0", streams=streams) as gateway:
        for name, reader in zip("ab", readers, strict=True):
            reader.is_held = True
            at = f"{gateway.endpoint}/{name}"
            AquiferPublisher(at, id=f"reader of {name}", codec="bytes", max_window=128).subscribe(reader)
        yield gateway
        for reader in readers:
            reader.cancel()

"""A server whose readers only say that they are there sleeps, and wakes for whatever happens."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import zmq

from penstock.aquifer import AquiferPublisher, Gateway
from penstock.streams import Flux, Sinks
from tests.aquifer.faults.rigs import ANYWHERE


def test_a_server_with_nothing_to_do_sleeps_longer_and_wakes_for_a_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept = threading.Event()

    class Watched(zmq.Poller):
        """Tells when somebody wants to wait for longer than a tick."""

        def poll(self, timeout: Any = None) -> Any:
            if threading.current_thread().name == "penstock-gateway" and timeout is not None and timeout > 50:
                slept.set()
            return super().poll(timeout)

    monkeypatch.setattr(zmq, "Poller", Watched)
    source: Any = Sinks.unicast()
    with Gateway(source.flux(), ANYWHERE) as gateway:
        got: list[bytes] = []
        arrived = threading.Event()

        def take(record: bytes) -> None:
            got.append(record)
            if len(got) == 2:
                arrived.set()

        reading = Flux.from_publisher(AquiferPublisher(gateway.endpoint)).subscribe(take)
        source.try_emit(b"one")
        assert slept.wait(60), "it never sleeps"
        source.try_emit(b"two")
        assert arrived.wait(60), "it was not woken"
        assert got == [b"one", b"two"]
        reading.cancel()

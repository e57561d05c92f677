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


def test_a_server_that_is_looked_at_goes_back_to_sleep_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[int] = []
    slept = threading.Condition()

    class Watched(zmq.Poller):
        """Notes for how long the server wants to wait."""

        def poll(self, timeout: Any = None) -> Any:
            if threading.current_thread().name == "penstock-gateway" and timeout is not None:
                with slept:
                    waits.append(timeout)
                    slept.notify_all()
            return super().poll(timeout)

    monkeypatch.setattr(zmq, "Poller", Watched)
    with Gateway(Flux.never(), ANYWHERE) as gateway:
        with slept:
            assert slept.wait_for(lambda: max(waits, default=0) > 50, 60), "it never sleeps"
        for _ in range(3):
            with slept:
                waits.clear()
            assert gateway.status().head == 0
            with slept:
                assert slept.wait_for(lambda: max(waits, default=0) > 50, 60), "it does not sleep any more"
                assert len(waits) < 10, "a look made it tick as if records came"

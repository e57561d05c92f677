"""Durations and numbers beyond what the operating system can count: for ever, and without a bound."""

from __future__ import annotations

import math
import threading
from datetime import timedelta

import pytest

from penstock.streams import Flux, Mono, Sinks, schedulers

FOR_EVER = [math.inf, 1e300, 10**400, timedelta.max]


def test_durations_without_end_are_infinity() -> None:
    assert list(Flux.range(3).publish_on(schedulers.shared_pool()).timeout(10**400)) == [0, 1, 2]


@pytest.mark.parametrize("timeout", FOR_EVER)
def test_a_wait_may_last_for_ever(timeout: float | timedelta) -> None:
    assert Mono.just(1).delay_element(0.01).block(timeout) == 1
    assert Flux.interval(0.01).take(2).block_last(timeout) == 1
    assert Flux.interval(0.01).take(2).subscribe(lambda n: None).wait(timeout)


@pytest.mark.parametrize("timeout", [math.inf, 1e300, 10**400])
def test_an_emission_may_wait_for_ever(timeout: float) -> None:
    sink = Sinks.multicast(capacity=1)
    received: list[int] = []
    running = sink.flux().delay_elements(0.001).subscribe(received.append)
    for number in range(4):
        sink.emit_blocking(number, timeout)
    sink.try_complete()

    assert running.wait(10)
    assert received == [0, 1, 2, 3]


@pytest.mark.parametrize("timeout", [math.inf, 1e300])
@pytest.mark.parametrize("make", [lambda: schedulers.single("patient"), lambda: schedulers.pool(1)])
def test_closing_a_scheduler_may_wait_for_ever(make: object, timeout: float) -> None:
    scheduler: schedulers.Scheduler = make()  # type: ignore[operator]
    done = threading.Event()
    scheduler.submit(done.set)
    scheduler.close(timeout)

    assert done.is_set()


@pytest.mark.parametrize("timeout", [-(10**400), -math.inf, math.nan])
def test_a_wait_cannot_be_negative_however_long(timeout: float) -> None:
    with pytest.raises(ValueError, match="at least 0 seconds"):
        Mono.just(1).block(timeout)


def test_counts_beyond_what_a_machine_can_hold_are_no_bound() -> None:
    most = 10**400

    assert list(Flux.range(5).take_last(most)) == [0, 1, 2, 3, 4]
    flattened = Flux.range(5).flat_map(lambda n: Flux.just(n, n), concurrency=most, prefetch=most)
    assert len(list(flattened)) == 10

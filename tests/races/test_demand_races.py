"""Requests, cancels and elements that come at the same time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import UNBOUNDED, RuleViolation
from penstock.streams import Flux, Sink, Sinks
from penstock.streams.schedulers import PoolScheduler
from penstock.testing import race
from tests.races.racing import eventually, rounds
from tests.streams.recording import Recorder

SHAPES: dict[str, Callable[[Any], Any]] = {
    "fused": lambda f: f.map(lambda x: x).filter(lambda x: True),
    "two_segments": lambda f: f.buffer(1).map(lambda x: x[0]),
    "relay": lambda f: f.on_error_resume(lambda e: Flux.empty()).map(lambda x: x),
    "passed": lambda f: f.map(abs).retry(3),
    "passed, with ends": lambda f: Flux.concat(*(Flux.range(i * 10, 10).map(abs) for i in range(20))),
    "limit_rate": lambda f: f.limit_rate(2),
    "flat_map": lambda f: f.flat_map(lambda x: Flux.just(x), concurrency=2, prefetch=1),
    "concat_map": lambda f: f.concat_map(lambda x: Flux.just(x)),
    "cache": lambda f: f.cache(),
    "share": lambda f: f.share(prefetch=2),
    "create": lambda f: Flux.create(lambda e: ([e.next(i) for i in range(200)], e.complete())),
}


@pytest.mark.parametrize("name", SHAPES)
def test_concurrent_requests_lose_nothing_and_never_overlap(name: str) -> None:
    for _ in rounds(0.5):
        recorder = Recorder.of(SHAPES[name](Flux.range(200)))
        race(*[lambda r=recorder: [r.request(1) for _ in range(25)] for _ in range(4)])
        assert len(recorder.items) == 100
        assert sorted(recorder.items) == list(range(100)) or name == "flat_map"
        recorder.check()
        recorder.cancel()


@pytest.mark.parametrize("name", SHAPES)
def test_request_against_cancel_leaves_a_prefix_and_then_silence(name: str) -> None:
    for _ in rounds(0.4):
        recorder = Recorder.of(SHAPES[name](Flux.range(200)))
        race(lambda r=recorder: [r.request(3) for _ in range(20)], recorder.cancel)
        seen = len(recorder.items)
        recorder.request(10)
        assert len(recorder.items) == seen
        assert recorder.items == list(range(seen))
        assert not recorder.terminated
        recorder.check()


def test_cancel_against_emit_on_a_sink_ends_quietly() -> None:
    for _ in rounds(0.4):
        sink: Sink[Any] = Sinks.multicast(1000)
        recorder = Recorder.of(sink.flux().map(lambda x: x), UNBOUNDED)
        race(lambda s=sink: [s.try_emit(i) for i in range(50)], recorder.cancel)
        assert recorder.items == list(range(len(recorder.items)))
        assert sink.subscriber_count() == 0
        recorder.check()


@pytest.mark.parametrize("end", ["complete", "error"])
def test_cancel_against_the_end_gives_at_most_one_end(end: str) -> None:
    for _ in rounds(0.4):
        sink: Sink[Any] = Sinks.multicast()
        recorder = Recorder.of(sink.flux().map(lambda x: x), UNBOUNDED)
        finish = sink.try_complete if end == "complete" else (lambda s=sink: s.try_error(ValueError()))
        race(finish, recorder.cancel, lambda s=sink: s.try_emit(1))
        recorder.check()
        assert sink.subscriber_count() == 0


def test_a_bad_request_against_ends_above_gives_one_error_and_nothing_follows() -> None:
    """§1.3, §3.9: the elements go past two stages, each of which would go on after an error."""
    for _ in rounds(0.6):
        members = Flux.concat(*(Flux.range(i * 5, 5).map(abs) for i in range(40)))
        recorder = Recorder.of(members.retry(3).on_error_resume(lambda error: Flux.just(-1)))
        race(
            lambda r=recorder: [r.request(3) for _ in range(30)],
            lambda r=recorder: [r.request(2) for _ in range(30)],
            lambda r=recorder: r.request(0),
        )
        assert isinstance(recorder.error, RuleViolation)
        assert recorder.items == list(range(len(recorder.items)))
        recorder.check()


def test_a_bad_request_against_good_ones_gives_one_error() -> None:
    for _ in rounds(0.4):
        recorder = Recorder.of(Flux.range(1000).map(lambda x: x))
        race(lambda r=recorder: [r.request(1) for _ in range(20)], lambda r=recorder: r.request(0))
        assert recorder.error is not None
        assert recorder.items == list(range(len(recorder.items)))
        recorder.check()


@pytest.mark.parametrize("prefetch", [1, 2, 3])
@pytest.mark.parametrize("requests", [1, 7, UNBOUNDED])
def test_publish_on_between_producer_and_consumer(pool: PoolScheduler, prefetch: int, requests: int) -> None:
    for _ in rounds(0.4):
        more = (lambda r, x: r.request(1)) if requests == 1 else None
        recorder = Recorder(requests if requests != 7 else 0, more)
        Flux.range(300).subscribe_on(pool).publish_on(pool, prefetch=prefetch).subscribe(recorder)
        if requests == 7:
            while not recorder.finished.is_set():
                if recorder._subscription is not None:
                    recorder.request(7)
                recorder.finished.wait(0.0001)
        recorder.wait()
        assert recorder.items == list(range(300))


def test_publish_on_hands_over_to_other_threads_of_the_pool(pool: PoolScheduler) -> None:
    """More elements than a fair slice: the stage goes from thread to thread."""
    for _ in rounds(1.0, most=40):
        recorder = Recorder.of(Flux.range(5000).publish_on(pool, prefetch=2), UNBOUNDED).wait()
        assert recorder.items == list(range(5000))


def test_publish_on_cancelled_from_outside_forgets_its_source(pool: PoolScheduler) -> None:
    subscribed: list[int] = []
    cancelled: list[int] = []
    flux = (
        Flux.never()
        .do_on_subscribe(lambda s: subscribed.append(1))
        .do_on_cancel(lambda: cancelled.append(1))
        .subscribe_on(pool)
    )
    for _ in rounds(0.5):
        recorder = Recorder(UNBOUNDED)
        flux.publish_on(pool, prefetch=1).subscribe(recorder)
        race(recorder.cancel, lambda r=recorder: r.request(1))
    pool.close(20)  # now all who are going to subscribe have done so
    eventually(lambda: len(cancelled) == len(subscribed))
    assert subscribed


def test_running_cancelled_while_it_is_being_subscribed_elsewhere(pool: PoolScheduler) -> None:
    for _ in rounds(0.5):
        live: list[int] = []
        flux = (
            Flux.never()
            .do_on_subscribe(lambda s, live=live: live.append(1))
            .do_on_cancel(lambda live=live: live.pop())
            .subscribe_on(pool)
        )
        running = flux.subscribe(lambda x: None)
        running.cancel()
        for _ in range(8):
            Flux.just(1).subscribe_on(pool).subscribe(lambda x: None).wait(60)
        eventually(lambda live=live: live == [])  # otherwise nobody is left who could cancel it

"""``scan``: what each stage of a running stream looks like."""

from __future__ import annotations

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Sinks, StageState, scan
from penstock.streams.schedulers import VirtualTimeScheduler
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


def test_a_stalled_stream_shows_where_its_elements_wait() -> None:
    clock = VirtualTimeScheduler(name="pool")
    stream = Flux.range(1000).map(str).publish_on(clock, prefetch=8).limit_rate(4).map(int)
    recorder = Recorder.of(stream, first=3)
    for _ in range(10):
        clock.run_pending()

    assert scan(recorder.subscription) == [
        StageState("limit_rate(4) map(int)", 3, 3, 4, 4, "caller", False),
        StageState("publish_on('pool')", 7, 7, 7, 8, "pool", False),
        StageState("range(1000) map(str)", 14, 14, 0, None, "caller", False),
    ]


def test_several_sources_are_all_shown() -> None:
    a, b = Sinks.unicast(), Sinks.unicast()
    a.try_emit(1)
    recorder = Recorder.of(Flux.zip(a.flux().map(str), b.flux()), first=2)

    states = scan(recorder.subscription)

    assert [(state.name, state.requested, state.emitted, state.queued) for state in states[:1]] == [
        ("zip()", 2, 0, 1)
    ]
    assert {state.name for state in states[1:]} == {"unicast() map(str)", "unicast()"}


def test_a_stream_that_has_ended_says_so() -> None:
    recorder = Recorder.of(Flux.just(1), first=UNBOUNDED)

    (state,) = scan(recorder.subscription)

    assert (state.name, state.terminated, state.emitted) == ("just(1)", True, 1)


def test_a_running_stream_can_be_scanned_and_a_foreign_subscription_is_passed_over() -> None:
    source = Driven()
    running = source.flux().map(str).subscribe(lambda _: None, prefetch=4)
    source.emit(1, 2)

    (state,) = running.scan()
    assert state.name.endswith("map(str)")
    assert (state.requested, state.emitted, state.capacity) == (4, 2, None)
    assert scan(source) == scan(None) == []
    running.cancel()


def test_a_stream_on_another_scheduler_is_seen_through() -> None:
    clock = VirtualTimeScheduler(name="pool")
    recorder = Recorder(2)
    Flux.range(9).subscribe_on(clock).subscribe(recorder)
    clock.run_pending()

    assert [(state.name, state.emitted) for state in scan(recorder.subscription)] == [("range(9)", 2)]

"""``listening``: what a listener hears of a run, in which order and how often."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.streams import Flux, Outcome, Stage, listening, on_dropped, schedulers
from penstock.streams.schedulers import VirtualTimeScheduler
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


class Writing:
    """Writes down what it hears."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [event for stage, *event in self.heard if stage.startswith(name)]  # type: ignore[misc]

    def _write(self, stage: Stage, *event: Any) -> None:
        self.heard.append((stage.state().name, *event))

    def subscribed(self, stage: Stage) -> None:
        self._write(stage, "subscribed")

    def requested(self, stage: Stage, n: int) -> None:
        self._write(stage, "requested", n)

    def emitted(self, stage: Stage, n: int) -> None:
        self._write(stage, "emitted", n)

    def queued(self, stage: Stage, n: int) -> None:
        self._write(stage, "queued", n)

    def waited(self, stage: Stage, seconds: float) -> None:
        assert seconds >= 0
        self._write(stage, "waited")

    def terminated(self, stage: Stage, outcome: Outcome) -> None:
        self._write(stage, "terminated", outcome)


@pytest.fixture
def listener() -> Writing:
    return Writing()


def test_a_run_is_heard_in_order_and_in_batches(listener: Writing) -> None:
    with listening(listener):
        recorder = Recorder.of(Flux.range(1000).map(str))
    recorder.request(600)
    recorder.request(600)

    assert [tuple(event) for event in listener.of("range(1000) map(str)")] == [
        ("subscribed",),
        ("waited",),
        ("requested", 600),
        ("emitted", 600),
        ("queued", 0),
        ("waited",),
        ("requested", 600),
        ("emitted", 400),
        ("queued", 0),
        ("terminated", Outcome.COMPLETE),
    ]


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.CANCEL, Outcome.COMPLETE])
def test_the_outcome_is_heard(listener: Writing, outcome: Outcome) -> None:
    source = Driven()
    with listening(listener):
        recorder = Recorder.of(source.flux().map(str), first=1)
    if outcome is Outcome.ERROR:
        source.fail(ValueError())
    elif outcome is Outcome.CANCEL:
        recorder.cancel()
    else:
        source.complete()

    assert listener.heard[-1][1:] == ("terminated", outcome)


def test_demand_that_comes_before_the_old_is_used_up_is_no_waiting(listener: Writing) -> None:
    source = Driven()
    with listening(listener):
        recorder = Recorder.of(source.flux().map(str), first=5)
    recorder.request(5)

    assert [event[1] for event in listener.heard].count("waited") == 1


def test_elements_that_wait_in_a_queue_are_heard(listener: Writing) -> None:
    clock = VirtualTimeScheduler(name="pool")
    with listening(listener):
        Recorder.of(Flux.range(100).publish_on(clock, prefetch=8), first=1)
    clock.run_pending()

    assert ["queued", 7] in [list(event) for event in listener.of("publish_on('pool')")]


def test_every_stage_of_a_stream_is_heard_also_on_other_threads(listener: Writing) -> None:
    pool = schedulers.shared_pool()
    with listening(listener):
        recorder = Recorder.of(Flux.range(10).subscribe_on(pool).publish_on(pool).map(str), first=100)
    recorder.wait()

    assert {stage for stage, event, *_ in listener.heard if event == "subscribed"} == {
        "publish_on('shared-pool') map(str)",
        "range(10)",
    }


def test_a_stream_of_before_or_after_the_block_is_not_heard(listener: Writing) -> None:
    before = Recorder.of(Flux.range(3))
    with listening(listener):
        pass
    Recorder.of(Flux.range(3), first=3)
    before.request(3)

    assert listener.heard == []


def test_blocks_may_be_nested_and_the_inner_one_hears(listener: Writing) -> None:
    inner = Writing()
    with listening(listener):
        with listening(inner):
            Recorder.of(Flux.just(1), first=1)
        assert listener.heard == []
        Recorder.of(Flux.just(2), first=1)

    assert {stage for stage, *_ in inner.heard} == {"just(1)"}
    assert {stage for stage, *_ in listener.heard} == {"just(2)"}


EVENTS = ["subscribed", "requested", "emitted", "queued", "waited", "terminated"]


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("error", [KeyError("metrics"), BaseException("metrics")], ids=["error", "base"])
def test_a_listener_that_raises_does_not_harm_the_stream(event: str, error: BaseException) -> None:
    class Faulty(Writing):
        def _write(self, stage: Stage, *said: Any) -> None:
            if said[0] == event:
                raise error

    def source() -> Any:
        try:
            yield from range(3)
        finally:
            closed.append(1)

    dropped: list[BaseException] = []
    closed: list[int] = []
    with on_dropped(error=lambda error, where: dropped.append(error)), listening(Faulty()):
        recorder = Recorder.of(Flux.from_iterable(source()).limit_rate(2).map(str), first=9)
        cancelled = Recorder.of(Flux.never().map(str), first=1).cancel()
    assert (recorder.check().items, recorder.completed, closed) == (["0", "1", "2"], True, [1])
    assert not cancelled.terminated
    assert set(dropped) == {error}

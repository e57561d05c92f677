"""``Sinks.best_effort``: never waits, and a slow subscriber misses elements by a named policy."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import BufferOverflow, EmitResult, Overflow, Sinks
from tests.streams.recording import Recorder


def test_all_that_are_there_receive_it() -> None:
    sink: Any = Sinks.best_effort()
    assert sink.try_emit("nobody") is EmitResult.OK
    a, b = Recorder.of(sink.flux(), first=9), Recorder.of(sink.flux().map(str), first=9)
    assert sink.subscriber_count() == 2
    sink.try_emit(1)
    sink.try_complete()

    assert a.check().items == [1]
    assert b.check().items == ["1"]
    assert a.completed
    assert b.completed
    assert sink.subscriber_count() == 0


@pytest.mark.parametrize(
    ("overflow", "kept", "missed"),
    [
        (Overflow.DROP_OLDEST, [0, 8, 9], [1, 2, 3, 4, 5, 6, 7]),
        (Overflow.DROP_NEWEST, [0, 1, 2], [3, 4, 5, 6, 7, 8, 9]),
    ],
)
def test_one_slow_subscriber_misses_elements_and_nobody_else(
    overflow: Overflow, kept: list[int], missed: list[int]
) -> None:
    dropped: list[int] = []
    sink: Any = Sinks.best_effort(2, overflow, dropped.append)
    quick, slow = Recorder.of(sink.flux(), first=UNBOUNDED), Recorder.of(sink.flux(), first=1)
    assert {sink.try_emit(n) for n in range(10)} == {EmitResult.OK}
    assert quick.items == list(range(10))

    slow.request(9)

    assert slow.check().items == kept
    assert dropped == missed


def test_or_it_fails() -> None:
    sink: Any = Sinks.best_effort(1, Overflow.ERROR)
    quick, slow = Recorder.of(sink.flux(), first=UNBOUNDED), Recorder.of(sink.flux())
    sink.try_emit(1)
    sink.try_emit(2)
    slow.request(1)

    assert isinstance(slow.wait().error, BufferOverflow)
    assert sink.subscriber_count() == 1
    assert sink.try_emit(3) is EmitResult.OK
    assert quick.check().items == [1, 2, 3]


def test_without_a_queue_only_what_was_requested_is_sent() -> None:
    sink: Any = Sinks.best_effort(0)
    recorder = Recorder.of(sink.flux(), first=1)
    sink.try_emit(1)
    sink.try_emit(2)
    recorder.request(1)
    sink.try_emit(3)

    assert recorder.check().items == [1, 3]


@pytest.mark.parametrize("failing", [True, False])
def test_after_the_end_a_subscriber_receives_just_the_end(failing: bool) -> None:
    sink: Any = Sinks.best_effort()
    sink.try_emit(1)
    error = ValueError("x")
    assert (sink.try_error(error) if failing else sink.try_complete()) is EmitResult.OK
    assert sink.try_emit(2) is sink.try_complete() is sink.try_error(error) is EmitResult.TERMINATED
    late = Recorder.of(sink.flux(), first=9)

    assert late.check().items == []
    assert late.error is (error if failing else None)
    assert late.terminated


def test_what_waits_comes_before_the_end() -> None:
    sink: Any = Sinks.best_effort()
    recorder = Recorder.of(sink.flux())
    sink.try_emit(1)
    sink.try_error(ValueError("x"))
    assert not recorder.terminated
    recorder.request(1)

    assert recorder.wait().items == [1]


def test_one_that_leaves_is_forgotten_even_inside_on_next() -> None:
    sink: Any = Sinks.best_effort()
    recorder = Recorder(9, on_element=lambda me, _: me.cancel())
    sink.flux().subscribe(recorder)
    sink.try_emit(1)
    sink.try_emit(2)

    assert recorder.check().items == [1]
    assert sink.subscriber_count() == 0


def test_an_emit_inside_on_next_follows_in_order() -> None:
    sink: Any = Sinks.best_effort()
    recorder = Recorder(99, on_element=lambda _, n: sink.try_emit(n + 1) if n < 20 else None)
    sink.flux().subscribe(recorder)
    sink.try_emit(0)

    assert recorder.check().items == list(range(21))
    assert recorder.deepest == 1


def test_none_and_a_wrong_policy_are_refused() -> None:
    sink: Any = Sinks.best_effort()
    with pytest.raises(TypeError):
        sink.try_emit(None)
    with pytest.raises(TypeError):
        sink.try_error(None)
    with pytest.raises(TypeError, match=r"Overflow\.DROP_OLDEST"):
        Sinks.best_effort(1, "oldest")  # type: ignore[arg-type]


def test_threads_emit_and_subscribers_come_and_go() -> None:
    sink: Any = Sinks.best_effort(100_000)
    stays = Recorder.of(sink.flux(), first=UNBOUNDED)

    def emit(start: int) -> None:
        for n in range(start, start + 1000):
            sink.try_emit(n)
            if n % 100 == 0:
                Recorder.of(sink.flux(), first=1).cancel()

    threads = [threading.Thread(target=emit, args=(n * 1000,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.try_complete()

    assert sorted(stays.wait().items) == list(range(4000))
    assert sink.subscriber_count() == 0

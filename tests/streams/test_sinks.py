"""Sinks: what becomes of an element in each state, who gets what, and who waits for whom."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import EmissionFailed, EmitResult, Sinks
from tests.streams.operators.test_map_async import settled
from tests.streams.recording import Recorder

MANY: dict[str, Any] = {
    "unicast": lambda: Sinks.unicast(2),
    "multicast": lambda: Sinks.multicast(2),
    "replay": lambda: Sinks.replay(2),
}
EACH = pytest.mark.parametrize("make", MANY.values(), ids=MANY)


@EACH
def test_an_element_with_demand_goes_down_at_once(make: Any) -> None:
    sink = make()
    recorder = Recorder.of(sink.flux(), first=9)

    assert sink.try_emit("a") is EmitResult.OK
    assert recorder.items == ["a"]
    assert sink.try_complete() is EmitResult.OK
    assert recorder.completed


@EACH
def test_without_demand_as_many_wait_as_there_is_room(make: Any) -> None:
    sink = make()
    recorder = Recorder.of(sink.flux())

    results = [sink.try_emit(n) for n in range(3)]

    assert results == [EmitResult.OK, EmitResult.OK, EmitResult.OVERFLOW]
    recorder.request(1)
    assert (recorder.items, sink.try_emit(3)) == ([0], EmitResult.OK)
    recorder.request(9)
    assert recorder.check().items == [0, 1, 3]


@EACH
def test_after_the_end_nothing_is_taken(make: Any) -> None:
    for end in (lambda sink: sink.try_complete(), lambda sink: sink.try_error(ValueError())):
        sink = make()
        assert end(sink) is EmitResult.OK

        assert sink.try_emit(1) is EmitResult.TERMINATED
        assert sink.try_complete() is EmitResult.TERMINATED
        assert sink.try_error(ValueError()) is EmitResult.TERMINATED


@EACH
def test_what_was_emitted_before_the_error_still_arrives(make: Any) -> None:
    sink, error = make(), ValueError("x")
    recorder = Recorder.of(sink.flux())
    sink.try_emit(1)
    sink.try_error(error)
    assert not recorder.terminated

    recorder.request(1)

    assert (recorder.items, recorder.error) == ([1], error)


@EACH
def test_none_is_refused_where_it_is_emitted(make: Any) -> None:
    with pytest.raises(TypeError, match=r"2\.13"):
        make().try_emit(None)
    with pytest.raises(TypeError, match=r"2\.13"):
        make().try_error(None)


@EACH
def test_subscribers_are_counted(make: Any) -> None:
    sink = make()
    assert sink.subscriber_count() == 0
    recorder = Recorder.of(sink.flux())
    assert sink.subscriber_count() == 1

    recorder.cancel()

    assert sink.subscriber_count() == 0


# -------------------------------------------------------------------- unicast
def test_a_unicast_sink_keeps_elements_for_its_subscriber() -> None:
    sink = Sinks.unicast(2)
    assert [sink.try_emit(n) for n in range(3)] == [EmitResult.OK, EmitResult.OK, EmitResult.OVERFLOW]

    assert Recorder.of(sink.flux(), first=9).items == [0, 1]


def test_a_second_subscriber_of_a_unicast_sink_is_told_which_sink_to_use() -> None:
    sink = Sinks.unicast()
    first = Recorder.of(sink.flux(), first=1)

    second = Recorder.of(sink.flux(), first=1)
    sink.try_emit("a")

    assert isinstance(second.error, RuntimeError)
    assert "Sinks.multicast()" in str(second.error)
    assert (first.items, second.check().items) == (["a"], [])


def test_when_the_only_subscriber_has_left_the_sink_says_so() -> None:
    sink = Sinks.unicast()
    Recorder.of(sink.flux(), first=1).cancel()

    assert sink.try_emit("a") is EmitResult.CANCELLED


# -------------------------------------------------------------------- multicast
def test_all_subscribers_get_the_same_and_the_slowest_sets_the_bound() -> None:
    sink = Sinks.multicast(2)
    quick, slow = Recorder.of(sink.flux(), first=UNBOUNDED), Recorder.of(sink.flux())
    assert [sink.try_emit(n) for n in range(3)] == [EmitResult.OK, EmitResult.OK, EmitResult.OVERFLOW]

    slow.request(2)

    assert sink.try_emit(3) is EmitResult.OK
    assert (quick.items, slow.items) == ([0, 1, 3], [0, 1])


def test_a_slow_subscriber_that_leaves_makes_room() -> None:
    sink = Sinks.multicast(1)
    quick, slow = Recorder.of(sink.flux(), first=UNBOUNDED), Recorder.of(sink.flux())
    sink.try_emit(1)
    assert sink.try_emit(2) is EmitResult.OVERFLOW

    slow.cancel()

    assert sink.try_emit(2) is EmitResult.OK
    assert quick.items == [1, 2]


def test_elements_wait_for_the_first_subscriber_and_late_ones_miss_what_was_read() -> None:
    sink = Sinks.multicast()
    sink.try_emit(1)
    first = Recorder.of(sink.flux(), first=9)
    sink.try_emit(2)
    late = Recorder.of(sink.flux(), first=9)
    sink.try_emit(3)

    assert (first.items, late.items) == ([1, 2, 3], [3])


def test_what_the_last_subscriber_has_read_is_gone_when_it_leaves() -> None:
    sink = Sinks.multicast()
    first = Recorder.of(sink.flux(), first=1)
    sink.try_emit(1)
    sink.try_emit(2)
    first.cancel()

    assert Recorder.of(sink.flux(), first=9).items == [2]


def test_a_late_subscriber_of_a_sink_that_has_ended_gets_the_end() -> None:
    sink = Sinks.multicast()
    sink.try_complete()

    assert Recorder.of(sink.flux()).completed


# -------------------------------------------------------------------- replay
def test_a_replaying_sink_gives_its_history_to_every_new_subscriber() -> None:
    sink = Sinks.replay(2)
    for n in range(5):
        assert sink.try_emit(n) is EmitResult.OK
    early = Recorder.of(sink.flux(), first=UNBOUNDED)
    sink.try_emit(5)
    late = Recorder.of(sink.flux(), first=UNBOUNDED)
    sink.try_complete()

    assert (early.items, late.items) == ([3, 4, 5], [4, 5])
    assert Recorder.of(sink.flux(), first=9).items == [4, 5]


# -------------------------------------------------------------------- one
def test_one_value_for_everybody_however_late() -> None:
    sink = Sinks.one()
    early = Recorder.of(sink.mono(), first=1)

    assert sink.try_value("a") is EmitResult.OK
    assert sink.try_value("b") is EmitResult.TERMINATED
    assert sink.try_empty() is EmitResult.TERMINATED
    assert sink.try_error(ValueError()) is EmitResult.TERMINATED

    assert early.check().items == Recorder.of(sink.mono(), first=1).items == ["a"]
    assert early.completed
    assert sink.mono().block() == "a"


def test_one_may_be_empty_or_fail() -> None:
    empty, failed, error = Sinks.one(), Sinks.one(), ValueError("x")
    empty.try_empty()
    failed.try_error(error)

    assert Recorder.of(empty.mono()).completed
    assert Recorder.of(failed.mono()).error is error
    with pytest.raises(TypeError, match=r"2\.13"):
        Sinks.one().try_value(None)


def test_a_subscriber_that_sets_the_value_again_does_not_lock_up() -> None:
    sink, results = Sinks.one(), []
    Recorder.of(sink.mono())
    again = Recorder(1, on_element=lambda *_: results.append(sink.try_value("b")))
    sink.mono().subscribe(again)

    sink.try_value("a")

    assert (results, again.check().items) == ([EmitResult.TERMINATED], ["a"])


# -------------------------------------------------------------------- waiting for room
@EACH
def test_await_emit_waits_for_demand_and_goes_on(make: Any) -> None:
    async def main() -> None:
        sink = make()
        recorder = Recorder.of(sink.flux())
        await sink.emit(0)
        await sink.emit(1)
        waiting = asyncio.create_task(sink.emit(2))
        await settled()
        assert not waiting.done()
        recorder.request(1)
        await asyncio.wait_for(waiting, 20)
        recorder.request(9)
        assert recorder.items == [0, 1, 2]

    asyncio.run(main())


@EACH
def test_await_emit_fails_when_the_sink_ends_meanwhile(make: Any) -> None:
    async def main() -> None:
        sink = make()
        Recorder.of(sink.flux())
        sink.try_emit(0)
        sink.try_emit(1)
        waiting = asyncio.create_task(sink.emit(2))
        await settled()
        sink.try_complete()
        with pytest.raises(EmissionFailed, match="terminated") as failed:
            await waiting
        assert failed.value.result is EmitResult.TERMINATED

    asyncio.run(main())


def test_await_emit_fails_when_the_only_subscriber_leaves() -> None:
    async def main() -> None:
        sink = Sinks.unicast(1)
        recorder = Recorder.of(sink.flux())
        await sink.emit(0)
        waiting = asyncio.create_task(sink.emit(1))
        await settled()
        recorder.cancel()
        with pytest.raises(EmissionFailed, match="cancelled"):
            await waiting

    asyncio.run(main())


def test_a_reader_is_not_harmed_by_the_closed_loop_of_one_who_waited() -> None:
    sink = Sinks.unicast(1)
    recorder = Recorder.of(sink.flux())
    sink.try_emit(0)

    async def give_up() -> None:
        waiting = asyncio.create_task(sink.emit(1))
        await settled()
        waiting.cancel()

    asyncio.run(give_up())
    recorder.request(1)

    assert (recorder.check().items, recorder.error) == ([0], None)


def test_emit_blocking_waits_on_a_thread_and_gives_up_after_its_timeout() -> None:
    sink = Sinks.unicast(1)
    recorder = Recorder.of(sink.flux())
    sink.emit_blocking(0)
    with pytest.raises(TimeoutError, match=r"unicast was full for 0\.001 s"):
        sink.emit_blocking(1, timeout=0.001)

    emitted = threading.Event()
    thread = threading.Thread(target=lambda: (sink.emit_blocking(1), emitted.set()))
    thread.start()
    recorder.request(1)
    thread.join(20)

    assert emitted.is_set()
    recorder.request(1)
    assert recorder.items == [0, 1]
    sink.try_complete()
    with pytest.raises(EmissionFailed):
        sink.emit_blocking(2)


def test_many_threads_emit_through_a_small_sink() -> None:
    sink = Sinks.multicast(4)
    recorder = Recorder(1, on_element=lambda recorder, _: recorder.request(1))
    sink.flux().subscribe(recorder)
    threads = [
        threading.Thread(target=lambda base=base: [sink.emit_blocking(base + n, 20) for n in range(300)])
        for base in (0, 1000, 2000)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sink.try_complete()

    assert sorted(recorder.wait().items) == [base + n for base in (0, 1000, 2000) for n in range(300)]

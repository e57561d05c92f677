"""``filter_when``, ``delay_until`` and ``zip_when``: another stream answers for each element."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, Sinks, schedulers
from tests.streams.operators.rigs import Counting, Oops, oops
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


def odd(x: int) -> Mono[int]:
    return Mono.just(x % 2)


# -------------------------------------------------------------------- filter_when
@pytest.mark.parametrize("concurrency", [1, 3, 50])
def test_filter_when_keeps_what_the_answers_say_in_order(concurrency: int) -> None:
    assert list(Flux.range(20).filter_when(odd, concurrency=concurrency)) == list(range(1, 20, 2))


@pytest.mark.parametrize("concurrency", [1, 4])
def test_filter_when_keeps_the_order_when_answers_come_in_another(concurrency: int) -> None:
    async def even(x: int) -> bool:
        for _ in range(7 - x % 7):
            await asyncio.sleep(0)
        return x % 2 == 0

    found = Flux.range(50).filter_when(even, concurrency=concurrency).collect_list().block(20)

    assert found == list(range(0, 50, 2))


@pytest.mark.parametrize(
    ("answer", "kept"),
    [
        (lambda _: Mono.empty(), False),
        (lambda _: [], False),
        (lambda _: [True, False], True),
        (lambda _: [0, 1], False),
        (lambda _: Flux.just("yes").concat_with(Flux.never()), True),
    ],
)
def test_the_first_answer_counts_and_none_is_a_no(answer: Any, kept: bool) -> None:
    assert Flux.just(7).filter_when(answer).collect_list().block(20) == [7] * kept
    assert Mono.just(7).filter_when(answer).block(20) == (7 if kept else None)


def test_an_element_that_is_false_itself_may_be_kept() -> None:
    assert list(Flux.just(0, "", False).filter_when(lambda _: Mono.just(True))) == [0, "", False]


def test_so_many_elements_are_asked_about_at_once() -> None:
    answers = [Sinks.one() for _ in range(4)]
    source = Driven()
    recorder = Recorder.of(source.flux().filter_when(lambda x: answers[x].mono(), concurrency=2), UNBOUNDED)
    assert source.requests == [2]
    source.emit(0, 1)
    answers[1].try_value(True)
    assert (recorder.items, source.requests) == ([], [2])
    answers[0].try_value(True)

    assert recorder.items == [0, 1]
    assert sum(source.requests) == 4
    recorder.check()


# -------------------------------------------------------------------- delay_until
def test_delay_until_waits_for_the_end_of_the_trigger() -> None:
    trigger: Any = Sinks.unicast()
    recorder = Recorder.of(Flux.just(1).delay_until(lambda _: trigger.flux()), UNBOUNDED)
    trigger.try_emit("ignored")
    assert recorder.items == []
    trigger.try_complete()

    assert recorder.items == [1]
    assert recorder.completed


def test_delay_until_deals_with_one_element_after_the_other() -> None:
    asked: list[int] = []
    triggers = [Sinks.one() for _ in range(3)]

    def trigger(x: int) -> Mono[Any]:
        asked.append(x)
        return triggers[x].mono()

    recorder = Recorder.of(Flux.range(3).delay_until(trigger), UNBOUNDED)
    assert asked == [0]
    triggers[0].try_empty()
    assert (asked, recorder.items) == ([0, 1], [0])
    triggers[1].try_value("x")
    triggers[2].try_empty()

    assert recorder.items == [0, 1, 2]


def test_delay_until_on_threads() -> None:
    with schedulers.pool(3, "triggers") as pool:
        flux = Flux.range(300).delay_until(lambda _: Mono.empty().subscribe_on(pool))

        assert flux.collect_list().block(30) == list(range(300))


# -------------------------------------------------------------------- zip_when
def test_zip_when_pairs_the_element_with_what_it_leads_to() -> None:
    async def name(x: int) -> str:
        return f"n{x}"

    assert Mono.just(3).zip_when(name).block(20) == (3, "n3")
    assert Mono.just(3).zip_when(lambda x: [x, x + 1], lambda a, b: a * 10 + b).block() == 33
    assert Mono.just(3).zip_when(lambda _: Mono.empty()).block() is None
    assert Mono.empty().zip_when(oops).block() is None


# -------------------------------------------------------------------- all of them
OPERATORS: dict[str, Any] = {
    "Flux.filter_when": lambda answer: lambda f: f.filter_when(answer),
    "Flux.filter_when, several": lambda answer: lambda f: f.filter_when(answer, concurrency=3),
    "Flux.delay_until": lambda answer: lambda f: f.delay_until(answer),
    "Mono.filter_when": lambda answer: lambda f: f.first().filter_when(answer),
    "Mono.delay_until": lambda answer: lambda f: f.first().delay_until(answer),
    "Mono.zip_when": lambda answer: lambda f: f.first().zip_when(answer),
}
EACH = pytest.mark.parametrize("operator", OPERATORS)


@EACH
@pytest.mark.parametrize("answer", [oops, lambda _: Mono.error(Oops("stream")), lambda _: 3])
def test_what_fails_ends_the_stream_and_closes_the_source(operator: str, answer: Any) -> None:
    source = Counting(10)
    recorder = Recorder.of(OPERATORS[operator](answer)(Flux.from_iterable(source)), 1)

    assert isinstance(recorder.error, Oops | TypeError)
    assert source.closed
    recorder.check()


@EACH
def test_a_cancel_reaches_the_source_and_the_answer(operator: str) -> None:
    cancelled = threading.Event()
    source = Driven()
    answer = Mono.never().do_on_cancel(cancelled.set)
    recorder = Recorder.of(OPERATORS[operator](lambda _: answer)(source.flux()), 1)
    source.emit(1)
    recorder.cancel()

    assert cancelled.is_set()
    assert source.cancelled


@EACH
def test_an_error_of_the_source_is_passed_on(operator: str) -> None:
    recorder = Recorder.of(OPERATORS[operator](odd)(Flux.error(Oops("source"))), 1)

    assert isinstance(recorder.error, Oops)


@EACH
def test_no_element_is_sent_without_demand(operator: str) -> None:
    recorder = Recorder.of(OPERATORS[operator](lambda _: Mono.just(1))(Flux.range(5)))
    assert recorder.items == []
    recorder.request(1)

    assert len(recorder.items) == 1
    recorder.check()


@EACH
@pytest.mark.parametrize("wrong", [None, 3])
def test_a_function_is_needed(operator: str, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"_when|delay_until"):
        OPERATORS[operator](wrong)(Flux.just(1))

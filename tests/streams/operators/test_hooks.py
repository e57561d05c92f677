"""Operators that look at what passes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, Outcome, on_dropped
from penstock.streams.api.hooks import Signal
from tests.streams.operators.rigs import (
    Counting,
    Oops,
    Operator,
    asked_of_the_source,
    check_that_a_cancel_stops_it,
    check_that_an_exception_ends_it,
    failure,
    oops,
    result,
)
from tests.streams.recording import Recorder, logged_here

Events = list[tuple[Any, ...]]


def ignore(*_: Any) -> None: ...


PEEKING: dict[str, Operator] = {
    "do_on_next": lambda s: s.do_on_next(ignore),
    "do_on_error": lambda s: s.do_on_error(ignore),
    "do_on_complete": lambda s: s.do_on_complete(ignore),
    "do_on_cancel": lambda s: s.do_on_cancel(ignore),
    "do_on_subscribe": lambda s: s.do_on_subscribe(ignore),
    "do_on_request": lambda s: s.do_on_request(ignore),
    "do_on_each": lambda s: s.do_on_each(ignore),
    "do_on_terminate": lambda s: s.do_on_terminate(ignore),
    "do_finally": lambda s: s.do_finally(ignore),
    "log": lambda s: s.log(level=logging.DEBUG),
    "checkpoint": lambda s: s.checkpoint("here"),
    "named": lambda s: s.named("numbers"),
}


def watched(stream: Any, events: Events, name: str) -> Any:
    """Everything that happens to ``stream`` is written down under ``name``."""

    def note(what: str) -> Callable[..., None]:
        return lambda *details: events.append((name, what, *details))

    return (
        stream.do_on_subscribe(lambda _: note("subscribe")())
        .do_on_request(note("request"))
        .do_on_next(note("next"))
        .do_on_complete(note("complete"))
        .do_on_error(lambda error: note("error")(type(error)))
        .do_on_cancel(note("cancel"))
        .do_on_terminate(note("terminate"))
        .do_finally(note("finally"))
    )


@pytest.mark.parametrize("name", PEEKING)
def test_it_changes_nothing(name: str) -> None:
    peek = PEEKING[name]

    assert result(peek(Flux.just(1, 2, 3))) == [1, 2, 3]
    assert result(peek(Flux.empty())) == []
    assert result(peek(Mono.just(1))) == [1]
    assert result(peek(Mono.empty())) == []
    assert isinstance(failure(peek(Flux.just(1).map(oops))), Oops)
    assert isinstance(peek(Flux.just(1)), Flux)
    assert isinstance(peek(Mono.just(1)), Mono)


@pytest.mark.parametrize("name", PEEKING)
def test_demand_passes_unchanged(name: str) -> None:
    assert asked_of_the_source(PEEKING[name], 1, 4) == [1, 5]


@pytest.mark.parametrize("name", PEEKING)
def test_a_cancel_in_the_middle_closes_the_source(name: str) -> None:
    check_that_a_cancel_stops_it(PEEKING[name])


@pytest.mark.parametrize("name", [name for name in PEEKING if name.startswith("do_")])
def test_something_that_is_no_function_is_refused_where_it_is_written(name: str) -> None:
    for stream in (Flux.just(1), Mono.just(1)):
        with pytest.raises(TypeError, match=rf"{name}\(\) needs a function, not 7"):
            getattr(stream, name)(7)


@pytest.mark.parametrize("name", ["do_on_next", "do_on_each", "do_on_complete", "do_on_terminate"])
def test_an_exception_becomes_the_error_of_the_stream(name: str) -> None:
    check_that_an_exception_ends_it(lambda f: getattr(f, name)(oops), name, __file__)


def test_the_signals_of_a_stream_that_completes() -> None:
    events: Events = []

    result(watched(Flux.just("a", "b"), events, "it").collect_list())

    assert events == [
        ("it", "subscribe"),
        ("it", "request", UNBOUNDED),
        ("it", "next", "a"),
        ("it", "next", "b"),
        ("it", "complete"),
        ("it", "terminate"),
        ("it", "finally", Outcome.COMPLETE),
    ]


def test_the_signals_of_a_stream_that_fails() -> None:
    events: Events = []

    failure(watched(Flux.just("a").map(oops), events, "it"))

    assert events == [
        ("it", "subscribe"),
        ("it", "request", 1_000),
        ("it", "error", Oops),
        ("it", "terminate"),
        ("it", "finally", Outcome.ERROR),
    ]


def test_the_signals_of_a_stream_that_is_cancelled() -> None:
    events: Events = []
    recorder = Recorder(1)
    watched(Flux.just("a", "b"), events, "it").subscribe(recorder)

    recorder.cancel()

    assert events == [
        ("it", "subscribe"),
        ("it", "request", 1),
        ("it", "next", "a"),
        ("it", "cancel"),
        ("it", "finally", Outcome.CANCEL),
    ]


def test_above_an_operator_that_ends_early_the_stream_is_cancelled_and_below_it_completes() -> None:
    events: Events = []

    result(watched(watched(Flux.just("a", "b"), events, "above").take(1), events, "below"))

    ends = [event for event in events if event[1] in ("complete", "cancel", "error", "finally")]
    assert ends == [
        ("below", "complete"),
        ("above", "cancel"),
        ("below", "finally", Outcome.COMPLETE),
        ("above", "finally", Outcome.CANCEL),
    ]


def test_above_an_operator_that_raises_the_stream_is_cancelled_and_below_it_fails() -> None:
    events: Events = []

    failure(watched(watched(Flux.just("a"), events, "above").map(oops), events, "below"))

    ends = [event for event in events if event[1] in ("complete", "cancel", "error", "finally")]
    assert ends == [
        ("below", "error", Oops),
        ("above", "cancel"),
        ("below", "finally", Outcome.ERROR),
        ("above", "finally", Outcome.CANCEL),
    ]


def test_the_end_above_a_buffer_comes_before_its_last_list() -> None:
    events: Events = []
    above = Flux.just(1).do_on_complete(lambda: events.append(("complete above",)))

    result(above.buffer(2).do_on_next(lambda piece: events.append(("list", piece))))

    assert events == [("complete above",), ("list", [1])]


def test_do_on_error_hears_of_errors_of_its_type_only() -> None:
    heard: list[BaseException] = []
    failing = Flux.just(1).map(oops)

    error = failure(failing.do_on_error(heard.append, KeyError).do_on_error(heard.append, (OSError, Oops)))

    assert heard == [error]


def test_do_on_error_needs_a_class_of_errors() -> None:
    for wrong in ("OSError", int, (OSError, int)):
        with pytest.raises(TypeError, match=r"do_on_error\(\) needs a class of errors"):
            Flux.just(1).do_on_error(ignore, wrong)


def test_what_do_on_error_raises_takes_the_place_of_the_error() -> None:
    def translate(error: Exception) -> None:
        raise KeyError("translated") from error

    error = failure(Flux.just(1).map(oops).do_on_error(translate))

    assert isinstance(error, KeyError)
    assert isinstance(error.__cause__, Oops)


@pytest.mark.parametrize("name", ["do_on_cancel", "do_on_request", "do_finally"])
def test_what_has_nobody_to_go_to_is_reported_as_dropped(name: str) -> None:
    dropped: list[BaseException] = []
    with on_dropped(error=lambda error, where: dropped.append(error)):
        items = result(getattr(Flux.just(1, 2), name)(oops).take(1))

    assert items == [1]
    assert [type(error) for error in dropped] == [Oops]


def test_an_exception_in_do_on_subscribe_is_the_error_of_the_stream() -> None:
    source = Counting()

    assert isinstance(failure(Flux.from_iterable(source).do_on_subscribe(oops)), Oops)
    assert source.taken == 0


@pytest.mark.parametrize(
    ("below", "expected"),
    [
        pytest.param(lambda f: f.map(str), [5], id="map"),
        pytest.param(lambda f: f.buffer(3), [15], id="buffer"),
        pytest.param(lambda f: f.take(2), [2], id="take"),
        pytest.param(lambda f: f.skip(2), [7], id="skip"),
        pytest.param(lambda f: f.count(), [UNBOUNDED], id="count"),
    ],
)
def test_do_on_request_hears_what_the_operators_below_ask_for(below: Operator, expected: list[int]) -> None:
    heard: list[int] = []
    below(Flux.range(1, 100).do_on_request(heard.append)).subscribe(Recorder(5))

    assert heard == expected


def test_do_on_each_hears_elements_and_the_end() -> None:
    signals: list[Signal[int]] = []

    result(Flux.just(1, 2).do_on_each(signals.append))

    assert signals == [Signal("next", 1), Signal("next", 2), Signal("complete")]


def test_do_on_each_hears_an_error() -> None:
    signals: list[Signal[int]] = []

    error = failure(Flux.just(1).map(oops).do_on_each(signals.append))

    assert signals == [Signal("error", error=error)]


def test_each_subscriber_is_watched_for_itself() -> None:
    events: Events = []
    stream = watched(Flux.just("a"), events, "it")

    result(stream)
    first, events[:] = list(events), []
    result(stream)

    assert events == first


def test_log_writes_every_signal(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock.streams"):
        result(Flux.just("a", {"k": 1}).log("letters").collect_list())
        Flux.just("a", "b").log().subscribe(Recorder(1, on_element=lambda recorder, _: recorder.cancel()))

    assert [(record.name, record.getMessage()) for record in logged_here(caplog)] == [
        ("penstock.streams.letters", "on_subscribe"),
        ("penstock.streams.letters", "request(unbounded)"),
        ("penstock.streams.letters", "on_next('a')"),
        ("penstock.streams.letters", "on_next({'k': 1})"),
        ("penstock.streams.letters", "on_complete"),
        ("penstock.streams", "on_subscribe"),
        ("penstock.streams", "request(1)"),
        ("penstock.streams", "on_next('a')"),
        ("penstock.streams", "cancel"),
    ]


def test_log_writes_an_error_with_its_traceback_whatever_the_level(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock.streams"):
        error = failure(Flux.just("a").map(oops).log("letters", logging.DEBUG))

    (record,) = logged_here(caplog)
    assert record.levelno == logging.ERROR
    assert record.getMessage() == f"on_error({error!r})"
    assert record.exc_info is not None
    assert record.exc_info[1] is error


def test_log_refuses_what_is_no_name_or_level() -> None:
    with pytest.raises(TypeError, match=r"log\(\) needs a text, not 7"):
        Flux.just(1).log(7)
    with pytest.raises(TypeError, match=r"log\(\) needs a level"):
        Flux.just(1).log("x", "INFO")


def test_a_checkpoint_notes_its_description_and_place_on_an_error() -> None:
    error = failure(Flux.just(1).map(oops).checkpoint("prices of today").checkpoint())

    origin, described, bare = error.__notes__
    assert " map(" in origin
    assert described.startswith("passed the checkpoint 'prices of today', at ")
    assert bare.startswith("passed a checkpoint, at ")
    assert __file__ in described
    assert __file__ in bare


def test_a_checkpoint_above_the_failing_operator_says_nothing() -> None:
    error = failure(Flux.just(1).checkpoint("above").map(oops))

    assert len(error.__notes__) == 1


def test_a_checkpoint_notes_the_same_error_once() -> None:
    error = Oops("again and again")
    failing = Flux.error(error).checkpoint("here")
    failure(failing)
    failure(failing)

    assert len([note for note in error.__notes__ if note.startswith("passed")]) == 1


def test_a_name_is_shown_with_the_stream() -> None:
    assert "named('numbers')" in repr(Flux.just(1).named("numbers"))
    for wrong in ("", None, 7):
        with pytest.raises(TypeError, match=r"named\(\) needs a"):
            Flux.just(1).named(wrong)


def test_do_on_success_hears_of_the_element_or_of_none() -> None:
    heard: list[Any] = []

    assert result(Mono.just(1).do_on_success(heard.append)) == [1]
    assert result(Mono.empty().do_on_success(heard.append)) == []
    failure(Mono.just(1).map(oops).do_on_success(heard.append))

    assert heard == [1, None]


@pytest.mark.parametrize("mono", [Mono.just(1), Mono.empty()], ids=["just", "empty"])
def test_an_exception_in_do_on_success_fails_the_mono(mono: Mono[int]) -> None:
    error = failure(mono.do_on_success(oops))

    assert isinstance(error, Oops)
    assert " do_on_success(" in error.__notes__[0]


def test_do_on_success_needs_a_function() -> None:
    with pytest.raises(TypeError, match=r"do_on_success\(\) needs a function"):
        Mono.just(1).do_on_success(7)

"""The step verifier: what passes, what fails, and what it says then."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock.streams import Flux, Mono, Overflow, Sink, Sinks
from penstock.streams.spi import drop_error
from penstock.testing import ExpectationFailed, TestPublisher, verify, virtual_time
from penstock.testing.virtual_time import present_clock


def failing(*_: object) -> None:
    raise ValueError("no such thing")


# ---------------------------------------------------------------- steps that pass


def test_the_steps_of_a_stream_from_its_first_request_to_its_end() -> None:
    verify(Flux.range(1, 3)).request(2).next(1, 2).request(1).next(3).complete()


def test_without_a_request_everything_is_asked_for() -> None:
    verify(Flux.range(1, 3)).next(1, 2, 3).complete()


def test_demand_is_exactly_what_the_test_asks_for() -> None:
    source: TestPublisher[int] = TestPublisher()
    verifier = verify(source).request(2)
    assert source.requested == 2
    verifier.request(3)
    assert source.requested == 5
    verifier.cancel()
    assert source.cancelled == 1


def test_no_demand_at_the_beginning() -> None:
    source: TestPublisher[int] = TestPublisher()
    with verify(source, demand=0) as verifier:
        verifier.no_event(for_=0)
        assert source.requested == 0


def test_a_mono_and_a_foreign_publisher_are_verified_alike() -> None:
    verify(Mono.just("a")).next("a").complete()
    source: TestPublisher[str] = TestPublisher()
    verify(source).then(lambda: source.next("a")).next("a").then(source.complete).complete()


def test_an_error_by_its_class_and_its_text() -> None:
    flux = Flux.just(1).do_on_next(failing)

    verify(flux).error(ValueError, match="such")
    verify(flux).error((OSError, ValueError))
    verify(flux).error()


def test_elements_by_a_function_and_by_their_number() -> None:
    verify(Flux.range(10)).next_where(lambda x: x < 1, lambda x: x > 0).next_count(8).complete()


def test_elements_of_another_thread_are_waited_for() -> None:
    sink: Sink[int] = Sinks.unicast()
    thread = threading.Thread(target=lambda: [sink.try_emit(1), sink.try_emit(2), sink.try_complete()])

    verify(sink.flux()).then(thread.start).next(1, 2).complete()
    thread.join()


def test_nothing_happens_in_real_time_either() -> None:
    with verify(Flux.never()) as verifier:
        verifier.no_event(for_=0.001)


def test_virtual_time_inside_the_verifier() -> None:
    hourly = Flux.interval(3600)

    verify(hourly, virtual=True).no_event(for_=3599).wait(1).next(0).wait(7200).next(1, 2).cancel()


def test_the_clock_of_the_block_round_it() -> None:
    with virtual_time() as clock:
        verify(Flux.interval(60)).no_event(for_=59).then(lambda: None).wait(1).next(0).cancel()

        assert clock.now() == 60
        assert clock.pending == 0


def test_dropped_elements() -> None:
    source: TestPublisher[int] = TestPublisher()
    dropped: list[int] = []
    flux = source.flux().on_backpressure_buffer(1, Overflow.DROP_OLDEST, dropped.append)

    verify(flux).request(1).then(lambda: source.next(1, 2, 3)).next(1).cancel()

    assert dropped == [2]


def test_elements_that_wait_when_an_operator_below_fails_are_dropped() -> None:
    source: TestPublisher[int] = TestPublisher()
    flux = source.flux().concat_map(lambda _: Flux.never(), prefetch=3)

    def more_and_fail() -> None:
        source.next(1, 2, 3)
        source.error(ValueError("late"))

    with verify(flux) as verifier:
        verifier.then(more_and_fail)
        verifier.dropped()


def test_dropped_errors_are_expected_or_fail_the_test() -> None:
    lost = ValueError("nobody there")

    def lose() -> None:
        drop_error(lost, "here")

    verify(Flux.never()).then(lose).dropped_error(ValueError, match="there").cancel()
    with pytest.raises(ExpectationFailed, match="no error to be dropped") as failed:
        verify(Flux.never()).then(lose).cancel()
    assert failed.value.__cause__ is lost


def test_two_verifiers_at_once_end_in_any_order() -> None:
    one, other = verify(Flux.never()).no_event(for_=0), verify(Flux.never()).no_event(for_=0)
    one.cancel()
    other.then(lambda: drop_error(ValueError("x"), "here")).dropped_error(ValueError).cancel()


# ---------------------------------------------------------------- steps that fail


def test_a_failure_says_what_was_expected_what_came_and_all_signals_with_their_times() -> None:
    with pytest.raises(ExpectationFailed) as failed:
        verify(Flux.interval(1.5).take(3), virtual=True).request(2).wait(3).next(0, 7)

    assert str(failed.value).splitlines() == [
        "expected  next(7), number 2 of 2",
        "came      on_next(1) at 3.000 s",
        "signals so far:",
        "      0.000 s  on_subscribe()",
        "      0.000 s  request(2)",
        "      1.500 s  on_next(0)",
        "      3.000 s  on_next(1)",
    ]


@pytest.mark.parametrize(
    ("steps", "expected", "came"),
    [
        (lambda: verify(Flux.just(1)).next(1, 2), "next(2)", "on_complete()"),
        (lambda: verify(Flux.just(1)).complete(), "complete()", "on_next(1)"),
        (lambda: verify(Flux.just(1)).no_event(for_=0.001), "no event", "on_next(1)"),
        (lambda: verify(Flux.empty()).next_count(1), "element 1 of 1", "on_complete()"),
        (lambda: verify(Flux.just(1)).next_where(lambda x: x > 1), "<lambda> is true", "on_next(1)"),
        (lambda: verify(Flux.just(1)).next(1).error(), "error(Exception)", "on_complete()"),
        (lambda: verify(Flux.error(OSError("x"))).error(ValueError), "error(ValueError)", "on_error(OSError"),
        (lambda: verify(Flux.error(OSError("x"))).error(OSError, match="y"), "match='y'", "on_error(OSError"),
        (lambda: verify(Flux.never(), timeout=0.01).next(1), "next(1)", "nothing within 0.01 s"),
        (lambda: verify(Flux.just(1), virtual=True).next(1).dropped(2), "[2] to be dropped", "[]"),
        (lambda: verify(Flux.never()).dropped_error(), "Exception to be dropped", "none"),
    ],
)
def test_what_does_not_happen_fails(steps: object, expected: str, came: str) -> None:
    assert callable(steps)
    with pytest.raises(ExpectationFailed) as failed:
        steps()

    first, second, *_ = str(failed.value).splitlines()
    assert expected in first
    assert came in second


def test_an_error_that_came_is_the_cause_of_the_failure() -> None:
    error = OSError("gone")
    with pytest.raises(ExpectationFailed) as failed:
        verify(Flux.error(error)).next(1)

    assert failed.value.__cause__ is error


def test_a_failure_cancels_the_stream() -> None:
    source: TestPublisher[int] = TestPublisher()
    with pytest.raises(ExpectationFailed):
        verify(source).then(lambda: source.next(1)).next(2)

    assert source.cancelled == 1


class Odd:
    def __eq__(self, other: object) -> bool:
        raise ValueError("not to be compared")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "step",
    [
        lambda verifier: verifier.then(failing),
        lambda verifier: verifier.next_where(failing),
        lambda verifier: verifier.next(Odd()),
        lambda verifier: verifier.request("many").cancel(),
        lambda verifier: verifier.no_event(for_="long"),
        lambda verifier: verifier.error("ValueError"),
    ],
)
def test_whatever_a_step_raises_time_is_real_afterwards(step: Any) -> None:
    """pytest keeps what was raised, and the tests that follow would wait for a clock that nobody moves."""
    source: TestPublisher[int] = TestPublisher()
    verifier = verify(source, virtual=True).then(lambda: source.next(1))

    with pytest.raises(Exception) as kept:  # noqa: PT011
        step(verifier)

    assert kept.tb is not None
    assert present_clock() is None
    assert source.cancelled == 1


def test_waiting_timers_are_named() -> None:
    with pytest.raises(ExpectationFailed, match=r"1 timers wait for the virtual clock: add wait\(seconds\)"):
        verify(Flux.interval(1), virtual=True, timeout=0.01).next(0)


@pytest.mark.parametrize(
    ("broken", "demand", "misbehave"),
    [
        ("1.1", 0, lambda source: source.next(1)),
        ("1.7", 1, lambda source: (source.complete(), source.next(1))),
        ("1.9", 1, lambda source: source.next(1)),
        ("2.13", 1, lambda source: source.next(None)),
    ],
)
def test_a_publisher_that_breaks_a_rule_fails_the_test(broken: str, demand: int, misbehave: Any) -> None:
    source: TestPublisher[Any] = TestPublisher(breaks=broken)
    verifier = verify(source, demand=demand, timeout=0.05)

    with pytest.raises(ExpectationFailed, match="on_subscribe" if broken == "1.9" else f"§{broken}"):
        verifier.then(lambda: misbehave(source))


# ---------------------------------------------------------------- wrong use


def test_a_verification_that_was_never_ended_is_reported() -> None:
    verifier = verify(Flux.never()).no_event(for_=0)

    left = [verifier]
    del verifier

    with pytest.warns(ResourceWarning, match="never ended"):
        left.clear()


def test_no_step_follows_the_last_one() -> None:
    with pytest.raises(RuntimeError, match="has ended"):
        verify(Flux.empty()).complete().next(1)


def test_it_always_has_a_time_out() -> None:
    with pytest.raises(ValueError, match="always has a time-out"):
        verify(Flux.empty(), timeout=float("inf"))


def test_it_does_not_block_an_event_loop() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="to_thread"):
            verify(Flux.empty())
        await asyncio.to_thread(lambda: verify(Flux.just(1)).next(1).complete())

    asyncio.run(main())


def test_a_block_without_a_step_verifies_nothing_and_says_so() -> None:
    source: TestPublisher[int] = TestPublisher()

    with pytest.raises(RuntimeError, match="nothing was verified"), verify(source):
        pass

    assert source.requested == 0


def test_an_error_of_the_test_itself_comes_out_of_a_block_without_a_step() -> None:
    with pytest.raises(ValueError, match="no such thing"), verify(Flux.range(3)):
        failing()


@pytest.mark.parametrize("step", ["error", "dropped_error"])
@pytest.mark.parametrize("kind", ["ValueError", ValueError("x"), (ValueError, "OSError"), int, None, ()])
def test_a_step_that_expects_an_error_needs_a_class_of_exceptions(step: str, kind: Any) -> None:
    verifier = verify(Flux.error(ValueError("no such thing")))

    with pytest.raises(TypeError, match=rf"{step}\(\) needs .*class"):
        getattr(verifier, step)(kind)


def test_a_dropped_error_may_be_of_one_of_several_classes() -> None:
    source: TestPublisher[int] = TestPublisher()
    verifier = verify(source).then(lambda: drop_error(OSError("gone"), "a test"))

    verifier.dropped_error((KeyError, OSError), match="gone").cancel()

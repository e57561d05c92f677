"""``using_when``: a resource that is opened and closed asynchronously is closed exactly once."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono, Sinks, on_dropped
from penstock.streams.spi import PublisherSource, mono_of
from tests.streams.operators.rigs import Elsewhere, Oops, failure, oops, result
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


class Log(list[str]):
    """What was done to the resource."""

    def cleanup(self, resource: Any) -> None:
        self.append(f"close {resource}")

    def on_error(self, resource: Any, error: BaseException) -> None:
        self.append(f"roll back {resource} {error}")

    def on_cancel(self, resource: Any) -> None:
        self.append(f"abandon {resource}")


@pytest.fixture
def log() -> Log:
    return Log()


def test_the_last_signal_waits_for_the_cleanup() -> None:
    closing = Driven()
    flux = Flux.using_when(Mono.just("r"), lambda r: Flux.just(1, 2), lambda r: closing)
    recorder = Recorder.of(flux, first=9)
    assert recorder.items == [1, 2]
    assert not recorder.terminated

    closing.emit("ignored").complete()

    assert recorder.check().items == [1, 2]
    assert recorder.completed


def test_the_resource_is_opened_anew_for_each_subscriber(log: Log) -> None:
    opened = iter("abc")
    flux = Flux.using_when(lambda: Mono.just(next(opened)), lambda r: Flux.just(r), log.cleanup)

    assert result(flux) + result(flux) == ["a", "b"]
    assert log == ["close a", "close b"]


def test_each_end_has_its_own_cleanup(log: Log) -> None:
    source = Driven()

    def using() -> Recorder:
        flux = Flux.using_when(
            Mono.just("r"),
            lambda r: source,
            log.cleanup,
            on_error=log.on_error,
            on_cancel=log.on_cancel,
        )
        return Recorder.of(flux, first=9)

    done, failed, left = using(), None, None
    source.complete()
    assert done.completed
    failed = using()
    source.fail(ValueError("x"))
    assert isinstance(failed.error, ValueError)
    left = using()
    left.cancel()

    assert log == ["close r", "roll back r x", "abandon r"]
    assert source.cancels == 1


def test_the_one_cleanup_serves_all_ends(log: Log) -> None:
    failure(Flux.using_when(Mono.just("r"), lambda r: Flux.error(ValueError()), log.cleanup))
    Recorder.of(Flux.using_when(Mono.just("r"), lambda r: Flux.never(), log.cleanup)).cancel()

    assert log == ["close r", "close r"]


def test_without_a_resource_there_is_nothing_to_do(log: Log) -> None:
    assert result(Flux.using_when(Mono.empty(), lambda r: Flux.just(1), log.cleanup)) == []
    error = failure(Flux.using_when(Mono.error(ValueError("x")), lambda r: Flux.just(1), log.cleanup))

    assert str(error) == "x"
    assert log == []


def test_only_the_first_element_is_the_resource(log: Log) -> None:
    resources = Elsewhere("a", "b")
    assert result(Flux.using_when(resources, lambda r: Flux.just(r), log.cleanup)) == ["a"]
    assert log == ["close a"]
    assert resources.asked == 1


def test_a_function_that_raises_still_has_the_resource_cleaned_up(log: Log) -> None:
    error = failure(Flux.using_when(Mono.just("r"), oops, log.cleanup, on_error=log.on_error))

    assert isinstance(error, Oops)
    assert log == ["roll back r in the user's function"]


def test_a_resource_function_that_raises_is_an_error(log: Log) -> None:
    assert isinstance(failure(Flux.using_when(oops, lambda r: Flux.just(1), log.cleanup)), Oops)


def test_an_error_of_the_cleanup_is_the_streams() -> None:
    assert isinstance(failure(Flux.using_when(Mono.just("r"), lambda r: Flux.just(1), oops)), Oops)
    late = Flux.using_when(Mono.just("r"), lambda r: Flux.just(1), lambda r: Mono.error(KeyError("x")))
    assert isinstance(failure(late), KeyError)


@pytest.mark.parametrize("cleanup", [oops, lambda r: Mono.error(Oops())])
def test_two_failures_are_an_exception_group(cleanup: Any) -> None:
    first = ValueError("first")
    error = failure(Flux.using_when(Mono.just("r"), lambda r: Flux.error(first), cleanup))

    assert isinstance(error, ExceptionGroup)
    assert error.exceptions[0] is first
    assert isinstance(error.exceptions[1], Oops)


def test_an_error_of_the_cleanup_after_a_cancel_is_reported() -> None:
    dropped: list[BaseException] = []
    with on_dropped(error=lambda error, where: dropped.append(error)):
        Recorder.of(Flux.using_when(Mono.just("r"), lambda r: Flux.never(), oops)).cancel()
        late = Flux.using_when(Mono.just("r"), lambda r: Flux.never(), lambda r: Mono.error(Oops()))
        Recorder.of(late).cancel()

    assert [type(error) for error in dropped] == [Oops, Oops]


def test_a_cancel_before_the_resource_is_there_cancels_its_opening(log: Log) -> None:
    opening = Driven()
    recorder = Recorder.of(Flux.using_when(opening, lambda r: Flux.just(1), log.cleanup), first=9)
    recorder.cancel()
    assert opening.cancelled
    assert log == []


def test_a_resource_that_arrives_after_the_cancel_is_cleaned_up(log: Log) -> None:
    class Late:
        """Emits although it was cancelled meanwhile, as §2.8 allows."""

        def subscribe(self, subscriber: Any) -> None:
            self.subscriber = subscriber
            subscriber.on_subscribe(self)

        def request(self, n: int) -> None: ...

        def cancel(self) -> None:
            self.subscriber.on_next("r")

    opening = mono_of(PublisherSource(Late()))  # not from_publisher(): its guard stops such an element
    recorder = Recorder.of(Flux.using_when(opening, lambda r: Flux.just(1), log.cleanup))
    recorder.cancel()

    assert log == ["close r"]
    assert recorder.check().items == []


def test_the_demand_passes_through(log: Log) -> None:
    source = Elsewhere(*range(10))
    recorder = Recorder.of(Flux.using_when(Mono.just("r"), lambda r: source, log.cleanup))
    assert source.asked == 0
    recorder.request(3)
    assert (recorder.check().items, source.asked) == ([0, 1, 2], 3)


def test_coroutine_functions_all_round(log: Log) -> None:
    async def open_it() -> str:
        await asyncio.sleep(0)
        return "r"

    async def close_it(resource: str) -> None:
        await asyncio.sleep(0)
        log.append(f"close {resource}")

    flux = Flux.using_when(open_it, lambda r: Flux.just(r, r), close_it)

    async def main() -> list[str]:
        return [x async for x in flux]

    assert asyncio.run(main()) == ["r", "r"]
    assert result_of_thread(flux) == ["r", "r"]
    assert log == ["close r", "close r"]


def result_of_thread(flux: Any) -> list[Any]:
    return Recorder.of(flux, first=UNBOUNDED).wait().items


def test_a_mono_over_a_resource(log: Log) -> None:
    assert Mono.using_when(Mono.just("r"), lambda r: Mono.just(r * 2), log.cleanup).block() == "rr"
    assert Mono.using_when(Mono.just("r"), lambda r: Mono.empty(), log.cleanup).block() is None
    assert log == ["close r", "close r"]


def test_a_cancel_from_another_thread_cleans_up_exactly_once() -> None:
    for _ in range(200):
        resource: Any = Sinks.one()
        arrived: list[str] = []
        closed: list[str] = []
        opening = resource.mono().do_on_next(arrived.append)
        recorder = Recorder.of(Flux.using_when(opening, lambda r: Flux.never(), closed.append), first=1)
        thread = threading.Thread(target=resource.try_value, args=("r",))
        thread.start()
        recorder.cancel()
        thread.join()

        assert closed == arrived
        recorder.check()


@pytest.mark.parametrize("fails", [False, True])
def test_a_cleanup_that_has_begun_goes_on_after_a_cancel(fails: bool) -> None:
    closing, dropped = Driven(), []
    stream = Flux.error(Oops("early")) if fails else Flux.just(1)
    with on_dropped(error=lambda error, where: dropped.append(error)):
        recorder = Recorder.of(
            Flux.using_when(Mono.just("r"), lambda r: stream, lambda r: closing), UNBOUNDED
        )

        recorder.cancel()

        assert not closing.cancelled, "half of a cleanup leaves the resource open"
        assert [type(error) for error in dropped] == ([Oops] if fails else [])
        dropped.clear()
        closing.fail(Oops("late"))
    assert [str(error) for error in dropped] == ["late"]
    assert not recorder.check().terminated

"""``create`` and ``using``: callbacks from any thread, and resources that are cleaned up."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import BufferOverflow, Emitter, Flux, Mono, Overflow, on_dropped, schedulers
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


def created(first: int = 0, **options: Any) -> tuple[Emitter[Any], Recorder]:
    emitters: list[Emitter[Any]] = []
    recorder = Recorder.of(Flux.create(emitters.append, **options), first)
    return emitters[0], recorder


# -------------------------------------------------------------------- create
def test_what_callbacks_bring_goes_down_in_order() -> None:
    emitter, recorder = created(first=9)

    emitter.next(1)
    emitter.next(2)
    emitter.complete()

    assert (recorder.check().items, recorder.completed) == ([1, 2], True)


def test_elements_wait_for_demand_and_the_emitter_can_see_it() -> None:
    emitter, recorder = created(first=1)
    assert emitter.requested == 1
    emitter.next(1)
    emitter.next(2)
    assert (recorder.items, emitter.requested) == ([1], 0)

    recorder.request(3)

    assert (recorder.items, emitter.requested) == ([1, 2], 2)


def test_beyond_its_capacity_the_stream_fails_by_default() -> None:
    emitter, recorder = created(capacity=2)
    for n in range(3):
        emitter.next(n)
    recorder.request(9)

    assert recorder.items == [0, 1]
    assert isinstance(recorder.error, BufferOverflow)


@pytest.mark.parametrize(
    ("overflow", "kept"), [(Overflow.DROP_OLDEST, [2, 3]), (Overflow.DROP_NEWEST, [0, 1])]
)
def test_or_gives_up_what_was_said(overflow: Overflow, kept: list[int]) -> None:
    emitter, recorder = created(capacity=2, overflow=overflow)
    for n in range(4):
        emitter.next(n)

    recorder.request(9)

    assert (recorder.items, recorder.error) == (kept, None)


def test_many_threads_may_emit_at_once() -> None:
    emitter, recorder = created(first=UNBOUNDED)
    threads = [
        threading.Thread(target=lambda base=base: [emitter.next(base + n) for n in range(500)])
        for base in range(0, 4000, 1000)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    emitter.complete()

    assert recorder.wait().completed
    assert sorted(recorder.items) == [base + n for base in range(0, 4000, 1000) for n in range(500)]


def test_the_emitter_learns_of_the_cancel_and_its_release_runs_once() -> None:
    emitter, recorder = created(first=1)
    released: list[str] = []
    emitter.on_dispose(lambda: released.append("a"))
    assert not emitter.cancelled

    recorder.cancel()
    recorder.cancel()
    emitter.next(1)
    emitter.complete()

    assert (emitter.cancelled, released, recorder.items, recorder.terminated) == (True, ["a"], [], False)


@pytest.mark.parametrize("end", ["complete", "error", "overflow"])
def test_the_release_runs_once_at_the_end(end: str) -> None:
    emitter, _ = created(capacity=1)
    released: list[str] = []
    emitter.on_dispose(lambda: released.append("a"))
    if end == "complete":
        emitter.complete()
        emitter.complete()
    elif end == "error":
        emitter.error(ValueError())
    else:
        emitter.next(1)
        emitter.next(2)

    assert released == ["a"]
    emitter.on_dispose(lambda: released.append("late"))
    assert released == ["a", "late"]


def test_an_error_after_the_end_goes_to_the_hook() -> None:
    emitter, recorder = created()
    late, dropped = ValueError("late"), []
    emitter.complete()

    with on_dropped(error=lambda error, where: dropped.append((error, where))):
        emitter.error(late)

    assert recorder.completed
    assert dropped == [(late, "create(append), after its end")]


def test_a_function_that_raises_fails_the_stream() -> None:
    def emit(emitter: Emitter[int]) -> None:
        emitter.next(1)
        raise ValueError("x")

    recorder = Recorder.of(Flux.create(emit), first=9)

    assert recorder.items == [1]
    assert isinstance(recorder.error, ValueError)


def test_none_is_raised_at_whoever_emits_it() -> None:
    emitter, recorder = created(first=1)

    with pytest.raises(TypeError, match=r"2\.13"):
        emitter.next(None)
    with pytest.raises(TypeError, match=r"2\.13"):
        emitter.error(None)  # type: ignore[arg-type]

    assert not recorder.terminated


# -------------------------------------------------------------------- using
class Resource:
    def __init__(self) -> None:
        self.opened = self.cleaned = 0

    def open(self) -> Resource:
        self.opened += 1
        return self

    def clean(self, held: Resource) -> None:
        assert held is self
        self.cleaned += 1


BOTH = pytest.mark.parametrize("kind", [Flux, Mono])


@BOTH
def test_a_resource_is_opened_for_each_subscriber_and_cleaned_up_before_the_last_signal(kind: Any) -> None:
    resource, source = Resource(), Driven()
    stream = kind.using(resource.open, lambda _: kind.from_publisher(source), resource.clean)
    assert resource.opened == 0
    cleaned_before_the_end: list[int] = []
    recorder = Recorder()
    recorder.on_complete = lambda: cleaned_before_the_end.append(resource.cleaned)  # type: ignore[method-assign]
    stream.subscribe(recorder)
    recorder.request(1)
    assert (resource.opened, resource.cleaned) == (1, 0)

    source.complete()

    assert (cleaned_before_the_end, resource.cleaned) == ([1], 1)


@BOTH
def test_a_resource_is_cleaned_up_once_after_an_error_and_at_a_cancel(kind: Any) -> None:
    resource, error = Resource(), ValueError("x")
    failed = Recorder.of(kind.using(resource.open, lambda _: kind.error(error), resource.clean), first=1)
    assert (failed.error, resource.cleaned) == (error, 1)

    left = Recorder.of(kind.using(resource.open, lambda _: kind.never(), resource.clean), first=1)
    left.cancel().cancel()

    assert (resource.opened, resource.cleaned) == (2, 2)


@BOTH
def test_a_stream_that_cannot_be_made_cleans_up(kind: Any) -> None:
    resource = Resource()

    def broken(_: Resource) -> Any:
        raise ValueError("x")

    recorder = Recorder.of(kind.using(resource.open, broken, resource.clean), first=1)

    assert isinstance(recorder.error, ValueError)
    assert (resource.opened, resource.cleaned) == (1, 1)


@BOTH
def test_a_resource_that_cannot_be_opened_is_not_cleaned_up(kind: Any) -> None:
    resource = Resource()

    def broken() -> Resource:
        raise OSError("x")

    recorder = Recorder.of(kind.using(broken, lambda _: kind.just(1), resource.clean), first=1)

    assert isinstance(recorder.error, OSError)
    assert resource.cleaned == 0


def test_operators_below_that_end_early_or_fail_clean_up_once() -> None:
    resource = Resource()
    stream = Flux.using(resource.open, lambda _: Flux.range(100), resource.clean)

    assert stream.take(2).collect_list().block() == [0, 1]
    assert isinstance(Recorder.of(stream.map(lambda n: 1 // n), first=9).error, ZeroDivisionError)
    for _ in stream:
        break

    assert (resource.opened, resource.cleaned) == (3, 3)


def test_a_cleanup_that_raises_fails_the_stream_that_would_have_completed() -> None:
    error = ValueError("x")

    def broken(_: object) -> None:
        raise error

    recorder = Recorder.of(Flux.using(lambda: 1, Flux.just, broken), first=1)

    assert (recorder.check().items, recorder.completed, recorder.error) == ([1], False, error)
    assert error.__notes__[0].startswith("in stream operator using(")


def test_a_cleanup_that_raises_after_an_error_or_a_cancel_goes_to_the_hook() -> None:
    dropped: list[BaseException] = []
    error, first = ValueError("x"), OSError("first")

    def broken(_: object) -> None:
        raise error

    with on_dropped(error=lambda error, where: dropped.append(error)):
        failed = Recorder.of(Flux.using(lambda: 1, lambda _: Flux.error(first), broken), first=1)
        left = Recorder.of(Flux.using(lambda: 1, lambda _: Flux.never(), broken), first=1).cancel()
        taken = Recorder.of(Flux.using(lambda: 1, lambda _: Flux.range(9), broken).take(1), first=1)

    assert (failed.error, left.terminated, taken.completed) == (first, False, True)
    assert dropped == [error, error, error]


class Exclusive:
    """A resource that can be held by one at a time."""

    def __init__(self) -> None:
        self.log: list[str] = []

    def open(self) -> Exclusive:
        assert self.log.count("open") == self.log.count("close"), "still held"
        self.log.append("open")
        return self

    def close(self, _: Exclusive) -> None:
        self.log.append("close")


@pytest.mark.parametrize("pooled", [False, True])
def test_a_resource_is_cleaned_up_before_the_next_attempt_opens_it(pooled: bool) -> None:
    resource, attempts = Exclusive(), []

    def work(_: Exclusive) -> Flux[str]:
        attempts.append(1)
        result: Flux[str] = Flux.error(ConnectionError()) if len(attempts) < 3 else Flux.just("done")
        return result.publish_on(schedulers.shared_pool()) if pooled else result

    stream = Flux.using(resource.open, work, resource.close)
    assert stream.retry(5).collect_list().block(30) == ["done"]
    assert stream.repeat(3).collect_list().block(30) == ["done"] * 4
    assert Flux.concat(stream, stream.take(1), stream).collect_list().block(30) == ["done"] * 3
    assert stream.concat_map(lambda _: stream.on_error_complete(on=AssertionError)).count().block(30) == 0
    assert resource.log.count("open") == resource.log.count("close")


def test_the_source_is_closed_before_its_resource_and_the_inner_resource_before_the_outer() -> None:
    log: list[str] = []

    def rows() -> Any:
        try:
            yield from range(9)
        finally:
            log.append("rows")

    def nested() -> Flux[int]:
        inner_rows = Flux.from_iterable(rows())
        return Flux.using(
            lambda: 1,
            lambda _: Flux.using(lambda: 2, lambda _: inner_rows, lambda _: log.append("inner")),
            lambda _: log.append("outer"),
        )

    expected = ["rows", "inner", "outer"]
    for read in (
        lambda: nested().count().block(),
        lambda: nested().take(2).count().block(),
        lambda: nested().map(lambda n: 1 // (n - 3)).on_error_complete().count().block(),
        lambda: Recorder.of(nested(), 1).cancel(),
    ):
        log.clear()
        read()
        assert log == expected

"""A stream that is defined by recursion fails with RecursionError; it neither hangs nor ends early."""

from __future__ import annotations

import _thread
from collections.abc import Callable
from typing import Any

import pytest

from penstock.spec import Subscription
from penstock.streams import Flux, Mono, on_dropped, stream
from penstock.streams.fusion import drain

PATIENCE = 60.0


def concat(n: int) -> Flux[int]:
    return Flux.just(n).concat_with(Flux.defer(lambda: concat(n + 1)))


def merge(n: int) -> Flux[int]:
    return Flux.just(n).merge_with(Flux.defer(lambda: merge(n + 1)))


def flat_map(n: int) -> Flux[int]:
    return Flux.just(n).flat_map(lambda x: flat_map(x + 1))


def flat_map_sequential(n: int) -> Flux[int]:
    return Flux.just(n).flat_map_sequential(lambda x: flat_map_sequential(x + 1))


def concat_map(n: int) -> Flux[int]:
    return Flux.just(n).concat_map(lambda x: concat_map(x + 1))


def zipped(n: int) -> Flux[Any]:
    return Flux.zip(Flux.just(n), Flux.defer(lambda: zipped(n + 1)))


def resume(n: int) -> Flux[int]:
    return Flux.error(OSError(n)).on_error_resume(lambda error: resume(n + 1))


def switch_if_empty(n: int) -> Flux[int]:
    return Flux.empty().switch_if_empty(Flux.defer(lambda: switch_if_empty(n + 1)))


def mono(n: int) -> Flux[int]:
    def step(n: int) -> Mono[int]:
        return Mono.just(n).flat_map(lambda x: step(x + 1))

    return step(n).flux()


DEFINITIONS = [
    concat,
    merge,
    flat_map,
    flat_map_sequential,
    concat_map,
    zipped,
    resume,
    switch_if_empty,
    mono,
]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("foreseen", [True, False], ids=["foreseen", "unforeseen"])
def test_a_stream_without_end_to_its_depth_fails(
    definition: Callable[[int], Flux[Any]], foreseen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where nobody saw it coming: the error then hits at any line, and is told on a new stack."""
    if not foreseen:
        monkeypatch.setattr(stream, "too_deep", lambda source, below: None)
    with on_dropped(error=lambda error, where: None, element=lambda element, where: None):
        with pytest.raises(RecursionError):
            definition(0).take(1_000_000).count().block(PATIENCE)
        with pytest.raises(RecursionError):
            list(definition(0).take(1_000_000))


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda function: function.__name__)
def test_the_error_arrives_if_the_thread_with_the_new_stack_runs_first(
    definition: Callable[[int], Flux[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_and_wait(function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        done = _thread.allocate_lock()  # the plainest means: there is hardly any stack left
        done.acquire()

        def run() -> None:
            try:
                function(*arguments)
            finally:
                done.release()

        _thread.start_new_thread(run, ())
        done.acquire(True, PATIENCE)

    monkeypatch.setattr(drain, "start_new_thread", start_and_wait)
    monkeypatch.setattr(stream, "too_deep", lambda source, below: None)
    with (
        on_dropped(error=lambda error, where: None, element=lambda element, where: None),
        pytest.raises(RecursionError),
    ):
        definition(0).take(1_000_000).count().block(PATIENCE)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda function: function.__name__)
def test_the_error_arrives_wherever_the_stack_ends(
    definition: Callable[[int], Flux[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def deeper(frames: int) -> None:
        if frames:
            deeper(frames - 1)
        else:
            definition(0).take(1_000_000).count().block(PATIENCE)

    monkeypatch.setattr(stream, "too_deep", lambda source, below: None)
    with on_dropped(error=lambda error, where: None, element=lambda element, where: None):
        for frames in range(20):
            with pytest.raises(RecursionError):
                deeper(frames)


class Ends:
    """Asks for everything and keeps the ends."""

    def __init__(self) -> None:
        self.ends: list[BaseException | None] = []

    def on_subscribe(self, subscription: Subscription, /) -> None:
        subscription.request(1 << 62)

    def on_next(self, element: Any, /) -> None: ...

    def on_error(self, error: BaseException, /) -> None:
        self.ends.append(error)

    def on_complete(self) -> None:
        self.ends.append(None)


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda function: function.__name__)
def test_the_error_arrives_once_if_the_thread_with_the_new_stack_runs_last(
    definition: Callable[[int], Flux[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    rescues: list[tuple[Callable[..., object], tuple[Any, ...]]] = []

    def deeper(frames: int, subscriber: Ends) -> None:
        if frames:
            deeper(frames - 1, subscriber)
        else:
            definition(0).take(1_000_000).count().subscribe(subscriber)

    monkeypatch.setattr(
        drain, "start_new_thread", lambda function, arguments: rescues.append((function, arguments))
    )
    monkeypatch.setattr(stream, "too_deep", lambda source, below: None)
    with on_dropped(error=lambda error, where: None, element=lambda element, where: None):
        for frames in range(20):
            subscriber, raised = Ends(), False
            try:
                deeper(frames, subscriber)
            except RecursionError:
                raised = True  # there was no stack left to subscribe, let alone for a signal
            while rescues:
                function, arguments = rescues.pop(0)
                function(*arguments)
            ends = [type(end) for end in subscriber.ends]
            assert ends == [RecursionError] or (raised and not ends), frames


def test_the_error_says_what_to_use_instead() -> None:
    with pytest.raises(RecursionError, match=r"generate\(\) or expand\(\)"):
        concat(0).take(1_000_000).count().block(PATIENCE)


def test_a_moderate_depth_is_no_error() -> None:
    assert list(concat(0).take(60)) == list(range(60))

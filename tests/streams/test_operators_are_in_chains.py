"""Every operator takes part in the random chains, or there is a reason why it cannot."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import wraps
from inspect import getattr_static
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, Mono
from penstock.testing import DroppedSignals, virtual_time
from tests.streams.chains import flux_steps, mono_steps, timed_steps
from tests.streams.chains.runs import LONG
from tests.streams.chains.sources import SOURCES
from tests.streams.operators.test_random_chains import fused_steps
from tests.streams.recording import Recorder
from tests.streams.test_operators_are_complete import public

NOT_IN_CHAINS: dict[str, str] = {
    "Flux.from_queue": "a queue is filled by other threads or tasks, which virtual time does not steer",
    "Flux.to_queue": "it has no elements: what it does shows in the queue",
}
"""Operators that no random chain can have, each with the reason."""


def chains() -> Iterator[Callable[[], Any]]:
    """Every step of the random chains on a stream of its own, and every source."""
    numbers = Flux.just(1, 2, 3, 4)
    for fused in fused_steps(2, 3):
        yield lambda step=fused: step.on_stream(numbers)
    for plain in flux_steps.all_steps(2, 3):
        yield lambda step=plain: step.on_stream(numbers)
    for single in mono_steps.all_steps(2, 3):
        yield lambda step=single: step.on_stream(Mono.just(4))
    for timed in timed_steps.STEPS:
        yield lambda step=timed: step.on_stream(numbers, 0.01)
    for many in SOURCES.values():
        yield lambda source=many: source([1, 2], True)
    for one in mono_steps.MONO_SOURCES.values():
        yield lambda source=one: source([], False)
        yield lambda source=one: source([1], False)
        yield lambda source=one: source([], True)


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The operators that the steps themselves call; what operators call inside does not count."""
    names: set[str] = set()

    def watch(stream: type, name: str) -> None:
        method = getattr_static(stream, name)
        is_plain = not isinstance(method, staticmethod | classmethod)
        function = method if is_plain else getattr(stream, name)

        @wraps(function)
        def watched(*arguments: Any, **named: Any) -> Any:
            if sys._getframe(1).f_globals["__name__"].startswith("tests."):
                names.add(f"{stream.__name__}.{name}")
            return function(*arguments, **named)

        monkeypatch.setattr(stream, name, watched if is_plain else staticmethod(watched))

    for stream in (Flux, Mono):
        for name in public(stream):
            watch(stream, name)
    return names


def run(chain: Callable[[], Any]) -> None:
    with virtual_time() as clock, DroppedSignals():
        chain().subscribe(Recorder(UNBOUNDED))
        clock.advance_by(LONG)


def test_every_operator_is_in_the_random_chains_or_has_a_reason(called: set[str]) -> None:
    for chain in chains():
        run(chain)

    known = {f"{stream.__name__}.{name}" for stream in (Flux, Mono) for name in public(stream)}
    assert sorted(known - called - set(NOT_IN_CHAINS)) == []
    assert sorted(set(NOT_IN_CHAINS) & called) == [], "these are in the chains and need no reason"
    assert set(NOT_IN_CHAINS) <= known
    assert all(NOT_IN_CHAINS.values())


def test_what_only_an_operator_calls_is_not_in_the_chains(called: set[str]) -> None:
    """``merge_with`` is made of ``merge``, and that alone does not test ``merge``."""
    run(lambda: Flux.just(1).merge_with(Flux.just(2)))

    assert "Flux.merge_with" in called
    assert "Flux.merge" not in called

"""Any chain over the whole library gives what the same steps on a list give, in virtual time.

Queues, threads, coroutines and timers take part, with random requests, cancels and errors. In virtual time
all of them are deterministic, so a list with an end (complete or failed) predicts what comes.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spec import UNBOUNDED
from penstock.streams import Flux
from penstock.testing import DroppedSignals, virtual_time
from tests.streams.chains.flux_steps import all_steps
from tests.streams.chains.lists import Elements
from tests.streams.chains.runs import LONG, Failed, Run, Step
from tests.streams.chains.sources import SOURCES
from tests.streams.recording import Recorder

FEW, MANY = 200, 1000
"""Examples of each test: in every run, and in the runs that take their time. They are new ones each time."""


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """One operator with small random arguments."""
    return draw(st.sampled_from(all_steps(draw(st.integers(0, 6)), draw(st.integers(1, 4)))))


Numbers = st.lists(st.integers(0, 30), max_size=15)
Chain = st.lists(steps(), max_size=6)
Requests = st.lists(st.integers(1, 7) | st.just(UNBOUNDED), min_size=1, max_size=5)


def through(chain: list[Step], source: Flux[Any], run: Run) -> tuple[Any, Run]:
    flux: Any = source
    for step in chain:
        if not (run.failed and step.error_goes_first):
            flux, run = step.on_stream(flux), step.on_run(run)
    return flux, run


def check_requests(
    source: str, numbers: Elements, failed: bool, chain: list[Step], requests: list[int], pause: float
) -> None:
    with virtual_time() as clock, DroppedSignals():
        flux, expected = through(chain, SOURCES[source](numbers, failed), Run(numbers, failed))
        recorder = Recorder()
        flux.subscribe(recorder)
        clock.run_pending()
        for number in range(len(expected.elements) + 2):
            recorder.request(requests[number % len(requests)])
            clock.advance_by(pause)
            assert recorder.items == expected.elements[: len(recorder.items)]
        clock.advance_by(LONG)
        if not recorder.terminated:
            recorder.request(UNBOUNDED)
            clock.advance_by(LONG)

        recorder.check()
        assert recorder.items == expected.elements
        assert isinstance(recorder.error, Failed) is expected.failed
        assert recorder.completed is not expected.failed


def check_cancel(source: str, numbers: Elements, chain: list[Step], before: int, moment: float) -> None:
    with virtual_time() as clock, DroppedSignals():
        above = SOURCES[source](numbers, False)
        flux, expected = through([step for step in chain if not step.outlives], above, Run(numbers))
        recorder = Recorder(before)
        flux.subscribe(recorder)
        clock.run_pending()
        clock.advance_by(moment)
        recorder.cancel()
        got = list(recorder.items)
        recorder.request(5)
        clock.advance_by(2 * LONG)

        recorder.check()
        assert recorder.items == got == expected.elements[: len(got)]
        assert clock.pending == 0


any_requests = given(
    source=st.sampled_from(sorted(SOURCES)),
    numbers=Numbers,
    failed=st.booleans(),
    chain=Chain,
    requests=Requests,
    pause=st.floats(0, 0.1),
)
any_cancel = given(
    source=st.sampled_from(sorted(SOURCES)),
    numbers=Numbers,
    chain=Chain,
    before=st.integers(1, 10),
    moment=st.floats(0, 0.3),
)


@settings(max_examples=FEW)
@any_requests
def test_a_subscriber_gets_what_a_list_would_give(**case: Any) -> None:
    check_requests(**case)


@settings(max_examples=FEW)
@any_cancel
def test_after_a_cancel_nothing_comes_and_no_timer_is_left(**case: Any) -> None:
    check_cancel(**case)


@pytest.mark.rare(5, kind="many random chains")
@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=MANY, print_blob=True)
@any_requests
def test_many_subscribers_get_what_a_list_would_give(**case: Any) -> None:
    check_requests(**case)


@pytest.mark.rare(5, kind="many random chains")
@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=MANY, print_blob=True)
@any_cancel
def test_after_many_cancels_nothing_comes_and_no_timer_is_left(**case: Any) -> None:
    check_cancel(**case)

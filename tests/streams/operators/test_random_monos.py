"""Any chain of Monos gives what the same steps on a list of at most one element give, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.streams import Flux, Mono
from penstock.testing import DroppedSignals, virtual_time
from tests.streams.chains.lists import Elements
from tests.streams.chains.mono_steps import MONO_SOURCES, all_steps
from tests.streams.chains.runs import LONG, Failed, Run, Step
from tests.streams.recording import Recorder

FEW, MANY = 200, 1000
"""Examples of each test: in every run, and in the runs that take their time. They are new ones each time."""


@st.composite
def steps(draw: st.DrawFn) -> Step:
    """One operator with small random arguments."""
    return draw(st.sampled_from(all_steps(draw(st.integers(0, 6)), draw(st.integers(1, 4)))))


Runs = st.one_of(st.integers(0, 30).map(lambda x: Run([x])), st.just(Run([])), st.just(Run([], failed=True)))
Chain = st.lists(steps(), max_size=6)


def through(chain: list[Step], source: str, run: Run) -> tuple[Any, Run]:
    mono: Any = MONO_SOURCES[source](run.elements, run.failed)
    for step in chain:
        if not (run.failed and step.error_goes_first):
            mono, run = step.on_stream(mono), step.on_run(run)
    return mono, run


def check_end(source: str, run: Run, chain: list[Step]) -> None:
    with virtual_time() as clock, DroppedSignals():
        mono, expected = through(chain, source, run)
        recorder = Recorder(1)
        mono.subscribe(recorder)
        clock.advance_by(LONG)

        recorder.check()
        assert isinstance(mono, Mono)
        assert recorder.items == expected.elements
        assert isinstance(recorder.error, Failed) is expected.failed
        assert recorder.completed is not expected.failed
        assert clock.pending == 0


def check_inner(numbers: Elements, run: Run, chain: list[Step]) -> None:
    """The same Mono as the inner stream of each element of a Flux."""
    with virtual_time() as clock, DroppedSignals():
        mono, expected = through(chain, "defer", run)
        recorder = Recorder(len(numbers) + 1)
        Flux.from_iterable(numbers).concat_map(lambda _: mono).subscribe(recorder)
        clock.advance_by(LONG)

        recorder.check()
        assert recorder.items == expected.elements * (0 if expected.failed else len(numbers))
        assert recorder.completed is not (expected.failed and bool(numbers))


def check_cancel(source: str, run: Run, chain: list[Step], moment: float) -> None:
    with virtual_time() as clock, DroppedSignals():
        mono, expected = through([step for step in chain if not step.outlives], source, run)
        recorder = Recorder(1)
        mono.subscribe(recorder)
        clock.run_pending()
        clock.advance_by(moment)
        recorder.cancel()
        got = list(recorder.items)
        clock.advance_by(LONG)

        recorder.check()
        assert recorder.items == got == expected.elements[: len(got)]
        assert clock.pending == 0


any_run = given(source=st.sampled_from(sorted(MONO_SOURCES)), run=Runs, chain=Chain)
any_inner = given(numbers=st.lists(st.integers(0, 3), max_size=4), run=Runs, chain=Chain)
any_cancel = given(
    source=st.sampled_from(sorted(MONO_SOURCES)), run=Runs, chain=Chain, moment=st.floats(0, 0.1)
)


@settings(max_examples=FEW)
@any_run
def test_a_mono_ends_as_a_list_would(**case: Any) -> None:
    check_end(**case)


@settings(max_examples=FEW // 2)
@any_inner
def test_a_mono_can_be_subscribed_to_again_and_again(**case: Any) -> None:
    check_inner(**case)


@settings(max_examples=FEW)
@any_cancel
def test_after_a_cancel_nothing_comes_and_no_timer_is_left(**case: Any) -> None:
    check_cancel(**case)


@pytest.mark.rare(4, kind="many random chains")
@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=MANY, print_blob=True)
@any_run
def test_many_monos_end_as_lists_would(**case: Any) -> None:
    check_end(**case)


@pytest.mark.rare(4, kind="many random chains")
@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=MANY, print_blob=True)
@any_cancel
def test_after_many_cancels_nothing_comes_and_no_timer_is_left(**case: Any) -> None:
    check_cancel(**case)

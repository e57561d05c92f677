"""Any chain of timed operators sends the right elements at the right moments.

Each operator has a small simulation (tests/streams/chains/traces.py), and a chain of operators is compared
with the chain of their simulations: elements, their times, the end and its time.
"""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spec import UNBOUNDED
from penstock.streams import Flux
from penstock.streams.schedulers import VirtualTimeScheduler
from penstock.testing import DroppedSignals, marble, virtual_time
from tests.streams.chains.runs import LONG, Failed
from tests.streams.chains.timed_steps import LOSING, SLOTS, STEPS, TimedStep
from tests.streams.chains.traces import TRIFLES, Timed, Trace, one_waits
from tests.streams.recording import Recorder

FEW, MANY = 300, 2000
"""Examples of each test: in every run, and in the runs that take their time. They are new ones each time."""
FRAME = 0.01


class TimedRecorder(Recorder):
    """Writes down when each element came, and the end."""

    def __init__(self, clock: VirtualTimeScheduler, first: int) -> None:
        super().__init__(first, lambda _, element: self.trace.append((clock.now(), element)))
        self.trace: Timed = []
        self.end = inf
        self._clock = clock

    def _end(self, signal: str) -> None:
        super()._end(signal)
        self.end = self._clock.now()


def source(elements: list[tuple[int, int]], rest: int, failed: bool) -> tuple[Flux[Any], Trace]:
    """Elements, each some frames after the one before, and the end some frames after the last."""
    names: dict[str, Any] = {"#": Failed}
    frames: list[str] = [""]
    signals: Timed = []
    for number, (gap, x) in enumerate(elements):
        name = chr(0x4E00 + number)
        names[name] = x
        frames += [""] * gap
        frames[-1] += name
        signals.append(((len(frames) - 1) * FRAME, x))
    frames += [""] * rest
    frames[-1] += "#" if failed else "|"
    line = "".join(f"({frame})" if frame else "-" for frame in frames)
    return marble(line, names), Trace(signals, (len(frames) - 1) * FRAME, failed)


def through(chain: list[tuple[TimedStep, int]], flux: Any, trace: Trace) -> tuple[Any, Trace]:
    steady = True
    for (step, frames), trifle in zip(chain, TRIFLES, strict=False):
        if (step.slows and not steady) or (step.error_goes_first and trace.failed):
            continue
        duration = frames * FRAME + trifle
        flux, trace = step.on_stream(flux, duration), step.on_trace(trace, duration)
        steady = steady and step.steady
    return flux, trace


def compare(recorder: TimedRecorder, expected: Trace) -> None:
    recorder.check()
    assert [x for _, x in recorder.trace] == [x for _, x in expected.signals]
    assert [t for t, _ in recorder.trace] == pytest.approx([t for t, _ in expected.signals], abs=1e-5)
    assert recorder.end == pytest.approx(expected.end, abs=1e-5)
    if expected.end < inf:
        assert isinstance(recorder.error, Failed) is expected.failed


def check_times(elements: Any, rest: int, failed: bool, chain: Any) -> None:
    with virtual_time() as clock, DroppedSignals():
        flux, expected = through(chain, *source(elements, rest, failed))
        recorder = TimedRecorder(clock, UNBOUNDED)
        flux.subscribe(recorder)
        clock.advance_by(LONG)

        compare(recorder, expected)


def check_demand(elements: Any, rest: int, failed: bool, chain: Any, losing: str, requests: Any) -> None:
    """The last operator leaves out what nobody asks for; above it everything comes at its time."""
    with virtual_time() as clock, DroppedSignals():
        *above, final = [*chain, (LOSING[losing], 2)]
        flux, expected = through(above, *source(elements, rest, failed))
        flux = final[0].on_stream(flux, 0.02 + TRIFLES[-1])
        asked, now = [], 0.000123
        for gap, n in requests:
            now += gap * FRAME
            asked.append((now, n))
        asked.append((now + LONG, 1))
        expected = final[0].on_trace(expected, 0.02 + TRIFLES[-1])
        recorder = TimedRecorder(clock, 0)
        flux.subscribe(recorder)
        for moment, n in asked:
            clock.advance_by(max(0.0, moment - clock.now()))
            recorder.request(n)
        clock.advance_by(LONG)

        compare(recorder, one_waits(expected, asked, slots=SLOTS.get(losing, 1)))


Elements = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=10)
Chain = st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 4)), max_size=len(TRIFLES) - 1)
any_times = given(elements=Elements, rest=st.integers(0, 4), failed=st.booleans(), chain=Chain)
any_demand = given(
    elements=Elements,
    rest=st.integers(0, 4),
    failed=st.booleans(),
    chain=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 4)), max_size=2),
    losing=st.sampled_from(sorted(LOSING)),
    requests=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)), max_size=6),
)


@settings(max_examples=FEW)
@any_times
def test_every_element_comes_at_its_moment(**case: Any) -> None:
    check_times(**case)


@settings(max_examples=FEW)
@any_demand
def test_without_demand_the_newest_element_waits(**case: Any) -> None:
    check_demand(**case)


@pytest.mark.rare(9, kind="many random chains")
@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=MANY, print_blob=True)
@any_times
def test_every_element_of_many_chains_comes_at_its_moment(**case: Any) -> None:
    check_times(**case)


@pytest.mark.rare(9, kind="many random chains")
@pytest.mark.slow
@pytest.mark.timeout(600)
@settings(max_examples=MANY, print_blob=True)
@any_demand
def test_without_demand_the_newest_element_of_many_chains_waits(**case: Any) -> None:
    check_demand(**case)

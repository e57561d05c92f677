"""Interleaved rounds: in each round every alternative runs once, so all of them see the same machine.

A figure from a shared machine says little by itself; two figures taken moments apart say how the two compare.
So a ratio is taken within each round, and the median over the rounds is what counts. The ratio of the best
rounds stands beside it: where the two differ much, the machine was busy.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from statistics import median
from time import perf_counter, perf_counter_ns, process_time_ns

__all__ = ["Alternative", "Answer", "Clock", "Question", "WrongResult", "measure"]

FEWEST_ROUNDS = 3


class Clock(Enum):
    """What is measured."""

    PROCESSOR = "processor time"
    """For work on one thread: what others do on the machine does not count."""
    ELAPSED = "elapsed time"
    """For work on several threads, which also wait for each other."""

    def now(self) -> int:
        """Nanoseconds since some moment."""
        return process_time_ns() if self is Clock.PROCESSOR else perf_counter_ns()


class WrongResult(AssertionError):
    """An alternative did not do the work that it was to be timed at."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to do the work."""

    name: str
    run: Callable[[int], int]
    """Works through this many elements and returns what shows that it did."""
    share: float = 1.0
    """The part of the elements that it gets; less than one for those that would take all the time."""


@dataclass(frozen=True, slots=True)
class Question:
    """Several ways to do the same work."""

    name: str
    title: str
    elements: int
    base: str
    """The alternative that the table compares all the others to."""
    expected: Callable[[int], int]
    """What each alternative must return for this many elements."""
    alternatives: tuple[Alternative, ...]
    unit: str = "element"
    clock: Clock = Clock.PROCESSOR


@dataclass(slots=True)
class Answer:
    """The measurements: for each alternative the nanoseconds per element, one figure for each round."""

    question: Question
    rounds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, rounds: Mapping[str, list[float]]) -> None:
        """Add the rounds of another process."""
        for name, figures in rounds.items():
            self.rounds.setdefault(name, []).extend(figures)

    @property
    def count(self) -> int:
        """How many rounds there were."""
        return len(self.rounds[self.question.base])

    def best(self, name: str) -> float:
        """The least disturbed round."""
        return min(self.rounds[name])

    def median(self, name: str) -> float:
        """The middle round."""
        return median(self.rounds[name])

    def ratio(self, of: str, to: str) -> float:
        """How many times as long ``of`` takes as ``to`` within a round: the median over the rounds."""
        return median(a / b for a, b in zip(self.rounds[of], self.rounds[to], strict=True))

    def ratio_of_best(self, of: str, to: str) -> float:
        """The same for the best round of each."""
        return self.best(of) / self.best(to)


def measure(question: Question, seconds: float) -> Answer:
    """Run rounds until the time is used up, and a few in any case."""
    for alternative in question.alternatives:
        _time(question, alternative, question.elements // 10)  # whatever is compiled or cached at first use
    answer = Answer(question)
    stop = perf_counter() + seconds
    for turn in count():
        if turn >= FEWEST_ROUNDS and perf_counter() > stop:
            return answer
        gc.collect()
        first = turn % len(question.alternatives)
        for alternative in question.alternatives[first:] + question.alternatives[:first]:
            answer.add({alternative.name: [_time(question, alternative, question.elements)]})
    raise AssertionError("count() never ends")


def _time(question: Question, alternative: Alternative, elements: int) -> float:
    number = max(1, int(elements * alternative.share))
    start = question.clock.now()
    result = alternative.run(number)
    taken = question.clock.now() - start
    expected = question.expected(number)
    if result != expected:
        raise WrongResult(f"{alternative.name} gave {result} for {number} elements instead of {expected}")
    return taken / number

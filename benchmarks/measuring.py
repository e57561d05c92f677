"""Interleaved rounds: in each round every alternative runs once, so all of them see the same machine.

A figure from a shared machine says little by itself; two figures taken moments apart say how the two compare.
So a ratio is taken within each round, and the median over the rounds is what counts. The ratio of the best
rounds stands beside it: where the two differ much, the machine was busy.

An alternative that starts processes takes its own time, because starting them and warming them up does not
count: it returns a :class:`Timed`, which may also tell what memory they needed, and the like.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns, process_time_ns

__all__ = ["Alternative", "Answer", "Clock", "Question", "Timed", "WrongResult", "measure"]


class Clock(Enum):
    """What is measured."""

    PROCESSOR = "processor time"
    """For work on one thread: what others do on the machine does not count."""
    ELAPSED = "elapsed time"
    """For work on several threads, which also wait for each other."""
    BETWEEN_PROCESSES = "elapsed time between processes"
    """For work in several processes, which the alternatives time by themselves."""

    def now(self) -> int:
        """Nanoseconds since some moment."""
        return process_time_ns() if self is Clock.PROCESSOR else perf_counter_ns()


class WrongResult(AssertionError):
    """An alternative did not do the work that it was to be timed at."""


@dataclass(frozen=True, slots=True)
class Timed:
    """What an alternative returns that takes its own time."""

    result: int
    nanoseconds: int
    facts: Mapping[str, float] = field(default_factory=dict)
    """What else was seen, by the heading of its column."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One way to do the work."""

    name: str
    run: Callable[[int], int | Timed]
    """Works through this many elements and returns what shows that it did."""
    share: float = 1.0
    """The part of the elements that it gets; less than one for those that would take all the time."""
    base: str | None = None
    """The alternative that the table compares this one to, if not the question's."""


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
    fewest_rounds: int = 3
    """How many rounds each process measures, even if they take longer than they should."""
    most_processes: int | None = None
    """How many processes measure it at most: fewer than for other questions where a process starts slowly."""
    unmeasured_rounds: int = 0
    """How many rounds come before those that count: where Java compiles what every alternative needs."""
    python: Path | None = None
    """The interpreter that measures it, if not this one: of an environment with another version of a peer."""
    matrix: bool = False
    """Whether the alternatives are named "row: column", and the table has a row and a column for each."""

    def base_of(self, alternative: Alternative) -> str:
        """What the table compares this alternative to."""
        return alternative.base or self.base


@dataclass(slots=True)
class Answer:
    """The measurements: for each alternative the nanoseconds per element, one figure for each round."""

    question: Question
    rounds: dict[str, list[float]] = field(default_factory=dict)
    facts: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    """What else was seen of an alternative, by heading: one figure for each round."""

    def add(self, rounds: Mapping[str, list[float]], facts: Mapping[str, Mapping[str, list[float]]]) -> None:
        """Add the rounds of another process."""
        for name, figures in rounds.items():
            self.rounds.setdefault(name, []).extend(figures)
        for name, headings in facts.items():
            for heading, figures in headings.items():
                self.facts.setdefault(name, {}).setdefault(heading, []).extend(figures)

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


def measure(question: Question, seconds: float, first_turn: int = 0) -> Answer:
    """Run rounds until the time is used up, and a few in any case.

    ``first_turn`` says with which alternative the first round begins: where a process has time for one round
    only, the next process has to go on with the rotation.
    """
    if question.clock is not Clock.BETWEEN_PROCESSES:
        for alternative in question.alternatives:
            _time(question, alternative, question.elements // 10)  # whatever is compiled or cached at first
    answer = Answer(question)
    stop = perf_counter() + seconds
    for turn in count(-question.unmeasured_rounds):
        if turn >= question.fewest_rounds and perf_counter() > stop:
            return answer
        gc.collect()
        first = (first_turn + turn) % len(question.alternatives)
        for alternative in question.alternatives[first:] + question.alternatives[:first]:
            taken, facts = _time(question, alternative, question.elements)
            if turn < 0:
                continue
            seen = {alternative.name: {heading: [fact] for heading, fact in facts.items()}}
            answer.add({alternative.name: [taken]}, seen)
    raise AssertionError("count() never ends")


def _time(question: Question, alternative: Alternative, elements: int) -> tuple[float, Mapping[str, float]]:
    number = max(1, int(elements * alternative.share))
    start = question.clock.now()
    returned = alternative.run(number)
    taken = question.clock.now() - start
    timed = returned if isinstance(returned, Timed) else Timed(returned, taken)
    expected = question.expected(number)
    if timed.result != expected:
        raise WrongResult(
            f"{alternative.name} gave {timed.result} for {number} elements instead of {expected}"
        )
    return timed.nanoseconds / number, timed.facts

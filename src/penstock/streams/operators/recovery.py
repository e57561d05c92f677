"""Go on after an error, or after the end: resume, retry, repeat, fall back, concatenate."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from penstock.arguments import a_count, a_function, describe, seconds
from penstock.backoff import Backoff
from penstock.spec import Subscriber
from penstock.streams.errors import Place
from penstock.streams.fusion import Op
from penstock.streams.operators.concat import Switching
from penstock.streams.operators.retry_budget import RetryBudget
from penstock.streams.operators.sources import FailedSource
from penstock.streams.schedulers import Alarm, Scheduler, SchedulerClosed, Timer, shared_timer
from penstock.streams.source import Next, Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = [
    "ConcatSource",
    "DelayedSource",
    "FollowRule",
    "FollowSource",
    "Following",
    "Retry",
    "RetryExhausted",
]


class RetryExhausted(RuntimeError):
    """All attempts failed; the last error is the cause."""


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how fast to subscribe again after an error.

    >>> Retry.backoff(3, first=0.1)                        # doctest: +ELLIPSIS
    Retry(attempts=3, first=0.1, ...)

    The pause doubles with each attempt, up to ``longest``, and then changes at random by up to ``jitter`` of
    itself, so that a thousand clients that failed together do not come back together.
    """

    attempts: int
    first: float = 0.0
    longest: float = 60.0
    jitter: float = 0.5
    only: tuple[type[BaseException], ...] = (Exception,)
    """Any other error is passed on at once."""
    when: Callable[[BaseException], object] | None = None
    """Says of an error whether another attempt makes sense; if not, the error is passed on at once."""
    budget: RetryBudget | None = None
    """Bounds the attempts of all streams that share it."""
    transient: bool = False
    """Whether an element that arrives resets the count."""
    scheduler: Callable[[], Scheduler] = field(default=shared_timer, repr=False)
    """Where the pause is spent and the new attempt starts; pass virtual time here in a test."""
    randomness: Callable[[], float] = field(default=random.random, repr=False)
    """A number from 0 to 1."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "attempts", a_count(self.attempts, "Retry(attempts=…)"))
        object.__setattr__(self, "first", seconds(self.first, "Retry(first=…)"))
        object.__setattr__(self, "longest", seconds(self.longest, "Retry(longest=…)"))
        if self.when is not None:
            a_function(self.when, "Retry(when=…)")
        if self.budget is not None and not isinstance(self.budget, RetryBudget):
            raise TypeError(f"Retry(budget=…) needs a RetryBudget, not {describe(self.budget)}")
        a_function(self.scheduler, "Retry()")
        a_function(self.randomness, "Retry()")
        self._backoff()  # refuses a first pause above the longest, and a jitter out of range

    @classmethod
    def backoff(
        cls,
        attempts: int,
        *,
        first: float,
        longest: float = 60.0,
        jitter: float = 0.5,
        only: tuple[type[BaseException], ...] = (Exception,),
        when: Callable[[BaseException], object] | None = None,
        budget: RetryBudget | None = None,
        transient: bool = False,
        scheduler: Scheduler | None = None,
    ) -> Retry:
        """Pauses that start at ``first`` seconds and double."""
        where = shared_timer if scheduler is None else lambda: scheduler
        return cls(attempts, first, longest, jitter, only, when, budget, transient, where)

    @classmethod
    def fixed(
        cls,
        attempts: int,
        *,
        pause: float,
        only: tuple[type[BaseException], ...] = (Exception,),
        when: Callable[[BaseException], object] | None = None,
        budget: RetryBudget | None = None,
        scheduler: Scheduler | None = None,
    ) -> Retry:
        """The same pause each time."""
        where = shared_timer if scheduler is None else lambda: scheduler
        return cls(attempts, pause, pause, 0.0, only, when, budget, scheduler=where)

    def pause(self, attempt: int, error: BaseException) -> float:
        """Seconds to wait before attempt number ``attempt``; raises the error that the stream fails with."""
        if not isinstance(error, self.only) or (self.when is not None and not self.when(error)):
            raise error
        if attempt > self.attempts:
            raise RetryExhausted(f"gave up after {self.attempts} more attempts: {error!r}") from error
        if self.budget is not None and not self.budget.spend(self.scheduler().now()):
            raise RetryExhausted(f"{self.budget} is spent: {error!r}") from error
        return self._backoff().pause(attempt, self.randomness)

    def _backoff(self) -> Backoff:
        return Backoff(self.first, self.longest, self.jitter)


Follow = Callable[[BaseException | None], "Stream[Any] | None"]
"""Given how a stream ended (None: completed), the stream to go on with, or None."""


class FollowSource(Source):
    """A stream and the one that follows it: resume, retry, repeat, switch_if_empty."""

    frames = 6

    def __init__(
        self, label: str, upstream: Stream[Any], follow: Callable[[], FollowRule], *shows: Any
    ) -> None:
        super().__init__(label, *shows)
        self.upstream = upstream
        self._follow = follow

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        """Subscribe to the first stream; a new rule for each subscriber chooses the next ones."""
        stage = Following(self._follow(), ops, downstream, self.label, self.place)
        stage.introduce()
        return None if stage.closed else (self.upstream, stage)

    def upstreams(self) -> list[Stream[Any]]:
        return [self.upstream]

    def runs_on(self) -> str:
        return self.upstream._source.runs_on()


class FollowRule:
    """Chooses the stream that follows; one object for each subscription, so it may keep what it needs."""

    outlives_elements: ClassVar[bool] = False
    """Whether a cancel may be heard of only when the subscriber has returned from its element."""
    __slots__ = ("elements",)
    elements: int
    """How many elements there were before the present end."""

    def saw_element(self, element: Any) -> None:
        """An element passed."""

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        """The stream to go on with, or None to end."""
        raise AssertionError("each rule decides")

    def cancelled(self) -> None:
        """The stream is over: it has ended, or the subscriber has left."""


class Following(Switching):
    """Goes on as its rule says."""

    __slots__ = ("_is_watched", "_rule")

    def __init__(
        self,
        rule: FollowRule,
        ops: tuple[Op, ...],
        downstream: Subscriber[Any],
        name: str,
        place: Place,
    ) -> None:
        super().__init__(ops, downstream, name, place)
        self._rule = rule
        self._is_watched = type(rule).saw_element is not FollowRule.saw_element

    @property
    def takes_handfuls(self) -> bool:  # type: ignore[override]
        """Unless the rule wants to see each of them, or an event loop waits: only a source lets it run."""
        return not self._is_watched and not self.home.paced

    @property
    def is_passed(self) -> bool:  # type: ignore[override]
        """Unless the rule has to do with elements."""
        return not self._is_watched and not self._rule.outlives_elements

    def on_next(self, element: Any, /) -> None:
        if self._is_watched and not self.closed:
            self._rule.saw_element(element)
        if not (self.flowing and self.push(element)):
            super().on_next(element)

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        self._rule.elements = self.taken
        return self._rule.follow(error)

    def release(self) -> None:
        super().release()
        self._rule.cancelled()


class ResumeRule(FollowRule):
    """After an error go on with what ``resume`` returns for it; None lets the error through."""

    __slots__ = ("_resume", "_resumed")

    def __init__(self, resume: Callable[[BaseException], Stream[Any] | None]) -> None:
        self._resume = resume
        self._resumed = False

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        """Only once: an error of the fallback ends the stream."""
        if error is None or self._resumed:
            return None
        self._resumed = True
        return self._resume(error)


class EmptyRule(FollowRule):
    """After an end without any element go on with another stream."""

    __slots__ = ("_alternative",)

    def __init__(self, alternative: Stream[Any]) -> None:
        self._alternative: Stream[Any] | None = alternative

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        alternative, self._alternative = self._alternative, None
        return alternative if error is None and not self.elements else None


class RepeatRule(FollowRule):
    """After its end, subscribe to the same stream again, ``times`` more times or for ever."""

    __slots__ = ("_left", "_stream")

    def __init__(self, stream: Stream[Any], times: int | None) -> None:
        self._stream = stream
        self._left = times

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        if error is not None or self._left == 0:
            return None
        if self._left is not None:
            self._left -= 1
        return self._stream


class RetryRule(FollowRule):
    """After an error, subscribe to the same stream again, perhaps after a pause.

    ``pause(attempt, error)`` returns the seconds to wait, or raises what the stream shall fail with.
    """

    __slots__ = (
        "_attempts",
        "_context",
        "_pause",
        "_refused",
        "_scheduler",
        "_seen",
        "_stream",
        "_timer",
        "_transient",
    )

    def __init__(
        self,
        stream: Stream[Any],
        pause: Callable[[int, BaseException], float],
        scheduler: Callable[[], Scheduler],
        transient: bool = False,
    ) -> None:
        self._stream = stream
        self._pause = pause
        self._scheduler = scheduler
        self._attempts = 0
        self._transient = transient
        self._seen = 0
        self._timer: Timer | None = None
        self._refused: SchedulerClosed | None = None
        self._context = copy_context()

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        if error is None or error is self._refused:
            return None
        if self._transient and self.elements > self._seen:
            self._attempts = 0  # an element came since the last error
        self._seen = self.elements
        self._attempts += 1
        seconds = self._pause(self._attempts, error)
        if seconds <= 0:
            return self._stream
        from penstock.streams.flux import Flux

        return Flux._of(DelayedSource(self._stream, seconds, self._scheduler(), self._context, self))

    def wait(self, timer: Timer) -> None:
        """The pause has begun."""
        self._timer = timer

    def give_up(self, closed: SchedulerClosed) -> None:
        """The pause will never end, because its scheduler has closed: fail."""
        self._refused = closed

    def cancelled(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class ExpandRule(FollowRule):
    """After its end, go on with the streams that each element leads to, in the order of the elements."""

    __slots__ = ("_leads_to", "_waiting")

    def __init__(self, leads_to: Callable[[Any], Stream[Any]]) -> None:
        self._leads_to = leads_to
        self._waiting: deque[Any] = deque()

    def saw_element(self, element: Any) -> None:
        self._waiting.append(element)

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        if error is not None or not self._waiting:
            return None
        return self._leads_to(self._waiting.popleft())

    def cancelled(self) -> None:
        self._waiting.clear()


class DelayedSource(Source):
    """Subscribes to a stream after a while."""

    def __init__(
        self,
        upstream: Stream[Any],
        seconds: float,
        scheduler: Scheduler,
        context: Context,
        rule: RetryRule,
    ) -> None:
        super().__init__("delay_subscription", seconds)
        self._context = context
        self._upstream = upstream
        self._seconds = seconds
        self._scheduler = scheduler
        self._rule = rule

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        stream = self._upstream._of(self._upstream._source, (*self._upstream._ops, *ops))

        def refused(closed: SchedulerClosed) -> None:
            self._rule.give_up(closed)
            FailedSource(closed, self.label).attach(ops, downstream)

        alarm = Alarm(self._context, lambda: stream._connect(downstream), refused)
        self._rule.wait(self._scheduler.submit_after(self._seconds, alarm))


class ConcatSource(Source):
    """Streams one after the other; the next is subscribed to when the one before it has completed."""

    frames = 9
    can_grow = True
    """A stream that follows this one may join its members."""

    def __init__(self, label: str, members: tuple[Stream[Any], ...]) -> None:
        super().__init__(label)
        self.members = members

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        """Begin as if a stream had just ended: the first member follows."""
        stage = Following(_InTurn(iter(self.members)), ops, downstream, self.label, self.place)
        stage.introduce()
        if not stage.closed:
            stage.on_complete()

    def upstreams(self) -> list[Stream[Any]]:
        return list(self.members)


class _InTurn(FollowRule):
    __slots__ = ("_streams",)

    def __init__(self, streams: Iterator[Stream[Any]]) -> None:
        self._streams = streams

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        return None if error is not None else next(self._streams, None)

"""``repeat_when``: another stream, the companion, decides when to subscribe again.

The companion is made from the stream of ends: it gets a number for each end, the number of elements of that
run, and answers with an element for each new run. When it completes, so does the whole; its error is the
error of the whole.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from penstock.spec import Subscriber, Subscription
from penstock.streams.errors import drop_error
from penstock.streams.fusion import Op
from penstock.streams.home import NOWHERE
from penstock.streams.operators.recovery import Following, FollowRule
from penstock.streams.operators.replay_buffer import ReplayBuffer
from penstock.streams.operators.share import ReplaySource
from penstock.streams.operators.sources import FailedSource
from penstock.streams.source import IterableSource, Next, Source

if TYPE_CHECKING:
    from penstock.streams.flux import Flux
    from penstock.streams.stream import Stream

__all__ = ["RepeatWhenSource"]


class RepeatWhenSource(Source):
    """Subscribes to the companion first, then to the stream."""

    frames = 10

    def __init__(
        self, upstream: Stream[Any], companion: Callable[[Flux[int]], Stream[Any]], *shows: Any
    ) -> None:
        super().__init__("repeat_when", *shows)
        self._upstream = upstream
        self._companion = companion

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> Next | None:
        from penstock.streams.flux import Flux

        rule = _RepeatRule(self._upstream, self.label)
        stage = Following(rule, ops, downstream, self.label, self.place)
        stage.introduce()
        if stage.closed:
            return None
        try:
            companion = self._companion(Flux._of(ReplaySource("ends", rule.ends)))
        except BaseException as error:
            stage._caught(error)
            rule.over = True
            stage.on_error(error)
            return None
        rule.companion.home, rule.companion.below = stage.home, stage.below
        companion._connect(rule.companion)
        return None if stage.closed else (self._upstream, stage)

    def upstreams(self) -> list[Stream[Any]]:
        return [self._upstream]

    def runs_on(self) -> str:
        return self._upstream._source.runs_on()


class _RepeatRule(FollowRule):
    """Tells the companion of each end, and goes on when it answers."""

    __slots__ = ("_before", "_label", "_stream", "companion", "ends", "over")

    def __init__(self, stream: Stream[Any], label: str) -> None:
        self._stream = stream
        self._label = label
        self._before = 0
        self.ends = ReplayBuffer(capacity=1, history=0, single=True)
        """The number of elements of each run, for the companion; there is one run at a time."""
        self.companion = _Companion(label)
        self.over = False
        """The companion has ended, so the next end is the last."""

    def follow(self, error: BaseException | None) -> Stream[Any] | None:
        if error is not None or self.over:
            return None
        before, self._before = self._before, self.elements
        self.companion.ask()
        self.ends.append(self.elements - before)
        from penstock.streams.flux import Flux

        return Flux._of(_AnswerSource(self._stream, self, self._label))

    def cancelled(self) -> None:
        self.companion.cancel()


class _Answer(Enum):
    AGAIN = 1
    END = 2


class _Companion:
    """Subscribes to the companion, asks for one answer at a time, and keeps it until it is looked at."""

    __slots__ = (
        "_answers",
        "_cancelled",
        "_done",
        "_mutex",
        "_name",
        "_owed",
        "_subscription",
        "_waiting",
        "below",
        "home",
    )

    def __init__(self, name: str) -> None:
        self._name = name
        self._subscription: Subscription | None = None
        self._owed = 0
        self._answers: deque[_Answer | BaseException] = deque()
        self._waiting: Callable[[_Answer | BaseException], None] | None = None
        self._mutex = allocate_lock()
        self._done = self._cancelled = False
        self.home = NOWHERE
        self.below = 0

    # ---------------------------------------------------------------- what the companion calls
    def on_subscribe(self, subscription: Subscription, /) -> None:
        with self._mutex:
            unwanted = self._subscription is not None or self._cancelled
            if not unwanted:
                self._subscription = subscription
            owed, self._owed = self._owed, 0
        if unwanted:
            subscription.cancel()
        elif owed:
            subscription.request(owed)

    def on_next(self, element: Any, /) -> None:
        self._answered(_Answer.AGAIN)

    def on_error(self, error: BaseException, /) -> None:
        self._done = True
        if self._cancelled:
            drop_error(error, f"the companion of {self._name}, after the end")
        else:
            self._answered(error)

    def on_complete(self) -> None:
        self._done = True
        self._answered(_Answer.END)

    def _answered(self, answer: _Answer | BaseException) -> None:
        with self._mutex:
            waiting, self._waiting = self._waiting, None
            if waiting is None:
                self._answers.append(answer)
        if waiting is not None and not self._cancelled:
            waiting(answer)

    # ---------------------------------------------------------------- what the rule calls
    def ask(self) -> None:
        """Ask for the next answer."""
        with self._mutex:
            subscription = self._subscription
            if subscription is None:
                self._owed += 1
        if subscription is not None and not self._done:
            subscription.request(1)

    def when_answered(self, call: Callable[[_Answer | BaseException], None]) -> None:
        """Call this with the answer, now or on the thread that brings it."""
        with self._mutex:
            answer = self._answers.popleft() if self._answers else None
            if answer is None:
                self._waiting = call
        if answer is not None:
            call(answer)

    def cancel(self) -> None:
        with self._mutex:
            self._cancelled = True
            self._waiting = None
            subscription = self._subscription
        if subscription is not None and not self._done:
            subscription.cancel()


class _AnswerSource(Source):
    """The next run, once the companion says so."""

    def __init__(self, stream: Stream[Any], rule: _RepeatRule, label: str) -> None:
        super().__init__(label)
        self._stream = stream
        self._rule = rule

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        stream = self._stream._of(self._stream._source, (*self._stream._ops, *ops))

        def go_on(answer: _Answer | BaseException) -> None:
            if answer is _Answer.AGAIN:
                stream._connect(downstream)
                return
            self._rule.over = True
            end = FailedSource(answer, self.label) if isinstance(answer, BaseException) else EMPTY
            end.attach(ops, downstream)

        self._rule.companion.when_answered(go_on)


EMPTY = IterableSource.over("empty", ())

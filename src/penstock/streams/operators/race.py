"""``first_with_signal``, ``first_with_value``: several streams start, and one of them goes on.

Until there is a winner each stream is asked for one element, whatever the demand: what the losers would send
beyond that is lost, so nobody makes it. The winner is then asked for the rest.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.spec import UNBOUNDED, Subscriber, Subscription
from penstock.streams.errors import drop_error
from penstock.streams.fusion import ExpectsLarge, Op, Relay
from penstock.streams.source import Source

if TYPE_CHECKING:
    from penstock.streams.stream import Stream

__all__ = ["FirstSource"]

NoValue = Callable[[list[BaseException]], BaseException]
"""Makes the error of a race without a winner from the errors of those that failed."""


class FirstSource(Source):
    """The stream that signals first; with ``no_value``, the one that has an element first."""

    frames = 8

    def __init__(self, label: str, streams: tuple[Stream[Any], ...], no_value: NoValue | None = None) -> None:
        super().__init__(label)
        self._streams = streams
        self._no_value = no_value

    def attach(self, ops: tuple[Op, ...], downstream: Subscriber[Any]) -> None:
        stage = Relay(ops, downstream, self.label, self.place)
        stage.introduce()
        if stage.closed:
            return
        race = _Race(stage, len(self._streams), self._no_value)
        stage.on_subscribe(race)
        for runner, stream in zip(race.runners, self._streams, strict=True):
            if race.over or race.winner is not None:
                return
            stream._connect(runner)

    def upstreams(self) -> list[Stream[Any]]:
        return list(self._streams)

    def runs_on(self) -> str:
        return "sources"


class _Race:
    """The subscription of the stage: passes demand on to the winner, once there is one."""

    __slots__ = ("_failures", "_left", "_mutex", "_no_value", "_owed", "over", "runners", "stage", "winner")

    def __init__(self, stage: Relay, runners: int, no_value: NoValue | None) -> None:
        self.stage = stage
        self.runners = [_Runner(self) for _ in range(runners)]
        self.winner: _Runner | None = None
        self.over = False
        """The subscriber has left, or nobody can win any more."""
        self._no_value = no_value
        self._owed = 0
        self._left = runners
        self._failures: list[BaseException] = []
        self._mutex = allocate_lock()

    # ---------------------------------------------------------------- what the stage calls
    def request(self, n: int, /) -> None:
        with self._mutex:
            winner = self.winner
            if winner is None:
                self._owed = min(self._owed + n, UNBOUNDED)
        if winner is not None:
            winner.request(n)
            return
        for runner in self.runners:
            runner.ask()

    def cancel(self) -> None:
        self.over = True
        for runner in self.runners:
            runner.cancel()

    def upstreams(self) -> list[Any]:
        """The streams that still run, for ``scan()``."""
        return [runner.subscription for runner in self.runners if not self.out_of(runner)]

    # ---------------------------------------------------------------- what a runner calls
    def may_ask(self, runner: _Runner) -> bool:
        """Whether to ask this one for its first element; True once."""
        with self._mutex:
            if runner.asked or not self._owed or self.winner is not None or self.over:
                return False
            runner.asked = True
            return True

    def out_of(self, runner: _Runner) -> bool:
        """Whether the race is over for this one."""
        return self.over or self.winner not in (None, runner)

    def has_won(self, runner: _Runner) -> bool:
        """The runner has a signal to send; all the others are cancelled."""
        if self.winner is runner:
            return True
        with self._mutex:
            if self.winner is not None or self.over:
                return False
            self.winner = runner
        for other in self.runners:
            if other is not runner:
                other.cancel()
        return True

    def rest(self) -> int:
        """What the winner has to be asked for beyond its first element."""
        with self._mutex:
            owed, self._owed = self._owed, 0
        return owed if owed >= UNBOUNDED else owed - 1

    def ended(self, runner: _Runner, error: BaseException | None) -> None:
        """A stream has ended, perhaps without a value."""
        if self._no_value is None or self.winner is runner:
            if not self.has_won(runner):
                self._too_late(error)
            elif error is None:
                self.stage.on_complete()
            else:
                self.stage.on_error(error)
            return
        with self._mutex:
            decided = self.winner is not None or self.over
            if not decided:
                self._left -= 1
                self._failures += [] if error is None else [error]
            hopeless = not decided and not self._left
            self.over = self.over or hopeless
        if decided:
            self._too_late(error)
        elif hopeless:
            self.stage.on_error(self._no_value(self._failures))

    def _too_late(self, error: BaseException | None) -> None:
        if error is not None:
            drop_error(error, f"a stream that lost the race of {self.stage.name}")


class _Runner(ExpectsLarge):
    """Subscribes to one of the streams."""

    __slots__ = ("_done", "_race", "_sent", "asked", "below", "home", "subscription")

    def __init__(self, race: _Race) -> None:
        self._race = race
        self._sent = False
        self._done = False
        self.asked = False
        self.home = race.stage.home
        self.below = race.stage.below
        self.subscription: Subscription | None = None

    def on_subscribe(self, subscription: Subscription, /) -> None:
        if self.subscription is not None:
            subscription.cancel()
            return
        self.subscription = subscription
        if self._race.out_of(self):
            subscription.cancel()
            return
        self.ask()

    def expect_large(self, step: int) -> bool:
        """What comes from above goes straight down."""
        return self._race.stage.expect_large(step)

    def is_starving(self) -> bool:
        """Whether somebody below waits for an element."""
        return self._race.stage.is_starving()

    def on_next(self, element: Any, /) -> None:
        if not self._race.has_won(self):
            return  # §2.8: may still come after the cancel
        self._race.stage.on_next(element)
        if not self._sent:
            self._sent = True
            rest = self._race.rest()
            if rest > 0:
                self.request(rest)

    def on_error(self, error: BaseException, /) -> None:
        self._done = True
        self._race.ended(self, error)

    def on_complete(self) -> None:
        self._done = True
        self._race.ended(self, None)

    def ask(self) -> None:
        """Ask for the first element, if there is demand for it."""
        if self.subscription is not None and self._race.may_ask(self):
            self.subscription.request(1)

    def request(self, n: int) -> None:
        if self.subscription is not None and not self._done:
            self.subscription.request(n)

    def cancel(self) -> None:
        if self.subscription is not None and not self._done:
            self.subscription.cancel()

"""``circuit_breaker``: after too many failures, stop asking for a while.

A caller that goes on asking a service that is down makes it worse, and waits for nothing. A breaker counts
failures in a row. When there are too many it *opens*: streams fail at once. After a pause it lets one stream
through as a trial (*half open*), and its outcome closes or opens the breaker again.
"""

from __future__ import annotations

from _thread import allocate_lock
from datetime import timedelta
from enum import Enum
from typing import Any

from penstock.arguments import a_count, seconds
from penstock.streams.fusion import Op, Watch, operator
from penstock.streams.schedulers import Scheduler, shared_timer

__all__ = ["CircuitBreaker", "CircuitOpen", "CircuitState"]


class CircuitState(Enum):
    """What a circuit breaker does with a new subscription."""

    CLOSED = "closed"
    """Everything works: it lets all of them through."""
    OPEN = "open"
    """Too many failures: it refuses all of them until the pause is over."""
    HALF_OPEN = "half open"
    """The pause is over: it lets one of them through, as a trial."""


class CircuitOpen(RuntimeError):
    """A circuit breaker has refused a subscription, because too many before it have failed."""


class CircuitBreaker:
    """Counts the failures of all streams that it is given to; it may be shared by many, and by threads.

    >>> breaker = CircuitBreaker(failures=2, pause=30)
    >>> broken = Mono.error(ConnectionError("refused")).circuit_breaker(breaker)
    >>> [type(broken.materialize().block().error).__name__ for _ in range(3)]
    ['ConnectionError', 'ConnectionError', 'CircuitOpen']
    >>> breaker.state
    <CircuitState.OPEN: 'open'>
    """

    def __init__(
        self,
        failures: int = 5,
        *,
        pause: float | timedelta = 30.0,
        on: type[BaseException] | tuple[type[BaseException], ...] = Exception,
        scheduler: Scheduler | None = None,
    ) -> None:
        """Open after ``failures`` failures in a row, for ``pause`` seconds.

        Only errors of the types ``on`` are failures. The time is that of ``scheduler``; pass virtual time in
        a test.
        """
        self._failures = a_count(failures, "CircuitBreaker(failures=…)")
        self._pause = seconds(pause, "CircuitBreaker(pause=…)")
        self._on = on
        self._scheduler = scheduler
        self._mutex = allocate_lock()
        self._failed = 0
        self._state = CircuitState.CLOSED
        self._until = 0.0
        """When the pause is over."""
        self._trial: _Permit | None = None
        self._opened = 0
        """How often it has opened: the outcome of a stream that began before that says nothing."""

    @property
    def state(self) -> CircuitState:
        """What it would do with a new subscription now."""
        with self._mutex:
            return self._present_state()

    def _now(self) -> float:
        return (self._scheduler or shared_timer()).now()

    def _present_state(self) -> CircuitState:
        if self._state is CircuitState.OPEN and self._now() >= self._until:
            self._state = CircuitState.HALF_OPEN
        return self._state

    def _admit(self) -> Op:
        """Let a subscription through, or raise CircuitOpen. The operator reports how it went."""
        with self._mutex:
            state = self._present_state()
            if state is CircuitState.OPEN:
                raise CircuitOpen(
                    f"the circuit breaker is open for another {self._until - self._now():.3g} s, after "
                    f"{self._failed} failures in a row; go on with on_error_resume(), or retry_when() later"
                )
            if self._trial is not None:
                raise CircuitOpen("the circuit breaker is half open, and its one trial is still under way")
            permit = _Permit(self, self._opened)
            if state is CircuitState.HALF_OPEN:
                self._trial = permit
        watch = Watch(completed=permit.works, failed=permit.fails, cancelled=permit.leaves)
        return operator("tap", permit.element, label="circuit_breaker", shows=(), watch=watch)

    def _is_trial(self, permit: _Permit) -> bool:
        """Whether this subscription decides what becomes of the breaker."""
        return self._trial is permit

    def _works(self, permit: _Permit) -> None:
        """A stream has shown that its source works."""
        with self._mutex:
            if permit.since == self._opened:
                self._trial = None
                self._failed = 0
                self._state = CircuitState.CLOSED

    def _fails(self, permit: _Permit) -> None:
        """A stream has failed."""
        with self._mutex:
            if permit.since != self._opened:
                return
            self._failed += 1
            if self._trial is permit or self._failed >= self._failures:
                self._trial = None
                self._opened += 1
                self._state = CircuitState.OPEN
                self._until = self._now() + self._pause

    def _leaves(self, permit: _Permit) -> None:
        """A stream was cancelled before it had shown anything: another may try."""
        with self._mutex:
            if self._trial is permit:
                self._trial = None


class _Permit:
    """One subscription that a breaker has let through."""

    __slots__ = ("_breaker", "_seen", "since")

    def __init__(self, breaker: CircuitBreaker, since: int) -> None:
        self._breaker = breaker
        self._seen = False
        self.since = since

    def element(self, element: Any) -> None:
        """The first element of a trial closes the breaker: an endless stream would never complete."""
        if not self._seen:
            self._seen = True
            if self._breaker._is_trial(self):
                self._breaker._works(self)

    def works(self) -> None:
        self._breaker._works(self)

    def fails(self, error: BaseException) -> None:
        if isinstance(error, self._breaker._on):
            self._breaker._fails(self)
        else:
            self.leaves()

    def leaves(self) -> None:
        (self._breaker._works if self._seen else self._breaker._leaves)(self)

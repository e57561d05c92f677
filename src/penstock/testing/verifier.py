"""Follow a stream step by step: ``verify(flux).request(2).next(1, 2).complete()``.

Each step runs when it is called, so a failure points at the line of the step. It says what was expected, what
came, and everything that happened so far, with times.
"""

from __future__ import annotations

import re
import warnings
from asyncio.events import _get_running_loop as running_loop_or_none
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import wraps
from math import inf
from time import monotonic
from typing import Any, Generic, NoReturn, Self, TypeVar, cast

from penstock.arguments import a_count, a_function, seconds
from penstock.spec import UNBOUNDED, Publisher, RuleViolation, check_publisher, strict
from penstock.streams.schedulers import VirtualTimeScheduler
from penstock.testing.dropped import DroppedSignals
from penstock.testing.marbles import FRAME, Marble, as_marble, drawn, same
from penstock.testing.subscriber import COMPLETE, ERROR, NEXT, SeenSignal, TestSubscriber
from penstock.testing.virtual_time import present_clock, virtual_time

__all__ = ["ExpectationFailed", "Verifier", "verify"]

T = TypeVar("T")
Step = TypeVar("Step", bound=Callable[..., Any])

PATIENCE = 5.0
"""Seconds of real time that a verification may take in all, unless it is given another time-out."""
_LOOK = 0.005
"""Seconds between two looks at a virtual clock while other threads work."""


class ExpectationFailed(AssertionError):
    """A stream did not do what the test expects."""


def verify(
    publisher: Publisher[T],
    *,
    demand: int | None = None,
    timeout: float = PATIENCE,
    virtual: bool = False,
) -> Verifier[T]:
    """Begin to verify a stream; the methods of the result are its steps.

    >>> from penstock.streams import Flux
    >>> _ = verify(Flux.range(1, 3)).request(2).next(1, 2).request(1).next(3).complete()

    The first step subscribes. It asks for ``demand`` elements; without that number it asks for everything,
    unless the first step is :meth:`Verifier.request`.

    The last step is :meth:`~Verifier.complete`, :meth:`~Verifier.error` or :meth:`~Verifier.cancel`, or the
    verifier is used as a context manager, which cancels at the end of its block. The guard of
    ``penstock.spec`` watches the publisher, and a broken rule fails the test. All steps together may take
    ``timeout`` seconds of real time.

    Inside a ``virtual_time`` block the steps use its clock. With ``virtual=True`` the verifier has such a
    block of its own, until its last step:

    >>> _ = verify(Flux.interval(60), virtual=True).no_event(for_=59).wait(1).next(0).cancel()
    """
    check_publisher(publisher)
    if running_loop_or_none() is not None:
        raise RuntimeError(
            "verify() waits for the stream and would block the event loop that runs here; call it in a plain "
            "test, or with `await asyncio.to_thread(...)`"
        )
    first = None if demand is None else a_count(demand, "verify()", least=0)
    patience = seconds(timeout, "verify()")
    if patience == inf:
        raise ValueError("verify() always has a time-out; pass a finite number of seconds")
    return Verifier(publisher, first, patience, virtual)


def _step(method: Step) -> Step:
    """A step that raises is the last one, also if a function of the test or a wrong argument is the reason.

    pytest keeps what a test raised, and the verifier with it. Its virtual clock must not outlive the test.
    """

    @wraps(method)
    def step(self: Verifier[Any], *arguments: Any, **named: Any) -> Any:
        __tracebackhide__ = True
        try:
            return method(self, *arguments, **named)
        except BaseException:
            self._close()
            raise

    return cast("Step", step)


class Verifier(Generic[T]):
    """The steps of a verification; made by :func:`verify`. Use it from one thread."""

    def __init__(self, publisher: Publisher[T], demand: int | None, timeout: float, virtual: bool) -> None:
        """Use :func:`verify`."""
        self._publisher = publisher
        self._first_demand = demand
        self._timeout = timeout
        self._virtual = virtual
        self._clock: VirtualTimeScheduler | None = present_clock()
        self._held = ExitStack()
        self._dropped = DroppedSignals()
        self._violations: list[RuleViolation] = []
        self._subscriber: TestSubscriber[T] | None = None
        self._place = 0
        """How many signals the steps have taken."""
        self._elements_seen = 0
        self._errors_seen = 0
        self._over = False

    # ---------------------------------------------------------------- demand
    @_step
    def request(self, n: int) -> Self:
        """Ask for ``n`` more elements. As the first step it is the only demand."""
        __tracebackhide__ = True
        if self._subscriber is None and self._first_demand is None:
            self._first_demand = 0
        self._given().request(n)
        return self._settle()

    @_step
    def cancel(self) -> Self:
        """Cancel. Signals that no step has asked for are ignored. This ends the verification."""
        __tracebackhide__ = True
        self._given().cancel()
        self._settle()
        self._place = len(self._given().signals)
        self._end()
        return self

    # ---------------------------------------------------------------- elements
    @_step
    def next(self, *elements: object) -> Self:
        """Expect these elements next, in this order, by ``==``."""
        __tracebackhide__ = True
        for number, element in enumerate(elements):
            asked = f"next({element!r:.200})"
            if len(elements) > 1:
                asked += f", number {number + 1} of {len(elements)}"
            came = self._take(asked)
            if came.name != NEXT or came.value != element:
                self._fail(asked, came)
        return self

    @_step
    def next_where(self, *predicates: Callable[[T], object]) -> Self:
        """Expect as many elements as there are functions; each function says whether its element is right."""
        __tracebackhide__ = True
        for predicate in predicates:
            asked = f"an element for which {getattr(predicate, '__name__', predicate)} is true"
            came = self._take(asked)
            if came.name != NEXT or not a_function(predicate, "next_where()")(came.value):
                self._fail(asked, came)
        return self

    @_step
    def next_count(self, n: int) -> Self:
        """Expect ``n`` elements, whatever they are."""
        __tracebackhide__ = True
        for number in range(a_count(n, "next_count()", least=0)):
            asked = f"element {number + 1} of {n}"
            came = self._take(asked)
            if came.name != NEXT:
                self._fail(asked, came)
        return self

    # ---------------------------------------------------------------- time
    @_step
    def no_event(self, *, for_: float) -> Self:
        """Expect that nothing happens for so many seconds, of virtual time if there is a virtual clock."""
        __tracebackhide__ = True
        duration = seconds(for_, "no_event()")
        asked = f"no event for {for_} s"
        self._settle()
        subscriber = self._given()
        if self._clock is None:
            with subscriber.changed:
                subscriber.changed.wait_for(lambda: len(subscriber.signals) > self._place, duration)
        else:
            self._clock.advance_by(duration)
        self._check_rules()
        if len(subscriber.signals) > self._place:
            self._fail(asked, subscriber.signals[self._place])
        return self

    @_step
    def wait(self, duration: float) -> Self:
        """Let time pass. What happens meanwhile is for the next steps to expect."""
        __tracebackhide__ = True
        pause = seconds(duration, "wait()")
        subscriber = self._settle()._given()
        if self._clock is None:
            with subscriber.changed:  # woken by every signal, and not done before its time
                subscriber.changed.wait_for(lambda: False, pause)
        else:
            self._clock.advance_by(pause)
        self._check_rules()
        return self

    @_step
    def then(self, action: Callable[[], object]) -> Self:
        """Call ``action()`` now, for instance to emit something into a sink."""
        __tracebackhide__ = True
        call = a_function(action, "then()")
        self._given()
        call()
        return self._settle()

    @_step
    def marble(self, line: str, values: Mapping[str, Any] | None = None, **more: Any) -> Self:
        """Expect what a line of marbles says, from now on, frame by frame.

        >>> from penstock.streams import Flux
        >>> _ = verify(Flux.interval(0.02).take(3)).marble("--0-1-(2|)")

        A letter stands for itself as a string and a digit for its number; say what others stand for with
        ``values`` or by name: ``marble("--A|", A=[1, 2])``. As the first step it makes a virtual clock if
        there is none. A line with an end ends the verification; one without is looked at for its length.
        """
        __tracebackhide__ = True
        known = {**(values or {}), **more}
        expected = Marble.parse(line, known)
        if self._subscriber is None and self._clock is None:
            self._virtual = True
        subscriber = self._settle()._given()
        if self._clock is None:
            raise RuntimeError("marble() needs virtual time: use verify(..., virtual=True)")
        begin = subscriber.time()
        for _ in range(expected.frames - 1):
            self._clock.advance_by(FRAME)
        self._check_rules()
        came = [as_marble(seen, begin) for seen in subscriber.signals[self._place :]]
        if len(came) != len(expected.signals) or not all(map(same, expected.signals, came)):
            shown = drawn(came, expected.frames, known)
            self._raise(f"expected  {line.strip()}\ncame      {shown}{_between(came)}")
        self._place += len(came)
        if expected.ends:
            self._end()
        return self

    # ---------------------------------------------------------------- ends
    @_step
    def complete(self) -> Self:
        """Expect that the stream completes now. This ends the verification."""
        __tracebackhide__ = True
        asked = "complete()"
        came = self._take(asked)
        if came.name != COMPLETE:
            self._fail(asked, came)
        self._end()
        return self

    @_step
    def error(
        self, kind: type[BaseException] | tuple[type[BaseException], ...] = Exception, *, match: str = ""
    ) -> Self:
        """Expect that the stream fails now, with an error of this class. This ends the verification.

        ``match`` is a regular expression that its text must contain.
        """
        __tracebackhide__ = True
        names = " or ".join(each.__name__ for each in _kinds(kind, "error()"))
        asked = f"error({names}{f', match={match!r}' if match else ''})"
        came = self._take(asked)
        if came.name != ERROR or not isinstance(came.value, kind) or not re.search(match, str(came.value)):
            self._fail(asked, came)
        self._end()
        return self

    # ---------------------------------------------------------------- what was dropped
    @_step
    def dropped(self, *elements: Any) -> Self:
        """Expect that exactly these elements were dropped, since the last such step; also after the end."""
        __tracebackhide__ = True
        came = self._dropped.elements[self._elements_seen :]
        self._elements_seen += len(came)
        if came != list(elements):
            self._raise(f"expected  {list(elements)!r} to be dropped\ncame      {came!r}")
        return self

    @_step
    def dropped_error(
        self, kind: type[BaseException] | tuple[type[BaseException], ...] = Exception, *, match: str = ""
    ) -> Self:
        """Expect that one error was dropped, of this class. It has to come before the last step.

        An error that was dropped and that no step expects fails the verification at its end.
        """
        __tracebackhide__ = True
        names = " or ".join(each.__name__ for each in _kinds(kind, "dropped_error()"))
        self._given()
        came = self._dropped.errors[self._errors_seen : self._errors_seen + 1]
        self._errors_seen += len(came)
        for error in came:
            self._dropped.expect(error)
        if not came or not isinstance(came[0], kind) or not re.search(match, str(came[0])):
            said = repr(came[0]) if came else "none"
            self._raise(f"expected  {names} to be dropped, match={match!r}\ncame      {said}")
        return self

    # ---------------------------------------------------------------- as a context manager
    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        __tracebackhide__ = True
        idle = self._subscriber is None and not self._over
        if kind is None and not self._over and not idle:
            self.cancel()
            return
        self._close()
        if idle and kind is None:
            raise RuntimeError(
                f"the block of verify({self._publisher!r}) has no step, so nobody subscribed and nothing was "
                "verified; call a step inside, for instance next() or request()"
            )

    def __del__(self) -> None:
        if getattr(self, "_over", True):
            return
        self._close()
        warnings.warn(
            f"verify({self._publisher!r}) was never ended; its last step is complete(), error() or cancel()",
            ResourceWarning,
            stacklevel=2,
            source=self,
        )

    # ---------------------------------------------------------------- inside
    def _given(self) -> TestSubscriber[T]:
        """The subscriber; the first step makes it and subscribes."""
        if self._over:
            raise RuntimeError("this verification has ended; begin another one with verify()")
        if self._subscriber is None:
            if self._virtual:
                self._clock = self._held.enter_context(virtual_time())
            self._dropped.start()
            now = monotonic if self._clock is None else self._clock.now
            first = UNBOUNDED if self._first_demand is None else self._first_demand
            self._subscriber = TestSubscriber(first, now)
            self._deadline = monotonic() + self._timeout
            strict(self._publisher, report=self._violations.append).subscribe(self._subscriber)
            self._await_subscription()
        return self._subscriber

    def _await_subscription(self) -> None:
        assert self._subscriber is not None
        if not self._wait_until(lambda: self._subscriber is not None and self._subscriber.subscribed):
            self._raise(f"expected  on_subscribe\ncame      nothing within {self._timeout} s")

    def _settle(self) -> Self:
        """Run what is due on the virtual clock."""
        __tracebackhide__ = True
        self._given()
        if self._clock is not None:
            self._clock.run_pending()
        self._check_rules()
        return self

    def _wait_until(self, condition: Callable[[], bool]) -> bool:
        """Wait for other threads, and run what they hand to the virtual clock; False if it takes too long."""
        assert self._subscriber is not None
        changed = self._subscriber.changed
        while True:
            if self._clock is not None:
                self._clock.run_pending()
            with changed:
                left = self._deadline - monotonic()
                if condition() or self._violations or left <= 0:
                    return condition()
                changed.wait(min(left, _LOOK))

    def _take(self, asked: str) -> SeenSignal:
        """The next signal."""
        __tracebackhide__ = True
        subscriber = self._settle()._given()
        if not self._wait_until(lambda: len(subscriber.signals) > self._place):
            self._check_rules()
            waits = ""
            if self._clock is not None and self._clock.pending:
                waits = f"; {self._clock.pending} timers wait for the virtual clock: add wait(seconds)"
            self._raise(f"expected  {asked}\ncame      nothing within {self._timeout} s{waits}")
        self._check_rules()
        self._place += 1
        return subscriber.signals[self._place - 1]

    def _check_rules(self) -> None:
        __tracebackhide__ = True
        if self._violations:
            violation = self._violations[0]
            self._raise(f"expected  a publisher that keeps the rules\ncame      {violation}", violation)

    def _end(self) -> None:
        """The last step has been taken."""
        __tracebackhide__ = True
        subscriber = self._given()
        self._check_rules()
        lost = self._dropped.errors[self._errors_seen :]
        if lost:
            said = "\n          ".join(repr(error) for error in lost)
            self._raise(f"expected  no error to be dropped\ncame      {said}", lost[0])
        if len(subscriber.signals) > self._place:
            self._fail("nothing more", subscriber.signals[self._place])
        self._close()

    def _close(self) -> None:
        """Give back the hooks and the clock; a stream that still runs is cancelled."""
        if self._over:
            return
        self._over = True
        subscriber = self._subscriber
        if subscriber is not None and subscriber.subscribed and not subscriber.terminated:
            subscriber.cancel()
        self._held.close()
        self._dropped.stop()

    def _fail(self, asked: str, came: SeenSignal) -> NoReturn:
        __tracebackhide__ = True
        cause = came.value if came.name == ERROR else None
        self._raise(f"expected  {asked}\ncame      {came} at {came.time:.3f} s", cause)

    def _raise(self, message: str, cause: BaseException | None = None) -> NoReturn:
        __tracebackhide__ = True
        story = "" if self._subscriber is None else f"\n{self._subscriber.story()}"
        dropped = "".join(f"\ndropped {place}" for place in self._dropped.places)
        self._close()
        raise ExpectationFailed(f"{message}{story}{dropped}") from cause


def _kinds(kind: Any, where: str) -> tuple[type[BaseException], ...]:
    """The classes of errors that a step expects; a TypeError that says what is needed for anything else."""
    kinds = kind if isinstance(kind, tuple) else (kind,)
    for each in kinds:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise TypeError(
                f"{where} needs a class of exceptions, or a tuple of them, for instance ValueError; "
                f"got {each!r:.200}"
            )
    if not kinds:
        raise TypeError(f"{where} needs at least one class of exceptions; got an empty tuple")
    return kinds


def _between(came: list[Any]) -> str:
    """A remark on signals between two frames, which a line cannot show."""
    odd = [signal for signal in came if signal.frame != int(signal.frame)]
    return "".join(f"\n          {each.name}({each.value!r:.80}) at frame {each.frame:.3f}" for each in odd)

"""The kit's own Publisher, which drives a Subscriber and checks its requests; and the Subscriber's hooks."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Final, Literal

from penstock.arguments import whole
from penstock.tck.evidence import shown
from penstock.tck.trial import Trial
from penstock.tck.verdicts import Violation
from penstock.tck.verification import Verification

End = Literal["complete", "error"]

HOLD: Final[float] = 0.02
"""How many seconds a request or a cancellation takes, in which another call could overlap with it."""
_SHORT_HOLD = 0.002
"""The same for those after the first."""


class ScriptedError(RuntimeError):
    """The error with which the kit fails a stream; the same object has to arrive."""


class WatchedSubscription:
    """A Subscription that forwards its calls to the Publisher of the kit."""

    def __init__(self, upstream: ScriptedPublisher) -> None:
        """Forward the calls to ``upstream``."""
        self._upstream = upstream

    def request(self, n: int, /) -> None:
        """Forward the call."""
        self._upstream.was_asked(n)

    def cancel(self) -> None:
        """Forward the call."""
        self._upstream.was_cancelled()

    def __repr__(self) -> str:
        return f"<Subscription of {self._upstream.name}>"


class ScriptedPublisher:
    """A Publisher with one Subscriber; it does what the test says, and keeps the rules itself.

    In every test it notices: a request for less than one (§3.9), a request or a cancellation from inside the
    last signal (§2.3), calls of the Subscription that overlap (§2.7), and a signal that raises or does not
    return (§2.13).
    """

    def __init__(self, trial: Trial, subscriber: Any, name: str = "upstream") -> None:
        """Get ready to serve ``subscriber``."""
        self.name = name
        self.calls: list[str] = []
        """What came through the Subscription, in order."""
        self.cancelled = False
        self.hold = 0.0
        """How long the next call takes, in seconds: time in which another one could overlap with it."""
        self.error = ScriptedError("the stream fails inside request, as the test says")
        self._trial = trial
        self._subscriber = subscriber
        self._asked = self._sent = self._seen = 0
        self._inside: list[int] = []
        self._pulled: set[int] = set()
        self._last_signal: dict[int, str] = {}
        self._supply: list[Any] | None = None
        self._end: End | None = None
        self._draining = False

    # ---------------------------------------------------------------- what a test does
    def subscribe(self, rule: str = "2.13") -> None:
        """Send ``on_subscribe``; it breaks ``rule`` if it does not return normally."""
        subscription = WatchedSubscription(self)
        self._signal(lambda: self._subscriber.on_subscribe(subscription), "on_subscribe(…)", rule)

    def send(self, element: Any) -> None:
        """Send ``on_next``; the test has made sure that there is demand."""
        with self._trial.condition:
            assert self._sent < self._asked, "a test of the kit sends without demand"
            self._sent += 1
        self._signal(lambda: self._subscriber.on_next(element), f"on_next({shown(element)})")

    def send_on_its_way(self, element: Any) -> None:
        """Send an element that was requested before a cancel; the Subscriber has to accept it (§2.8)."""
        self._signal(lambda: self._subscriber.on_next(element), f"on_next({shown(element)})", "2.8")

    def fail(self, error: BaseException, rule: str = "2.13") -> None:
        """Send ``on_error``; it breaks ``rule`` if it does not return normally."""
        self._signal_end(lambda: self._subscriber.on_error(error), f"on_error({shown(error)})", rule)

    def complete(self, rule: str = "2.13") -> None:
        """Send ``on_complete``; it breaks ``rule`` if it does not return normally."""
        self._signal_end(lambda: self._subscriber.on_complete(), "on_complete()", rule)

    def pulled(self, strings: Callable[[], object]) -> object:
        """Make the Subscriber do something on this thread.

        A call of the Subscription that it makes right here is one of the kit, which does not ask whether a
        thread of the Subscriber's own is at it. So it overlaps with nothing.
        """
        me = threading.get_ident()
        with self._trial.condition:
            self._pulled.add(me)
        try:
            return strings()
        finally:
            with self._trial.condition:
                self._pulled.discard(me)

    def send_elsewhere(self, element: Any, rule: str) -> None:
        """Send ``on_next`` from a new thread; a Subscriber that does not accept that breaks ``rule``."""
        with self._trial.condition:
            assert self._sent < self._asked, "a test of the kit sends without demand"
            self._sent += 1
        what = f"on_next({shown(element)})"
        self._signal_elsewhere(lambda: self._subscriber.on_next(element), what, rule)

    def complete_elsewhere(self, rule: str) -> None:
        """Send ``on_complete`` from yet another thread."""
        self._signal_elsewhere(self._last(self._subscriber.on_complete, "on_complete"), "on_complete()", rule)

    def answer_at_once(self, elements: list[Any], end: End | None = None) -> None:
        """Serve requests inside ``request`` itself (§3.10, §3.11): ``elements``, then the end.

        Has to be said before ``subscribe``: a Subscriber may ask inside ``on_subscribe``.
        """
        self._supply, self._end = list(elements), end

    @property
    def demand(self) -> int:
        """How many elements may be sent."""
        return 0 if self.cancelled else self.owed

    @property
    def owed(self) -> int:
        """How many elements were requested and not sent, even if the Subscriber has cancelled since."""
        return self._asked - self._sent

    # ---------------------------------------------------------------- what a test expects
    def expect_request(self, rule: str) -> int:
        """Wait for the next request, and return how many elements it asks for."""
        if not self._trial.wait_until(lambda: self._requests() > self._seen):
            raise self._missing(rule, "request", "a request")
        self._seen += 1
        numbers = [int(call[8:-1]) for call in self.calls if call.startswith("request(")]
        return numbers[self._seen - 1]

    def expect_demand(self, count: int, rule: str) -> None:
        """Wait until at least ``count`` elements may be sent."""
        if not self._trial.wait_until(lambda: self.demand >= count, lambda: self.cancelled):
            raise self._missing(rule, "request", f"demand for {count}, there is {self.demand}")

    def expect_cancel(self, rule: str) -> None:
        """Wait for ``cancel``."""
        if not self._trial.wait_until(lambda: self.cancelled):
            raise self._missing(rule, "cancel", "cancel")

    @contextlib.contextmanager
    def silence(self, rule: str, after: str) -> Iterator[None]:
        """Expect no call on the Subscription inside the block, and for a while after it."""
        before = len(self.calls)
        yield
        self._trial.settle()
        late = self.calls[before:]
        if late:
            raise Violation(rule, f"{', '.join(late[:3])} was called after {after}", "no call")

    def _requests(self) -> int:
        return sum(call.startswith("request(") for call in self.calls)

    def _missing(self, rule: str, what: str, expected: str) -> Violation:
        seen = f"it called {', '.join(self.calls[-3:])}" if self.calls else "it called nothing"
        limit = self._trial.environment.timeout
        return Violation(rule, f"{what} was not called within {limit:g} s; {seen}", expected)

    # ---------------------------------------------------------------- signals
    def _signal(self, action: Any, what: str, rule: str = "2.13") -> None:
        with self._trial.condition:
            self._trial.log.add(f"→ {self.name}: {what}")
        self._trial.perform(action, what, rule)

    def _signal_elsewhere(self, action: Callable[[], Any], what: str, rule: str) -> None:
        with self._trial.condition:
            self._trial.log.add(f"→ {self.name}: {what} on another thread")
        signalled = self._trial.elsewhere(action)
        what += " on another thread than on_subscribe"
        outcome = self._trial.awaited(signalled, what, rule)
        self._trial.judge(outcome, what, rule, thread="tck-elsewhere")

    def _signal_end(self, action: Callable[[], Any], what: str, rule: str) -> None:
        self._signal(self._last(action, what.partition("(")[0]), what, rule)

    def _last(self, action: Callable[[], Any], name: str) -> Callable[[], Any]:
        """Send the last signal, inside which the Subscriber must not call its Subscription (§2.3)."""

        def last() -> Any:
            me = threading.get_ident()
            self._last_signal[me] = name
            try:
                return action()
            finally:
                del self._last_signal[me]

        return last

    # ---------------------------------------------------------------- what a subscriber does
    def was_asked(self, n: Any) -> None:
        """Count a request, and answer it at once if the test says so."""
        with self._call(f"request({shown(n)})"):
            number = whole(n) or 0
            if number < 1:
                self._trial.flaw("3.9", f"request({shown(n)}) was called", "a whole number of at least 1")
                return
            with self._trial.condition:
                self.calls.append(f"request({number})")
                self._asked += number
                self._trial.condition.notify_all()
            self._hold_on()
        self._answer()

    def _hold_on(self) -> None:
        # On the thread of its caller a subject cannot make two calls at a time.
        if self.hold and self._trial.profile != "sync":
            self._trial.wait_briefly(lambda: False, self.hold)
            self.hold = min(self.hold, _SHORT_HOLD)

    def was_cancelled(self) -> None:
        """Record a cancellation."""
        # §3.5 makes cancel safe from any thread, but it is the Subscriber's duty to wait its turn (§2.7).
        with self._call("cancel()"):
            with self._trial.condition:
                self.calls.append("cancel()")
                self.cancelled = True
                self._trial.condition.notify_all()
            self._hold_on()

    @contextlib.contextmanager
    def _call(self, what: str) -> Iterator[None]:
        trial, me = self._trial, threading.get_ident()
        with trial.condition:
            own = me not in self._pulled
            if not trial.closed:
                trial.log.add(f"← {self.name}: {what}")
                if me in self._last_signal:
                    trial.flaw("2.3", f"{what} was called inside {self._last_signal[me]}", "no call in there")
                if own and any(thread != me for thread in self._inside):
                    happened = f"{what} was called while a call on another thread was under way"
                    trial.flaw("2.7", happened, "one after the other")
                if trial.profile == "sync" and not trial.calls_here:
                    trial.flaw("", f"{what} was called on another thread", 'profile = "threads" or "asyncio"')
            if own:
                self._inside.append(me)
        try:
            yield
        finally:
            if own:
                with trial.condition:
                    self._inside.remove(me)

    def _answer(self) -> None:
        """Send what was requested; this loop also serves a request made inside ``on_next`` (§3.3)."""
        with self._trial.condition:
            if self._supply is None or self._draining:
                return
            self._draining = True
        while (element := self._next_of_supply()) is not None:
            self.send(element[0])
        with self._trial.condition:
            end = None if self._supply or self.cancelled else self._end
            self._end = self._end if end is None else None
        if end == "complete":
            self.complete()
        elif end == "error":
            self.fail(self.error)

    def _next_of_supply(self) -> tuple[Any] | None:
        with self._trial.condition:
            if self._supply and self.demand:
                return (self._supply.pop(0),)
            self._draining = False
            return None


class SubscriberSubject(Verification):
    """The hooks of a verification whose subject is a Subscriber."""

    def create_element(self, element: int) -> Any:
        """Return an element that the Subscriber understands; a different one for each number."""
        return element

    _rule_of_failure: ClassVar[str] = "2.13"

    # ---------------------------------------------------------------- for the tests
    def element(self, number: int) -> Any:
        """Let the hook make an element."""
        what = f"create_element({number})"
        return self.trial.ask(lambda: self.create_element(number), what, "an element")

    def send(self, upstream: ScriptedPublisher, count: int, rule: str, first: int = 1) -> list[Any]:
        """Send elements, each as soon as there is demand for it, and return them."""
        elements = [self.element(number) for number in range(first, first + count)]
        for element in elements:
            upstream.expect_demand(1, rule)
            upstream.send(element)
        return elements

    def expect_none_error(self, action: Callable[[], object], what: str) -> None:
        """Expect that a signal with ``None`` raises ``none_error_type`` at the caller."""
        self.expect_raised(action, what, "2.13", self.none_error_type)

    def expect_second_cancelled(self, subscriber: Any) -> None:
        """Hand over a second Subscription, which the Subscriber has to cancel without using it (§2.5)."""
        second = ScriptedPublisher(self.trial, subscriber, "second upstream")
        second.subscribe()
        second.expect_cancel("2.5")
        self.trial.settle()
        if used := [call for call in second.calls if call.startswith("request")]:
            raise Violation("2.5", f"{used[0]} was called on the second Subscription", "cancel only")

    def not_of_the_subscriber(self, rule: str) -> None:
        """Skip a test whose rule binds the other side."""
        self.not_checkable(
            f"§{rule} binds the Subscription, which is the kit's own here; PublisherVerification checks it"
        )

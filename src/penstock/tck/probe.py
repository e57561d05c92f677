"""The kit's own Subscriber: it drives a Publisher, records every signal and checks it.

It is at work in every test, whatever the test is about: an element too many is noticed in the test of §3.13
as well as in that of §1.1.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.spec import UNBOUNDED
from penstock.tck.evidence import shown
from penstock.tck.spelling import HINT_RSOCKET, sought_hint
from penstock.tck.trial import SIGNAL_LIMIT, Trial
from penstock.tck.verdicts import Rejected, Runaway, Violation

DEEPEST_WATCHED: Final[int] = 50
"""A probe does nothing at a deeper nesting of ``on_next``."""

Hook = Callable[["Probe"], object]


class ProbeSubscriber:
    """The object that a Publisher gets; it passes every signal to its probe.

    The two are separate, so that a test can let go of the Subscriber and still talk to the Subscription, and
    see whether the Publisher has let go as well (§3.13).
    """

    def __init__(self, probe: Probe) -> None:
        """Pass the signals to ``probe``."""
        self._probe = probe

    def on_subscribe(self, subscription: Any, /) -> None:
        """Forward the signal."""
        self._probe.received_subscription(subscription)

    def on_next(self, element: Any, /, *more: Any, **named: Any) -> None:
        """Forward an element; further arguments are the sign of another spelling."""
        if more or named:
            self._probe.hint(HINT_RSOCKET)
            raise TypeError(f"on_next takes an element, and was given {1 + len(more) + len(named)} arguments")
        self._probe.received_element(element)

    def on_error(self, error: Any, /) -> None:
        """Forward the signal."""
        self._probe.received_error(error)

    def on_complete(self) -> None:
        """Forward the signal."""
        self._probe.received_complete()

    def __getattr__(self, name: str) -> Any:
        self.sought(name)
        raise AttributeError(f"this Subscriber has no {name}", name=name, obj=self)

    def sought(self, name: str) -> None:
        """Record that a Publisher looked for a method that does not exist."""
        if hint := sought_hint(name):
            self._probe.hint(hint)

    def __repr__(self) -> str:
        return f"<{self._probe.name}>"


class Probe:
    """One Subscriber's view of a stream: the signals, the requests, and the rules that were broken.

    ``on_subscribe`` and ``on_next`` are what the test does inside these signals. They may run on a thread of
    the subject.
    """

    def __init__(
        self,
        trial: Trial,
        name: str = "subscriber",
        *,
        on_subscribe: Hook | None = None,
        on_next: Hook | None = None,
    ) -> None:
        """Take part in ``trial`` under a ``name`` that tells several probes apart."""
        self.name = name
        self.subscription: Any = None
        self.elements: list[Any] = []
        self.error: BaseException | None = None
        self.completed = False
        self.deepest = 0
        """The deepest nesting of ``on_next`` on one thread (§3.3)."""
        self.signals: list[str] = []
        self.trial = trial
        """The test that this probe takes part in; a hook that runs late asks it, not the test class."""
        self._asked = 0
        self._asked_too_late = 0
        self._cancelled = False
        self._left = False
        self._heard_at = time.monotonic()
        self._longest_gap = 0.0
        self._inside: list[int] = []
        self._depth: Counter[int] = Counter()
        self._hook_on_subscribe = on_subscribe
        self._hook_on_next = on_next
        self._receiver: weakref.ref[ProbeSubscriber] | None = None

    # ---------------------------------------------------------------- what a test does
    def subscribe_to(self, publisher: Any, *, rule: str = "1.9") -> None:
        """Subscribe; ``subscribe`` has to return normally. Does not wait for ``on_subscribe``."""
        receiver = ProbeSubscriber(self)
        self._receiver = weakref.ref(receiver)
        self.trial.add_cleanup(self._leave)
        self.trial.log.add(f"→ subscribe({self.name})")
        self.trial.perform(lambda: publisher.subscribe(receiver), "subscribe", rule)

    def request(self, n: int, *, handed_over: Any = None, allowed: type[BaseException] = Rejected) -> None:
        """Ask for ``n`` elements; the call has to return normally (§3.16).

        ``handed_over`` is the same number as an object of another class, which the subject gets.
        """
        number = n if handed_over is None else handed_over
        with self.trial.condition:
            # What is asked for after a cancellation must not be sent. A request that is under way while
            # another thread leaves may still be served.
            if not self._waits:
                self._heard_at = time.monotonic()
            if self._left:
                self._asked_too_late += max(n, 0)
            else:
                self._asked += max(n, 0)
            self.trial.log.add(f"→ {self.name}: request({n})")
        self.trial.perform(
            lambda: self.subscription.request(number),
            f"request({n}){self._state}",
            self._rule_of_a_call("3.6", "3.16"),
            allowed=allowed,
        )

    def cancel(self) -> None:
        """Cancel; the call has to return normally (§3.15)."""
        with self.trial.condition:
            what, rule = f"cancel(){self._state}", self._rule_of_a_call("3.7", "3.15")
            self._cancelled = True
            self.trial.log.add(f"→ {self.name}: cancel()")
        self.trial.perform(lambda: self.subscription.cancel(), what, rule)
        self._left = True

    def hint(self, text: str) -> None:
        """Add a hint that is shown if the test fails."""
        self.trial.hint(text)

    def forget_error(self) -> None:
        """Drop the received error: its traceback may refer to the Subscriber (§3.13)."""
        if self.error is not None:
            self.error = RuntimeError(f"in place of {shown(self.error)}")

    @property
    def pace(self) -> float:
        """The longest time between two elements, or between a request and its element, in seconds."""
        return self._longest_gap

    @property
    def _waits(self) -> bool:
        return len(self.elements) < self._asked

    @property
    def _state(self) -> str:
        return " after the end" if self.ended else " after cancel()" if self._cancelled else ""

    def _rule_of_a_call(self, after_cancel: str, otherwise: str) -> str:
        """The rule that is broken by a call that does not return normally; it depends on the calls before."""
        return "1.6" if self.ended else after_cancel if self._cancelled else otherwise

    @property
    def ended(self) -> bool:
        """Whether ``on_complete`` or ``on_error`` has come."""
        return self.completed or self.error is not None

    @property
    def is_released(self) -> bool:
        """Whether the object that was given to ``subscribe`` has been garbage-collected."""
        return self._receiver is None or self._receiver() is None

    # ---------------------------------------------------------------- what a test expects
    def expect_subscription(self) -> None:
        """Wait for ``on_subscribe``."""
        if not self.trial.wait_until(lambda: self.subscription is not None):
            raise self._missing("1.9", "on_subscribe", "on_subscribe after subscribe")

    def expect_elements(self, count: int, rule: str) -> list[Any]:
        """Wait until ``count`` elements have come in all, and return them; fewer break ``rule``."""
        if not self.trial.wait_until(lambda: len(self.elements) >= count, lambda: self.ended):
            raise self._missing(rule, f"element {len(self.elements) + 1}", f"{count} elements in all")
        return self.elements[:count]

    def expect_complete(self, rule: str, elements: int | None = None) -> None:
        """Wait for ``on_complete``; if ``elements`` are given, it has to come after exactly that many."""

        def too_many() -> bool:
            return elements is not None and len(self.elements) > elements

        if not self.trial.wait_until(lambda: self.completed, lambda: self.ended or too_many()):
            raise self._missing(rule, "on_complete", "on_complete")
        if elements is not None:
            self.expect_exactly(elements, rule)

    def expect_error(self, rule: str) -> BaseException:
        """Wait for ``on_error`` and return the error."""
        if not self.trial.wait_until(lambda: self.error is not None, lambda: self.ended):
            raise self._missing(rule, "on_error", "on_error")
        assert self.error is not None
        return self.error

    def expect_exactly(self, count: int, rule: str) -> None:
        """Check that no more than ``count`` elements have come."""
        if len(self.elements) != count:
            raise Violation(rule, f"{len(self.elements)} elements came", f"exactly {count}")

    @contextlib.contextmanager
    def silence(self, rule: str, after: str) -> Iterator[None]:
        """Expect no signal inside the block, and for a while after it.

        The window opens before the block, so that what is signalled *inside* the calls of the block counts.
        """
        before = len(self.signals)
        yield
        self.trial.settle()
        late = self.signals[before:]
        if late:
            more = f" and {len(late) - 3} more" if len(late) > 3 else ""
            raise Violation(rule, f"{', '.join(late[:3])}{more} came after {after}", "no signal")

    def _missing(self, rule: str, what: str, expected: str) -> Violation:
        last = self.signals[-1] if self.signals else "nothing at all"
        if self.ended:
            return Violation(rule, f"{what} never came: {last} ended the stream", expected)
        if self.trial.flaws:
            return Violation(rule, f"{what} had not come by then; the last signal was {last}", expected)
        limit = self.trial.environment.timeout
        return Violation(
            rule, f"{what} did not come within {limit:g} s; the last signal was {last}", expected
        )

    def _leave(self) -> None:
        if self.subscription is not None and not self.ended and not self._cancelled:
            self._cancelled = True
            self.subscription.cancel()

    # ---------------------------------------------------------------- what a publisher does
    def received_subscription(self, subscription: Any) -> None:
        """Check ``on_subscribe``: it comes once, before all other signals."""
        with self._signal(f"on_subscribe({shown(subscription)})"):
            if subscription is None:
                self.trial.flaw("2.13", "on_subscribe(None) was called", "a Subscription")
            elif self.subscription is not None:
                self.trial.flaw(
                    "2.12", "on_subscribe was called a second time", "one on_subscribe for a subscribe, §1.9"
                )
            else:
                with self.trial.condition:
                    self.subscription = subscription
                    self.trial.condition.notify_all()
                if self._hook_on_subscribe is not None and not self.trial.closed:
                    self._hook_on_subscribe(self)

    def received_element(self, element: Any) -> None:
        """Check ``on_next``: requested, not ``None``, after ``on_subscribe`` and before the end."""
        with self._signal(f"on_next({shown(element)})"):
            if element is None:
                self.trial.flaw("2.13", "on_next(None) was called", "an element that is not None")
            with self.trial.condition:
                now = time.monotonic()
                self._longest_gap = max(self._longest_gap, now - self._heard_at)
                self._heard_at = now
                self.elements.append(element)
                if len(self.elements) > self._asked and self._asked < UNBOUNDED:
                    self._beyond_demand()
                self.trial.condition.notify_all()
            self._stop_runaway()
            if self._hook_on_next is not None and not self.trial.closed:
                self._run_hook(self._hook_on_next)

    def _beyond_demand(self) -> None:
        count = f"element {len(self.elements)} came"
        if self._asked_too_late:
            happened = f"{count}, {self._asked} were requested before cancel() and more after it"
            self.trial.flaw("3.6", happened, "that request does nothing after cancel()")
        else:
            self.trial.flaw("1.1", f"{count}, {self._asked} were requested", "no element without demand")

    def _stop_runaway(self) -> None:
        # On the caller's thread only: on one of the subject's own nobody catches it, and pytest would hold
        # it against the next test.
        if self.trial.closed and self.trial.stuck and self.trial.calls_here:
            raise Runaway("the test is over and takes no more elements")
        if len(self.elements) > SIGNAL_LIMIT:
            rule = "1.8" if self._cancelled else "1.1"
            self.trial.flaw(rule, f"more than {SIGNAL_LIMIT} elements came", "far fewer")
            raise Runaway(f"more than {SIGNAL_LIMIT} elements: no test of the kit asks for so many")

    def _run_hook(self, hook: Hook) -> None:
        me = threading.get_ident()
        self._depth[me] += 1
        try:
            self.deepest = max(self.deepest, self._depth[me])
            # A subject that recurses without bound has been found out by now; spare the stack.
            if self._depth[me] <= DEEPEST_WATCHED:
                hook(self)
        finally:
            self._depth[me] -= 1

    def received_error(self, error: Any) -> None:
        """Check ``on_error``: it has an exception and is the last signal."""
        with self._signal(f"on_error({shown(error)})"):
            if not isinstance(error, BaseException):
                self.trial.flaw("2.13", f"on_error({shown(error)}) was called", "an exception")
                error = RuntimeError(f"on_error({shown(error)})")
            with self.trial.condition:
                self.error = error if self.error is None else self.error
                self.trial.condition.notify_all()

    def received_complete(self) -> None:
        """Check ``on_complete``: it is the last signal."""
        with self._signal("on_complete()"), self.trial.condition:
            self.completed = True
            self.trial.condition.notify_all()

    @contextlib.contextmanager
    def _signal(self, what: str) -> Iterator[None]:
        """Check what holds for every signal: its thread, and that it overlaps with no other (§1.3)."""
        trial, me = self.trial, threading.get_ident()
        with trial.condition:
            if not trial.closed:
                trial.log.add(f"← {self.name}: {what}")
                self.signals.append(what)
                self._check_grammar(what)
                if any(thread != me for thread in self._inside):
                    trial.flaw(
                        "1.3", f"{what} came while another signal was under way", "one after the other"
                    )
                if trial.profile == "sync" and not trial.calls_here:
                    trial.flaw("", f"{what} came on a thread of its own", 'profile = "threads" or "asyncio"')
            self._inside.append(me)
            trial.signals_under_way += 1
        try:
            yield
        finally:
            with trial.condition:
                self._inside.remove(me)
                trial.signals_under_way -= 1
                trial.condition.notify_all()

    def _check_grammar(self, what: str) -> None:
        if self.ended:
            end = "on_complete" if self.completed else "on_error"
            self.trial.flaw("1.7", f"{what} came after {end}", f"{end} to be the last signal")
        if self.subscription is None and not what.startswith("on_subscribe"):
            self.trial.flaw("1.9", f"{what} came before on_subscribe", "on_subscribe as the first signal")

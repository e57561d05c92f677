"""One test in progress: the threads that call the subject, the log, and the flaws found so far."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as StillRunning
from typing import Any, Final, Literal

from penstock.tck.caller import (
    Action,
    CallOutcome,
    LoopCaller,
    SubjectCaller,
    ThreadCaller,
    is_from_outside,
    outcome_of,
)
from penstock.tck.environment import Environment
from penstock.tck.evidence import (
    SignalLog,
    comes_from,
    described,
    kind_of_function,
    place_of,
    shown,
    trace_of,
)
from penstock.tck.spelling import spelling_hint
from penstock.tck.verdicts import Rejected, Runaway, SetupFailed, Violation

Profile = Literal["sync", "threads", "asyncio"]

PROFILES: Final[tuple[Profile, ...]] = ("sync", "threads", "asyncio")
"""Where a subject does its work: on the thread of its caller, on threads of its own, or on an event loop."""

SIGNAL_LIMIT: Final[int] = 100_000
"""No test requests so many elements; an exception stops a subject that sends them."""

_FLAWS_OF_A_RULE = 2


class Trial:
    """What the probes of one test share.

    Every test has a trial of its own, from before its first call to the subject until after its last window
    of listening. So a signal that comes late is held against the test that caused it, not against the next.
    """

    def __init__(
        self,
        environment: Environment,
        profile: Profile,
        settle: Callable[[], None],
        *,
        rule_of_failure: str = "1.4",
    ) -> None:
        """Start the caller's thread; ``settle`` is what the test class does to let signals arrive.

        ``rule_of_failure`` is the rule that a subject breaks if one of its tasks exits.
        """
        if profile not in PROFILES:
            raise ValueError(f"profile must be one of {', '.join(PROFILES)}, not {profile!r}")
        self.environment = environment
        self.profile = profile
        self.condition = threading.Condition()
        self.log = SignalLog()
        self.flaws: list[Violation] = []
        self.closed = False
        self.stuck = False
        self.signals_under_way = 0
        """How many signals the probes are in, on whatever thread; guarded by the condition."""
        self._hints: list[str] = []
        self._settle = settle
        self._settled_at = -1
        self._rule_of_failure = rule_of_failure
        self._deadline = time.monotonic() + environment.limit
        self._caller: SubjectCaller = (
            LoopCaller(self._interrupted) if profile == "asyncio" else ThreadCaller()
        )
        self._test_thread = threading.get_ident()
        self._kit_threads: set[int] = set()
        self._cleanups: list[Action] = []

    # ---------------------------------------------------------------- calling the subject
    def outcome(self, action: Action, what: str, rule: str, *, limit: float | None = None) -> CallOutcome:
        """Call the subject and return the outcome.

        From the thread of the test the call is made on the caller's thread, and one that does not come back
        breaks ``rule``. From inside a signal it is made right here, as a Subscriber would make it.
        """
        if threading.get_ident() != self._test_thread:
            return outcome_of(action)
        return self.awaited(self._caller.submit(action), what, rule, limit=limit)

    def perform(
        self, action: Action, what: str, rule: str, *, allowed: type[BaseException] = Violation
    ) -> None:
        """Call the subject, which has to return normally: an exception is a flaw of ``rule``.

        An exception of the ``allowed`` kind is the kit's own, which comes back through the subject.
        """
        here = threading.get_ident() != self._test_thread
        thread = threading.current_thread().name if here else self._caller.name
        self.judge(self.outcome(action, what, rule), what, rule, thread=thread, allowed=allowed)

    def judge(
        self,
        outcome: CallOutcome,
        what: str,
        rule: str,
        *,
        thread: str,
        allowed: type[BaseException] = Violation,
    ) -> None:
        """Check that a call returned normally; anything else is a flaw of ``rule``."""
        value, error = outcome
        if error is None:
            kind = kind_of_function(value)
            if kind:
                happened = f"{what} only made an object that is never run: this is {kind}"
                self.flaw(rule, happened, "a method that does its work when it is called", thread=thread)
        elif isinstance(error, Violation):
            raise error
        elif isinstance(error, Runaway):
            # The probe has said why. Inside a signal it goes on through the subject, which is to stop.
            if threading.get_ident() != self._test_thread:
                raise error
        elif not comes_from(error, allowed):
            happened = f"{what} raised {shown(error)}{place_of(error)}"
            self.flaw(rule, happened, "that it returns normally", thread=thread, trace=trace_of(error))

    def awaited(
        self, future: Future[CallOutcome], what: str, rule: str, *, limit: float | None = None
    ) -> CallOutcome:
        """Wait for the end of a call that was handed to another thread; one that hangs breaks ``rule``."""
        limit = self.environment.timeout if limit is None else limit
        seen = self.log.count
        while True:
            try:
                return future.result(max(0.0, min(limit, self._deadline - time.monotonic())))
            except StillRunning:
                if future.done():
                    continue
            if self._out_of_time() or self.log.count == seen:
                self.stuck = True
                self._still_in_time(what)
                raise Violation(rule, f"{what} did not return within {limit:g} s", "that it returns")
            # Many signals on a busy machine are not a hang.
            seen = self.log.count

    def elsewhere(self, action: Action) -> Future[CallOutcome]:
        """Run something on another thread of the kit, at once; the future holds the outcome."""
        future: Future[CallOutcome] = Future()

        def work() -> None:
            with self.condition:
                self._kit_threads.add(threading.get_ident())
            outcome = outcome_of(action)
            with self.condition:
                # Somebody else may get the number of this thread.
                self._kit_threads.discard(threading.get_ident())
                future.set_result(outcome)
                self.condition.notify_all()

        threading.Thread(target=work, name="tck-elsewhere", daemon=True).start()
        return future

    def ignore_rejections(self) -> None:
        """Do not report threads and tasks of the subject that end with the kit's own exception."""
        self._caller.ignore(Rejected)

    def make(self, create: Action, what: str, kind: str) -> Any:
        """Let a hook of the test class make a subject; if the hook fails, so does the test."""
        try:
            value, error = self.outcome(create, what, "", limit=self.environment.setup)
        except Violation as hung:
            raise SetupFailed(hung.happened, kind) from None
        return self._given(value, error, what, kind)

    def look(self, action: Action, what: str, kind: str) -> None:
        """Look at a subject that was just made: its attributes may be code that raises or does not return."""
        try:
            _, error = self.outcome(action, what, "", limit=self.environment.setup)
        except Violation as hung:
            raise SetupFailed(hung.happened, kind) from None
        if isinstance(error, Violation):
            raise error
        if error is not None:
            self._given(None, error, what, "that it returns normally")

    def ask(self, hook: Action, what: str, kind: str) -> Any:
        """Let a hook make a value of this ``kind``, on the thread of the test."""
        return self._given(self.use(hook, what), None, what, kind)

    def use(self, hook: Action, what: str) -> Any:
        """Call a hook of the test class on the thread of the test; an exception fails the test."""
        try:
            return hook()
        except Violation:
            raise
        except BaseException as error:
            if is_from_outside(error):
                raise
            return self._given(None, error, what, "that it returns normally")

    def _given(self, value: Any, error: BaseException | None, what: str, kind: str) -> Any:
        function = kind_of_function(value) if error is None else ""
        if error is not None:
            failed = SetupFailed(f"{what} raised {described(error)}{place_of(error)}", kind)
            failed.trace, failed.__cause__ = trace_of(error), error
        elif function:
            failed = SetupFailed(f"{what} only made an object that is never run: this is {function}", kind)
        elif value is None:
            failed = SetupFailed(f"{what} returned None", kind)
        else:
            return value
        raise failed

    @property
    def calls_here(self) -> bool:
        """Whether this is a thread on which the kit calls the subject."""
        return self._caller.is_here() or threading.get_ident() in self._kit_threads

    def _interrupted(self, error: BaseException) -> None:
        happened = f"a task of the subject ended the event loop with {shown(error)}{place_of(error)}"
        self.flaw(self._rule_of_failure, happened, "that it tells of a failure", trace=trace_of(error))

    # ---------------------------------------------------------------- waiting
    def wait_until(self, holds: Callable[[], bool], hopeless: Callable[[], bool] | None = None) -> bool:
        """Wait until ``holds``; give up after the time-out, on a flaw, or as soon as it is ``hopeless``."""
        with self.condition:
            seen, deadline = self.log.count, time.monotonic() + self.environment.timeout
            while not holds():
                if self.flaws or (hopeless is not None and hopeless()):
                    return False
                self._still_in_time("a signal")
                left = min(deadline, self._deadline) - time.monotonic()
                if left > 0:
                    self.condition.wait(left)
                elif self.log.count == seen:
                    return False
                else:
                    seen, deadline = self.log.count, time.monotonic() + self.environment.timeout
            return True

    def wait_briefly(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Wait until ``holds``, for at most ``seconds``; a flaw ends the wait as well."""
        with self.condition:
            return self.condition.wait_for(lambda: holds() or bool(self.flaws), seconds) and holds()

    def settle(self) -> None:
        """Wait until all signals that are on their way have arrived, and the probes have dealt with them."""
        self._still_in_time("silence")
        self.use(self._settle, "settle()")
        # On a busy machine a thread of the subject may stand inside a signal for longer than the settling
        # takes. What the test does there must not be missed, nor happen after the test.
        self.wait_briefly(lambda: self.signals_under_way == 0, self.environment.timeout)
        self._settled_at = self.log.count

    def settle_again(self) -> None:
        """Do the same if something has happened since the last time."""
        if self._settled_at != self.log.count:
            self.settle()

    def listen(self) -> None:
        """Wait for as long as the profile says."""
        if self.profile != "sync":
            time.sleep(self.environment.no_signals)
        self._caller.breathe(self.environment.timeout)

    def _out_of_time(self) -> bool:
        return time.monotonic() >= self._deadline

    def _still_in_time(self, what: str) -> None:
        if self._out_of_time():
            limit = self.environment.limit
            raise Violation("", f"the test took {limit:g} s and still waited for {what}", "an end")

    # ---------------------------------------------------------------- noticing
    def flaw(
        self, rule: str, happened: str, expected: str = "", *, thread: str = "", trace: str = ""
    ) -> None:
        """Record a flaw of the subject; the test fails with it at its end."""
        with self.condition:
            if self.closed:
                return
            found = Violation(
                rule, f"{happened} [thread {thread or threading.current_thread().name}]", expected
            )
            found.trace = trace
            same = [flaw for flaw in self.flaws if flaw.rule == rule]
            if len(same) < _FLAWS_OF_A_RULE and all(flaw.happened != found.happened for flaw in same):
                self.flaws.append(found)
                self.log.add(f"!! §{rule}" if rule else "!!")
            self.condition.notify_all()

    def hint(self, text: str) -> None:
        """Keep a hint that is shown if the test fails."""
        with self.condition:
            if text not in self._hints:
                self._hints.append(text)

    def hint_at_spelling(self, theirs: Any, lacking: list[str]) -> None:
        """Keep a hint that the subject's methods are in another spelling than declared."""
        for name in lacking:
            if hint := spelling_hint(theirs, name):
                self.hint(hint)

    def verdict(self, failure: Violation | None) -> Violation | None:
        """Join the failure of the test and the flaws that the probes found into one violation, or none."""
        with self.condition:
            found = [*self.flaws, *([failure] if failure is not None else [])]
            if not found:
                return None
            first = found[0]
            if failure is not None:
                # Its traceback leads to the line of the test.
                first.with_traceback(failure.__traceback__)
            first.others = found[1:]
            first.hints = self._hints
            first.log = str(self.log)
            return first

    # ---------------------------------------------------------------- ending
    def add_cleanup(self, action: Action) -> None:
        """Call ``action`` at the end of the test; the last one added runs first."""
        self._cleanups.append(action)

    def close(self) -> None:
        """Cancel what is open, end the thread, and ignore signals that still come."""
        while self._cleanups and not self.stuck:
            try:
                self._caller.submit(self._cleanups.pop()).result(self.environment.timeout)
            except StillRunning:
                break
        self.closed = True
        self._caller.close()

"""One test in progress: its thread for calls, its log, and the flaws that were noticed so far."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, Literal

from penstock.tck.calling import Action, Caller, LoopCaller, ThreadCaller
from penstock.tck.environment import Environment
from penstock.tck.signal_log import SignalLog, shown
from penstock.tck.verdicts import Runaway, Violation

Profile = Literal["sync", "threads", "asyncio"]

PROFILES: Final[tuple[Profile, ...]] = ("sync", "threads", "asyncio")
"""Where a subject does its work: on the thread of its caller, on threads of its own, or on an event loop."""

SIGNAL_LIMIT: Final[int] = 100_000
"""No test asks for so many elements; a subject that sends them is stopped by an exception."""

_FLAWS_OF_A_RULE = 2


class Trial:
    """What the probes of one test share.

    Every test has a trial of its own, from before its first call to the subject until after its last window
    of listening. So a signal that comes late is held against the test that caused it, not against the next.
    """

    def __init__(self, environment: Environment, profile: Profile, settle: Callable[[], None]) -> None:
        """Start the caller's thread; ``settle`` is what the test class does to let signals arrive."""
        if profile not in PROFILES:
            raise ValueError(f"profile must be one of {', '.join(PROFILES)}, not {profile!r}")
        self.environment = environment
        self.profile = profile
        self.condition = threading.Condition()
        self.log = SignalLog()
        self.flaws: list[Violation] = []
        self.closed = False
        self.stuck = False
        self._settle = settle
        self._settled_at = -1
        self._caller: Caller = LoopCaller() if profile == "asyncio" else ThreadCaller()
        self._test_thread = threading.get_ident()
        self._cleanups: list[Action] = []

    # ---------------------------------------------------------------- calling the subject
    def call(self, action: Action, what: str, rule: str) -> Any:
        """Call the subject and return what it returns, or raise what it raises.

        From the thread of the test the call is made on the caller's thread, and one that does not come back
        breaks ``rule``. From inside a signal it is made right here, as a Subscriber would make it.
        """
        if threading.get_ident() != self._test_thread:
            return action()
        return self._outcome(self._caller.submit(action), what, rule)

    def perform(self, action: Action, what: str, rule: str) -> None:
        """Call the subject, which has to return normally: an exception is a flaw of ``rule``."""
        try:
            self.call(action, what, rule)
        except Violation:
            raise
        except Runaway:
            # The probe has said why. Inside a signal it goes on through the subject, which is to stop.
            if threading.get_ident() != self._test_thread:
                raise
        except Exception as error:
            here = threading.get_ident() != self._test_thread
            thread = threading.current_thread().name if here else self._caller.name
            self.flaw(rule, f"{what} raised {shown(error)}", "that it returns normally", thread=thread)

    def _outcome(self, future: Future[Any], what: str, rule: str) -> Any:
        seen = self.log.count
        while True:
            try:
                return future.result(self.environment.timeout)
            except TimeoutError:
                if future.done():
                    return future.result()
            if self.log.count == seen:
                self.stuck = True
                limit = self.environment.timeout
                raise Violation(rule, f"{what} did not return within {limit:g} s", "that it returns")
            # A long row of signals on a busy machine is no hang.
            seen = self.log.count

    @property
    def calls_here(self) -> bool:
        """Whether this is the thread on which the subject is called."""
        return self._caller.is_here()

    # ---------------------------------------------------------------- waiting
    def wait_until(self, holds: Callable[[], bool], hopeless: Callable[[], bool] | None = None) -> bool:
        """Wait until ``holds``; give up after the time-out, on a flaw, or as soon as it is ``hopeless``."""
        with self.condition:
            seen, deadline = self.log.count, time.monotonic() + self.environment.timeout
            while not holds():
                if self.flaws or (hopeless is not None and hopeless()):
                    return False
                left = deadline - time.monotonic()
                if left > 0:
                    self.condition.wait(left)
                elif self.log.count == seen:
                    return False
                else:
                    seen, deadline = self.log.count, time.monotonic() + self.environment.timeout
            return True

    def settle(self) -> None:
        """Let everything arrive that is on its way."""
        self._settle()
        self._settled_at = self.log.count

    def settle_again(self) -> None:
        """The same, unless nothing has happened since the last time."""
        if self._settled_at != self.log.count:
            self.settle()

    def listen(self) -> None:
        """Give signals the time to arrive that the profile says."""
        if self.profile != "sync":
            time.sleep(self.environment.no_signals)
        self._caller.breathe(self.environment.timeout)

    # ---------------------------------------------------------------- noticing
    def flaw(self, rule: str, happened: str, expected: str = "", *, thread: str = "") -> None:
        """Hold something against the subject; it fails the test at its end."""
        with self.condition:
            found = Violation(
                rule, f"{happened} [thread {thread or threading.current_thread().name}]", expected
            )
            same = [flaw for flaw in self.flaws if flaw.rule == rule]
            if len(same) < _FLAWS_OF_A_RULE and all(flaw.happened != found.happened for flaw in same):
                self.flaws.append(found)
                self.log.add(f"!! §{rule}" if rule else "!!")
            self.condition.notify_all()

    def verdict(self, failure: Violation | None) -> Violation | None:
        """Join what the test itself found and what the probes noticed into one violation, or none."""
        with self.condition:
            found = [*self.flaws, *([failure] if failure is not None else [])]
            if not found:
                return None
            first = found[0]
            if failure is not None:
                # Its traceback leads to the line of the test.
                first.with_traceback(failure.__traceback__)
            first.others = found[1:]
            first.log = str(self.log)
            return first

    # ---------------------------------------------------------------- ending
    def add_cleanup(self, action: Action) -> None:
        """Have ``action`` called at the end of the test, the last one first."""
        self._cleanups.append(action)

    def close(self) -> None:
        """Leave the subject alone: cancel what is open, end the thread, ignore what still comes."""
        while self._cleanups and not self.stuck:
            action = self._cleanups.pop()
            with contextlib.suppress(Exception):
                self._caller.submit(action).result(self.environment.timeout)
        self.closed = True
        self._caller.close()

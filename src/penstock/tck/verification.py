"""What the four verifications have in common: their settings, and what happens around each test."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any, NoReturn, TypeVar

from penstock.tck.environment import Environment
from penstock.tck.naming import kind_of, rule_of
from penstock.tck.spelling import SNAKE_CASE, Spelling
from penstock.tck.trial import Profile, Trial
from penstock.tck.verdicts import NotCheckable, OptionalNotMet, Violation

V = TypeVar("V", bound="Verification")


class Verification:
    """The settings of a test class, whatever it verifies.

    A test class inherits one of the four verifications and says what its subject is like by overriding these
    attributes. It runs under pytest, under unittest (inherit ``unittest.TestCase`` as well) and without
    either (:func:`penstock.tck.run`).
    """

    environment: Environment = Environment()
    """The time limits; environment variables win over them."""
    profile: Profile = "threads"
    """Where the subject does its work.

    ``"sync"``: on the thread of whoever calls it. No time is spent on waiting for silence, and a signal from
    another thread is a failure. ``"threads"``: anywhere; what comes late is waited for. ``"asyncio"``: on an
    event loop; the kit runs one, and makes and calls the subject on it.
    """
    spelling: Spelling = SNAKE_CASE
    """How the subject spells the interfaces: ``SNAKE_CASE``, ``CAMEL_CASE``, ``RSOCKET`` or your own."""
    none_error_type: type[BaseException] = TypeError
    """What ``subscribe(None)`` and ``on_next(None)`` raise (§1.9, §2.13)."""
    illegal_request_error_type: type[BaseException] = ValueError
    """What ``request(0)`` sends to ``on_error`` (§3.9)."""
    expected_skips: Collection[str] = ()
    """Names of tests, or beginnings of names, that may be skipped even under ``--rs-strict``."""
    subject: str = ""
    """The name of the subject in reports; by default that of the class, without ``Test``."""

    _trial: Trial | None = None

    def settle(self) -> None:
        """Return when every signal that is on its way has arrived.

        Without an override this waits as the profile says. Whoever knows better says so: a subject with an
        executor of one thread can submit a task that does nothing and wait for it, and never sleeps.
        """
        self.trial.listen()

    def add_cleanup(self, action: Callable[[], object]) -> None:
        """Have ``action`` called at the end of the test: to be used in the hooks that create subjects."""
        self.trial.add_cleanup(action)

    @property
    def trial(self) -> Trial:
        """The test in progress; there is none outside of a test of the kit."""
        if self._trial is None:
            raise RuntimeError("there is a trial only while a test of the kit is running")
        return self._trial

    @classmethod
    def subject_name(cls) -> str:
        """The name of the subject in reports."""
        return cls.subject or cls.__name__.removeprefix("Test") or cls.__name__

    def counts_as_required(self, test_name: str) -> bool:
        """Whether a failure of this test fails, although its name says optional."""
        return False

    def not_checkable(self, why: str) -> NoReturn:
        """Skip the test, because no test can check this."""
        raise NotCheckable(f"not checked: {why}")


def check(test: Callable[[V], None]) -> Callable[[V], None]:
    """Make a test of the kit of a method: give it a trial, and look at the end at all that was noticed."""
    # Only the rule that the test is about is optional; what else it comes upon breaks a MUST.
    optional = rule_of(test.__name__) if kind_of(test.__name__) == "optional" else None

    @functools.wraps(test)
    def checked(self: V) -> None:
        __tracebackhide__ = True
        environment = self.environment.with_variables()
        self._trial = trial = Trial(environment, self.profile, self.settle)
        try:
            violation = _run(self, test, trial)
        finally:
            trial.close()
            self._trial = None
        if violation is None:
            return
        if violation.rules == [optional] and not self.counts_as_required(test.__name__):
            raise OptionalNotMet(violation) from None
        raise violation from None

    return checked


def _run(self: V, test: Callable[[V], None], trial: Trial) -> Violation | None:
    failure: Violation | None = None
    try:
        test(self)
    except Violation as found:
        failure = found
    if not trial.stuck:
        # Late signals belong to this test.
        trial.settle_again()
    return trial.verdict(failure)


def names_of_tests(verification: type[Verification]) -> list[str]:
    """The names of all tests of a verification: those of the set-up first, then in the order of the rules."""

    def place(name: str) -> tuple[Any, ...]:
        rule = rule_of(name) or ""
        parts = tuple(int(part) for part in rule.split(".")) if rule[:1].isdigit() else ()
        return (parts, kind_of(name) == "untested", name)

    return sorted((name for name in dir(verification) if name.startswith("test_")), key=place)

"""What the four verifications have in common: their settings, and what happens around each test."""

from __future__ import annotations

import functools
import gc
from collections.abc import Callable, Collection
from typing import Any, ClassVar, NoReturn, TypeVar

from penstock.tck.environment import Environment
from penstock.tck.evidence import kind_of_function, place_of, shown, trace_of
from penstock.tck.names import kind_of, rule_of
from penstock.tck.spelling import METHODS_OF, SNAKE_CASE, Spelling
from penstock.tck.trial import Profile, Trial
from penstock.tck.verdicts import (
    NotApplicable,
    NotCheckable,
    NotPromised,
    OptionalNotMet,
    SetupFailed,
    Violation,
)

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

    ``"sync"``: on the thread of its caller. The kit does not wait for silence, and a signal from another
    thread is a failure. ``"threads"``: anywhere; what comes late is waited for. ``"asyncio"``: on an
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
    _test: str = ""
    _rule_of_failure: ClassVar[str] = "1.4"
    _made_one: ClassVar[bool] = False
    _failed_setup: ClassVar[tuple[str, str] | None] = None
    """The test in which no subject could be made although there had been none before, and why."""

    def settle(self) -> None:
        """Return when every signal that is on its way has arrived.

        By default this waits as the profile says. Override it if the subject knows better: one with an
        executor of one thread can submit a task that does nothing and wait for it, without any sleep.
        """
        self.trial.listen()

    def collect_garbage(self) -> None:
        """Collect garbage (§3.13); called until the Subscriber is gone.

        A subject that lives in another runtime as well says here how to collect there. For one on a JVM::

            def collect_garbage(self):
                super().collect_garbage()
                java.lang.System.gc()
        """
        gc.collect()

    def add_cleanup(self, action: Callable[[], object]) -> None:
        """Have ``action`` called at the end of the test: to be used in the hooks that create subjects."""
        self.trial.add_cleanup(action)

    @property
    def trial(self) -> Trial:
        """The test in progress; there is none outside of a test of the kit."""
        if self._trial is None:
            raise RuntimeError("there is a trial only while a test of the kit is running")
        return self._trial

    def make(self, create: Callable[[], Any], what: str, kind: str) -> Any:
        """Have a hook make a subject; if it cannot make any, one test says so for all."""
        verification = type(self)
        try:
            made = self.trial.make(create, what, kind)
            self.trial.look(lambda: self._require_methods(made, what, kind), what, kind)
        except SetupFailed as failed:
            if not vars(verification).get("_made_one"):
                verification._failed_setup = (self._test, failed.headline)
            raise
        verification._made_one = True
        return made

    def expect_raised(
        self, action: Callable[[], object], what: str, rule: str, wanted: type[BaseException]
    ) -> None:
        """Expect that a call raises ``wanted`` at its caller."""
        value, error = self.trial.outcome(action, what, rule)
        if isinstance(error, wanted):
            return
        if error is None:
            kind = kind_of_function(value)
            how = f"only made an object that is never run: this is {kind}" if kind else "returned normally"
            raise Violation(rule, f"{what} {how}", wanted.__name__)
        found = Violation(rule, f"{what} raised {shown(error)}{place_of(error)}", wanted.__name__)
        found.trace = trace_of(error)
        raise found

    def _require_methods(self, made: Any, what: str, kind: str) -> None:
        """Say that a subject has the methods of its kind, as its spelling has them."""
        if issubclass(type(made), type):
            raise SetupFailed(f"{what} returned the class {made.__name__}, not one of its objects", kind)
        lacking = [
            name for name in METHODS_OF[kind](self.spelling) if not callable(getattr(made, name, None))
        ]
        if lacking:
            self.trial.hint_at_spelling(made, lacking)
            raise SetupFailed(f"{what} returned {shown(made)}, which has no {', '.join(lacking)}", kind)

    @classmethod
    def subject_name(cls) -> str:
        """The name of the subject in reports."""
        return cls.subject or cls.__name__.removeprefix("Test") or cls.__name__

    def counts_as_required(self, test_name: str) -> bool:
        """Whether a failure of this test fails, although its name says optional."""
        return False

    def require_any_thread(self) -> None:
        """Skip the test if the subject may only be called on its event loop."""
        if self.profile == "asyncio":
            raise NotPromised("a subject of the asyncio profile is only called on its event loop")

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
        self._test = test.__name__
        _skip_without_subject(type(self), self._test)
        environment = self.environment.with_variables()
        self._trial = trial = Trial(
            environment, self.profile, self.settle, rule_of_failure=self._rule_of_failure
        )
        try:
            violation = _run(self, test, trial)
        finally:
            trial.close()
            self._trial = None
        if violation is None:
            return
        if violation.rules == [optional] and not self.counts_as_required(test.__name__):
            raise OptionalNotMet(violation) from None
        raise violation from violation.__cause__

    return checked


def _skip_without_subject(verification: type[Verification], test: str) -> None:
    """Skip a test if another one has found that the test class makes no subjects."""
    failed = vars(verification).get("_failed_setup")
    if failed is not None and failed[0] != test:
        raise NotApplicable(f"not run, there is no subject: {failed[1]}")


def forget_failed_setup(verification: type[Verification]) -> None:
    """Forget that no subject could be made, at the beginning of a new run."""
    verification._made_one = False
    verification._failed_setup = None


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

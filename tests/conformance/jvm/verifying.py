"""Runs tests of the kit. Only ever imported in a process of its own, in which Java runs."""

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from jpype import JClass, JImplements, JOverride

from penstock.interop.jvm import from_java, java_error, reactive_streams
from tests.conformance.jvm.subject import Kind, Subject
from tests.conformance.jvm.verdict import Verdict

# Milliseconds. A window in which nothing may happen is always waited for in full, so it is short. The kit
# gives up on an expected error after one poll.
NO_SIGNALS, POLL = 20, 100
# Waited for in full before the test of §3.13 looks, so it is short; a failure has to be confirmed.
UNTIL_COLLECTED, CONFIRMED_AFTER = 250, 2500


@JImplements("org.reactivestreams.tck.SubscriberWhiteboxVerification$SubscriberPuppet", deferred=True)
class Puppet:
    """The strings on which the kit pulls: a Subscriber's ways to ask and to cancel."""

    def __init__(self, request: Callable[[int], None], cancel: Callable[[], None]) -> None:
        self._request, self._cancel = request, cancel

    @JOverride
    def triggerRequest(self, n: Any) -> None:
        self._request(int(n))

    @JOverride
    def signalCancel(self) -> None:
        self._cancel()


class Probed:
    """A Subscriber that tells the kit's probe about every signal, after the one it stands in front of."""

    def __init__(self, subscriber: Any, probe: Any) -> None:
        self._subscriber = subscriber
        self._probe = probe
        self._subscribed = False

    def on_subscribe(self, subscription: Any) -> None:
        self._subscriber.on_subscribe(subscription)
        if not self._subscribed:
            self._subscribed = True
            # A Subscriber that its user can cancel is cancelled that way.
            cancel = getattr(self._subscriber, "cancel", subscription.cancel)
            self._probe.registerOnSubscribe(Puppet(subscription.request, cancel))

    def on_next(self, element: Any) -> None:
        self._subscriber.on_next(element)
        self._probe.registerOnNext(element)

    def on_error(self, error: Any) -> None:
        self._subscriber.on_error(error)
        self._probe.registerOnError(java_error(error))

    def on_complete(self) -> None:
        self._subscriber.on_complete()
        self._probe.registerOnComplete()


class PythonProbe:
    """The kit's probe, in the words of `penstock.tck`."""

    def __init__(self, java: Any) -> None:
        self._java = java

    def register_on_subscribe(self, puppet: Any) -> None:
        self._java.registerOnSubscribe(Puppet(puppet.trigger_request, puppet.signal_cancel))

    def register_on_next(self, element: Any) -> None:
        self._java.registerOnNext(element)

    def register_on_error(self, error: Any) -> None:
        self._java.registerOnError(java_error(error))

    def register_on_complete(self) -> None:
        self._java.registerOnComplete()


def verification(subject: Subject, timeout: int, until_collected: int) -> Any:
    """Return a new verification of fresh subjects, with an environment of its own.

    In a shared one, a late signal of one test would count in the next.
    """
    environment = JClass("org.reactivestreams.tck.TestEnvironment")(timeout, NO_SIGNALS, POLL, False)
    shim = JClass(f"penstock.tck.{subject.kind.capitalize()}Shim")
    create, guard = subject.create, subject.guard or (lambda subscriber: subscriber)
    failed = None
    if subject.failed is not None:
        make_failed = subject.failed
        failed = lambda: reactive_streams.publisher(make_failed())  # noqa: E731
    match subject.kind:
        case Kind.PUBLISHER:
            make = lambda n: reactive_streams.publisher(create(int(n)))  # noqa: E731
            return shim(environment, until_collected, make, failed, subject.max_elements)
        case Kind.PROCESSOR:
            make = lambda size: reactive_streams.processor(create(int(size)))  # noqa: E731
            limits = subject.max_subscribers, subject.coordinated
            return shim(environment, until_collected, make, failed, *limits)
        case Kind.WHITEBOX:
            probed = (
                (lambda probe: create(PythonProbe(probe)))
                if subject.probed
                else (lambda probe: Probed(create(), probe))
            )
            return shim(environment, lambda probe: reactive_streams.subscriber(guard(probed(probe))))
        case Kind.BLACKBOX:
            trigger = subject.trigger or (lambda subscriber: None)
            return shim(
                environment,
                lambda: reactive_streams.subscriber(guard(create())),
                lambda subscriber: trigger(from_java(subscriber)),
            )


def verify(subject: Subject, method: str, timeout: int) -> Verdict:
    """Run one test of the kit on fresh subjects; `timeout` is the kit's, in milliseconds."""
    verdict = _verify_once(subject, method, timeout, UNTIL_COLLECTED)
    if verdict.outcome == "failed" and _is_about_references(method):
        # Two collectors may have been late on a busy machine.
        return _verify_once(subject, method, timeout, CONFIRMED_AFTER)
    return verdict


def _verify_once(subject: Subject, method: str, timeout: int, until_collected: int) -> Verdict:
    began = perf_counter()
    try:
        run(subject, method, timeout, until_collected)
    except JClass("org.testng.SkipException") as skipped:
        outcome, why = "skipped", str(skipped.getMessage())
    except JClass("java.lang.Throwable") as failure:
        outcome, why = "failed", str(failure.stacktrace())
    except Exception as failure:
        outcome, why = "failed", f"{type(failure).__name__}: {failure}"
    else:
        outcome, why = "passed", ""
    return Verdict(outcome, why, perf_counter() - began)


def run(subject: Subject, method: str, timeout: int, until_collected: int) -> None:
    """Run one test of the kit as TestNG would; what it throws is its verdict."""
    tests = verification(subject, timeout, until_collected)
    with executor_of(tests), python_collects(_is_about_references(method)):
        tests.setUp()
        getattr(tests, method)()


def _is_about_references(method: str) -> bool:
    return "spec313" in method


@contextmanager
def executor_of(tests: Any) -> Iterator[None]:
    """Some verifications have threads, to be started and stopped."""
    has_one = hasattr(tests, "startPublisherExecutorService")
    if has_one:
        tests.startPublisherExecutorService()
    try:
        yield
    finally:
        if has_one:
            tests.shutdownPublisherExecutorService()


@contextmanager
def python_collects(wanted: bool) -> Iterator[None]:
    """Run Python's collector while a test of §3.13 waits for Java's.

    A reference cycle in Python holds the Java object until then. That is legal: the reference *is* dropped.
    """
    done = threading.Event()

    def collect() -> None:
        while not done.wait(0.01):
            gc.collect()

    thread = threading.Thread(target=collect)
    if wanted:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if wanted:
            thread.join()

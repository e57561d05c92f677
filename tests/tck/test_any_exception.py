"""The kit survives whatever a subject raises, in any call, and its verdict names the rule."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.tck import (
    Environment,
    IdentityProcessorVerification,
    Probed,
    PublisherVerification,
    Result,
    SubscriberBlackboxVerification,
    SubscriberWhiteboxVerification,
    Verification,
    run,
)
from tests.tck.legal.processors import IdentityProcessor
from tests.tck.legal.publishers import AsyncioTaskPublisher
from tests.tck.legal.serving import FailedPublisher, RangePublisher
from tests.tck.legal.subscribers import ReferenceSubscriber


class Unheard(BaseException):
    """Of no known kind."""


class Homeless(BaseException):
    """Made by a program that did not say in which module."""

    __module__ = None  # type: ignore[assignment]


KINDS = [asyncio.CancelledError, SystemExit, KeyboardInterrupt, GeneratorExit, Unheard, StopIteration]

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)

PATIENT = Environment(timeout=10)
"""Only a call that does not come back takes so long, and none of these subjects keeps one."""

SILENT = Environment(timeout=2)
"""For a subject that goes silent, which is waited for."""


def results(base: type[Verification], only: Callable[[str], bool], **settings: Any) -> list[Result]:
    kind = type("TestSubject", (base,), {"environment": PATIENT, "profile": "sync", **settings})
    return list(run(kind, only))


def failed(said: list[Result]) -> list[Result]:
    return [result for result in said if result.verdict == "fail"]


def raising(owner: type, method: str, kind: type[BaseException]) -> type:
    """A kind of subject whose ``method`` raises, after it has done its work."""

    def replaced(self: Any, *arguments: Any) -> None:
        getattr(owner, method)(self, *arguments)
        raise kind("out of the subject")

    return type(f"Raises{owner.__name__}", (owner,), {method: replaced})


@every_kind
@pytest.mark.parametrize(
    ("method", "rule", "test"),
    [
        ("request", "3.16", "_spec316_"),
        ("cancel", "3.15", "_spec315_"),
        ("subscribe", "1.9", "_spec109_subscribe_should"),
    ],
)
def test_a_publisher_that_raises(kind: type[BaseException], method: str, rule: str, test: str) -> None:
    if method == "subscribe":
        publisher: Any = raising(RangePublisher, "subscribe", kind)
    else:
        broken = raising(RangePublisher.Subscription, method, kind)
        publisher = type("Raises", (RangePublisher,), {"Subscription": broken})

    (said,) = results(
        PublisherVerification,
        lambda name: test in name,
        create_publisher=lambda self, elements: publisher(elements),
    )

    assert said.verdict == "fail"
    assert f"§{rule} violated: {method}" in said.headline
    assert f"raised {kind.__name__}" in said.headline
    # The subject's own line, not one of the kit.
    assert "at test_any_exception.py:" in said.headline
    assert 'raise kind("out of the subject")' in said.message


@every_kind
@pytest.mark.parametrize("method", ["on_subscribe", "on_next", "on_error", "on_complete"])
@pytest.mark.parametrize("box", ["black", "white"])
def test_a_subscriber_that_raises(kind: type[BaseException], method: str, box: str) -> None:
    broken = raising(ReferenceSubscriber, method, kind)
    if box == "black":
        base: type[Verification] = SubscriberBlackboxVerification
        create: Any = lambda self: broken()  # noqa: E731
    else:
        base, create = SubscriberWhiteboxVerification, lambda self, probe: broken(probe)

    said = results(
        base, lambda name: "_spec213_" in name and "_failing_on_" in name, create_subscriber=create
    )

    (violation,) = failed(said)
    assert f"§2.13 violated: {method}(" in violation.message
    assert f"raised {kind.__name__}" in violation.message


@every_kind
def test_none_that_is_answered_by_another_exception(kind: type[BaseException]) -> None:
    class Sends(RangePublisher):
        def subscribe(self, subscriber: Any, /) -> None:
            raise kind

    (said,) = results(
        PublisherVerification,
        lambda name: "_subscribe_throw_npe_" in name,
        create_publisher=lambda self, elements: Sends(elements),
    )

    assert f"§1.9 violated: subscribe(None) raised {kind.__name__}" in said.headline


@every_kind
def test_a_processor_that_raises(kind: type[BaseException]) -> None:
    broken = raising(IdentityProcessor, "on_next", kind)

    said = results(
        IdentityProcessorVerification,
        lambda name: "_spec401_must_pass_on_" in name,
        create_identity_processor=lambda self, size: broken(size),
    )

    assert "§2.13 violated: on_next(0) raised" in failed(said)[0].message


@every_kind
def test_a_hook_that_raises(kind: type[BaseException]) -> None:
    def no_luck(self: Any, elements: int) -> Any:
        raise kind("no luck")

    said = results(PublisherVerification, lambda name: True, create_publisher=no_luck)

    (failure,) = failed(said)
    assert failure.headline.startswith(f"create_publisher(1) raised {kind.__name__}: no luck at test_any_exc")


@every_kind
@pytest.mark.parametrize("part", ["__repr__", "__eq__", "__str__"])
def test_an_element_or_an_error_that_cannot_be_looked_at(kind: type[BaseException], part: str) -> None:
    def raise_it(self: Any, *_: Any) -> Any:
        raise kind

    element = type("Element", (), {part: raise_it, "__hash__": object.__hash__})()
    error = type("Unreadable", (OSError,), {part: raise_it, "__hash__": object.__hash__})()

    class Same(RangePublisher):
        def __init__(self, count: int) -> None:
            super().__init__(count)
            self.elements = [element] * min(count, 100)  # type: ignore[assignment]

    said = results(
        PublisherVerification,
        lambda name: "_spec104_" in name or "_spec111_" in name or "_spec101_" in name,
        create_publisher=lambda self, elements: Same(elements),
        create_failed_publisher=lambda self: FailedPublisher(error),
        fanout="unicast",
    )

    assert failed(said) == []


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, asyncio.CancelledError, Unheard])
def test_a_task_on_the_event_loop_of_the_kit(kind: type[BaseException]) -> None:
    class Exits(AsyncioTaskPublisher):
        class Subscription(AsyncioTaskPublisher.Subscription):
            async def emit_in_turns(self) -> None:
                await asyncio.sleep(0)
                if self.demand:
                    raise kind
                await super().emit_in_turns()

    said = results(
        PublisherVerification,
        lambda name: "_spec101_" in name,
        profile="asyncio",
        environment=SILENT,
        create_publisher=lambda self, elements: Exits(elements),
    )

    (failure,) = failed(said)
    assert "§1." in failure.headline
    if kind in (SystemExit, KeyboardInterrupt):
        assert (
            f"§1.4 violated: a task of the subject ended the event loop with {kind.__name__}"
            in failure.message
        )


def test_a_subject_that_stops_the_event_loop_of_the_kit() -> None:
    class Stops(AsyncioTaskPublisher):
        class Subscription(AsyncioTaskPublisher.Subscription):
            def run(self) -> None:
                super().run()
                asyncio.get_running_loop().stop()

    said = results(
        PublisherVerification,
        lambda name: "_spec101_" in name,
        profile="asyncio",
        create_publisher=lambda self, elements: Stops(elements),
    )

    assert failed(said) == []


@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit, LookupError, Unheard, Homeless])
def test_a_settle_that_raises(kind: type[BaseException]) -> None:
    def settle(self: Any) -> None:
        raise kind("never still")

    (said,) = results(
        PublisherVerification,
        lambda name: "_spec101_" in name,
        create_publisher=lambda self, elements: RangePublisher(elements),
        settle=settle,
    )

    assert said.headline.startswith(f"settle() raised {kind.__name__}: never still at test_any_exception.py")


@every_kind
def test_an_attribute_that_raises(kind: type[BaseException]) -> None:
    class Hidden:
        @property
        def subscribe(self) -> Any:
            raise kind("nobody looks at it")

    (said,) = results(
        PublisherVerification,
        lambda name: "_spec101_" in name,
        create_publisher=lambda self, elements: Hidden(),
    )

    assert said.headline.startswith(f"create_publisher(5) raised {kind.__name__}: nobody looks at it at")


@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit, LookupError, Unheard])
def test_a_create_element_that_raises(kind: type[BaseException]) -> None:
    def create_element(self: Any, number: int) -> Any:
        raise kind("no elements")

    (said,) = results(
        SubscriberBlackboxVerification,
        lambda name: "_spec213_blackbox_must_take_an_element" in name,
        create_subscriber=lambda self: ReferenceSubscriber(),
        create_element=create_element,
    )

    assert said.headline.startswith(f"create_element(0) raised {kind.__name__}: no elements at")


def test_objects_that_do_not_tell_their_class() -> None:
    class Shy(RangePublisher):
        class Subscription(RangePublisher.Subscription):
            def request(self, n: int, /) -> Any:  # type: ignore[override]
                super().request(n)
                return Shy(0)

        @property
        def __class__(self) -> Any:
            raise Unheard("it is a secret")

        @__class__.setter
        def __class__(self, value: Any) -> None:
            raise Unheard("it is a secret")

    (said,) = results(
        PublisherVerification,
        lambda name: "_spec101_" in name,
        create_publisher=lambda self, elements: Shy(elements),
    )

    assert (said.verdict, said.message) == ("pass", "")


@pytest.mark.parametrize("leave", [lambda: pytest.skip("not here"), lambda: pytest.fail("not here")])
def test_the_word_of_pytest_goes_through_to_it(leave: Callable[[], Any]) -> None:
    with pytest.raises((pytest.skip.Exception, pytest.fail.Exception), match="not here"):
        results(
            PublisherVerification,
            lambda name: "_spec101_" in name,
            create_publisher=lambda self, elements: RangePublisher(elements),
            settle=lambda self: leave(),
        )


# ---------------------------------------------------------------- functions that only make an object


class AwaitsSubscribe(RangePublisher):
    async def subscribe(self, subscriber: Any, /) -> None:  # type: ignore[override]
        super().subscribe(subscriber)


class AwaitsRequest(RangePublisher):
    class Subscription(RangePublisher.Subscription):
        async def request(self, n: int, /) -> None:  # type: ignore[override]
            super().request(n)


class YieldsInCancel(RangePublisher):
    class Subscription(RangePublisher.Subscription):
        def cancel(self) -> Any:  # type: ignore[override]
            yield super().cancel()


class AwaitsOnNext(ReferenceSubscriber):
    async def on_next(self, element: Any, /) -> None:  # type: ignore[override]
        super().on_next(element)


@pytest.mark.parametrize(
    ("publisher", "test", "says"),
    [
        (
            AwaitsSubscribe,
            "_spec101_",
            "§1.9 violated: subscribe only made an object that is never run: this is a coroutine",
        ),
        (
            AwaitsSubscribe,
            "_throw_npe_",
            "§1.9 violated: subscribe(None) only made an object that is never run: this is a",
        ),
        (
            AwaitsRequest,
            "_spec101_",
            "§3.16 violated: request(1) only made an object that is never run: this is a corou",
        ),
        (
            YieldsInCancel,
            "_spec315_",
            "§3.15 violated: cancel() only made an object that is never run: this is a genera",
        ),
    ],
)
def test_a_method_that_is_a_coroutine_function_is_told_so(publisher: Any, test: str, says: str) -> None:
    (said,) = results(
        PublisherVerification,
        lambda name: test in name,
        create_publisher=lambda self, elements: publisher(elements),
    )

    assert says in said.message


def test_a_signal_method_that_is_a_coroutine_function_is_told_so() -> None:
    said = results(
        SubscriberBlackboxVerification,
        lambda name: "_spec213_blackbox_failing_on_" in name,
        create_subscriber=lambda self: AwaitsOnNext(),
    )

    assert (
        "§2.13 violated: on_next(1) only made an object that is never run: this is a coroutine function"
        in (failed(said)[0].message)
    )


class SendsFromAGenerator(RangePublisher):
    """Its signals are sent by a generator, which ``request`` also returns."""

    class Subscription(RangePublisher.Subscription):
        def __init__(self, subscriber: Any, elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.steps = self.send()
            next(self.steps)

        def request(self, n: int, /) -> Any:  # type: ignore[override]
            super().request(n)
            return self.steps

        def run(self) -> None:
            next(self.steps)

        def send(self) -> Iterator[None]:
            while True:
                yield
                self.emit()


def test_a_generator_that_has_begun_is_at_work() -> None:
    said = results(
        PublisherVerification,
        lambda name: "_spec101_" in name or "_spec302_" in name or "_while_on_next_runs" in name,
        create_publisher=lambda self, elements: SendsFromAGenerator(elements),
    )

    assert [result.message for result in said] == [""] * 4


def test_a_probe_beside_a_subscriber_does_not_hide_that_a_method_is_a_coroutine_function() -> None:
    says = "only made an object that is never run: this is a coroutine function"
    said = results(
        SubscriberWhiteboxVerification,
        lambda name: "_spec213_" in name or "_spec308_" in name,
        create_subscriber=lambda self, probe: Probed(AwaitsOnNext(), probe),
    )

    found = "\n".join(result.message for result in failed(said))
    assert f"§2.13 violated: on_next(1) {says}" in found
    assert f"§2.13 violated: on_next(None) {says}" in found


def test_a_hook_that_is_a_coroutine_function_is_told_so() -> None:
    async def create_publisher(self: Any, elements: int) -> Any:
        return RangePublisher(elements)

    said = results(PublisherVerification, lambda name: True, create_publisher=create_publisher)

    (failure,) = failed(said)
    assert (
        "create_publisher(1) only made an object that is never run: this is a coroutine function"
        in failure.headline
    )

"""``penstock.streams.processor()`` keeps the rules, with whatever operators between its two sides.

The operators of each shape pass on what they get, which is what the kit expects of a Processor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.streams import Flux, on_dropped, processor, schedulers
from penstock.tck import IdentityProcessorVerification, PublisherVerification, Violation


@pytest.fixture(autouse=True)
def dropped() -> Iterator[None]:
    """Elements and errors that nobody waits for any more need not be logged here."""
    with on_dropped(error=lambda error, where: None, element=lambda element, where: None):
        yield


class ProcessorVerification(IdentityProcessorVerification):
    """What the shapes have in common: any number of Subscribers, who all get the same (§1.12)."""

    profile = "sync"
    fanout = "multicast"

    def operators(self) -> Callable[[Any], Any] | None:
        """What stands between the two sides."""
        return None

    def create_identity_processor(self, buffer_size: int) -> Any:
        return processor(self.operators(), capacity=buffer_size)

    def create_failed_publisher(self) -> Any:
        relay = self.create_identity_processor(16)
        Flux.error(OSError("no such file")).subscribe(relay)
        return relay


class TestProcessor(ProcessorVerification):
    """Nothing in between."""


class TestProcessorWithMap(ProcessorVerification):
    """An operator that is compiled into the loop."""

    def operators(self) -> Any:
        return lambda flux: flux.map(lambda element: element)


class TestProcessorWithFilter(ProcessorVerification):
    """One that asks for more than it passes on, if it has to."""

    def operators(self) -> Any:
        return lambda flux: flux.filter(lambda element: element is not None)


class HoldsErrorsBack(ProcessorVerification):
    """With an operator that keeps its order (decision 0006), an error waits behind what that one holds.

    This is the one place where the shape of a processor decides whether a rule is kept. Subscribers that are
    slow hold nobody up: what waits for them waits below the operators, and there errors go first.
    """

    @pytest.mark.xfail(raises=Violation, reason="the operator holds elements back, and errors behind them")
    def test_required_spec402_must_pass_on_an_error_ahead_of_elements_that_nobody_has_asked_for(self) -> None:
        super().test_required_spec402_must_pass_on_an_error_ahead_of_elements_that_nobody_has_asked_for()


class TestProcessorWithLimitRate(HoldsErrorsBack):
    """An operator with a window of its own."""

    def operators(self) -> Any:
        return lambda flux: flux.limit_rate(4)


class TestProcessorWithBuffer(ProcessorVerification):
    """Elements are packed and unpacked again."""

    def operators(self) -> Any:
        return lambda flux: flux.buffer(1).flat_map_iterable(lambda packed: packed)


class TestProcessorWithConcatMap(HoldsErrorsBack):
    """Every element is a stream in between."""

    def operators(self) -> Any:
        return lambda flux: flux.concat_map(lambda element: Flux.just(element))


class TestProcessorWithFlatMap(ProcessorVerification):
    """The same, with several at a time."""

    def operators(self) -> Any:
        return lambda flux: flux.flat_map(lambda element: Flux.just(element))


class TestProcessorWithPublishOn(HoldsErrorsBack):
    """The Subscribers are served on another thread."""

    profile = "threads"

    def operators(self) -> Any:
        there = schedulers.single("there")
        self.add_cleanup(there.close)
        return lambda flux: flux.publish_on(there, prefetch=4)


class TestProcessorBetweenTwoThreads(HoldsErrorsBack):
    """Twice over, with an operator between."""

    profile = "threads"

    def operators(self) -> Any:
        one, other = schedulers.single("one"), schedulers.single("other")
        self.add_cleanup(one.close)
        self.add_cleanup(other.close)
        return lambda flux: flux.publish_on(one).map(lambda element: element).publish_on(other, prefetch=1)


class TestProcessorOnAnEventLoop(ProcessorVerification):
    """Coroutines in between, on the event loop of the kit."""

    profile = "asyncio"

    def operators(self) -> Any:
        async def awaited(element: Any) -> Any:
            return element

        return lambda flux: flux.map_async(awaited)


class TestTwoProcessors(PublisherVerification):
    """One behind the other, as two libraries would connect them."""

    profile = "sync"

    def create_publisher(self, elements: int) -> Any:
        first, second = processor(capacity=16), processor(lambda flux: flux.map(str), capacity=16)
        first.subscribe(second)
        Flux.range(elements).subscribe(first)
        return second

    def create_failed_publisher(self) -> Any:
        first, second = processor(), processor()
        first.subscribe(second)
        Flux.error(OSError("no such file")).subscribe(first)
        return second

"""Streams between Python and the JDK's own Reactive Streams, `java.util.concurrent.Flow`."""

import threading
from typing import Any

import pytest

from tests.conformance.jvm.glue import in_jvm
from tests.conformance.jvm.needs import require_kit

require_kit()

from jpype import JClass, JImplements, JOverride  # noqa: E402

from penstock.interop.jvm import PythonExecutor, flow, from_java  # noqa: E402
from penstock.streams import Flux, Mono, processor, schedulers  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def submission_publisher(executor: PythonExecutor, room: int = 16) -> Any:
    return JClass("java.util.concurrent.SubmissionPublisher")(executor, room)


@JImplements("java.util.concurrent.Flow$Subscriber", deferred=True)
class JavaSide:
    """A Subscriber as Java would write it: asks for a few at a time and remembers what it got."""

    def __init__(self, window: int) -> None:
        self.window = window
        self.items: list[Any] = []
        self.error: Any = None
        self.done = threading.Event()

    @JOverride
    def onSubscribe(self, subscription: Any) -> None:
        self.subscription = subscription
        subscription.request(self.window)

    @JOverride
    def onNext(self, element: Any) -> None:
        self.items.append(element)
        if len(self.items) % self.window == 0:
            self.subscription.request(self.window)

    @JOverride
    def onError(self, error: Any) -> None:
        self.error = error
        self.done.set()

    @JOverride
    def onComplete(self) -> None:
        self.done.set()


@in_jvm
def test_a_submission_publisher_is_a_flux() -> None:
    with PythonExecutor() as executor:
        publisher = submission_publisher(executor)
        collected = Flux.from_publisher(from_java(publisher)).map(lambda n: n * 2).collect_list().to_future()
        for n in range(1000):
            publisher.submit(n)  # waits while the Flux has not asked for more
        publisher.close()

        assert collected.result(20) == [n * 2 for n in range(1000)]


@in_jvm
def test_a_submission_publisher_on_the_threads_of_java_is_a_flux() -> None:
    publisher = JClass("java.util.concurrent.SubmissionPublisher")()
    collected = Flux.from_publisher(from_java(publisher)).collect_list().to_future()
    for n in range(300):
        publisher.submit(n)
    publisher.close()

    assert collected.result(20) == list(range(300))


@in_jvm
def test_java_is_held_back_by_a_flux_that_does_not_ask() -> None:
    with PythonExecutor() as executor:
        publisher = submission_publisher(executor, room=4)
        got: list[int] = []
        running = Flux.from_publisher(from_java(publisher)).take(2).subscribe(got.append)
        lags = [int(publisher.offer(n, None)) for n in range(3)]
        assert running.wait(20)

        assert got == [0, 1]
        assert all(lag >= 0 for lag in lags)
        while publisher.hasSubscribers():  # take(2) has cancelled
            threading.Event().wait(0.001)
        publisher.close()


@in_jvm
def test_an_error_of_java_is_the_same_object_in_python() -> None:
    with PythonExecutor() as executor:
        publisher = submission_publisher(executor)
        failed = Flux.from_publisher(from_java(publisher)).collect_list().to_future()
        error = JClass("java.lang.IllegalStateException")("out of paper")
        publisher.closeExceptionally(error)

        assert failed.exception(20) is not None
        assert failed.exception(20).equals(error)


@in_jvm
def test_a_flux_is_a_flow_publisher() -> None:
    java_side = JavaSide(window=7)

    flow.publisher(Flux.range(100)).subscribe(java_side)

    assert java_side.done.wait(20)
    assert java_side.items == list(range(100))


@in_jvm
def test_a_flux_on_a_pool_feeds_a_subscriber_of_java() -> None:
    java_side = JavaSide(window=3)

    Flux.range(100).publish_on(schedulers.shared_pool()).subscribe(from_java(java_side))

    assert java_side.done.wait(20)
    assert java_side.items == list(range(100))


@in_jvm
def test_a_flux_is_read_by_a_subscriber_of_the_jdk() -> None:
    """The JDK's HTTP client takes a body as a Flow of lists of byte buffers."""
    body = JClass("java.net.http.HttpResponse$BodySubscribers").ofByteArray()
    wrap, pack = JClass("java.nio.ByteBuffer").wrap, JClass("java.util.List").of
    parts = Flux.just(b"re", b"act", b"ive").map(lambda part: pack(wrap(part)))

    parts.subscribe(from_java(body))

    assert bytes(body.getBody().toCompletableFuture().get()) == b"reactive"


@in_jvm
def test_a_publisher_of_the_jdk_is_a_flux() -> None:
    """The JDK's HTTP client gives a body as a Flow of byte buffers, of 16 KiB each."""
    body = JClass("java.net.http.HttpRequest$BodyPublishers").ofByteArray(bytes(100_000))

    sizes = Flux.from_publisher(from_java(body)).map(lambda buffer: int(buffer.remaining()))

    assert sizes.collect_list().block(20) == [16384] * 6 + [1696]


@in_jvm
def test_the_error_of_a_flux_reaches_java() -> None:
    java_side = JavaSide(window=7)

    flow.publisher(Flux.error(ValueError("bad line"))).subscribe(java_side)

    assert java_side.error.getClass().getName() == "java.lang.IllegalArgumentException"
    assert "ValueError: bad line" in str(java_side.error.getMessage())


@in_jvm
def test_a_mono_is_a_flow_publisher() -> None:
    java_side = JavaSide(window=7)

    flow.publisher(Mono.just("one")).subscribe(java_side)

    assert java_side.items == ["one"]
    assert java_side.done.is_set()


@in_jvm
def test_a_processor_of_python_stands_between_two_ends_of_java() -> None:
    with PythonExecutor() as executor:
        publisher = submission_publisher(executor)
        doubling = flow.processor(processor(lambda flux: flux.map(lambda n: n * 2)))
        java_side = JavaSide(window=16)
        doubling.subscribe(java_side)
        publisher.subscribe(doubling)
        for n in range(500):
            publisher.submit(n)
        publisher.close()

        assert java_side.done.wait(20)
        assert java_side.items == [n * 2 for n in range(500)]

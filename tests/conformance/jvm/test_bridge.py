"""What crosses the border between Python and Java, and in which shape; and that nothing is left behind."""

import gc
import time
import weakref
from typing import Any

import pytest

from tests.conformance.jvm.glue import in_jvm
from tests.conformance.jvm.needs import require_kit

require_kit()

from jpype import JClass, JObject  # noqa: E402

from penstock.interop.jvm import (  # noqa: E402
    JavaInterfaces,
    JavaProcessor,
    JavaPublisher,
    JavaSubscriber,
    PythonExecutor,
    flow,
    from_java,
    java_error,
    reactive_streams,
)
from penstock.interop.jvm.conversion import java_element, python_element  # noqa: E402
from penstock.spec import NoneViolation, RuleViolation, strict  # noqa: E402
from penstock.streams import Flux, on_dropped, processor  # noqa: E402
from tests.conformance.jvm.test_flow import JavaSide  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


class Recording:
    """A Subscriber that keeps its Subscription and asks when told to."""

    def __init__(self) -> None:
        self.items: list[Any] = []
        self.subscription: Any = None
        self.ended: Any = None

    def on_subscribe(self, subscription: Any) -> None:
        self.subscription = subscription

    def on_next(self, element: Any) -> None:
        if element is None:
            raise TypeError("None is no element")
        self.items.append(element)

    def on_error(self, error: BaseException) -> None:
        self.ended = error

    def on_complete(self) -> None:
        self.ended = "completed"


def held_by_java(proxy: Any, family: JavaInterfaces, interface: str) -> Any:
    """The object as Java has it, so that a call of its method goes through Java."""
    return JObject(proxy, JClass(family.name(interface)))


def java_names(error: Any) -> str:
    return str(error.getClass().getName())


def through_java(element: Any) -> Any:
    """Put an element into a Java list and take it out again."""
    box = JClass("java.util.ArrayList")()
    box.add(java_element(element))
    return python_element(box.get(0))


@in_jvm
def test_elements_keep_their_value() -> None:
    for element in (0, -1, 2**63 - 1, -(2**63), 1.5, True, "text", "한국어 🎉"):
        assert through_java(element) == element
    assert int(str(through_java(2**70))) == 2**70
    assert bytes(through_java(b"\x00\xff")) == b"\x00\xff"
    assert bytes(through_java(bytearray(b"ab"))) == b"ab"


@in_jvm
def test_other_objects_come_back_as_themselves() -> None:
    for element in ({"a": 1}, [1], (1, 2), {1}, object(), ValueError("x"), len):
        assert through_java(element) is element


@in_jvm
def test_java_compares_python_objects_as_python_does() -> None:
    objects = JClass("java.util.Objects")

    assert objects.equals(java_element((1, 2)), java_element((1, 2)))
    assert not objects.equals(java_element((1, 2)), java_element((1, 3)))
    assert not objects.equals(java_element((1, 2)), java_element("text"))
    assert java_element((1, "a")).hashCode() == java_element((1, "a")).hashCode()
    assert java_element([]).hashCode() == 0
    ordered = JClass("java.util.TreeSet")([java_element((2,)), java_element((1,)), java_element((2,))])
    assert [element.python for element in ordered] == [(1,), (2,)]
    assert str(objects.toString(java_element((1, 2)))) == "(1, 2)"


@in_jvm
def test_errors_become_the_nearest_that_java_has() -> None:
    assert java_names(java_error(ValueError("x"))) == "java.lang.IllegalArgumentException"
    assert java_names(java_error(TimeoutError("x"))) == "java.util.concurrent.TimeoutException"
    assert java_names(java_error(ConnectionResetError("x"))) == "java.io.IOException"
    assert java_names(java_error(KeyError("x"))) == "java.lang.RuntimeException"
    noted = ZeroDivisionError("1/0")
    noted.add_note("in stream operator 'map'")
    assert str(java_error(noted).getMessage()) == "ZeroDivisionError: 1/0\nin stream operator 'map'"


@in_jvm
def test_an_error_of_java_stays_the_same_object() -> None:
    for name in ("java.lang.IllegalStateException", "java.io.IOException"):
        error = JClass(name)("x")
        assert java_error(error) is error
    with pytest.raises(JClass("java.lang.NullPointerException")) as caught:
        JClass("java.util.Objects").requireNonNull(None)
    assert java_names(java_error(caught.value)) == "java.lang.NullPointerException"


@in_jvm
def test_null_is_answered_with_a_null_pointer_exception_and_other_faults_are_not() -> None:
    class Faulty:
        def subscribe(self, subscriber: Any) -> None:
            raise TypeError("a fault of its own")

    with pytest.raises(JClass("java.lang.NullPointerException")):
        held_by_java(flow.publisher(Flux.range(3)), flow, "Publisher").subscribe(None)
    with pytest.raises(TypeError, match="a fault of its own"):
        held_by_java(flow.publisher(Faulty()), flow, "Publisher").subscribe(JavaSide(1))


@in_jvm
def test_both_families_are_recognised_and_what_was_ours_comes_back() -> None:
    for family in (flow, reactive_streams):
        flux, subscriber, stage = Flux.range(3), Recording(), processor()
        assert from_java(family.publisher(flux)) is flux
        assert from_java(family.subscriber(subscriber)) is subscriber
        assert from_java(family.processor(stage)) is stage
        assert family.has("Processor", family.processor(stage))
        assert family.has("Processor", held_by_java(family.processor(stage), family, "Processor"))


@in_jvm
def test_what_was_javas_goes_back_unwrapped() -> None:
    publisher = JClass("java.util.concurrent.SubmissionPublisher")()
    ours = from_java(publisher)

    assert isinstance(ours, JavaPublisher)
    assert flow.publisher(ours) is publisher
    # The other family is another interface, which this object does not have.
    assert reactive_streams.publisher(ours) is not publisher
    publisher.close()


@in_jvm
def test_the_adapters_of_the_library_see_our_publishers() -> None:
    adapters = JClass("org.reactivestreams.FlowAdapters")
    as_flow = adapters.toFlowPublisher(reactive_streams.publisher(Flux.range(10)))

    assert Flux.from_publisher(from_java(as_flow)).collect_list().block(20) == list(range(10))
    as_subscriber = adapters.toSubscriber(flow.subscriber(recording := Recording()))
    assert isinstance(from_java(as_subscriber), JavaSubscriber)
    Flux.range(3).subscribe(from_java(as_subscriber))
    recording.subscription.request(10)
    assert (recording.items, recording.ended) == ([0, 1, 2], "completed")
    assert isinstance(from_java(adapters.toProcessor(flow.processor(processor()))), JavaProcessor)


@in_jvm
def test_what_is_no_part_of_a_stream_is_refused() -> None:
    for thing in (None, 3, "text", JClass("java.lang.Object")()):
        with pytest.raises(TypeError, match="is not a Java Publisher, Subscriber or Processor"):
            from_java(thing)
    with pytest.raises(NoneViolation):
        flow.publisher(None)  # type: ignore[arg-type]
    with pytest.raises(NoneViolation):
        flow.subscriber(object())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        from_java(JClass("java.util.concurrent.SubmissionPublisher")()).subscribe(None)


@in_jvm
def test_a_request_that_java_cannot_hold_is_unbounded_and_one_that_is_none_is_illegal() -> None:
    adapters = JClass("org.reactivestreams.FlowAdapters")

    def subscribed() -> Recording:
        recording = Recording()
        # Through Java and back, with a Publisher that answers for itself.
        from_java(adapters.toFlowPublisher(reactive_streams.publisher(Flux.range(5)))).subscribe(recording)
        return recording

    much, none, text = subscribed(), subscribed(), subscribed()
    much.subscription.request(2**100)
    none.subscription.request(0)
    text.subscription.request("3")

    assert (much.items, much.ended) == ([0, 1, 2, 3, 4], "completed")
    assert java_names(none.ended) == "java.lang.IllegalArgumentException"
    assert "3.9" in str(none.ended.getMessage())
    assert java_names(text.ended) == "java.lang.IllegalArgumentException"


@in_jvm
def test_strict_tells_what_java_does_wrong() -> None:
    found: list[RuleViolation] = []
    proxy = held_by_java(flow.subscriber(strict(Recording(), report=found.append)), flow, "Subscriber")

    proxy.onNext(1)

    assert [violation.rule for violation in found] == ["1.9"]


def released(reference: weakref.ref[Any]) -> bool:
    """Both collectors run, in turns, until the object is gone; false after a while.

    A thread of Java's pool may have to end its work before.
    """
    until = time.monotonic() + 20
    while time.monotonic() < until:
        gc.collect()
        JClass("java.lang.System").gc()
        if reference() is None:
            return True
        JClass("java.lang.Thread").sleep(10)
    return False


@in_jvm
def test_nothing_is_left_of_a_stream_that_ended() -> None:
    def subscribe(end: Any) -> weakref.ref[Any]:
        publisher = JClass("java.util.concurrent.SubmissionPublisher")()
        recording = Recording()
        from_java(publisher).subscribe(recording)
        publisher.submit(1)
        while recording.subscription is None:
            JClass("java.lang.Thread").sleep(1)
        end(publisher, recording)
        return weakref.ref(recording)

    def complete(publisher: Any, recording: Recording) -> None:
        recording.subscription.request(10)
        publisher.close()
        while recording.ended is None:
            JClass("java.lang.Thread").sleep(1)

    def cancel(publisher: Any, recording: Recording) -> None:
        recording.subscription.cancel()

    assert released(subscribe(complete))
    assert released(subscribe(cancel))


@in_jvm
def test_an_executor_runs_tasks_in_order_and_refuses_them_when_closed() -> None:
    future = JClass("java.util.concurrent.CompletableFuture")
    with PythonExecutor("tasks of java") as executor:
        order: list[int] = []
        tasks = [future.runAsync(lambda n=n: order.append(n), executor) for n in range(20)]
        for task in tasks:
            task.get()
        assert order == list(range(20))
    executor.close()
    with pytest.raises(JClass("java.util.concurrent.RejectedExecutionException")):
        future.runAsync(lambda: None, executor)


@in_jvm
def test_a_task_that_fails_is_reported_and_the_executor_goes_on() -> None:
    class Failing:
        def __init__(self, kind: type[BaseException]) -> None:
            self._kind = kind

        def run(self) -> None:
            raise self._kind

    kinds = [ZeroDivisionError, SystemExit, GeneratorExit]

    seen: list[BaseException] = []
    supply = JClass("java.util.concurrent.CompletableFuture").supplyAsync
    with PythonExecutor() as executor, on_dropped(error=lambda error, where: seen.append(error)):
        for kind in kinds:
            executor.execute(Failing(kind))
        assert supply(lambda: "on it goes", executor).get() == "on it goes"

    assert [type(error) for error in seen] == kinds

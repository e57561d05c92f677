"""``conflate``: elements that come while the subscriber is busy become one."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.spec import UNBOUNDED
from penstock.streams import Flux, schedulers
from tests.streams.operators.rigs import Oops, check_that_an_exception_ends_it, oops
from tests.streams.operators.test_creation_from_publisher import Driven
from tests.streams.recording import Recorder


def listed(element: Any) -> list[Any]:
    return [element]


def added(elements: list[Any], element: Any) -> list[Any]:
    return [*elements, element]


class Rig:
    def __init__(self, first: int = 0) -> None:
        self.source = Driven()
        self.recorder = Recorder.of(self.source.flux().conflate(listed, added), first)


def test_with_demand_each_element_is_a_seed() -> None:
    rig = Rig(first=3)
    rig.source.emit(1, 2)

    assert rig.recorder.check().items == [[1], [2]]


def test_without_demand_elements_are_added_up() -> None:
    rig = Rig()
    assert rig.source.requests == [UNBOUNDED]
    rig.source.emit(1, 2, 3)
    rig.recorder.request(1)
    assert rig.recorder.items == [[1, 2, 3]]
    rig.source.emit(4, 5)
    rig.recorder.request(2)
    rig.source.emit(6)

    assert rig.recorder.check().items == [[1, 2, 3], [4, 5], [6]]


def test_a_busy_subscriber_gets_one_result() -> None:
    inside, go_on = threading.Event(), threading.Event()

    def busy(_: Recorder, element: Any) -> None:
        if element == [0]:
            inside.set()
            assert go_on.wait(20)

    source, recorder = Driven(), Recorder(on_element=busy)
    source.flux().conflate(listed, added).subscribe(recorder)
    source.emit(0)
    worker = threading.Thread(target=recorder.request, args=(UNBOUNDED,))
    worker.start()
    assert inside.wait(20)
    source.emit(*range(1, 100))
    go_on.set()
    worker.join()

    assert recorder.check().items == [[0], list(range(1, 100))]


def test_completion_and_errors_come_after_the_result() -> None:
    for end in ("complete", "fail"):
        rig = Rig()
        rig.source.emit(1, 2)
        rig.source.complete() if end == "complete" else rig.source.fail(Oops())
        assert not rig.recorder.terminated
        rig.recorder.request(1)

        assert rig.recorder.check().items == [[1, 2]]
        assert rig.recorder.terminated


def test_a_seed_that_raises_ends_it() -> None:
    check_that_an_exception_ends_it(lambda flux: flux.conflate(oops, added), "conflate", __file__)


def test_an_aggregate_that_raises_ends_it_after_what_was_there() -> None:
    source = Driven()
    recorder = Recorder.of(source.flux().conflate(listed, oops))
    source.emit(1, 2)
    assert source.cancels == 1
    recorder.request(1)

    assert recorder.check().items == [[1]]
    assert isinstance(recorder.error, Oops)


def test_none_as_a_result_is_refused() -> None:
    recorder = Recorder.of(Flux.just(1).conflate(lambda _: None, added), 1)

    assert "conflate" in str(recorder.check().error)


def test_a_function_may_request_and_cancel() -> None:
    recorder = Recorder()

    def seed(n: int) -> int:
        recorder.request(1)
        return n

    def aggregate(total: int, n: int) -> int:
        recorder.cancel()
        return total + n

    source = Driven()
    source.flux().conflate(seed, aggregate).subscribe(recorder)
    source.emit(1, 2)

    assert recorder.check().items == [1, 2]


def test_a_cancel_stops_the_source() -> None:
    rig = Rig(first=1)
    rig.recorder.cancel()

    assert rig.source.cancels == 1


@pytest.mark.parametrize("wrong", [(1, added), (listed, 2)])
def test_both_are_functions(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"conflate\(\)"):
        Flux.just(1).conflate(*wrong)


def test_nothing_is_lost_between_threads() -> None:
    recorder = Recorder(1, on_element=lambda recorder, _: recorder.request(1))
    numbers = Flux.range(20_000).subscribe_on(schedulers.shared_pool())
    numbers.conflate(listed, lambda some, n: some.append(n) or some).publish_on(
        schedulers.shared_single(), prefetch=1
    ).subscribe(recorder)
    recorder.wait()

    assert [n for some in recorder.items for n in some] == list(range(20_000))

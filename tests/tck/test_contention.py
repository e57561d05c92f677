"""Demand that two threads change at the same time: the kit stops both, and raises no alarm without need."""

from __future__ import annotations

import copy
import pickle
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from typing import Any, ClassVar

import pytest

from penstock.spec import Subscriber
from penstock.tck import CallOutcome, PublisherVerification, Result, run
from penstock.tck.probe import Probe
from penstock.tck.publisher import contention
from penstock.tck.publisher.contention import WatchedNumber
from penstock.tck.trial import Trial
from tests.tck.legal.publishers import ThreadedPublisher
from tests.tck.legal.serving import RangePublisher, SequenceSubscription, Signal

TEST = "test_required_spec308_must_produce_the_sum_when_another_thread_requests_while_elements_are_sent"
LONG = 30
"""More seconds than any machine needs."""


def said_of(create: Callable[[int], Any], **settings: Any) -> Result:
    made = {"create_publisher": lambda self, elements: create(elements), **settings}
    (result,) = run(type("TestSubject", (PublisherVerification,), made), lambda name: name == TEST)
    return result


def test_a_thread_that_takes_its_time_to_start_is_no_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that sends asks after the fourth element; it starts a thread while the test waits for it."""
    elsewhere, join = Trial.elsewhere, contention._SecondThread.join
    waits = threading.Semaphore(0)
    asking: list[contention._SecondThread] = []
    started: list[Future[CallOutcome]] = []

    class Noted(contention._SecondThread):
        def __init__(self, probe: Probe) -> None:
            super().__init__(probe)
            asking.append(self)

        def join(self) -> None:
            waits.release()
            join(self)

    def slowly(trial: Trial, action: Callable[[], Any]) -> Future[CallOutcome]:
        started.append(elsewhere(trial, action))
        if len(started) == 3:
            # This is the last of three parts, and the test waits in each.
            for _ in range(3):
                assert waits.acquire(timeout=LONG)
        return started[-1]

    def settle(verification: Any) -> None:
        """Return when the thread that sends is about to ask, so that the test need not."""
        until = time.monotonic() + LONG
        while not all(second.begun for second in asking) and time.monotonic() < until:
            time.sleep(0.001)

    monkeypatch.setattr(Trial, "elsewhere", slowly)
    monkeypatch.setattr(contention, "_SecondThread", Noted)

    said = said_of(ThreadedPublisher, settle=settle)

    assert (said.verdict, said.message) == ("pass", "")
    assert len(started) == 3


def test_two_threads_that_find_it_is_time_to_ask_ask_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that sends and that of the test: both see that nobody has asked, before either does."""
    ask = contention._SecondThread.ask
    both = threading.Barrier(2)

    def together(second: contention._SecondThread, *n: Any) -> None:
        # If one of them has asked already, the other one may come before the fifth element on a busy machine.
        if len(second._probe.elements) == 4 and not n and not second.begun:
            both.wait(LONG)
        ask(second, *n)

    monkeypatch.setattr(contention._SecondThread, "ask", together)

    said = said_of(ThreadedPublisher)

    assert (said.verdict, said.message) == ("pass", "")
    assert not both.broken


class NeedsCallsInARow(RangePublisher):
    """Sends inside request, without a lock: a Subscriber has to call one method after the other (§2.7)."""

    class Subscription(SequenceSubscription):
        def __init__(self, subscriber: Subscriber[Any], elements: Sequence[Any]) -> None:
            super().__init__(subscriber, elements)
            self.lock: Any = nullcontext()


class HoldsItsLockWhileItSends(RangePublisher):
    """Sends inside request, and another request waits until that is over."""

    class Subscription(SequenceSubscription):
        def emit(self) -> None:
            with self.lock:
                super().emit()


def test_a_publisher_that_sends_inside_request_may_need_that_requests_do_not_overlap() -> None:
    said = said_of(NeedsCallsInARow)

    assert (said.verdict, said.expected) == ("skip", True)
    assert "(§2.7)" in said.message


def test_a_publisher_that_sends_inside_request_passes_if_it_can_do_more() -> None:
    assert said_of(RangePublisher).verdict == "pass"
    assert said_of(HoldsItsLockWhileItSends).verdict == "pass"


class SendsAllAtOnce(RangePublisher):
    """Breaks §1.3: each element comes on a thread of its own."""

    class Subscription(SequenceSubscription):
        def deliver(self, signal: Signal) -> None:
            threading.Thread(target=signal, daemon=True).start()


def test_elements_that_come_all_at_once_are_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Subscriber has four elements before it does anything at the first."""
    stop_runaway, join = Probe._stop_runaway, contention._SecondThread.join
    waits = threading.Event()

    def held_up(probe: Probe) -> None:
        # The first Subscriber asks for a single element, to see what numbers the subject takes.
        if probe.name == "subscriber":
            waits.wait(LONG)
        stop_runaway(probe)

    def join_and_tell(second: contention._SecondThread) -> None:
        waits.set()
        join(second)

    def wait_until(trial: Trial, holds: Callable[[], bool], *_: Any) -> bool:
        """See nothing before there is everything, as it happens on a busy machine."""
        with trial.condition:
            return trial.condition.wait_for(holds, LONG)

    monkeypatch.setattr(Probe, "_stop_runaway", held_up)
    monkeypatch.setattr(contention._SecondThread, "join", join_and_tell)
    monkeypatch.setattr(Trial, "wait_until", wait_until)

    said = said_of(SendsAllAtOnce)
    waits.set()

    assert said.message.startswith("§1.3 violated: ")


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda number: pickle.loads(pickle.dumps(number))]
)
def test_a_copy_of_a_watched_number_is_plain(copied: Callable[[Any], Any]) -> None:
    made = copied(WatchedNumber(4, lambda name: None))

    assert (type(made), made) == (int, 4)


class AsksAnotherProcess(RangePublisher):
    """Sends what is asked for to another place, as bytes, through a thread that all Subscriptions share."""

    notes: ClassVar[queue.SimpleQueue[Any]] = queue.SimpleQueue()

    class Subscription(SequenceSubscription):
        def request(self, n: int, /) -> None:
            AsksAnotherProcess.notes.put((super().request, n))

    @classmethod
    def serve(cls) -> None:
        while (note := cls.notes.get()) is not None:
            request, n = note
            request(pickle.loads(pickle.dumps(n)))


def test_a_number_may_be_sent_to_another_process() -> None:
    server = threading.Thread(target=AsksAnotherProcess.serve, daemon=True)
    server.start()

    said = said_of(AsksAnotherProcess)

    assert (said.verdict, said.message) == ("pass", "")
    assert server.is_alive()
    AsksAnotherProcess.notes.put(None)
    server.join(LONG)


class AddsUpInOneGo(RangePublisher):
    """Leaves notes for the thread that sends, which adds them up in C: with numbers, nobody comes between."""

    class Subscription(SequenceSubscription):
        def __init__(self, subscriber: Any, elements: Any) -> None:
            super().__init__(subscriber, elements)
            self.notes: deque[int] = deque()

        def request(self, n: int, /) -> None:
            self.notes.append(n)
            self.drain()

        def next_signal(self) -> Signal | None:
            self.demand = sum(self.notes) - self.position
            return super().next_signal()


@pytest.mark.parametrize("profile", ["sync", "threads"])
def test_a_calculation_in_c_is_not_stopped(profile: str) -> None:
    said = said_of(AddsUpInOneGo, profile=profile)

    assert (said.verdict, said.message) == ("pass", "")

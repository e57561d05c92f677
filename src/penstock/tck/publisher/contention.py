"""Publisher tests: demand that two threads change at the same time, one by asking and one by sending."""

from __future__ import annotations

import dis
import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import FrameType
from typing import Any, Final

from penstock.tck.caller import CallOutcome
from penstock.tck.probe import Probe
from penstock.tck.publisher.subject import PublisherSubject
from penstock.tck.verdicts import NotCheckable, Violation
from penstock.tck.verification import check

BESIDE: Final[float] = 0.1
"""How many seconds one thread waits for another; a Publisher may make either wait with its lock."""
_ELEMENTS = 20
_FIRST = 4
_MORE = 3
_ADDING = ("add", "radd", "int")
_TAKING = ("sub", "rsub")
_COMPARING = ("lt", "le", "gt", "ge", "eq", "ne", "bool")
_CALLS = frozenset(code for name, code in dis.opmap.items() if "CALL" in name)
_HINT = (
    "request() adds to the demand on one thread while another one sends and subtracts: "
    "do both under one lock, or leave both to one thread"
)

OnReckoning = Callable[[str], None]


class WatchedNumber(int):
    """A whole number that tells when somebody reckons with it; so do the numbers that come out.

    Between reading the demand and writing it, a Subscription calculates. So this is the moment at which a
    second thread shows whether there is a guard. The thread that calculates waits here for the other one, and
    chance has no part in it.
    """

    on_reckoning: OnReckoning

    def __new__(cls, value: int, on_reckoning: OnReckoning) -> WatchedNumber:
        """Be ``value``; ``on_reckoning`` is told what is done with it."""
        number = super().__new__(cls, value)
        number.on_reckoning = on_reckoning
        return number

    __hash__ = int.__hash__

    def __reduce__(self) -> tuple[type[int], tuple[int]]:
        """Be a plain number as a copy, and in another process: nobody can be told of what happens there."""
        return int, (int.__int__(self),)


def _calls(frame: FrameType | None) -> bool:
    """Tell whether it is C code that calculates: called from this frame, or on a thread without any.

    Nobody else has a turn in there if the numbers are plain: ``sum(a_deque)`` is an example. So a thread that
    stops there would find what cannot happen.
    """
    return frame is None or frame.f_code.co_code[frame.f_lasti] in _CALLS


def _told(name: str) -> Callable[..., Any]:
    plain = getattr(int, f"__{name}__")

    def operation(self: WatchedNumber, *others: Any) -> Any:
        result = plain(self, *others)
        if name == "int" or not _calls(sys._getframe().f_back):
            self.on_reckoning(name)
        # int() has to return a plain one.
        watched = type(result) is int and name != "int"
        return WatchedNumber(result, self.on_reckoning) if watched else result

    return operation


for _name in (*_ADDING, *_TAKING, *_COMPARING):
    setattr(WatchedNumber, f"__{_name}__", _told(_name))


class _SecondThread:
    """Asks for more on a thread of its own, once, at a moment that the test chooses."""

    def __init__(self, probe: Probe) -> None:
        self.begun = False
        self.overlaps = False
        """Whether the first request was still under way when this one began, and all was well until then."""
        self._probe = probe
        self._first_is_over = False
        self._thread: int | None = None
        self._asked: Future[CallOutcome] = Future()

    def follow(self, n: Any) -> None:
        """Make the first request, for ``_FIRST`` elements, with ``n`` in the place of this number."""
        self._probe.request(_FIRST, handed_over=n)
        with self._probe.trial.condition:
            self._first_is_over = True
            self._probe.trial.condition.notify_all()

    def ask(self, n: Any = _MORE) -> None:
        """Ask for ``_MORE`` elements, with ``n`` in the place of this number; do nothing the next time."""
        trial = self._probe.trial
        with trial.condition:
            # The thread that sends and the thread of the test may both find that it is time.
            if self.begun:
                return
            self.begun = True
        if not trial.calls_here:  # There, elements are sent inside request(), which cannot end now.
            trial.wait_briefly(lambda: self._first_is_over, BESIDE)
        self.overlaps = not (self._first_is_over or trial.flaws)

        def work() -> None:
            self._thread = threading.get_ident()
            self._probe.request(_MORE, handed_over=n)

        # A busy machine takes its time to start the thread, and somebody may wait for the request already.
        asked = trial.elsewhere(work)
        asked.add_done_callback(lambda done: self._asked.set_result(done.result()))

    def is_here(self) -> bool:
        """Tell whether this is the thread."""
        return self._thread == threading.get_ident()

    def done(self) -> bool:
        """Tell whether the request has returned."""
        return self._asked.done()

    def join(self) -> None:
        """Wait until the request has returned."""
        self._probe.trial.awaited(self._asked, f"request({_MORE}) on another thread", "3.16")


class _WaitsForAnElement:
    """The thread that asks stops in its calculation until an element has been sent."""

    def __init__(self) -> None:
        self._second: _SecondThread | None = None
        self._probe: Probe | None = None
        self._waits_since = 0
        """How many elements had come when the thread stopped."""
        self._over = False
        """One of the two cannot go on without the other: there is a guard."""

    def begin(self, probe: Probe, second: _SecondThread) -> None:
        """Make the first request."""
        self._probe, self._second = probe, second
        second.follow(_FIRST)

    def on_next(self, probe: Probe) -> None:
        """Begin at the first element, and be quicker with none than the other thread is with its request."""
        second = self._second
        if second is None:
            # Nobody has asked yet; the probe has seen it.
            return
        second.ask(WatchedNumber(_MORE, self._on_reckoning))

        def is_there() -> bool:
            return self._waits_since == len(probe.elements) or second.done()

        if not self._over and not probe.trial.wait_briefly(is_there, BESIDE):
            self._over = True

    def _on_reckoning(self, name: str) -> None:
        probe, second = self._probe, self._second
        if self._over or name in _COMPARING or probe is None or second is None or not second.is_here():
            return
        with probe.trial.condition:
            before = self._waits_since = len(probe.elements)
            probe.trial.condition.notify_all()
        if not probe.trial.wait_briefly(lambda: len(probe.elements) > before, BESIDE):
            self._over = True


class _WaitsForARequest:
    """The thread that sends stops in its calculation until the other one has asked.

    ``sent`` elements have to be sent before that, and only ``names`` count as a calculation.
    """

    def __init__(self, sent: int, names: tuple[str, ...]) -> None:
        self._probe: Probe | None = None
        self._second: _SecondThread | None = None
        self._sent = sent
        self._names = names

    def begin(self, probe: Probe, second: _SecondThread) -> None:
        """Make the first request, with a number that is watched."""
        self._probe, self._second = probe, second
        second.follow(WatchedNumber(_FIRST, self._on_reckoning))

    def _on_reckoning(self, name: str) -> None:
        probe, second = self._probe, self._second
        if probe is None or second is None or second.begun or name not in self._names:
            return
        if len(probe.elements) >= self._sent:
            second.ask()
            probe.trial.wait_briefly(second.done, BESIDE)


class ContendingTests(PublisherSubject):
    """§3.8 with two threads: no demand is lost, and none counts twice."""

    @check
    def test_required_spec308_must_produce_the_sum_when_another_thread_requests_while_elements_are_sent(
        self,
    ) -> None:
        """Requests of 4 and, on another thread, of 3 are seven elements, whoever stops in the middle."""
        self.require_any_thread()
        self._require_other_numbers()
        self.trial.hint(_HINT)
        adding = _WaitsForAnElement()
        self._contend(adding, self.subscribed(self.publisher_of(_ELEMENTS), on_next=adding.on_next))
        for sent, names in ((0, _TAKING), (_FIRST, (*_TAKING, *_ADDING, *_COMPARING))):
            probe = self.subscribed(self.publisher_of(_ELEMENTS), f"subscriber of {_FIRST} and {_MORE}")
            self._contend(_WaitsForARequest(sent, names), probe)

    def _contend(self, one: _WaitsForAnElement | _WaitsForARequest, probe: Probe) -> None:
        second = _SecondThread(probe)
        failure: Violation | None = None
        try:
            one.begin(probe, second)
            self._expect_sum(probe, second)
        except Violation as found:
            failure = found
        if second.overlaps and (failure is not None or self.trial.flaws):
            raise NotCheckable(
                "not checked: elements are sent inside request, and a Subscriber may not call it again until "
                "it has returned (§2.7)"
            )
        if failure is not None:
            raise failure

    def _expect_sum(self, probe: Probe, second: _SecondThread) -> None:
        probe.expect_elements(_FIRST, "3.8")
        self.trial.settle()
        # Where nobody has calculated with the number, the second request comes late.
        second.ask()
        second.join()
        probe.expect_elements(_FIRST + _MORE, "3.8")
        self.trial.settle()
        probe.expect_exactly(_FIRST + _MORE, "1.1")

    def _require_other_numbers(self) -> None:
        """Skip the test if only a plain ``int`` will do: then there is no moment to stop at."""
        probe = self.subscribed(self.publisher_of(_ELEMENTS), "subscriber with a number of another class")
        probe.request(1, handed_over=WatchedNumber(1, lambda name: None), allowed=Exception)
        self.trial.wait_until(lambda: bool(probe.elements), lambda: probe.ended)
        if not probe.elements:
            raise NotCheckable("not checked: request takes no number of a class that is derived from int")

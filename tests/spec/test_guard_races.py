"""The guard between real threads: what overlaps is noticed and put in order, and nothing is lost."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from penstock.spec import UNBOUNDED, strict
from penstock.spec.guard.upstream import TryLock
from tests.spec.rigs import Case, Probe, Puppet, Wire
from tests.spec.threads import PATIENCE, Gate, Lonely, elsewhere, held, together


@pytest.fixture(params=["publisher", "subscriber"])
def around(request):
    return request.param


def stop_at(gate, element):
    def then(probe, signal):
        if probe.signals[-1] == element:
            gate.stop()

    return then


def test_1_3_an_element_while_another_is_being_taken(around):
    gate = Gate()
    case = Case(Puppet(), Probe(request=9, then=stop_at(gate, "a")), around=around)
    with held(gate, case.to.on_next, "a"):
        case.to.on_next("b")
        assert case.rules == ["1.3"]
        assert case.probe.signals == ["subscribe", "a"]
    assert case.probe.signals == ["subscribe", "a", "b"]
    assert case.rules == ["1.3"]
    case.to.on_next("c")
    assert case.probe.signals == ["subscribe", "a", "b", "c"]
    assert case.rules == ["1.3"]


@pytest.mark.parametrize("end", ["on_complete", "on_error"])
def test_1_3_the_end_while_an_element_is_being_taken(around, end):
    gate, error = Gate(), OSError()
    case = Case(Puppet(), Probe(request=9, then=stop_at(gate, "a")), around=around)
    with held(gate, case.to.on_next, "a"):
        getattr(case.to, end)(*([error] if end == "on_error" else []))
        assert case.probe.signals == ["subscribe", "a"]
    assert case.probe.signals == ["subscribe", "a", "complete" if end == "on_complete" else error]
    assert case.rules == ["1.3"]


def test_1_3_an_element_while_on_subscribe_is_running(around):
    gate = Gate()
    puppet = Puppet(greets=False)
    case = Case(puppet, Probe(then=stop_at(gate, "subscribe")), around=around)
    with held(gate, case.to.on_subscribe, case.wire):
        # There is no demand either; the guard holds the element back because of that.
        case.to.on_next("a")
    assert case.rules == ["1.3", "1.1"]
    assert case.probe.shape == ["subscribe", "§1.1"]


def test_1_3_threads_that_take_turns_are_legal(around):
    case = Case(Puppet(), Probe(request=9), around=around)
    for element in "abc":
        elsewhere(case.to.on_next, element)
    elsewhere(case.to.on_complete)
    assert case.probe.signals == ["subscribe", "a", "b", "c", "complete"]
    assert case.rules == []


def test_1_3_the_mailbox_does_not_grow_beyond_demand(around):
    gate = Gate()
    case = Case(Puppet(), Probe(request=3, then=stop_at(gate, 0)), around=around)
    with held(gate, case.to.on_next, 0):
        for element in range(1, 10):
            case.to.on_next(element)
        assert case.wire.cancels == 1
    assert case.probe.shape == ["subscribe", 0, "§1.1"]
    assert case.rules == ["1.3", "1.3", "1.3", "1.1"]


def test_1_3_elements_left_behind_are_counted_once(around):
    case = Case(Puppet(), Probe(request=4), around=around)
    for first, second in ("ab", "cd"):
        gate = Gate()
        case.probe.then = stop_at(gate, first)
        with held(gate, case.to.on_next, first):
            case.to.on_next(second)
    assert case.probe.signals == ["subscribe", "a", "b", "c", "d"]
    assert case.rules == ["1.3", "1.3"]


class SlowTryLock(TryLock):
    """Stops a thread at the two moments at which a careless guard would lose a signal, or mix up two."""

    __slots__ = ("after_giving_back", "after_refusal")

    def __init__(self):
        super().__init__()
        self.after_giving_back = self.after_refusal = None

    def take(self, *, anonymously=False):
        taken = super().take(anonymously=anonymously)
        if not taken and self.after_refusal:
            gate, self.after_refusal = self.after_refusal, None
            gate.stop()
        return taken

    def give_back(self):
        super().give_back()
        if self.after_giving_back:
            gate, self.after_giving_back = self.after_giving_back, None
            gate.stop()


def test_1_3_a_thread_does_not_overtake_what_it_left_behind(around):
    taking, leaving = Gate(), Gate()
    case = Case(Puppet(), Probe(request=9, then=stop_at(taking, "a")), around=around)
    case.to._turn = SlowTryLock()
    case.to._turn.after_giving_back = leaving
    with held(taking, case.to.on_next, "a"):
        case.to.on_next("b")
        taking.opened.set()
        assert leaving.reached.wait(PATIENCE)
        # The first thread has given the turn back, but has not looked into the mailbox yet.
        case.to.on_next("c")
        leaving.opened.set()
    assert case.probe.signals == ["subscribe", "a", "b", "c"]


def test_1_3_a_thread_that_left_something_behind_looks_after_it(around):
    taking, refused = Gate(), Gate()
    case = Case(Puppet(), Probe(request=9, then=stop_at(taking, "a")), around=around)
    case.to._turn = SlowTryLock()
    with ThreadPoolExecutor(1) as pool:
        with held(taking, case.to.on_next, "a"):
            case.to._turn.after_refusal = refused
            second = pool.submit(case.to.on_next, "b")
            assert refused.reached.wait(PATIENCE)
        # The first thread is gone, and the second has not left its element yet.
        assert case.probe.signals == ["subscribe", "a"]
        refused.opened.set()
        second.result(PATIENCE)
    assert case.probe.signals == ["subscribe", "a", "b"]


def test_1_3_a_crowd_of_threads(around):
    lonely, crowd, each = Lonely(), 4, 2_000

    def take(probe, signal):
        with lonely.alone():
            pass

    case = Case(Puppet(), Probe(request=UNBOUNDED, then=take), around=around)

    def send(sender):
        for i in range(each):
            case.to.on_next((sender, i))

    together(*[partial(send, sender) for sender in range(crowd)])
    case.to.on_complete()
    first, *elements, last = case.probe.signals
    assert (first, last) == ("subscribe", "complete")
    assert not lonely.met
    assert len(elements) == crowd * each
    for sender in range(crowd):  # nobody overtakes himself
        assert [i for who, i in elements if who == sender] == list(range(each))
    assert set(case.rules) <= {"1.3"}


def test_3_9_waits_until_the_element_is_taken():
    gate = Gate()
    case = Case(Puppet(), Probe(request=9, then=stop_at(gate, "a")), around="publisher")
    with held(gate, case.to.on_next, "a"):
        case.probe.subscription.request(0)
        assert case.wire.cancels == 1
        assert case.probe.signals == ["subscribe", "a"]
    assert case.probe.shape == ["subscribe", "a", "§3.9"]
    assert case.rules == ["3.9"]


def test_3_9_the_answer_of_the_guard_is_no_overlap_of_the_publisher():
    # The Publisher sends an element while the guard itself is sending the violation: nobody is to blame.
    gate = Gate()
    case = Case(
        Puppet(),
        Probe(request=9, then=lambda probe, s: gate.stop() if s == "error" else None),
        around="publisher",
    )
    with held(gate, case.probe.subscription.request, 0):
        case.to.on_next("a")
        case.to.on_complete()
    assert case.probe.shape == ["subscribe", "§3.9"]
    assert case.rules == ["3.9"]


def test_2_7_a_request_while_another_is_being_served():
    gate = Gate()
    puppet = Puppet(Wire(on_request=lambda n: gate.stop() if n == 1 else None))
    case = Case(puppet, Probe(), around="subscriber")
    with held(gate, case.probe.subscription.request, 1):
        case.probe.subscription.request(2)
        case.probe.subscription.request(3)
        assert case.rules == ["2.7", "2.7"]
        assert case.wire.requests == [1]
    assert case.wire.requests == [1, 5]


def test_2_7_the_guard_around_a_publisher_only_puts_requests_in_order():
    gate = Gate()
    puppet = Puppet(Wire(on_request=lambda n: gate.stop() if n == 1 else None))
    case = Case(puppet, Probe(), around="publisher")
    with held(gate, case.probe.subscription.request, 1):
        case.probe.subscription.request(2)
    assert case.wire.requests == [1, 2]
    assert case.rules == []


def test_2_7_threads_that_take_turns_are_legal():
    case = Case(Puppet(), Probe(), around="subscriber")
    for n in (1, 2, 3):
        elsewhere(case.probe.subscription.request, n)
    assert case.wire.requests == [1, 2, 3]
    assert case.rules == []


def test_3_5_a_cancellation_does_not_wait_for_a_request(around):
    gate = Gate()
    puppet = Puppet(Wire(on_request=lambda n: gate.stop()))
    case = Case(puppet, Probe(), around=around)
    with held(gate, case.probe.subscription.request, 1):
        case.probe.subscription.cancel()
        assert case.wire.cancels == 1
    assert case.rules == []


def test_3_8_a_crowd_of_requests(around):
    lonely, crowd, each = Lonely(), 4, 2_000

    def serve(n):
        with lonely.alone():
            pass

    case = Case(Puppet(Wire(on_request=serve)), Probe(), around=around)

    def ask():
        for _ in range(each):
            case.probe.subscription.request(1)

    together(*[ask] * crowd)
    assert sum(case.wire.requests) == crowd * each
    assert not lonely.met
    assert set(case.rules) <= ({"2.7"} if around == "subscriber" else set())


def test_3_7_a_crowd_of_cancellations(around):
    for _ in range(50):
        case = Case(Puppet(), Probe(request=1), around=around)
        together(*[case.probe.subscription.cancel] * 4)
        assert case.wire.cancels == 1
        assert case.rules == []


def test_the_end_a_cancellation_and_an_illegal_request_race():
    for _ in range(100):
        case = Case(Puppet(), Probe(request=5), around="publisher")

        def publish(case=case):
            case.to.on_next("a")
            case.to.on_complete()

        together(
            publish, lambda case=case: case.probe.subscription.request(0), case.probe.subscription.cancel
        )
        seen = case.probe.shape
        assert seen in [
            ["subscribe"],
            ["subscribe", "a"],
            ["subscribe", "complete"],
            ["subscribe", "a", "complete"],
            ["subscribe", "§3.9"],
            ["subscribe", "a", "§3.9"],
        ]
        assert case.wire.cancels == (0 if "complete" in seen else 1)
        assert set(case.rules) <= {"3.9"}


def test_2_3_only_the_thread_that_ends_is_meant():
    # Another thread may be asking for more when the end comes; it cannot know.
    gate = Gate()
    case = Case(Puppet(), Probe(request=1, then=stop_at(gate, "complete")), around="subscriber")
    with held(gate, case.to.on_complete):
        case.probe.subscription.request(1)
        case.probe.subscription.cancel()
    assert case.rules == []
    assert (case.wire.requests, case.wire.cancels) == ([1], 0)


def test_no_request_is_forgotten_between_two_threads():
    """Publisher and Subscriber on a thread of their own, one element at a time: a lost request would hang."""
    count, found = 5_000, []
    finished = threading.Event()
    publishing, consuming = ThreadPoolExecutor(1), ThreadPoolExecutor(1)

    class Counting:
        def subscribe(self, subscriber):
            self.sent = 0

            def send(n):
                for _ in range(n):
                    if self.sent == count:
                        subscriber.on_complete()
                        return
                    self.sent += 1
                    subscriber.on_next(self.sent)

            subscriber.on_subscribe(Wire(on_request=lambda n: publishing.submit(send, n)))

    def habit(probe, signal):
        if signal == "complete":
            finished.set()
        else:
            consuming.submit(probe.subscription.request, 1)

    probe = Probe(then=habit)
    with publishing, consuming:
        strict(Counting(), found.append).subscribe(strict(probe, found.append))
        assert finished.wait(PATIENCE)
    assert probe.signals == ["subscribe", *range(1, count + 1), "complete"]
    assert found == []


def test_1_10_the_same_subscriber_from_two_threads_at_once():
    found, guarded = [], strict(Puppet(), lambda violation: found.append(violation.rule))
    for attempt in range(1, 51):
        probe = Probe()
        together(*[partial(guarded.subscribe, probe)] * 2)
        assert probe.signals == ["subscribe"]
        assert found == ["1.10"] * attempt

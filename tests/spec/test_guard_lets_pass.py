"""What is legal passes the guard without a word, however odd it looks; and the guard's own manners."""

import gc
import logging
import threading
import weakref

import pytest

from penstock.spec import Processor, Publisher, RuleViolation, Subscriber, Subscription, strict
from tests.spec.rigs import Case, Probe, Puppet, Wire


@pytest.fixture(params=["publisher", "subscriber"])
def around(request):
    return request.param


def ask_again(probe, signal):
    if signal == "next":
        probe.subscription.request(1)


def test_a_whole_stream(around):
    case = Case(Puppet(), Probe(request=2), around=around)
    case.to.on_next("a")
    case.to.on_next("b")
    case.probe.subscription.request(5)
    case.to.on_next("c")
    case.to.on_complete()
    assert case.probe.signals == ["subscribe", "a", "b", "c", "complete"]
    assert case.wire.requests == [2, 5]
    assert case.wire.cancels == 0
    assert case.rules == []


def test_an_error_arrives_as_the_same_object(around):
    case = Case(Puppet(), Probe(), around=around)
    error = OSError()
    case.to.on_error(error)
    assert case.probe.signals[1] is error
    assert case.rules == []


def test_falsy_elements_are_elements(around):
    case = Case(Puppet(), Probe(request=9), around=around)
    for element in (0, "", False, [], 0.0):
        case.to.on_next(element)
    assert case.probe.signals == ["subscribe", 0, "", False, [], 0.0]
    assert case.rules == []


def test_3_9_any_whole_number_may_be_requested(around):
    class Whole:
        def __index__(self):
            return 3

    case = Case(Puppet(), Probe(), around=around)
    case.probe.subscription.request(Whole())
    assert case.wire.requests == [3]
    assert case.rules == []


def test_1_2_the_end_needs_no_demand(around):
    case = Case(Puppet(), Probe(), around=around)
    case.to.on_complete()
    assert case.probe.signals == ["subscribe", "complete"]
    assert case.rules == []


def test_1_8_signals_that_cross_a_cancellation(around):
    case = Case(Puppet(), Probe(request=5), around=around)
    case.probe.subscription.cancel()
    case.to.on_next("a")
    case.to.on_next("b")
    case.to.on_error(OSError())
    assert case.probe.signals == ["subscribe"]
    assert case.rules == []


def test_1_9_a_publisher_that_takes_its_time(around):
    case = Case(Puppet(greets=False), Probe(request=1), around=around)
    assert case.probe.signals == []
    case.to.on_subscribe(case.wire)
    case.to.on_next("a")
    assert case.probe.signals == ["subscribe", "a"]
    assert case.rules == []


@pytest.mark.parametrize(
    ("habit", "expected"),
    [({"request": 3}, ["subscribe", 0, 1, 2]), ({"request": 1, "then": 4}, ["subscribe", 0, 0, 0, 0])],
    ids=["asked in on_subscribe", "asked in on_next"],
)
def test_3_2_and_3_10_a_synchronous_publisher(around, habit, expected):
    puppet = Puppet(Wire(on_request=lambda n: [puppet.to.on_next(i) for i in range(n)]))
    probe = Probe(habit["request"], ask_first(habit.get("then", 0)))
    case = Case(puppet, probe, around=around)
    assert case.probe.signals == expected
    assert case.rules == []


def ask_first(count):
    """Return a habit of asking for one more until `count` elements have come."""

    def then(probe, signal):
        if signal == "next" and len(probe.signals) <= count:
            probe.subscription.request(1)

    return then


def test_3_3_an_endless_synchronous_publisher_can_be_left(around):
    class Endless(Puppet):
        def __init__(self):
            super().__init__(Wire(self.run, self.stop))
            self.going = True

        def run(self, n):
            while self.going:
                self.to.on_next("a")

        def stop(self):
            self.going = False

    def leave_at_100(probe, signal):
        if len(probe.signals) == 100:
            probe.subscription.cancel()

    case = Case(Endless(), Probe(request=2**63 - 1, then=leave_at_100), around=around)
    assert len(case.probe.signals) == 100
    assert case.wire.cancels == 1
    assert case.rules == []


def test_3_8_requests_add_up_and_none_is_lost(around):
    def ask_three_times(probe, signal):
        if signal == "subscribe":
            for n in (1, 2, 3):
                probe.subscription.request(n)

    case = Case(Puppet(), Probe(then=ask_three_times), around=around)
    case.probe.subscription.request(4)
    assert sum(case.wire.requests) == 10


def test_3_11_the_end_inside_a_request_inside_an_element(around):
    def answer(n):
        if len(puppet.wire.requests) == 1:
            puppet.to.on_next("a")
        else:
            puppet.to.on_complete()

    puppet = Puppet(Wire(on_request=answer))
    case = Case(puppet, Probe(request=1, then=ask_again), around=around)
    assert case.probe.signals == ["subscribe", "a", "complete"]
    assert case.rules == []


def test_signals_sent_from_inside_a_signal_keep_their_order(around):
    # A source that user code can push into, such as a sink, may be pushed from inside on_next.
    def push(probe, signal):
        if signal == "next" and len(probe.signals) == 2:
            case.to.on_next("b")
            case.to.on_complete()
            probe.signals.append("end of a")

    case = Case(Puppet(), Probe(request=9, then=push), around=around)
    case.to.on_next("a")
    assert case.probe.signals == ["subscribe", "a", "end of a", "b", "complete"]
    assert case.rules == []


def test_3_6_and_3_7_after_a_cancellation_nothing_goes_through(around):
    case = Case(Puppet(), Probe(request=2), around=around)
    for _ in range(3):
        case.probe.subscription.cancel()
        case.probe.subscription.request(1)
        case.probe.subscription.request(-1)
    assert (case.wire.requests, case.wire.cancels) == ([2], 1)
    assert case.probe.signals == ["subscribe"]
    assert case.rules == []


def test_3_13_the_subscriber_can_be_collected_though_the_publisher_keeps_the_guard(around):
    case = Case(Puppet(), Probe(request=2), around=around)
    watched = weakref.ref(case.probe)
    case.probe.subscription.cancel()
    case.probe = None
    gc.collect()
    assert case.to is not None
    assert watched() is None


def test_a_guard_that_everybody_forgot_is_collected():
    puppet, probe = Puppet(), Probe()
    guarded = strict(puppet)
    guarded.subscribe(probe)
    watched = weakref.ref(probe)
    puppet.to = probe = None
    gc.collect()
    assert watched() is None


def test_guards_are_of_the_same_kind():
    class Stage(Probe, Puppet):
        def __init__(self):
            Probe.__init__(self)
            Puppet.__init__(self)

    assert isinstance(strict(Puppet()), Publisher)
    assert not isinstance(strict(Puppet()), Subscriber)
    assert isinstance(strict(Probe()), Subscriber)
    assert not isinstance(strict(Probe()), Publisher)
    assert not isinstance(strict(Probe()), Subscription)
    assert isinstance(strict(Stage()), Processor)


def test_guarding_twice_is_guarding_once():
    for guarded in (strict(Puppet()), strict(Probe())):
        assert strict(guarded) is guarded
    assert repr(strict(Puppet())) == "strict(Puppet)"


def test_both_sides_may_be_guarded():
    puppet, probe, found = Puppet(), Probe(request=1), []
    strict(puppet, found.append).subscribe(strict(probe, found.append))
    puppet.to.on_next("a")
    puppet.to.on_complete()
    assert probe.signals == ["subscribe", "a", "complete"]
    assert puppet.wire.requests == [1]
    assert found == []


@pytest.mark.parametrize("wrong", [None, 3, "text", object()])
def test_only_the_interfaces_can_be_guarded(wrong):
    with pytest.raises(TypeError, match="Publisher"):
        strict(wrong)


@pytest.mark.parametrize("type_", [Probe, Puppet])
def test_a_class_cannot_be_guarded(type_):
    with pytest.raises(TypeError, match=rf"write {type_.__name__}\(\.\.\.\)"):
        strict(type_)


class TestProcessor:
    class Doubling(Puppet, Probe):
        """Doubles its elements; sends a surplus one for `13`, and fails for text."""

        def __init__(self):
            Puppet.__init__(self, Wire(on_request=lambda n: self.subscription.request(n)))
            Probe.__init__(self)

        def on_next(self, element):
            self.to.on_next(element + element if element != "text" else 1 / 0)
            if element == 13:
                self.to.on_next("surplus")

        def on_complete(self):
            self.to.on_complete()

    def stage(self):
        self.found = []
        guarded = strict(self.Doubling(), self.found.append)
        self.source, self.probe = Puppet(), Probe(request=2)
        self.source.subscribe(guarded)
        guarded.subscribe(self.probe)
        return self.source.to

    def rules(self):
        return [violation.rule for violation in self.found]

    def test_4_1_a_legal_stream_goes_through(self):
        into = self.stage()
        into.on_next(1)
        into.on_next(2)
        into.on_complete()
        assert self.probe.signals == ["subscribe", 2, 4, "complete"]
        assert self.rules() == []

    def test_4_1_it_is_held_to_account_as_a_publisher(self):
        into = self.stage()
        into.on_next(1)
        into.on_next(13)
        assert self.probe.shape == ["subscribe", 2, 26, "§1.1"]
        assert self.rules() == ["1.1"]

    def test_4_1_it_is_held_to_account_as_a_subscriber(self):
        into = self.stage()
        into.on_next("text")
        assert self.rules() == ["2.13"]
        assert self.source.wire.cancels == 1

    def test_2_13_none_is_refused(self):
        into = self.stage()
        with pytest.raises(TypeError):
            into.on_next(None)


def logged_here(caplog):
    """What the guard has logged on this thread; what earlier tests have left behind may log on others."""
    me = threading.get_ident()
    return [record for record in caplog.records if record.thread == me and record.name == "penstock.spec"]


class TestReporting:
    def break_a_rule(self, report=None):
        puppet = Puppet()
        strict(puppet, report).subscribe(Probe())
        puppet.to.on_next("a")
        return puppet

    def test_by_default_violations_are_logged_with_their_rule(self, caplog):
        self.break_a_rule()
        [record] = logged_here(caplog)
        assert (record.name, record.levelno, record.rule) == ("penstock.spec", logging.ERROR, "1.1")
        assert record.getMessage().startswith("§1.1 violated: Puppet sent Probe element number 1")

    def test_the_exception_behind_a_violation_is_logged_too(self, caplog):
        strict(Puppet(Wire(on_cancel=lambda: 1 / 0))).subscribe(
            Probe(then=lambda probe, signal: probe.subscription.cancel())
        )
        [record] = logged_here(caplog)
        assert record.rule == "3.15"
        assert record.exc_info[0] is ZeroDivisionError

    def test_a_report_function_replaces_the_log(self, caplog):
        found = []
        self.break_a_rule(found.append)
        assert [type(violation) for violation in found] == [RuleViolation]
        assert logged_here(caplog) == []

    def test_a_report_function_that_raises_does_no_harm(self, caplog):
        def report(violation):
            raise OSError("disk full")

        puppet = self.break_a_rule(report)
        assert puppet.wire.cancels == 1
        assert [record.levelno for record in logged_here(caplog)] == [logging.ERROR, logging.ERROR]
        assert "disk full" in caplog.text
        assert "§1.1" in caplog.text

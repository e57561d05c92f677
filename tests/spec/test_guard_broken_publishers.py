"""For each rule that binds a Publisher, one that breaks it: it is named, and the Subscriber is safe.

Both guards check what comes from upstream, so every case is tried with either.
"""

import pytest

from penstock.spec import UNBOUNDED, NoneViolation, RuleViolation, strict
from tests.spec.rigs import Case, Probe, Puppet, Wire, raising


@pytest.fixture(params=["publisher", "subscriber"])
def around(request):
    return request.param


def test_1_1_more_than_was_requested(around):
    case = Case(Puppet(), Probe(request=2), around=around)
    for element in "abcd":
        case.to.on_next(element)
    assert case.probe.shape == ["subscribe", "a", "b", "§1.1"]
    assert case.rules == ["1.1"]
    assert case.wire.cancels == 1
    assert "element number 3, but only 2 had been requested" in str(case.violations[0])


def test_1_1_something_although_nothing_was_requested(around):
    case = Case(Puppet(), Probe(), around=around)
    case.to.on_next("a")
    assert case.probe.shape == ["subscribe", "§1.1"]
    assert case.rules == ["1.1"]


def test_1_1_a_publisher_that_counts_on_the_next_request(around):
    # It answers request(n) with n + 1 elements, and the Subscriber has asked again by the time the last one
    # comes. But the Publisher cannot know that yet.
    wire = Wire(on_request=lambda n: [puppet.to.on_next(i) for i in range(n + 1)])
    puppet = Puppet(wire)
    case = Case(puppet, Probe(then=lambda probe, signal: ask(probe, signal)), around=around)
    case.probe.subscription.request(1)
    assert case.probe.shape == ["subscribe", 0, "§1.1"]
    assert case.rules == ["1.1"]


def ask(probe, signal):
    if signal == "next":
        probe.subscription.request(1)


@pytest.mark.parametrize("first", ["on_complete", "on_error"])
@pytest.mark.parametrize("second", ["on_next", "on_complete", "on_error"])
def test_1_7_a_signal_after_the_end(around, first, second):
    case = Case(Puppet(), Probe(request=5), around=around)
    error = OSError()
    arguments = {"on_next": ["a"], "on_complete": [], "on_error": [error]}
    getattr(case.to, first)(*arguments[first])
    getattr(case.to, second)(*arguments[second])
    assert case.probe.shape == ["subscribe", "complete" if first == "on_complete" else error]
    assert case.rules == ["1.7"]
    assert second in case.violations[0].happened
    assert case.wire.cancels == 0


def test_1_7_even_when_the_subscriber_has_left(around):
    case = Case(Puppet(), Probe(request=5), around=around)
    case.probe.subscription.cancel()
    case.to.on_complete()
    assert case.rules == []
    case.to.on_next("a")
    assert case.rules == ["1.7"]
    assert case.probe.shape == ["subscribe"]


@pytest.mark.parametrize("signal", ["on_next", "on_complete", "on_error"])
def test_1_9_a_signal_before_on_subscribe(around, signal):
    case = Case(Puppet(greets=False), Probe(request=5), around=around)
    error = OSError("down")
    getattr(case.to, signal)(*{"on_next": ["a"], "on_complete": [], "on_error": [error]}[signal])
    assert case.probe.shape == ["subscribe", "§1.9"]
    assert case.rules == ["1.9"]
    assert signal in case.violations[0].happened
    assert case.violations[0].__cause__ is (error if signal == "on_error" else None)
    # The Subscription comes after all: it is sent back, and that is all.
    case.to.on_subscribe(case.wire)
    assert case.wire.cancels == 1
    assert case.wire.requests == []
    assert case.probe.shape == ["subscribe", "§1.9"]
    assert case.rules == ["1.9"]


def test_1_9_subscribe_raises_before_on_subscribe():
    class Refusing:
        def subscribe(self, subscriber):
            raise ConnectionError("no more seats")

    found, probe = [], Probe(request=1)
    strict(Refusing(), found.append).subscribe(probe)
    assert probe.shape == ["subscribe", "§1.9"]
    assert [violation.rule for violation in found] == ["1.9"]
    assert probe.signals[1] is found[0]
    assert isinstance(found[0].__cause__, ConnectionError)
    assert "Refusing.subscribe raised ConnectionError('no more seats')" in str(found[0])


def test_1_9_subscribe_raises_half_way():
    class Fragile(Puppet):
        def subscribe(self, subscriber):
            super().subscribe(subscriber)
            subscriber.on_next("a")
            raise OSError

    case = Case(Fragile(), Probe(request=2), around="publisher")
    assert case.probe.shape == ["subscribe", "a", "§1.9"]
    assert case.rules == ["1.9"]
    assert case.wire.cancels == 1


def test_1_9_subscribe_raises_after_the_end():
    class Sloppy(Puppet):
        def subscribe(self, subscriber):
            super().subscribe(subscriber)
            subscriber.on_complete()
            raise OSError

    case = Case(Sloppy(), Probe(), around="publisher")
    assert case.probe.shape == ["subscribe", "complete"]
    assert case.rules == ["1.9"]


def test_1_9_nobody_to_subscribe_is_raised_at_the_caller():
    found = []
    guarded = strict(Puppet(), found.append)
    with pytest.raises(NoneViolation, match=r"§1\.9"):
        guarded.subscribe(None)
    with pytest.raises(TypeError, match="on_next"):
        guarded.subscribe(object())
    assert found == []


def test_1_9_an_interrupt_is_not_a_refusal():
    class Interrupted:
        def subscribe(self, subscriber):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        strict(Interrupted()).subscribe(Probe())


def test_1_10_the_same_subscriber_twice():
    found, probe, puppet = [], Probe(), Puppet()
    guarded = strict(puppet, found.append)
    guarded.subscribe(probe)
    first = puppet.to
    guarded.subscribe(probe)
    assert puppet.to is first
    assert probe.shape == ["subscribe"]
    assert [violation.rule for violation in found] == ["1.10"]


def test_1_10_is_not_held_against_one_that_has_left():
    found, probe, puppet = [], Probe(), Puppet()
    guarded = strict(puppet, found.append)
    guarded.subscribe(probe)
    probe.subscription.cancel()
    guarded.subscribe(probe)
    puppet.to.on_complete()
    guarded.subscribe(probe)
    assert probe.shape == ["subscribe", "subscribe", "complete", "subscribe"]
    assert found == []


def test_2_12_a_second_subscription(around):
    case = Case(Puppet(), Probe(request=3), around=around)
    second = Wire()
    case.to.on_subscribe(second)
    case.to.on_next("a")
    case.to.on_complete()
    assert case.probe.shape == ["subscribe", "a", "complete"]
    assert case.rules == ["2.12"]
    assert (second.requests, second.cancels) == ([], 1)
    assert (case.wire.requests, case.wire.cancels) == ([3], 0)


def test_2_12_a_second_subscription_after_the_end(around):
    case = Case(Puppet(), Probe(), around=around)
    case.to.on_complete()
    second = Wire()
    case.to.on_subscribe(second)
    assert case.probe.shape == ["subscribe", "complete"]
    assert case.rules == ["2.12"]
    assert second.cancels == 1


def test_2_12_the_same_subscription_again_is_not_taken_away(around):
    case = Case(Puppet(), Probe(request=3), around=around)
    case.to.on_subscribe(case.wire)
    case.to.on_next("a")
    assert case.probe.shape == ["subscribe", "a"]
    assert case.rules == ["2.12"]
    assert case.wire.cancels == 0


@pytest.mark.parametrize(
    "signal",
    [
        lambda to: to.on_next(None),
        lambda to: to.on_error(None),
        lambda to: to.on_error("a text"),
        lambda to: to.on_subscribe(None),
        lambda to: to.on_subscribe(object()),
    ],
)
@pytest.mark.parametrize("greets", [True, False])
def test_2_13_none_or_the_wrong_kind_is_raised_at_the_publisher_and_told_to_the_subscriber(
    around, signal, greets
):
    case = Case(Puppet(greets=greets), Probe(request=3), around=around)
    with pytest.raises(NoneViolation, match=r"§2\.13") as caught:
        signal(case.to)
    assert case.probe.signals == ["subscribe", caught.value]
    assert case.violations == [caught.value]
    assert case.wire.cancels == (1 if greets else 0)


def test_2_13_none_from_inside_subscribe_is_told_once():
    class Hollow(Puppet):
        def subscribe(self, subscriber):
            super().subscribe(subscriber)
            subscriber.on_next(None)

    case = Case(Hollow(), Probe(request=1), around="publisher")
    assert case.probe.shape == ["subscribe", "§2.13"]
    assert case.rules == ["2.13"]


@pytest.mark.parametrize("n", [0, -1, -(2**70), 1.5, "x", None, True])
def test_3_9_is_answered_by_the_guard_around_the_publisher(n):
    case = Case(Puppet(), Probe(), around="publisher")
    case.probe.subscription.request(n)
    assert case.probe.shape == ["subscribe", "§3.9"]
    assert case.rules == ["3.9"]
    assert (case.wire.requests, case.wire.cancels) == ([], 1)
    assert isinstance(case.probe.signals[1], ValueError)


def test_3_9_waits_for_the_signal_it_was_made_in():
    seen = []

    def ask_for_nothing(probe, signal):
        if signal == "next":
            probe.subscription.request(0)
            seen.append(list(probe.shape))

    case = Case(Puppet(), Probe(request=5, then=ask_for_nothing), around="publisher")
    case.to.on_next("a")
    assert seen == [["subscribe", "a"]]
    assert case.probe.shape == ["subscribe", "a", "§3.9"]


def test_3_15_cancel_raises(around):
    error = OSError("closed twice")
    case = Case(Puppet(Wire(on_cancel=raising(error))), Probe(request=1), around=around)
    case.probe.subscription.cancel()
    case.probe.subscription.cancel()
    assert case.rules == ["3.15"]
    assert case.violations[0].__cause__ is error
    assert case.probe.shape == ["subscribe"]


def test_3_16_request_raises(around):
    error = OSError("no line")
    case = Case(Puppet(Wire(on_request=raising(error))), Probe(), around=around)
    case.probe.subscription.request(1)
    assert case.probe.shape == ["subscribe", "§3.16"]
    assert case.rules == ["3.16"]
    assert case.probe.signals[1].__cause__ is error
    assert case.wire.cancels == 1


@pytest.mark.parametrize("requests", [[UNBOUNDED], [UNBOUNDED + 1], [2**200], [UNBOUNDED // 2, UNBOUNDED, 3]])
def test_3_17_demand_stays_at_its_limit(around, requests):
    def ask_for_much(probe, signal):
        if signal == "subscribe":
            for n in requests:
                probe.subscription.request(n)

    case = Case(Puppet(), Probe(then=ask_for_much), around=around)
    assert case.wire.requests == [UNBOUNDED]
    case.probe.subscription.request(UNBOUNDED)
    for _ in range(3):
        case.to.on_next("a")
    case.to.on_complete()
    assert case.probe.shape == ["subscribe", "a", "a", "a", "complete"]
    assert case.rules == []


def test_3_3_a_publisher_without_bound_on_its_recursion(around):
    count = 20_000  # far beyond what the stack could bear

    class Recursive(Puppet):
        def __init__(self):
            super().__init__(Wire(on_request=self.answer))
            self.sent = self.depth = self.deepest = 0

        def answer(self, n):
            self.depth += 1
            self.deepest = max(self.deepest, self.depth)
            for _ in range(n):
                self.sent += 1
                if self.sent > count:
                    self.to.on_complete()
                    break
                self.to.on_next(self.sent)
            self.depth -= 1

    puppet = Recursive()
    case = Case(puppet, Probe(request=1, then=ask), around=around)
    assert case.probe.signals == ["subscribe", *range(1, count + 1), "complete"]
    assert puppet.deepest == 1
    assert case.rules == []


def test_the_subscriber_is_told_before_anything_else_goes_on(around):
    # Elements that follow the broken one, on the same thread, have no chance to come in between.
    case = Case(Puppet(), Probe(request=1), around=around)
    case.to.on_next("a")
    case.to.on_next("b")
    assert isinstance(case.probe.signals[-1], RuleViolation)

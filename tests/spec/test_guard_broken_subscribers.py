"""For each rule that binds a Subscriber, one that breaks it: it is named, and the Publisher is safe."""

import pytest

from penstock.spec import NoneViolation, strict
from tests.spec.rigs import Case, Probe, Puppet, Wire, raising


def when(signal, act):
    """Return what a Probe does inside one kind of signal."""

    def then(probe, happening):
        if happening == signal:
            act(probe)

    return then


@pytest.mark.parametrize("around", ["publisher", "subscriber"])
@pytest.mark.parametrize("signal", ["subscribe", "next", "error", "complete"])
def test_2_13_a_signal_method_raises(around, signal):
    error = LookupError("lost")
    case = Case(Puppet(), Probe(request=9, then=when(signal, raising(error))), around=around)
    if signal == "next":
        case.to.on_next("a")
        case.to.on_next("b")
    elif signal == "error":
        case.to.on_error(OSError())
    elif signal == "complete":
        case.to.on_complete()
    assert case.rules == ["2.13"]
    assert case.violations[0].__cause__ is error
    assert f"Probe.on_{signal} raised LookupError('lost')" in str(case.violations[0])
    assert len(case.probe.signals) == (1 if signal == "subscribe" else 2)
    assert case.wire.cancels == (1 if signal in ("subscribe", "next") else 0)


@pytest.mark.parametrize("around", ["publisher", "subscriber"])
def test_2_13_a_subscriber_that_raised_hears_nothing_more(around):
    case = Case(Puppet(), Probe(request=9, then=when("next", raising(LookupError()))), around=around)
    case.to.on_next("a")
    case.to.on_next("b")
    case.to.on_error(OSError())
    assert case.probe.shape == ["subscribe", "a"]
    assert case.rules == ["2.13"]


@pytest.mark.parametrize("around", ["publisher", "subscriber"])
def test_2_13_an_interrupt_is_passed_on_after_the_cancellation(around):
    case = Case(Puppet(), Probe(request=9, then=when("next", raising(KeyboardInterrupt()))), around=around)
    with pytest.raises(KeyboardInterrupt):
        case.to.on_next("a")
    assert case.wire.cancels == 1
    # The guard is not stuck: later signals are dropped as after any cancellation.
    case.to.on_next("b")
    case.to.on_complete()
    assert case.probe.shape == ["subscribe", "a"]


def test_2_13_none_is_raised_at_whoever_passes_it():
    guarded = strict(Probe(), report=lambda violation: None)
    with pytest.raises(NoneViolation):
        guarded.on_subscribe(None)
    with pytest.raises(NoneViolation):
        guarded.on_next(None)
    with pytest.raises(NoneViolation):
        guarded.on_error(None)


@pytest.mark.parametrize("end", ["error", "complete"])
@pytest.mark.parametrize("call", ["request", "cancel"])
def test_2_3_the_subscription_is_used_at_the_end(end, call):
    def use(probe):
        getattr(probe.subscription, call)(*([1] if call == "request" else []))

    case = Case(Puppet(), Probe(request=2, then=when(end, use)), around="subscriber")
    if end == "error":
        case.to.on_error(OSError())
    else:
        case.to.on_complete()
    assert case.rules == ["2.3"]
    assert f"called {call}" in case.violations[0].happened
    assert (case.wire.requests, case.wire.cancels) == ([2], 0)


@pytest.mark.parametrize("around", ["publisher", "subscriber"])
def test_2_4_what_follows_the_end_goes_nowhere(around):
    case = Case(Puppet(), Probe(request=2), around=around)
    case.to.on_complete()
    case.probe.subscription.request(1)
    case.probe.subscription.request(0)
    case.probe.subscription.cancel()
    assert (case.wire.requests, case.wire.cancels) == ([2], 0)
    assert case.rules == []


def test_2_5_is_done_for_a_subscriber_that_would_not():
    class Naive(Probe):
        """Takes whatever Subscription comes last."""

    first, second, found = Wire(), Wire(), []
    guarded = strict(Naive(request=1), found.append)
    guarded.on_subscribe(first)
    guarded.on_subscribe(second)
    assert (first.requests, first.cancels) == ([1], 0)
    assert (second.requests, second.cancels) == ([], 1)
    assert [violation.rule for violation in found] == ["2.12"]


@pytest.mark.parametrize("around", ["publisher", "subscriber"])
def test_2_5_the_second_subscription_raises_from_cancel(around):
    case = Case(Puppet(), Probe(request=1), around=around)
    case.to.on_subscribe(Wire(on_cancel=raising(OSError())))
    case.to.on_next("a")
    assert case.rules == ["2.12", "3.15"]
    assert case.probe.shape == ["subscribe", "a"]


@pytest.mark.parametrize("n", [0, -3, "x"])
def test_3_9_around_a_subscriber_is_reported_and_left_to_the_publisher(n):
    case = Case(Puppet(), Probe(), around="subscriber")
    case.probe.subscription.request(n)
    assert case.rules == ["3.9"]
    assert (case.wire.requests, case.wire.cancels) == ([n], 0)
    assert case.probe.shape == ["subscribe"]
    answer = ValueError("§3.9")
    case.to.on_error(answer)
    assert case.probe.signals == ["subscribe", answer]
    assert case.rules == ["3.9"]


def test_3_9_answered_within_the_signal_in_which_it_was_asked():
    answer = ValueError("§3.9")
    wire = Wire(on_request=lambda n: puppet.to.on_error(answer) if n < 1 else None)
    puppet = Puppet(wire)
    probe = Probe(request=1, then=when("next", lambda probe: probe.subscription.request(0)))
    case = Case(puppet, probe, around="subscriber")
    case.to.on_next("a")
    assert case.probe.signals == ["subscribe", "a", answer]
    assert case.rules == ["3.9"]


def test_the_guard_around_the_publisher_leaves_the_subscribers_habits_alone():
    # 2.3 is between a Subscriber and its own guard; the Publisher is not harmed by it.
    case = Case(
        Puppet(), Probe(then=when("complete", lambda probe: probe.subscription.cancel())), around="publisher"
    )
    case.to.on_complete()
    assert case.rules == []
    assert case.wire.cancels == 0

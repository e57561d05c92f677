"""Whatever the two sides do, the guard lets a legal stream through; and a legal one it leaves unchanged."""

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.spec import UNBOUNDED, NoneViolation, strict
from tests.spec.rigs import Puppet, Wire

SENDING = st.sampled_from(
    [
        "subscribe",
        "subscribe again",
        "subscribe None",
        "next",
        "next",
        "next",
        "next None",
        "error",
        "complete",
    ]
)
ASKING = st.sampled_from([-1, 0, 1, 1, 2, 3, UNBOUNDED, "x", "cancel"])
ACTS = st.one_of(st.tuples(st.just("send"), SENDING), st.tuples(st.just("ask"), ASKING))


class WildSubscriber:
    """Uses its Subscription, and raises, as its script says; notices whatever it should never have seen."""

    def __init__(self, script, raises_at):
        self.grammar = ""
        self.wrong = []
        self.allowed = 0
        self.subscription = None
        self._script = script
        self._raises_at = raises_at
        self._inside = False

    def ask(self, what):
        if self.subscription is None:
            return
        if what == "cancel":
            self.subscription.cancel()
            return
        if isinstance(what, int) and what > 0:
            self.allowed += what
        self.subscription.request(what)

    def _signal(self, letter):
        if self._inside:
            self.wrong.append(f"{letter} inside of {self.grammar[-1]}")
        self._inside = True
        try:
            self.grammar += letter
            if len(self.grammar) == self._raises_at:
                raise LookupError
            for what in self._script.pop(0) if self._script else []:
                self.ask(what)
        finally:
            self._inside = False

    def on_subscribe(self, subscription):
        self.subscription = subscription
        self._signal("s")

    def on_next(self, element):
        if element is None:
            self.wrong.append("None")
        if self.allowed <= 0:
            self.wrong.append("beyond demand")
        self.allowed -= 1
        self._signal("n")

    def on_error(self, error):
        if not isinstance(error, BaseException):
            self.wrong.append("no exception")
        self._signal("e")

    def on_complete(self):
        self._signal("c")

    def check(self):
        assert self.wrong == []
        body = self.grammar.removeprefix("s").rstrip("ec")
        assert self.grammar == "" or self.grammar[0] == "s"
        assert set(body) <= {"n"}
        assert len(self.grammar) - 1 - len(body) <= 1


class WildWire(Wire):
    """A Subscription that answers a request with whatever signals its script says, and may raise."""

    def __init__(self, send, script):
        super().__init__(on_request=self.answer, on_cancel=self.answer)
        self._send = send
        self._script = script

    def answer(self, n=0):
        for what in self._script.pop(0) if self._script else []:
            if what == "raise":
                raise OSError
            self._send(what)


def conversation(around, acts, answers, habits, raises_at):
    """Play a wild conversation through a guard; return the Subscriber, the wire and the reported rules."""
    rules = []
    puppet = Puppet(greets=False)
    subscriber = WildSubscriber(habits, raises_at)
    others = []

    def send(what):
        to = puppet.to
        try:
            if what == "subscribe":
                to.on_subscribe(wire)
            elif what == "subscribe again":
                others.append(Wire())
                to.on_subscribe(others[-1])
            elif what == "subscribe None":
                to.on_subscribe(None)
            elif what == "next":
                to.on_next("element")
            elif what == "next None":
                to.on_next(None)
            elif what == "error":
                to.on_error(OSError())
            else:
                to.on_complete()
        except NoneViolation:
            assert what.endswith("None")

    def report(violation):
        rules.append(violation.rule)

    wire = WildWire(send, answers)
    if around == "publisher":
        strict(puppet, report).subscribe(subscriber)
    else:
        puppet.subscribe(strict(subscriber, report))
    for kind, what in acts:
        if kind == "send":
            send(what)
        else:
            subscriber.ask(what)
    return subscriber, wire, others, rules


@given(
    around=st.sampled_from(["publisher", "subscriber"]),
    acts=st.lists(ACTS, max_size=12),
    answers=st.lists(st.lists(SENDING | st.just("raise"), max_size=4), max_size=6),
    habits=st.lists(st.lists(ASKING, max_size=3), max_size=8),
    raises_at=st.integers(0, 8),
)
@settings(max_examples=400, deadline=None)
def test_the_subscriber_sees_a_legal_stream_whatever_happens(around, acts, answers, habits, raises_at):
    subscriber, wire, others, rules = conversation(around, acts, answers, habits, raises_at)
    subscriber.check()
    if around == "publisher":
        assert all(1 <= n <= UNBOUNDED for n in wire.requests)
    # One Subscription at most is used; a surplus one is only ever cancelled.
    used = [other for other in others if other.requests]
    assert len(used) + bool(wire.requests) <= 1
    assert set(rules) <= {"1.1", "1.7", "1.9", "2.3", "2.12", "2.13", "3.9", "3.15", "3.16"}


@given(
    around=st.sampled_from(["publisher", "subscriber"]),
    size=st.integers(0, 20),
    ending=st.sampled_from(["complete", "error", "none"]),
    portions=st.lists(st.integers(1, 5), max_size=12),
    from_inside=st.booleans(),
    synchronous=st.booleans(),
    leaves_after=st.none() | st.integers(0, 10),
)
@settings(max_examples=300, deadline=None)
def test_a_legal_stream_passes_unchanged_and_silently(
    around, size, ending, portions, from_inside, synchronous, leaves_after
):
    rules = []
    failure = OSError()

    class Legal:
        """Sends what was requested: inside `request`, or when the test says so."""

        def __init__(self):
            self.demand = self.sent = self.cancelled = 0
            self.done = self.sending = False

        def subscribe(self, subscriber):
            self.to = subscriber
            subscriber.on_subscribe(Wire(self.request, self.cancel))
            self.run()

        def request(self, n):
            self.demand += n
            if synchronous:
                self.run()

        def cancel(self):
            self.cancelled += 1

        def run(self):
            if self.sending:
                return
            self.sending = True
            while self.sent < size and self.demand > 0 and not self.cancelled:
                self.demand -= 1
                self.sent += 1
                self.to.on_next(self.sent)
            if self.sent == size and not self.done and not self.cancelled and ending != "none":
                self.done = True
                if ending == "error":
                    self.to.on_error(failure)
                else:
                    self.to.on_complete()
            self.sending = False

    class Tidy:
        def __init__(self):
            self.signals = []
            self.asked = 0

        def on_subscribe(self, subscription):
            self.subscription = subscription
            self.signals.append("subscribe")
            self.next_step()

        def on_next(self, element):
            self.signals.append(element)
            self.next_step()

        def on_error(self, error):
            self.signals.append(error)

        def on_complete(self):
            self.signals.append("complete")

        def next_step(self):
            if leaves_after is not None and len(self.signals) > leaves_after:
                self.subscription.cancel()
            elif from_inside and portions:
                self.ask()

        def ask(self):
            n = portions.pop(0)
            self.asked += n
            self.subscription.request(n)

    publisher, subscriber = Legal(), Tidy()
    if around == "publisher":
        strict(publisher, lambda violation: rules.append(violation.rule)).subscribe(subscriber)
    else:
        publisher.subscribe(strict(subscriber, lambda violation: rules.append(violation.rule)))
    while portions and not publisher.done and not publisher.cancelled:
        subscriber.ask()
        publisher.run()
    publisher.run()

    assert rules == []
    elements = min(size, subscriber.asked)
    if leaves_after is not None:
        elements = min(elements, leaves_after)
    expected = ["subscribe", *range(1, elements + 1)]
    if publisher.done:
        expected.append(failure if ending == "error" else "complete")
    assert subscriber.signals == expected
    assert publisher.done == (ending != "none" and elements == size and not publisher.cancelled)

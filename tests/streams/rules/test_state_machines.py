"""Random orders of request, cancel, element and end, against models made of plain lists."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.spec import UNBOUNDED
from penstock.streams import EmitResult, Flux, Sinks
from tests.streams.recording import Recorder

Pair = tuple[Callable[[Any], Any], Callable[[list[Any]], list[Any]]]


def pieces(xs: list[Any], n: int) -> list[Any]:
    return [xs[i : i + n] for i in range(0, len(xs), n)]


def number(x: Any) -> int:
    return x if isinstance(x, int) else sum(number(y) for y in x)


def copies(x: Any) -> list[Any]:
    return [x] * (number(x) % 3)


STEPS: list[Pair] = [
    (lambda f: f.map(lambda x: number(x) + 1), lambda xs: [number(x) + 1 for x in xs]),
    (lambda f: f.filter(lambda x: number(x) % 3), lambda xs: [x for x in xs if number(x) % 3]),
    (lambda f: f.take(4), lambda xs: xs[:4]),
    (lambda f: f.skip(2), lambda xs: xs[2:]),
    (lambda f: f.buffer(2), lambda xs: pieces(xs, 2)),
    (lambda f: f.flat_map_iterable(copies), lambda xs: [y for x in xs for y in copies(x)]),
    (lambda f: f.start_with(7), lambda xs: [7, *xs]),
    (lambda f: f.default_if_empty(9), lambda xs: xs or [9]),
    (lambda f: f.take_last(2), lambda xs: xs[-2:]),
    (lambda f: f.take_while(lambda x: number(x) < 12), lambda xs: _while(xs)),
    (lambda f: f.index(), lambda xs: list(enumerate(xs))),
]  # fmt: skip
CROSSING: list[Pair] = [
    (lambda f: f.limit_rate(2), lambda xs: xs),
    (lambda f: f.concat_map(lambda x: Flux.just(x)), lambda xs: xs),
    (lambda f: f.flat_map_sequential(lambda x: Flux.just(x), concurrency=2, prefetch=1), lambda xs: xs),
    (lambda f: f.flat_map(lambda x: Flux.just(x), concurrency=1, prefetch=1), lambda xs: xs),
    (lambda f: f.on_error_resume(lambda e: Flux.just(5), on=KeyError), lambda xs: xs),
    (lambda f: f.switch_if_empty(Flux.just(3)), lambda xs: xs or [3]),
    (lambda f: f.concat_with(Flux.just(8)), lambda xs: [*xs, 8]),
    (lambda f: f.cache(), lambda xs: xs),
    (lambda f: f.share(prefetch=2), lambda xs: xs),
]


def _while(xs: list[Any]) -> list[Any]:
    end = next((i for i, x in enumerate(xs) if number(x) >= 12), len(xs))
    return xs[:end]


class Hand:
    """A publisher that a test drives: it may send only what was asked for, and the test must see to that."""

    def __init__(self) -> None:
        self.requested = 0
        self.sent: list[Any] = []
        self.cancelled = self.ended = False
        self.subscriber: Any = None

    def subscribe(self, subscriber: Any, /) -> None:
        assert self.subscriber is None
        self.subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int, /) -> None:
        assert n > 0
        self.requested += n

    def cancel(self) -> None:
        self.cancelled = True

    @property
    def may_send(self) -> bool:
        return not self.ended and not self.cancelled and self.requested > len(self.sent)

    def send(self, x: Any) -> None:
        self.sent.append(x)
        self.subscriber.on_next(x)

    def end(self, error: BaseException | None = None) -> None:
        self.ended = True
        if error is None:
            self.subscriber.on_complete()
        else:
            self.subscriber.on_error(error)


Portions = st.integers(1, 5) | st.just(UNBOUNDED)


class Asking(RuleBasedStateMachine):
    """What all machines can do to a recorder."""

    recorder: Recorder
    left = False

    @rule(n=Portions)
    def request(self, n: int) -> None:
        before = self.recorder.terminated, len(self.recorder.items)
        self.recorder.request(n)
        if self.left or before[0]:
            assert len(self.recorder.items) == before[1]

    @precondition(lambda self: not self.left)
    @rule(really=st.integers(0, 5))
    def cancel(self, really: int) -> None:
        if not really:
            self.recorder.cancel()
            self.left = True

    @invariant()
    def the_rules_hold(self) -> None:
        if hasattr(self, "recorder"):
            self.recorder.check()


class PullingAList(Asking):
    """(a) A fused chain over a list: at every moment a prefix of what the list gives."""

    @initialize(
        numbers=st.lists(st.integers(0, 9), max_size=12), chain=st.lists(st.sampled_from(STEPS), max_size=5)
    )
    def start(self, numbers: list[int], chain: list[Pair]) -> None:
        flux, self.model = Flux.from_iterable(numbers), list(numbers)
        for on_stream, on_list in chain:
            flux, self.model = on_stream(flux), on_list(self.model)
        self.recorder = Recorder.of(flux)

    @rule()
    def compare(self) -> None:
        asked = self.recorder._requested
        if not self.left:
            assert self.recorder.items == self.model[:asked]
        assert self.recorder.items == self.model[: len(self.recorder.items)]

    def teardown(self) -> None:
        if hasattr(self, "recorder") and not self.left:
            self.recorder.request(UNBOUNDED)
            assert self.recorder.completed
            assert self.recorder.items == self.model


class Relaying(Asking):
    """(b) A hand-driven publisher through fused and crossing operators."""

    @initialize(
        chain=st.lists(st.sampled_from(STEPS + CROSSING), max_size=4), taken=st.none() | st.integers(0, 4)
    )
    def start(self, chain: list[Pair], taken: int | None) -> None:
        self.hand, self.taken = Hand(), taken
        self.chain = chain if taken is None else [(lambda f: f.take(taken), lambda xs: xs[:taken]), *chain]
        flux: Any = Flux.from_publisher(self.hand)
        for on_stream, _ in self.chain:
            flux = on_stream(flux)
        self.recorder = Recorder.of(flux)
        self.error: BaseException | None = None

    @precondition(lambda self: hasattr(self, "hand") and self.hand.may_send)
    @rule(x=st.integers(0, 9))
    def send(self, x: int) -> None:
        self.hand.send(x)

    @precondition(lambda self: hasattr(self, "hand") and self.hand.subscriber and not self.hand.ended)
    @rule(fails=st.booleans(), really=st.integers(0, 3))
    def end(self, fails: bool, really: int) -> None:
        if not really and not self.hand.cancelled:
            self.error = ValueError() if fails else None
            self.hand.end(self.error)

    @invariant()
    def take_never_asks_for_more(self) -> None:
        if hasattr(self, "hand") and self.taken is not None:
            assert self.hand.requested <= self.taken

    def model(self) -> list[Any]:
        model: list[Any] = list(self.hand.sent)
        for _, on_list in self.chain:
            model = on_list(model)
        return model

    def teardown(self) -> None:
        if not hasattr(self, "hand") or self.left:
            return
        self.recorder.request(UNBOUNDED)
        for x in range(30):
            if self.hand.may_send:
                self.hand.send(x % 10)
        if self.hand.subscriber is not None and not self.hand.ended and not self.hand.cancelled:
            self.hand.end()
        self.recorder.check()
        assert self.recorder.terminated
        if self.error is None:
            assert self.recorder.completed
            assert self.recorder.items == self.model()


class Multicasting(RuleBasedStateMachine):
    """(c) Subscribers come and go; each sees a contiguous run of the log from the oldest there was."""

    def __init__(self) -> None:
        super().__init__()
        self.sink = Sinks.multicast(4)
        self.emitted = 0
        self.ended = False
        self.recorders: list[Recorder] = []
        self.gone: list[Recorder] = []

    @rule()
    def join(self) -> None:
        self.recorders.append(Recorder.of(self.sink.flux().map(lambda x: x)))

    @rule(n=st.integers(1, 3), which=st.integers(0, 5))
    def ask(self, n: int, which: int) -> None:
        if self.recorders:
            self.recorders[which % len(self.recorders)].request(n)

    @rule(which=st.integers(0, 5))
    def leave(self, which: int) -> None:
        if self.recorders:
            self.gone.append(self.recorders.pop(which % len(self.recorders)).cancel())

    @rule()
    def emit(self) -> None:
        result = self.sink.try_emit(self.emitted)
        if result is EmitResult.OK:
            self.emitted += 1
        else:
            assert result is (EmitResult.TERMINATED if self.ended else EmitResult.OVERFLOW)

    @precondition(lambda self: not self.ended)
    @rule(really=st.integers(0, 8))
    def complete(self, really: int) -> None:
        if not really:
            assert self.sink.try_complete() is EmitResult.OK
            self.ended = True

    @invariant()
    def each_sees_a_contiguous_run(self) -> None:
        for recorder in self.recorders + self.gone:
            recorder.check()
            if recorder.items:
                first = recorder.items[0]
                assert recorder.items == list(range(first, first + len(recorder.items)))
                assert recorder.items[-1] < self.emitted

    def teardown(self) -> None:
        self.sink.try_complete()
        for recorder in self.recorders:
            recorder.request(UNBOUNDED)
            assert recorder.check().completed
            assert not recorder.items or recorder.items[-1] == self.emitted - 1


class Merging(Asking):
    """(d) Hand-driven publishers merged: order is kept, nothing is lost, queues are bounded."""

    @initialize(count=st.integers(1, 4), prefetch=st.integers(1, 3))
    def start(self, count: int, prefetch: int) -> None:
        self.hands = [Hand() for _ in range(count)]
        self.prefetch = prefetch
        self.recorder = Recorder.of(
            Flux.merge(*[Flux.from_publisher(hand) for hand in self.hands], prefetch=prefetch)
        )

    @precondition(lambda self: hasattr(self, "hands"))
    @rule(which=st.integers(0, 3))
    def send(self, which: int) -> None:
        index = which % len(self.hands)
        if self.hands[index].may_send:
            self.hands[index].send((index, len(self.hands[index].sent)))

    @precondition(lambda self: hasattr(self, "hands"))
    @rule(which=st.integers(0, 3), really=st.integers(0, 3))
    def end(self, which: int, really: int) -> None:
        hand = self.hands[which % len(self.hands)]
        if not really and not hand.ended and not hand.cancelled:
            hand.end()

    @invariant()
    def no_more_is_asked_than_may_wait(self) -> None:
        for index, hand in enumerate(getattr(self, "hands", ())):
            passed = sum(1 for source, _ in self.recorder.items if source == index)
            assert hand.requested <= passed + self.prefetch

    def teardown(self) -> None:
        if not hasattr(self, "hands") or self.left:
            return
        self.recorder.request(UNBOUNDED)
        for hand in self.hands:
            if not hand.ended:
                hand.end()
        assert self.recorder.check().completed
        for index, hand in enumerate(self.hands):
            assert [x for x in self.recorder.items if x[0] == index] == hand.sent


_SETTINGS = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestPullingAList = PullingAList.TestCase
TestRelaying = Relaying.TestCase
TestMulticasting = Multicasting.TestCase
TestMerging = Merging.TestCase
for _case in (TestPullingAList, TestRelaying, TestMulticasting, TestMerging):
    _case.settings = _SETTINGS
del _case  # unittest would collect it a second time

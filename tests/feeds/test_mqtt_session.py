"""The state of an MQTT session against a model of a broker: lines break and gateways die at every point."""

import json
from collections import deque
from dataclasses import dataclass

import mqtt5
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.feeds.mqtt_packets import LargeMessage, PacketCutter
from penstock.feeds.mqtt_session import HeldMessage, MqttSession, digest_of

RECEIVE_MAXIMUM = 3


@dataclass
class Sent:
    """A message that the broker has sent, and that is not finished."""

    packet_id: int
    number: int
    """Only the test can see it."""
    digest: str
    is_released: bool = False


class SessionMachine(RuleBasedStateMachine):
    """A broker that uses the smallest free id at once, and messages that mostly look the same.

    Both are allowed, and both make it hard to tell whether a message is known.
    """

    qos = 2
    window = RECEIVE_MAXIMUM
    most = RECEIVE_MAXIMUM

    def __init__(self) -> None:
        super().__init__()
        self.published = 0
        self.queue: deque[tuple[int, str]] = deque()
        """A message is its number and its digest."""
        self.sent: list[Sent] = []
        """The broker's messages in flight, oldest first."""
        self.down: deque[tuple[Sent, bool, bool]] = deque()
        """From the broker: the message, whether it is released, and whether it is repeated."""
        self.up: deque[bytes] = deque()
        self.session = MqttSession(self.most)
        self.mark = "{}"
        self.journal: list[int] = []
        self.deliveries: deque[tuple[list[int], str, list[HeldMessage], list[HeldMessage]]] = deque()
        """On their way to the journal: the records, the mark, and what the commit tells the session."""

    # ---------------------------------------------------------------- the broker
    @rule(digest=st.sampled_from("aab"))
    def publish(self, digest: str) -> None:
        self.queue.append((self.published, digest))
        self.published += 1
        self._send()

    def _send(self) -> None:
        while self.queue and len(self.sent) < self.window:
            self.sent.append(Sent(self._next_id(), *self.queue.popleft()))
            self.down.append((self.sent[-1], False, False))

    def _next_id(self) -> int:
        return min(set(range(1, 10)) - {message.packet_id for message in self.sent})

    @precondition(lambda self: self.up)
    @rule()
    def broker_reads(self) -> None:
        answer, _ = mqtt5.read(memoryview(self.up.popleft()))
        assert isinstance(answer, mqtt5.PubRecPacket | mqtt5.PubAckPacket | mqtt5.PubCompPacket)
        # The oldest one, if several have this id.
        message = next(it for it in self.sent if it.packet_id == answer.packet_id)
        if isinstance(answer, mqtt5.PubRecPacket):
            message.is_released = True
            self.down.append((message, True, False))
        else:
            assert message.is_released or self.qos == 1, "a protocol error"
            self.sent.remove(message)
        self._send()

    # ---------------------------------------------------------------- the feed
    @precondition(lambda self: self.down)
    @rule(count=st.integers(1, 4))
    def feed_reads(self, count: int) -> None:
        records: list[int] = []
        stored: list[HeldMessage] = []
        released: list[HeldMessage] = []
        for _ in range(min(count, len(self.down))):
            sent, is_released, is_repeated = self.down.popleft()
            if not is_released:
                message = self.session.receive(sent.packet_id, self.qos, is_repeated, sent.digest)
                if message is not None:
                    records.append(sent.number)
                    stored.append(message)
            elif (message := self.session.release(sent.packet_id)) is not None:
                released.append(message)
        if stored or released:
            self.deliveries.append((records, self.session.text(), stored, released))
        self._answer()

    @precondition(lambda self: self.deliveries)
    @rule()
    def commit(self) -> None:
        records, self.mark, stored, released = self.deliveries.popleft()
        self.journal += records
        self.session.commit(stored, released)
        self._answer()
        if self.session.is_overrun and self.session.is_finished:
            while self.up:  # What was written before the end of a connection arrives.
                self.broker_reads()
            self.line_breaks()

    def _answer(self) -> None:
        self.up += self.session.outgoing
        self.session.outgoing.clear()

    # ---------------------------------------------------------------- what goes wrong
    @rule()
    def line_breaks(self) -> None:
        self.session.disconnected()
        self._reconnect()

    @rule()
    def gateway_dies(self) -> None:
        self.deliveries.clear()
        self.session = MqttSession.of(self.mark, self.most)
        self._reconnect()

    def _reconnect(self) -> None:
        self.down.clear()
        self.up.clear()
        assert self.session.connected(is_present=True)
        self.down.extend((message, message.is_released, True) for message in self.sent)
        self._answer()

    # ---------------------------------------------------------------- what has to hold
    @invariant()
    def every_record_is_stored_once_and_in_order(self) -> None:
        assert self.journal == sorted(set(self.journal))

    @invariant()
    def what_the_broker_forgets_is_stored(self) -> None:
        kept = {message.number for message in self.sent if not message.is_released}
        waiting = {number for number, _ in self.queue}
        assert set(range(self.published)) - kept - waiting <= set(self.journal)

    @invariant()
    def what_is_remembered_is_bounded(self) -> None:
        assert len(json.loads(self.session.text())) <= RECEIVE_MAXIMUM

    @rule()
    def settle(self) -> None:
        """Everything that is under way arrives."""
        while self.up or self.down or self.deliveries:
            if self.down:
                self.feed_reads(4)
            if self.deliveries:
                self.commit()
            if self.up:
                self.broker_reads()

    def teardown(self) -> None:
        self.settle()
        assert sorted(set(self.journal)) == list(range(self.published))


class AtLeastOnceMachine(SessionMachine):
    """The same with QoS 1, where a message may be stored again after a line broke or a gateway died."""

    qos = 1

    @invariant()
    def every_record_is_stored_once_and_in_order(self) -> None:
        """It is not: a PUBACK may have been lost."""


class ConfusedBroker(SessionMachine):
    """Sends everything at once, and counts ids without a look at those that are in use: Mosquitto 2.0.11."""

    window = most = 1000

    def __init__(self) -> None:
        super().__init__()
        self.ids = 0

    def _next_id(self) -> int:
        self.ids += 1
        return self.ids % RECEIVE_MAXIMUM + 1


class GreedyBroker(ConfusedBroker):
    """The same, and the session takes less than there are ids."""

    most = RECEIVE_MAXIMUM - 1


class ConfusedBrokerAtLeastOnce(ConfusedBroker, AtLeastOnceMachine):
    """The same with QoS 1."""


TestExactlyOnce = pytest.mark.timeout(120)(SessionMachine.TestCase)
TestAtLeastOnce = pytest.mark.timeout(120)(AtLeastOnceMachine.TestCase)
TestConfused = pytest.mark.timeout(120)(ConfusedBroker.TestCase)
TestGreedy = pytest.mark.timeout(120)(GreedyBroker.TestCase)
TestConfusedAtLeastOnce = pytest.mark.timeout(120)(ConfusedBrokerAtLeastOnce.TestCase)
for machine, examples in (
    (SessionMachine, 80),
    (AtLeastOnceMachine, 50),
    (ConfusedBroker, 80),
    (GreedyBroker, 50),
    (ConfusedBrokerAtLeastOnce, 50),
):
    machine.TestCase.settings = settings(max_examples=examples, stateful_step_count=40, deadline=None)


def test_a_session_that_the_broker_has_lost_is_forgotten_in_the_journal_first() -> None:
    session = MqttSession.of('{"7": "ab"}')
    assert session.connected(is_present=False) is False
    assert session.text() == "{}"
    assert session.connected(is_present=False) is True


def test_an_id_that_a_restored_broker_uses_for_another_message_is_not_taken_for_known() -> None:
    session = MqttSession.of(json.dumps({"7": digest_of("t", b"one")}))
    session.connected(is_present=True)
    assert session.receive(7, 2, True, digest_of("t", b"one")) is None
    for is_repeated, payload in ((False, b"one"), (True, b"two")):
        session.disconnected()
        session.connected(is_present=True)
        assert session.receive(7, 2, is_repeated, digest_of("t", payload)) is not None
    assert not session.is_overrun


def test_a_message_with_an_id_that_is_in_use_and_those_after_it_wait_for_a_new_connection() -> None:
    session = MqttSession()
    first = session.receive(7, 2, False, "first")
    assert first is not None
    assert [session.receive(number, 2, False, "later") for number in (7, 8)] == [None, None]
    assert session.is_overrun
    session.commit([first], [])
    assert not session.is_finished
    assert session.release(7) is first
    session.commit([], [first])
    assert session.is_finished
    assert session.outgoing == [mqtt5.PubRecPacket(7).write(), mqtt5.PubCompPacket(7).write()]
    session.disconnected()
    session.connected(is_present=True)
    assert all(session.receive(number, 2, True, "later") for number in (7, 8))


def test_a_mark_that_is_not_one_is_an_error() -> None:
    for text in ("", "[]", "{'a': 1}", '{"x": "y"}'):
        with pytest.raises(ValueError, match="ids of an MQTT session"):
            MqttSession.of(text)


def cut(data: bytes, sizes: list[int], longest: int) -> list[object]:
    cutter, at = PacketCutter(longest), 0
    found: list[object] = []
    for size in (*sizes, len(data)):
        found += cutter.feed(data[at : at + size])
        at += size
    return found


@pytest.mark.parametrize("sizes", [[], [1] * 400, [3, 1, 7, 250, 2], [300_000] * 9])
def test_packets_are_cut_wherever_the_chunks_end_and_large_ones_are_discarded(sizes: list[int]) -> None:
    payloads = [b"", b"x" * 200, b"y" * 1_000_000, b"z"]
    data = b"".join(
        mqtt5.PublishPacket("a/b", payload, qos=mqtt5.QoS(number % 3), packet_id=number or None).write()
        for number, payload in enumerate(payloads)
        if number != 3
    )
    data += mqtt5.PingRespPacket().write()
    found = cut(data, sizes, longest=1000)
    assert [type(packet).__name__ for packet in found] == [
        "PublishPacket",
        "PublishPacket",
        "LargeMessage",
        "PingRespPacket",
    ]
    large = found[2]
    assert isinstance(large, LargeMessage)
    assert (large.topic, large.qos, large.packet_id) == ("a/b", 2, 2)
    assert large.size > 1_000_000


def test_a_length_that_never_ends_is_an_error() -> None:
    with pytest.raises(ValueError, match="length"):
        list(PacketCutter(100).feed(b"\x30\xff\xff\xff\xff\xff"))

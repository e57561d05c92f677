"""The state of an MQTT session against a model of a broker: lines break and gateways die at every point."""

import json
from collections import deque

import mqtt5
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.feeds.mqtt_packets import LargeMessage, PacketCutter
from penstock.feeds.mqtt_session import HeldMessage, MqttSession, digest_of

RECEIVE_MAXIMUM = 3


class SessionMachine(RuleBasedStateMachine):
    """A broker that uses the smallest free id at once, and messages that mostly look the same.

    Both are allowed, and both make it hard to tell whether a message is known.
    """

    qos = 2

    def __init__(self) -> None:
        super().__init__()
        self.published = 0
        self.queue: deque[tuple[int, str]] = deque()
        """A message is its number, which only the test can see, and its digest."""
        self.sent: dict[int, tuple[int, str] | None] = {}
        """The broker's messages in flight, by id; None after PUBREC."""
        self.down: deque[tuple[str, int, bool]] = deque()
        """From the broker: what it is, the id, and whether it is repeated."""
        self.up: deque[bytes] = deque()
        self.session = MqttSession()
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
        while self.queue and len(self.sent) < RECEIVE_MAXIMUM:
            packet_id = min(set(range(1, 10)) - set(self.sent))
            self.sent[packet_id] = self.queue.popleft()
            self.down.append(("publish", packet_id, False))

    @precondition(lambda self: self.up)
    @rule()
    def broker_reads(self) -> None:
        answer, _ = mqtt5.read(memoryview(self.up.popleft()))
        if isinstance(answer, mqtt5.PubRecPacket):
            assert answer.packet_id in self.sent
            self.sent[answer.packet_id] = None
            self.down.append(("release", answer.packet_id, False))
        else:
            assert isinstance(answer, mqtt5.PubAckPacket | mqtt5.PubCompPacket)
            del self.sent[answer.packet_id]
        self._send()

    # ---------------------------------------------------------------- the feed
    @precondition(lambda self: self.down)
    @rule(count=st.integers(1, 4))
    def feed_reads(self, count: int) -> None:
        records: list[int] = []
        stored: list[HeldMessage] = []
        released: list[HeldMessage] = []
        for _ in range(min(count, len(self.down))):
            kind, packet_id, is_repeated = self.down.popleft()
            if kind == "publish":
                content = self.sent[packet_id]
                assert content is not None
                number, digest = content
                message = self.session.receive(packet_id, self.qos, is_repeated, digest)
                if message is not None:
                    records.append(number)
                    stored.append(message)
            elif (message := self.session.release(packet_id)) is not None:
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
        self.session = MqttSession.of(self.mark)
        self._reconnect()

    def _reconnect(self) -> None:
        self.down.clear()
        self.up.clear()
        assert self.session.connected(is_present=True)
        for packet_id, content in self.sent.items():
            self.down.append(("release" if content is None else "publish", packet_id, True))
        self._answer()

    # ---------------------------------------------------------------- what has to hold
    @invariant()
    def every_record_is_stored_once_and_in_order(self) -> None:
        assert self.journal == sorted(set(self.journal))

    @invariant()
    def what_the_broker_forgets_is_stored(self) -> None:
        kept = {number for content in self.sent.values() if content is not None for number in content[:1]}
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


TestExactlyOnce = pytest.mark.timeout(120)(SessionMachine.TestCase)
TestAtLeastOnce = pytest.mark.timeout(120)(AtLeastOnceMachine.TestCase)
SessionMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
AtLeastOnceMachine.TestCase.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)


def test_a_session_that_the_broker_has_lost_is_forgotten_in_the_journal_first() -> None:
    session = MqttSession.of('{"7": "ab"}')
    assert session.connected(is_present=False) is False
    assert session.text() == "{}"
    assert session.connected(is_present=False) is True


def test_an_id_that_a_restored_broker_uses_for_another_message_is_not_taken_for_known() -> None:
    session = MqttSession.of(json.dumps({"7": digest_of("t", b"one")}))
    session.connected(is_present=True)
    assert session.receive(7, 2, True, digest_of("t", b"one")) is None
    assert session.receive(7, 2, False, digest_of("t", b"one")) is not None
    assert session.receive(7, 2, True, digest_of("t", b"two")) is not None


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

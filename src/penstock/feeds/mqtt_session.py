"""What a client has to remember of an MQTT session: which messages are on their way, stored, or released.

It does no input and no output. The names are those of the standard: a message with QoS 1 is answered with
PUBACK. One with QoS 2 is answered with PUBREC, released by the broker with PUBREL, and finished with PUBCOMP.
Here PUBACK and PUBREC follow the commit of the journal.

With QoS 2 a message is stored exactly once. Its packet id is stored with it, and is forgotten in the journal
before PUBCOMP is sent; until then the broker must not use the id for another message. If it does all the
same, or sends far more than Receive Maximum allows, that message and those after it get no answer. When the
earlier ones are finished there is a new connection, in which the broker has to repeat them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import blake2b

__all__ = ["HeldMessage", "MqttSession", "digest_of"]


class _State(Enum):
    TAKEN = auto()
    """On its way to the journal."""
    STORED = auto()
    """In the journal; the broker may not know it."""
    RELEASED = auto()
    """The broker has released its id; the journal still has it."""


@dataclass(eq=False, slots=True)
class HeldMessage:
    """A message with QoS 1 or 2 that is not finished."""

    packet_id: int
    qos: int
    digest: str
    state: _State = _State.TAKEN


@dataclass(eq=False)
class MqttSession:
    """The messages of one session that are not finished, and the answers that are to be sent.

    The caller sends what is in :attr:`outgoing`, in this order, and clears it.
    """

    most: int = 65_535
    """How many messages with QoS 2 are taken in a connection before one of them is finished."""
    outgoing: list[bytes] = field(default_factory=list)
    is_overrun: bool = False
    """Whether the broker has sent too much in this connection: nothing more is taken from it."""
    _held: dict[int, HeldMessage] = field(default_factory=dict)
    _here: set[HeldMessage] = field(default_factory=set)
    """Those that the broker has sent in this connection, or their PUBREL."""

    # ---------------------------------------------------------------- what the journal keeps
    def text(self) -> str:
        """The ids that have to be known after a restart: those of QoS 2, with digests."""
        kept = (it for it in self._held.values() if it.qos == 2 and it.state is not _State.RELEASED)
        return json.dumps({str(it.packet_id): it.digest for it in kept}, separators=(",", ":"))

    @classmethod
    def of(cls, text: str, most: int = 65_535) -> MqttSession:
        """The session after a restart; ValueError if the text is not one."""
        try:
            known = {int(packet_id): str(digest) for packet_id, digest in json.loads(text).items()}
        except (ValueError, AttributeError) as error:
            raise ValueError(f"{text!r} does not hold the ids of an MQTT session: {error}") from None
        held = {number: HeldMessage(number, 2, it, _State.STORED) for number, it in known.items()}
        return cls(most, _held=held)

    # ---------------------------------------------------------------- what the broker says
    def connected(self, is_present: bool) -> bool:
        """A connection begins; False if the journal has ids of a session that the broker does not have.

        The journal has to forget them before anything is read.
        """
        if is_present:
            return True
        known = any(message.qos == 2 for message in self._held.values())
        self._held.clear()
        return not known

    def disconnected(self) -> None:
        """The connection is over: what is stored from now on is answered when the broker repeats it."""
        self.outgoing.clear()
        self._here.clear()
        self.is_overrun = False

    def receive(self, packet_id: int, qos: int, is_duplicate: bool, digest: str) -> HeldMessage | None:
        """A message has come; None if it needs no place in the journal: it is known, or comes again later.

        A broker that was restored from a backup may use an id for another message than the one that we know.
        The digest tells them apart.
        """
        known = self._held.get(packet_id)
        if known in self._here:
            # An answer would be for the first message that has the id, and would leave the broker with both.
            self.is_overrun = True
            return None
        if known is not None and is_duplicate and (known.qos, known.digest) == (qos, digest):
            self._here.add(known)
            if known.state is _State.STORED:
                self._answer(known)
            return None
        if self.is_overrun or (qos == 2 and len(self._here) >= self.most):
            self.is_overrun = True  # Those after this one must not overtake it.
            return None
        message = self._held[packet_id] = HeldMessage(packet_id, qos, digest)
        self._here.add(message)
        return message

    def release(self, packet_id: int) -> HeldMessage | None:
        """PUBREL has come: the message whose id the journal has to forget now; None if there is none."""
        import mqtt5

        message = self._held.get(packet_id)
        if message is None or message.qos != 2:
            missing = mqtt5.PubCompReasonCode.PACKET_ID_NOT_FOUND
            self.outgoing.append(mqtt5.PubCompPacket(packet_id, reason_code=missing).write())
            return None
        self._here.add(message)
        if message.state is _State.RELEASED:
            return None  # Its PUBCOMP follows the commit.
        message.state = _State.RELEASED
        return message

    @property
    def is_finished(self) -> bool:
        """Whether there is nothing more to say about the messages of this connection."""
        return not self._here

    # ---------------------------------------------------------------- what the journal says
    def commit(self, stored: Iterable[HeldMessage], released: Iterable[HeldMessage]) -> None:
        """A transaction has stored some messages, and forgotten the ids of others."""
        import mqtt5

        for message in stored:
            if message.state is _State.TAKEN:
                message.state = _State.STORED
                if message in self._here:
                    self._answer(message)
        for message in released:
            if self._held.get(message.packet_id) is message:
                del self._held[message.packet_id]
                if message in self._here:
                    self._here.remove(message)
                    self.outgoing.append(mqtt5.PubCompPacket(message.packet_id).write())

    def _answer(self, message: HeldMessage) -> None:
        import mqtt5

        if message.qos == 2:
            self.outgoing.append(mqtt5.PubRecPacket(message.packet_id).write())
        else:
            # From now on the broker may use the id for another message.
            del self._held[message.packet_id]
            self._here.remove(message)
            self.outgoing.append(mqtt5.PubAckPacket(message.packet_id).write())


def digest_of(topic: str, payload: bytes) -> str:
    """A short text that differs for different messages."""
    digest = blake2b(topic.encode(), digest_size=8)
    digest.update(b"\0")
    digest.update(payload)
    return digest.hexdigest()

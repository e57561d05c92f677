"""The messages of an MQTT 5 broker: acknowledged after the commit, and continued in the broker's session.

The broker sends no more messages than Receive Maximum allows before it gets an answer. PUBACK (QoS 1) and
PUBREC (QoS 2) follow the commit of the journal. While the gateway does not ask, the socket is not read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from penstock.delivery import BadRecord, Delivery
from penstock.feeds.connected import ConnectedFeed, ConnectionLost
from penstock.feeds.feed import BadFeed, Feed, FeedOptions
from penstock.feeds.lines import LineTooLong
from penstock.feeds.mqtt_connection import REFUSED, MqttConnection, MqttSettings, tls_context
from penstock.feeds.mqtt_packets import LargeMessage, check_topic_filter
from penstock.feeds.mqtt_session import HeldMessage, MqttSession, digest_of
from penstock.feeds.registry import FeedAddress, FeedUrl, Scheme
from penstock.options import parse_count, parse_duration

if TYPE_CHECKING:
    from mqtt5 import ConnAckPacket, Packet, PublishPacket, SubAckPacket

__all__ = ["SCHEMES", "MqttFeed", "MqttSettings"]

_log = logging.getLogger("penstock.feeds")

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883}
_RECORDS: Final = 256
_BYTES: Final = 256 * 1024
"""A delivery has at most so many messages, and ends with the message that exceeds so many bytes."""
_MOST: Final = 65_535
_FOREVER: Final = 2**32 - 1
"""The session expiry interval that means: never."""
_OVERRUN: Final = (
    "the broker sends more messages at once than Receive Maximum allows, as Mosquitto does before version "
    "2.0.13; it has to send the last ones again"
)
_HELD: Final = 8192
"""So many messages of a broker that does so are taken all the same: each new connection repeats all others.

With many more, Mosquitto 2.0.11 takes milliseconds for each answer, because it looks through all of them.
"""
_FINISHING: Final = 60.0
"""Seconds for finishing those; then there is a new connection in any case."""
_SUBSCRIBE: Final = 1
"""The id of our only packet that has one."""


@dataclass(eq=False)
class _Portion:
    """What becomes one delivery."""

    records: list[Any] = field(default_factory=list)
    stored: list[HeldMessage] = field(default_factory=list)
    released: list[HeldMessage] = field(default_factory=list)
    packets: int = 0
    size: int = 0

    @property
    def is_full(self) -> bool:
        return self.packets >= _RECORDS or self.size >= _BYTES

    def add(self, size: int) -> None:
        self.packets += 1
        self.size += size


class MqttFeed(ConnectedFeed):
    """The messages that a broker has for a subscription; the topic is the key of each record.

    QoS 2 is exactly once, QoS 1 at least once, QoS 0 at most once.
    """

    def __init__(self, address: FeedAddress, settings: MqttSettings, options: FeedOptions) -> None:
        super().__init__(f"mqtt topic {settings.topic_filter} at {address.host}:{address.port}")
        self.bad = self._bad = options.bad_lines()
        self._address = address
        self._settings = settings
        self._longest = options.max_line
        self._decode = options.decoder()
        self._mark = f"mqtt:{settings.topic_filter}"
        """Its text has the client id, whether there is a session, and the ids that are in the journal."""
        self._client_id = settings.client_id or ""
        self._is_named = bool(settings.client_id) or not settings.session_seconds
        """Whether the journal has the client id, if it has to."""
        self._is_subscribed = False
        """Whether the broker should have a session of ours."""
        self._mark_is_due = False
        self._has_seen_qos_0 = False
        self._session = MqttSession(max(_HELD, settings.receive_maximum))
        self._connection: MqttConnection | None = None
        self._settled = asyncio.Event()
        if not settings.qos:
            self.note = "with qos=0 messages can be lost on their way, and all that are sent while it is away"

    def resume(self, marks: Mapping[str, str]) -> None:
        """Continue the session whose name is in the journal."""
        # From the end: a client id that a broker has chosen may have spaces.
        rest, _, ids = marks.get(self._mark, "").rpartition(" ")
        client_id, _, subscribed = rest.rpartition(" ")
        if client_id and client_id == (self._settings.client_id or client_id):
            self._client_id, self._is_named = client_id, True
            self._is_subscribed = subscribed == "subscribed"
            self._session = MqttSession.of(ids, self._session.most)

    # ---------------------------------------------------------------- one connection
    async def connection(self) -> AsyncGenerator[Any, None]:
        """Connect, subscribe, and yield what comes."""
        loop = asyncio.get_running_loop()
        self._settled = asyncio.Event()
        if not self._is_named:
            # Before the broker has a session of this name: one that is forgotten would fill up there.
            self._client_id = self._client_id or f"penstock-{secrets.token_hex(8)}"
            yield Delivery([], self._marks(), partial(_call, loop, self._settle))
            await self._settled.wait()
        opening = MqttConnection.open(
            self.name, self._address, self._settings, self._client_id, self._longest
        )
        async with opening as connection:
            if not self._begin(connection.answer):
                self._settled.clear()
                yield Delivery([], self._marks(), partial(_call, loop, self._settle))
                await self._settled.wait()
            self._connection = connection
            connection.write(self._subscription())
            try:
                async with aclosing(self._deliveries(connection)) as deliveries:
                    async for delivery in deliveries:
                        yield delivery
            finally:
                self._connection = None
                self._session.disconnected()

    async def _deliveries(self, connection: MqttConnection) -> AsyncGenerator[Delivery, None]:
        portion, came = _Portion(), connection.came
        while True:
            try:
                for packet in came:
                    self._take(packet, connection, portion)
                    if portion.is_full:
                        full, portion = portion, _Portion()
                        yield self._delivery(full)
            except Exception:
                # A bad message, or the broker says goodbye: what came before has counted as taken.
                if portion.packets:
                    yield self._delivery(portion)
                raise
            if portion.packets:
                full, portion = portion, _Portion()
                yield self._delivery(full)
            self._send()
            came = await connection.read()

    def _settle(self) -> None:
        self._is_named = True
        self._settled.set()

    def _begin(self, answer: ConnAckPacket) -> bool:
        """Compare the broker's session with ours; False if the journal has to forget the ids that it has."""
        settings = self._settings
        if answer.assigned_client_id:
            self._client_id = answer.assigned_client_id
        if self._is_subscribed and settings.session_seconds and not answer.session_present:
            _log.warning(
                "%s: the broker has lost the session of the client id %s: what was sent meanwhile is missing",
                self.name,
                self._client_id,
            )
        kept = answer.session_expiry_interval
        if kept is not None and kept < settings.session_seconds:
            _log.warning("%s: the broker keeps a session for %d s only", self.name, kept)
        self._is_subscribed = self._is_subscribed and answer.session_present
        return self._session.connected(answer.session_present)

    def _subscription(self) -> bytes:
        import mqtt5

        retained = mqtt5.RetainHandling
        handling = (
            retained.SEND_IF_SUBSCRIPTION_NOT_EXISTS if self._settings.retained else retained.SEND_NEVER
        )
        subscription = mqtt5.TopicFilter(
            self._settings.topic_filter, max_qos=mqtt5.QoS(self._settings.qos), retain_handling=handling
        )
        return mqtt5.SubscribePacket(_SUBSCRIBE, [subscription]).write()

    # ---------------------------------------------------------------- packets
    def _take(self, packet: Packet | LargeMessage, connection: MqttConnection, portion: _Portion) -> None:
        """Put what a packet brings into the portion; ValueError if it is a bad message, and an error."""
        import mqtt5

        match packet:
            case mqtt5.PublishPacket():
                self._take_message(packet, portion)
            case LargeMessage():
                digest = f"{packet.topic} {packet.size}"
                held = self._held(packet.packet_id, packet.qos, packet.duplicate, digest)
                if packet.qos and not held:
                    return
                portion.records += self._refuse(packet.topic, _too_long(packet.size), b"", packet.size)
                portion.stored += held
                portion.add(0)
            case mqtt5.PubRelPacket():
                message = self._session.release(packet.packet_id)
                if message is not None:
                    portion.released.append(message)
                    portion.add(0)
            case mqtt5.SubAckPacket():
                self._subscribed(packet, connection)
            case mqtt5.DisconnectPacket():
                raise connection.refusal(packet, packet.reason_code.name)
            case mqtt5.PingRespPacket():
                pass
            case _:
                raise ConnectionLost(f"the broker sends {type(packet).__name__}, which is not for a reader")

    def _take_message(self, packet: PublishPacket, portion: _Portion) -> None:
        held: list[HeldMessage] = []
        # The enumerations of the library have values, and are not numbers.
        qos = packet.qos.value
        if qos:
            digest = digest_of(packet.topic, packet.payload)
            held = self._held(packet.packet_id or 0, qos, packet.duplicate, digest)
            if not held:
                return
        elif self._settings.qos and not self._has_seen_qos_0:
            self._has_seen_qos_0 = True
            _log.warning(
                "%s: messages of the topic %s are published with QoS 0, and can be lost; let their senders "
                "publish with QoS 1",
                self.name,
                packet.topic,
            )
        portion.records += self._records(packet.topic, packet.payload)
        portion.stored += held
        portion.add(len(packet.payload))

    def _held(self, packet_id: int, qos: int, is_duplicate: bool, digest: str) -> list[HeldMessage]:
        if not qos:
            return []
        session, was_overrun = self._session, self._session.is_overrun
        message = session.receive(packet_id, qos, is_duplicate, digest)
        if session.is_overrun and not was_overrun and self._connection is not None:
            # At the latest: a broker that breaks one rule may break another, and not send a PUBREL.
            asyncio.get_running_loop().call_later(_FINISHING, self._connection.give_up, _OVERRUN)
        return [] if message is None else [message]

    def _records(self, topic: str, payload: bytes) -> list[Any]:
        from penstock.aquifer import Record

        try:
            if len(payload) > self._longest:
                raise _too_long(len(payload))
            value = payload if self._decode is None else self._decode(payload)
        except (ValueError, RecursionError, OverflowError) as error:
            return list(self._refuse(topic, error, payload, len(payload)))
        return [Record(value, key=topic.encode())]

    def _refuse(self, topic: str, error: Exception, payload: bytes, size: int) -> list[BadRecord]:
        at = f"a message of the topic {topic}"
        return self._bad.refuse(error, payload, at=at, key=topic.encode(), size=size)

    def _subscribed(self, packet: SubAckPacket, connection: MqttConnection) -> None:
        if not packet.reason_codes:
            raise ConnectionLost("the broker answers the subscription without a reason code")
        code = packet.reason_codes[0]
        if code.value >= REFUSED:
            raise connection.refusal(packet, code.name)
        if code.value < self._settings.qos:
            _log.warning(
                "%s: the broker grants QoS %d and not %d; messages can be %s",
                self.name,
                code.value,
                self._settings.qos,
                "lost" if code.value == 0 else "stored twice",
            )
        self._is_subscribed = self._mark_is_due = True
        self.connected()

    # ---------------------------------------------------------------- the journal
    def _marks(self) -> dict[str, str | None]:
        subscribed = "subscribed" if self._is_subscribed else "new"
        return {self._mark: f"{self._client_id} {subscribed} {self._session.text()}"}

    def _delivery(self, portion: _Portion) -> Delivery:
        has_ids = bool(portion.released) or any(message.qos == 2 for message in portion.stored)
        marks = self._marks() if has_ids or self._mark_is_due else {}
        self._mark_is_due = False
        tell = partial(self._commit, portion.stored, portion.released)
        return Delivery(portion.records, marks, partial(_call, asyncio.get_running_loop(), tell))

    def _commit(self, stored: list[HeldMessage], released: list[HeldMessage]) -> None:
        """On the loop, in the order of the deliveries."""
        self._session.commit(stored, released)
        self._send()
        if self._connection is not None and self._session.is_overrun and self._session.is_finished:
            self._connection.give_up(_OVERRUN)

    def _send(self) -> None:
        if self._connection is not None and self._session.outgoing:
            self._connection.write(b"".join(self._session.outgoing))
            self._session.outgoing.clear()


def _too_long(size: int) -> LineTooLong:
    return LineTooLong(f"has {size} bytes; allow more with max_line (--max-line)")


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    try:
        import mqtt5  # noqa: F401

        import penstock.aquifer  # noqa: F401
    except ModuleNotFoundError as error:
        raise BadFeed("feeds of MQTT need mqtt5: pip install 'penstock-streams[mqtt]'") from error
    place, _, path = url.rest.partition("/")
    address = replace(url, rest=place).address(_PORTS[url.scheme])
    topic_filter = unquote(path)
    check_topic_filter(topic_filter)
    given = url.parameters
    if given.get("qos", "1") not in ("0", "1", "2"):
        raise BadFeed(f"{url.shown}: qos={given['qos']} is not known; write 0, 1 or 2")
    if given.get("retained", "yes") not in ("yes", "no"):
        raise BadFeed(f"{url.shown}: retained={given['retained']} is not known; write yes or no")
    client_id = given.get("client-id")
    if client_id is not None and (not client_id or " " in client_id or "\0" in client_id):
        raise BadFeed(f"{url.shown}: client-id= needs a name without spaces")
    if (password := url.secret("password-file")) is not None:
        address = replace(address, password=password)
    try:
        session = 0 if given.get("session") == "0" else parse_duration(given.get("session", "7d"))
        receive_maximum = parse_count(given.get("receive-maximum", "1000"))
    except ValueError as error:
        raise BadFeed(f"{url.shown}: {error}") from None
    if receive_maximum > _MOST:
        raise BadFeed(f"{url.shown}: receive-maximum is at most {_MOST}")
    settings = MqttSettings(
        topic_filter=topic_filter,
        qos=int(given.get("qos", "1")),
        client_id=client_id,
        session_seconds=min(round(session), _FOREVER),
        receive_maximum=receive_maximum,
        retained=given.get("retained", "yes") == "yes",
        tls=url.scheme == "mqtts",
        ca=given.get("ca"),
        certificate=given.get("certificate"),
        key=given.get("key"),
    )
    if settings.tls:
        for name in ("ca", "certificate", "key"):
            if name in given and not os.path.exists(given[name]):
                raise BadFeed(f"{url.shown}: there is no file {given[name]}; check {name}=")
        try:
            tls_context(settings)
        except (OSError, ssl.SSLError) as error:
            raise BadFeed(f"{url.shown}: cannot read the certificates: {error}") from None
    return MqttFeed(address, settings, options)


SCHEMES = tuple(
    Scheme(
        name,
        f"{name}://HOST/TOPIC",
        f"the messages of an MQTT 5 broker{', over TLS' if name == 'mqtts' else ''}; TOPIC may have + and #, "
        "and begin with $share/GROUP/",
        _open,
        parameters={
            "qos": "0 (at most once), 1 (at least once, the default) or 2 (exactly once)",
            "client-id": "the name of the session at the broker; without it, one that the journal keeps",
            "session": "how long the broker keeps messages while the gateway is away (default 7d); "
            "0 for not at all",
            "receive-maximum": "how many messages the broker may send before they are in the journal "
            "(default 1000)",
            "retained": "whether a new subscription begins with retained messages: yes (the default) or no",
            "password-file": "a file with the password of the user in the URL",
            **(
                {
                    "ca": "a file with the certificates to trust",
                    "certificate": "the file with our own certificate, if the broker asks for one",
                    "key": "the file with its private key",
                }
                if name == "mqtts"
                else {}
            ),
        },
    )
    for name in _PORTS
)

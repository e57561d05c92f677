"""One connection to an MQTT broker: TCP or TLS, logging in, keeping it alive, and what a refusal means."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.feeds.connected import ConnectionLost
from penstock.feeds.feed import BadFeed
from penstock.feeds.lines import CHUNK
from penstock.feeds.mqtt_packets import LargeMessage, PacketCutter
from penstock.feeds.registry import FeedAddress

if TYPE_CHECKING:
    from mqtt5 import ConnAckPacket, DisconnectPacket, Packet, SubAckPacket

__all__ = ["REFUSED", "MqttConnection", "MqttSettings", "tls_context"]

_KEEP_ALIVE: Final = 30
"""Seconds after which a broker that hears nothing takes us for dead; we speak twice as often."""
_PATIENCE: Final = 10.0
"""Seconds for connecting, and for the answer to that."""
_GOODBYE: Final = 1.0
"""Seconds for closing a connection properly."""
REFUSED: Final = 128
"""The first of the reason codes that mean an error."""
_CONNACK: Final = 0x20
_OLD_CONNACK: Final = b"\x20\x02"
"""How the answer of a broker begins that knows no MQTT 5: without properties it is two bytes long."""

_FATAL: Final = {
    "BAD_USER_NAME_OR_PASSWORD": "it refuses the user or the password; check mqtt://USER:PASSWORD@HOST",
    "NOT_AUTHORIZED": "this user is not authorised; give a user with mqtt://USER:PASSWORD@HOST, or let the "
    "broker allow it to read the topic",
    "BANNED": "this client is banned; ask whoever runs the broker",
    "BAD_AUTHENTICATION_METHOD": "it wants another way to log in than a user and a password",
    "CLIENT_ID_NOT_VALID": "it refuses the client id; give another one with ?client-id=NAME",
    "UNSUPPORTED_PROTOCOL_VERSION": "it does not speak MQTT 5; update it, or let it bridge to one that does",
    "USE_ANOTHER_SERVER": "it wants us to use another server; write that one's address",
    "SERVER_MOVED": "it has moved; write the new address",
    "TOPIC_FILTER_INVALID": "it refuses the topic filter; check the path of the URL",
    "SHARED_SUBSCRIPTIONS_NOT_SUPPORTED": "it has no shared subscriptions; leave out $share/GROUP/",
    "WILDCARD_SUBSCRIPTIONS_NOT_SUPPORTED": "it has no wildcards; name a topic without + and #",
    "SESSION_TAKEN_OVER": "another client has connected with the same client id and taken over the session; "
    "stop it, or give each gateway a client id of its own with ?client-id=NAME",
}
"""Reasons that do not change by waiting, by their names in MQTT 5."""


@dataclass(frozen=True, slots=True)
class MqttSettings:
    """What is subscribed to, and as whom."""

    topic_filter: str
    qos: int = 1
    client_id: str | None = None
    """None for one that is made up, and kept in the journal."""
    session_seconds: int = 7 * 86_400
    """How long the broker keeps our session while we are away; 0 for no session."""
    receive_maximum: int = 1000
    """How many messages the broker may send before it gets an answer."""
    retained: bool = True
    """Whether a new subscription begins with the messages that the broker retains."""
    tls: bool = False
    ca: str | None = None
    """A file with the certificates to trust; None for those of the system."""
    certificate: str | None = None
    key: str | None = None
    """The files with our own certificate and its private key, for a broker that asks for one."""


@dataclass(eq=False)
class MqttConnection:
    """A connection on which the broker has accepted us."""

    name: str
    """What to call the feed in messages."""
    client_id: str
    answer: ConnAckPacket
    came: Iterable[Packet | LargeMessage]
    """What came with the answer."""
    _cutter: PacketCutter
    _reader: asyncio.StreamReader
    _writer: asyncio.StreamWriter

    @classmethod
    @asynccontextmanager
    async def open(
        cls, name: str, address: FeedAddress, settings: MqttSettings, client_id: str, longest: int
    ) -> AsyncIterator[MqttConnection]:
        """Connect, log in, and say goodbye after the block; ``longest`` is the largest payload in bytes.

        BadFeed if trying again does not help, otherwise ConnectionLost.
        """
        import mqtt5

        try:
            context = tls_context(settings) if settings.tls else None
            async with asyncio.timeout(_PATIENCE):
                reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
        except ssl.SSLError as error:
            raise _tls_error(name, error) from error
        except TimeoutError:
            raise ConnectionLost(f"no connection within {_PATIENCE:.0f} s") from None
        except ConnectionResetError as error:
            hint = "; if this port does not speak TLS, write mqtt://" if settings.tls else ""
            raise ConnectionLost(f"the broker has hung up at once{hint}") from error
        pinging: asyncio.Future[None] | None = None
        try:
            cutter = PacketCutter(longest)
            writer.write(_hello(address, settings, client_id))
            answer, came = await _log_in(name, settings, reader, cutter)
            # Not more rarely, even if the broker allows it: its answers show us that it is there.
            seconds = min(answer.server_keep_alive or _KEEP_ALIVE, _KEEP_ALIVE)
            pinging = asyncio.ensure_future(_ping(writer, seconds))
            yield cls(name, answer.assigned_client_id or client_id, answer, came, cutter, reader, writer)
        except ssl.SSLError as error:
            raise _tls_error(name, error) from error
        finally:
            if pinging is not None:
                pinging.cancel()
                await asyncio.wait([pinging])
            if not writer.is_closing():
                writer.write(mqtt5.DisconnectPacket().write())
            writer.close()
            try:
                async with asyncio.timeout(_GOODBYE):
                    await writer.wait_closed()
            except (OSError, TimeoutError):
                writer.transport.abort()

    async def read(self) -> Iterator[Packet | LargeMessage]:
        """The next packets; iterate to the end before the next call."""
        try:
            async with asyncio.timeout(2 * _KEEP_ALIVE):
                chunk = await self._reader.read(CHUNK)
        except TimeoutError:
            raise ConnectionLost(f"the broker has said nothing for {2 * _KEEP_ALIVE} s") from None
        if not chunk:
            raise ConnectionLost(
                "the broker has closed the connection without a reason: it was stopped, or another client "
                f"has connected with the client id {self.client_id}"
            )
        return _cut(self._cutter, chunk)

    def give_up(self, reason: str) -> None:
        """Raise a :class:`ConnectionLost` in the reader, now or with its next call."""
        self._reader.set_exception(ConnectionLost(reason))

    def write(self, packets: bytes) -> None:
        """Send some packets: small ones, and not many."""
        self._writer.write(packets)

    def refusal(self, packet: ConnAckPacket | SubAckPacket | DisconnectPacket, name: str) -> Exception:
        """The error for a reason code that means one; ``name`` is that of the code."""
        return _refusal(self.name, packet, name)


def _hello(address: FeedAddress, settings: MqttSettings, client_id: str) -> bytes:
    import mqtt5

    return mqtt5.ConnectPacket(
        client_id,
        username=address.user or None,
        password=None if address.password is None else address.password.encode(),
        clean_start=not settings.session_seconds,
        session_expiry_interval=settings.session_seconds,
        keep_alive=_KEEP_ALIVE,
        receive_max=settings.receive_maximum,
    ).write()


async def _log_in(
    name: str, settings: MqttSettings, reader: asyncio.StreamReader, cutter: PacketCutter
) -> tuple[ConnAckPacket, Iterable[Packet | LargeMessage]]:
    """The answer to CONNECT, and what came with it."""
    import mqtt5

    first = b""
    answer: Packet | LargeMessage | None = None
    came: Iterator[Packet | LargeMessage] = iter(())
    try:
        async with asyncio.timeout(_PATIENCE):
            while answer is None:
                try:
                    chunk = await reader.read(CHUNK)
                except ConnectionResetError:
                    chunk = b""
                if not chunk:
                    hint = "" if settings.tls else "; if this is its port for TLS, write mqtts://"
                    raise ConnectionLost(f"the broker has hung up without an answer{hint}")
                first += chunk
                if first[0] != _CONNACK:
                    raise ConnectionLost("the server does not answer as an MQTT broker does; check the port")
                if first.startswith(_OLD_CONNACK):
                    raise BadFeed(f"{name}: {_FATAL['UNSUPPORTED_PROTOCOL_VERSION']}")
                came = _cut(cutter, chunk)
                answer = next(came, None)  # If there is something wrong behind it, what comes before counts.
    except TimeoutError:
        raise ConnectionLost(f"the broker does not answer within {_PATIENCE:.0f} s") from None
    assert isinstance(answer, mqtt5.ConnAckPacket)
    if answer.reason_code.value >= REFUSED:
        raise _refusal(name, answer, answer.reason_code.name)
    return answer, came


async def _ping(writer: asyncio.StreamWriter, seconds: int) -> None:
    """Show the broker that we are there, also while its messages wait in the socket."""
    import mqtt5

    while not writer.is_closing():
        await asyncio.sleep(seconds / 2)
        writer.write(mqtt5.PingReqPacket().write())


def _cut(cutter: PacketCutter, chunk: bytes) -> Iterator[Packet | LargeMessage]:
    try:
        yield from cutter.feed(chunk)
    except ValueError as error:
        raise ConnectionLost(f"the broker sends something that is not MQTT 5: {error}") from error


def _refusal(name: str, packet: ConnAckPacket | SubAckPacket | DisconnectPacket, code: str) -> Exception:
    said = code + (f", {packet.reason_str}" if packet.reason_str else "")
    elsewhere = getattr(packet, "server_reference", None)
    if elsewhere:
        said += f", {elsewhere}"
    if code in _FATAL:
        return BadFeed(f"{name}: {_FATAL[code]} (the broker says {said})")
    return ConnectionLost(f"the broker says {said}")


def _tls_error(name: str, error: ssl.SSLError) -> Exception:
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = f"the certificate of the broker is not trusted ({error.verify_message})"
        return BadFeed(f"{name}: {reason}; name the certificates to trust with ?ca=FILE")
    text = str(error.reason or error)
    if "WRONG_VERSION" in text or "RECORD_LAYER" in text:
        return BadFeed(f"{name}: this port does not speak TLS; write mqtt://, or the port of TLS")
    if "CERTIFICATE_REQUIRED" in text or "HANDSHAKE_FAILURE" in text:
        return BadFeed(f"{name}: the broker wants a certificate ({text}); give ?certificate=FILE&key=FILE")
    if "ALERT" in text:
        return BadFeed(f"{name}: the broker refuses our certificate ({text}); check ?certificate=")
    return ConnectionLost(f"TLS has failed: {error}")


def tls_context(settings: MqttSettings) -> ssl.SSLContext:
    """What TLS needs; OSError or SSLError if a file cannot be used."""
    context = ssl.create_default_context(cafile=settings.ca)
    if settings.certificate is not None:
        context.load_cert_chain(settings.certificate, settings.key)
    return context

"""The packets that an MQTT broker sends, cut out of a stream of bytes; and topic filters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.feeds.feed import BadFeed

if TYPE_CHECKING:
    from mqtt5 import Packet

__all__ = ["LargeMessage", "PacketCutter", "check_topic_filter"]

_PUBLISH: Final = 3
_DUPLICATE: Final = 8
_BESIDES: Final = 256 * 1024
"""How many bytes a packet may have in addition to its payload: a topic, and properties."""
_LONGEST_FILTER: Final = 65_535
_LENGTH_BYTES: Final = 4
_RUST: Final = "pyo3_runtime"
"""Where the exceptions are that stand for a panic of a library in Rust. They are not Exceptions."""


@dataclass(frozen=True, slots=True)
class LargeMessage:
    """A message that is larger than anything that could become a record; its bytes are not kept."""

    topic: str
    qos: int
    packet_id: int
    duplicate: bool
    size: int


class PacketCutter:
    """Makes packets of chunks of bytes.

    What is kept is at most one packet that is not complete yet. A message with a packet above ``longest``
    bytes of payload and some for the rest becomes a :class:`LargeMessage`, and is discarded as it arrives.
    """

    def __init__(self, longest: int) -> None:
        self._most = longest + _BESIDES
        self._buffer = bytearray()
        self._discard = 0
        """How many bytes of a large message are still to come."""

    def feed(self, chunk: bytes) -> Iterator[Packet | LargeMessage]:
        """The packets that end in these bytes, one by one; ValueError if they are not MQTT.

        Iterate to the end before the next chunk.
        """
        buffer = self._buffer
        if self._discard:
            gone = min(self._discard, len(chunk))
            self._discard -= gone
            chunk = chunk[gone:]
        buffer += chunk
        start = 0
        try:
            while (found := _header(buffer, start)) is not None:
                body, size = found
                if body + size - start > self._most and buffer[start] >> 4 == _PUBLISH:
                    large = _large(buffer, start, body, size)
                    if large is None:
                        return
                    end = body + size
                    self._discard = max(0, end - len(buffer))
                    start = min(end, len(buffer))
                    yield large
                    continue
                if body + size - start > self._most:
                    raise ValueError(f"a packet of {size} bytes is not a message")
                if len(buffer) < body + size:
                    return
                if buffer[start] >> 4 == _PUBLISH:
                    _check_topic(buffer, body)
                with memoryview(buffer) as view, view[start:] as rest:
                    packet, length = _read(rest)
                start += length
                yield packet
        finally:
            del buffer[:start]


def _read(rest: memoryview) -> tuple[Packet, int]:
    import mqtt5

    try:
        return mqtt5.read(rest)
    except BaseException as error:
        if type(error).__module__ != _RUST:
            raise
        # It panics at a text that is not UTF-8, such as a property that a careless broker passes on.
        raise ValueError(f"a packet cannot be read ({error}); is a text in it not UTF-8?") from None


def _check_topic(buffer: bytearray, body: int) -> None:
    """ValueError if the topic of a message is not UTF-8. The library reports that too, but by a panic."""
    topic = body + 2
    try:
        buffer[topic : topic + int.from_bytes(buffer[body:topic])].decode()
    except UnicodeDecodeError:
        raise ValueError("the topic of a message is not UTF-8") from None


def _header(buffer: bytearray, start: int) -> tuple[int, int] | None:
    """Where the body of the packet begins, and its size; None if the header is not complete."""
    size = 0
    for count in range(_LENGTH_BYTES):
        at = start + 1 + count
        if at >= len(buffer):
            return None
        size |= (buffer[at] & 127) << (7 * count)
        if buffer[at] < 128:
            return at + 1, size
    raise ValueError("the length of a packet is wrong")


def _large(buffer: bytearray, start: int, body: int, size: int) -> LargeMessage | None:
    """What the first bytes of a message say about it; None if they are not there yet."""
    qos, duplicate = buffer[start] >> 1 & 3, bool(buffer[start] & _DUPLICATE)
    if len(buffer) < body + 2:
        return None
    topic = body + 2
    after = topic + int.from_bytes(buffer[body:topic])
    if len(buffer) < after + 2:
        return None
    name = bytes(buffer[topic:after]).decode(errors="replace")
    packet_id = int.from_bytes(buffer[after : after + 2]) if qos else 0
    return LargeMessage(name, qos, packet_id, duplicate, size)


def check_topic_filter(text: str) -> None:
    """BadFeed if no broker would take it, with what is wrong."""
    levels = text.split("/")
    if levels[0] == "$share":
        if len(levels) < 3 or not levels[1] or "+" in levels[1] or "#" in levels[1]:
            raise BadFeed(f"{text!r} is not a shared subscription; write $share/GROUP/TOPIC")
        levels = levels[2:]
    if levels == [""]:
        raise BadFeed("the URL names no topic; write mqtt://HOST/TOPIC, for instance mqtt://HOST/sensors/#")
    if len(text.encode()) > _LONGEST_FILTER or "\0" in text:
        raise BadFeed(f"a topic filter has at most {_LONGEST_FILTER} bytes, and no NUL")
    for number, level in enumerate(levels, 1):
        if "#" in level and (level != "#" or number < len(levels)):
            raise BadFeed(
                f"the topic filter {text!r} is wrong: # must be the last level, with nothing beside it"
            )
        if "+" in level and level != "+":
            raise BadFeed(f"the topic filter {text!r} is wrong: + must be a whole level, between two slashes")

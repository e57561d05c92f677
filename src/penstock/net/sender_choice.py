"""Which sender a stream gets: the one with the least between its elements and the socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.net.chunk_sender import FrameSender, MappedSender
from penstock.net.echo import LoopSender
from penstock.net.errors import SendRefused
from penstock.net.framing.stage import FramesSource
from penstock.net.inbound import ReceiveSource, is_receive_on
from penstock.net.pull_sender import PullSender
from penstock.net.sender import Done, FlushRule, StreamSender
from penstock.net.transport import Transport
from penstock.streams.spi import (
    Kind,
    Op,
    Stream,
    connect,
    piecewise_operators,
    pulled_elements,
    source_of,
)

__all__ = ["sender_for"]

_AS_BYTES = Kind("as_bytes", ("if type(x) is not bytes:", "    x = {a}(x)"))
"""The last operator of a chain whose elements a sender takes by the handful: each is bytes, and is a copy of
its own before the next one is made."""


def sender_for(
    stream: Stream[Any],
    transport: Transport,
    write: Callable[[bytes], None],
    writable: bool,
    flush: FlushRule | None,
    done: Done,
) -> tuple[StreamSender, Callable[[], object]]:
    """A sender for this stream, and the call that starts it."""
    if flush is None:
        source = source_of(stream)
        check = Op(_AS_BYTES, (_as_bytes,), "send()", source.place)
        open_elements = pulled_elements(stream, check)
        if open_elements is not None:
            puller = PullSender(transport, write, writable, done)
            return puller, lambda: puller.begin(open_elements)
        if is_receive_on(stream, transport.loop):
            forwarder = LoopSender(transport, write, writable, None, done)
            return forwarder, lambda: connect(stream, forwarder)
        operators = piecewise_operators(stream, check)
        if operators is not None:
            if isinstance(source, FramesSource) and is_receive_on(source.chunks, transport.loop):
                framer = FrameSender(transport, write, writable, done, source.make(), operators)
                return framer, lambda: connect(source.chunks, framer)
            if isinstance(source, ReceiveSource) and source.loop is transport.loop:
                mapper = MappedSender(transport, write, writable, done, operators)
                return mapper, lambda: connect(source.bare(), mapper)
    elif is_receive_on(stream, transport.loop):
        asking = LoopSender(transport, write, writable, flush, done)
        return asking, lambda: connect(stream, asking)
    sender = StreamSender(transport, write, writable, flush, done)
    return sender, lambda: connect(stream, sender)


def _as_bytes(data: Any) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)  # Its owner may change it.
    raise SendRefused.of(data)

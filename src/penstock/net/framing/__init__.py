"""Framings: they find the messages in a stream of bytes.

Bytes arrive in chunks of any size: half a message, or three and a half. A **framing** puts the messages
together again. It is a step of a stream:

>>> from penstock.streams import Flux
>>> received = Flux.just(b"one\\ntw", b"o\\n")
>>> received.transform(lines()).collect_list().block()
[b'one', b'two']

Below it is a decoder, a plain object without any input or output, for use without a stream:

>>> decoder = lines().decoder()
>>> decoder.feed(b"one\\ntw"), decoder.finish()
([b'one'], [b'tw'])

Every framing bounds the length of a frame, so no peer can make us keep more than that and one chunk.
"""

from penstock.net.framing.decoder import BadFrame, Decoder, FrameTooLong, FrameTruncated, FramingError
from penstock.net.framing.framings import (
    Framing,
    delimited,
    end_with,
    frames,
    json_line,
    json_objects,
    length_prefix,
    length_prefixed,
    lines,
    text,
)
from penstock.net.framing.json_objects import JsonObjectDecoder
from penstock.net.framing.lengths import LengthDecoder
from penstock.net.framing.texts import DelimiterDecoder, LineDecoder, TextDecoder

__all__ = [
    "BadFrame",
    "Decoder",
    "DelimiterDecoder",
    "FrameTooLong",
    "FrameTruncated",
    "Framing",
    "FramingError",
    "JsonObjectDecoder",
    "LengthDecoder",
    "LineDecoder",
    "TextDecoder",
    "delimited",
    "end_with",
    "frames",
    "json_line",
    "json_objects",
    "length_prefix",
    "length_prefixed",
    "lines",
    "text",
]

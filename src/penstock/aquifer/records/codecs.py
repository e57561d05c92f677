"""Codecs: what an element of a stream looks like as a record, and back.

A codec is chosen by name, ``Gateway(flux, codec="json")`` or, with the file of a schema,
``codec="avro:orders.avsc"``. Or it is an object of your own with the four members of :class:`Codec`. Both
ends have to use the same one; the wire carries bytes and does not say what they mean.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from penstock.aquifer.records.schemas import open_schema
from penstock.codec_names import SCHEMA_KINDS

__all__ = ["Codec", "codec_named"]


class Codec(Protocol):
    """How elements become bytes."""

    name: str

    def encode(self, element: Any) -> bytes:
        """The record for an element; a TypeError or ValueError if it cannot be one."""
        ...

    def decode(self, value: bytes) -> Any:
        """The element in a record; a ValueError if there is none."""
        ...


class Raw:
    """Elements are bytes already."""

    name = "bytes"

    def encode(self, element: Any) -> bytes:
        """The element itself."""
        if isinstance(element, bytes | bytearray | memoryview):
            return bytes(element)
        raise TypeError(
            f"a record is made of bytes, not of {type(element).__name__}; choose a codec for it: "
            "codec='text', 'json' or 'msgpack'"
        )

    def decode(self, value: bytes) -> bytes:
        """The record itself."""
        return value


class Text:
    """Elements are strings, records are UTF-8."""

    name = "text"

    def encode(self, element: Any) -> bytes:
        """The string as UTF-8."""
        if not isinstance(element, str):
            raise TypeError(f"codec 'text' takes strings, not {type(element).__name__}")
        return element.encode()

    def decode(self, value: bytes) -> str:
        """The record as a string."""
        return value.decode()


class Json:
    """Elements are what JSON can say: None excepted, numbers, strings, lists, dicts."""

    name = "json"

    def __init__(self) -> None:
        self.encode = msgspec.json.Encoder().encode
        self.decode = msgspec.json.Decoder().decode


class Msgpack:
    """As JSON, but shorter, quicker, and with bytes and times."""

    name = "msgpack"

    def __init__(self) -> None:
        self.encode = msgspec.msgpack.Encoder().encode
        self.decode = msgspec.msgpack.Decoder().decode


class Arrow:
    """Elements are Arrow record batches; each of their rows is a record with an offset of its own."""

    name = "arrow"

    def encode(self, element: Any) -> bytes:
        """The batch as an IPC stream."""
        from penstock.aquifer.records.arrow import to_arrow_stream

        return bytes(to_arrow_stream(element))

    def decode(self, value: bytes) -> Any:
        """The batch in an IPC stream."""
        from penstock.aquifer.records.arrow import from_arrow_stream

        return from_arrow_stream(value)


_NAMED: dict[str, type[Codec]] = {codec.name: codec for codec in (Raw, Text, Json, Msgpack, Arrow)}


def codec_named(codec: str | Codec) -> Codec:
    """The codec with this name, or the object itself."""
    if not isinstance(codec, str):
        return codec
    if codec in _NAMED:
        return _NAMED[codec]()
    if codec.partition(":")[0] in SCHEMA_KINDS:
        return open_schema(codec)
    known = ", ".join((*_NAMED, *(f"{kind}:FILE" for kind in SCHEMA_KINDS)))
    raise ValueError(f"no codec named {codec!r}; there are {known}")

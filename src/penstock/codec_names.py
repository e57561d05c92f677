"""The names of codecs, as options take them: without a schema, or with the file of one behind a colon."""

from __future__ import annotations

from typing import Final

__all__ = ["CODECS", "SCHEMA_KINDS", "parse_codec"]

CODECS: Final = ("bytes", "text", "json", "msgpack")
"""What a record can be, without a schema."""
SCHEMA_KINDS: Final = ("jsonschema", "avro", "protobuf")
"""What a record can be with one: ``avro:orders.avsc``, for instance."""


def parse_codec(text: str) -> str:
    """Return the name of a codec; ValueError lists the known ones. Its file is not looked at."""
    kind, colon, path = text.partition(":")
    if text in CODECS or (colon and path and kind in SCHEMA_KINDS):
        return text
    known = ", ".join((*CODECS, *(f"{each}:FILE" for each in SCHEMA_KINDS)))
    raise ValueError(f"{text!r} is not a codec; write {known}")

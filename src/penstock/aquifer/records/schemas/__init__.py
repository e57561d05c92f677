"""Codecs with a schema: JSON Schema, Avro and Protocol Buffers, each from a file.

A codec is named as ``KIND:FILE``, with parameters behind a ``?``: ``avro:orders.avsc?id=7``. Its packages are
in the extra ``schemas``, and are imported when such a codec is opened.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final

from penstock.aquifer.records.schemas.reference import EncodedRecord, SchemaCodec, SchemaReference
from penstock.codec_names import SCHEMA_KINDS

__all__ = ["EncodedRecord", "SchemaCodec", "SchemaReference", "open_schema"]


def _json_schema(reference: SchemaReference) -> SchemaCodec:
    from penstock.aquifer.records.schemas.json_schema import JsonSchemaCodec

    return JsonSchemaCodec(reference)


def _avro(reference: SchemaReference) -> SchemaCodec:
    from penstock.aquifer.records.schemas.avro import AvroCodec

    return AvroCodec(reference)


def _protobuf(reference: SchemaReference) -> SchemaCodec:
    from penstock.aquifer.records.schemas.protobuf import ProtobufCodec

    return ProtobufCodec(reference)


_OPENERS: Final[dict[str, Callable[[SchemaReference], SchemaCodec]]] = {
    "jsonschema": _json_schema,
    "avro": _avro,
    "protobuf": _protobuf,
}


def open_schema(text: str) -> SchemaCodec:
    """The codec that ``KIND:FILE`` names; ValueError if it, its file or a parameter is wrong."""
    reference = SchemaReference.parse(text)
    if reference.kind not in _OPENERS:
        kinds = ", ".join(f"{kind}:FILE" for kind in SCHEMA_KINDS)
        raise ValueError(f"no codec has the schema {text!r}; write {kinds}")
    return _opened(reference, *reference.versions())


@lru_cache(32)
def _opened(reference: SchemaReference, *versions: tuple[int, int]) -> SchemaCodec:
    """A codec for as long as its files are the same: a feed opens it for each connection."""
    return _OPENERS[reference.kind](reference)

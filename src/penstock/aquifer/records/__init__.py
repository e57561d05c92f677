"""Records, the batches they travel in, and the codecs that turn elements into bytes."""

from penstock.aquifer.records.batch import (
    ARROW,
    MSGPACK,
    Batch,
    Record,
    RecordMetadata,
    in_format,
    joined,
    pack_metadata,
    pack_values,
    part,
    sizes_of,
    unpack_metadata,
    unpack_values,
    values_of,
)
from penstock.aquifer.records.codecs import Codec, codec_named

__all__ = [
    "ARROW",
    "MSGPACK",
    "Batch",
    "Codec",
    "Record",
    "RecordMetadata",
    "codec_named",
    "in_format",
    "joined",
    "pack_metadata",
    "pack_values",
    "part",
    "sizes_of",
    "unpack_metadata",
    "unpack_values",
    "values_of",
]

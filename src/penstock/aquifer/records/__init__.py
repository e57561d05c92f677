"""Records, the batches they travel in, and the codecs that turn elements into bytes."""

from penstock.aquifer.records.batch import (
    ARROW,
    MSGPACK,
    Batch,
    ChosenMetadata,
    Record,
    RecordMetadata,
    offsets_of,
    pack_metadata,
    pack_values,
    unpack_chosen,
    unpack_metadata,
    unpack_values,
    values_of,
)
from penstock.aquifer.records.codecs import Codec, codec_named
from penstock.aquifer.records.partition import Partition, by_partition, partition_of

__all__ = [
    "ARROW",
    "MSGPACK",
    "Batch",
    "ChosenMetadata",
    "Codec",
    "Partition",
    "Record",
    "RecordMetadata",
    "by_partition",
    "codec_named",
    "offsets_of",
    "pack_metadata",
    "pack_values",
    "partition_of",
    "unpack_chosen",
    "unpack_metadata",
    "unpack_values",
    "values_of",
]

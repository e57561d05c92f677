"""What the records of a pipeline's source are, and so how Spark reads them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.aquifer import SchemaReference, open_schema

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["RecordFormat", "format_of"]


@dataclass(frozen=True)
class RecordFormat:
    """How Spark reads records."""

    options: dict[str, str] = field(default_factory=dict)
    """Options of the format ``aquifer``."""
    codec: str | None = None
    """The codec with the schema that has the columns; None if they come from elsewhere."""

    def schema(self) -> StructType | None:
        """The columns of the codec's schema."""
        if self.codec is None:
            return None
        from pyspark.sql.pandas.types import from_arrow_schema

        found: StructType = from_arrow_schema(open_schema(self.codec).arrow_schema())
        return found


def format_of(codec: str, *, has_schema: bool, columns: bool = False) -> RecordFormat:
    """How Spark reads records of this codec; ValueError if their columns are not known.

    ``has_schema`` says that the pipeline has a schema. ``columns`` says that the records are rows of Arrow
    batches, with the columns of the codec's schema.
    """
    kind, has_own_schema = codec.partition(":")[0], ":" in codec
    if columns or codec == "arrow":
        if not (has_schema or has_own_schema):
            raise ValueError(
                "Arrow batches have columns, and Spark has to know which; write "
                'Pipeline(…, schema="id bigint, price double")'
            )
        return RecordFormat({"value": "arrow"}, None if has_schema else codec)
    if kind in ("avro", "protobuf"):
        return RecordFormat({"value": kind, "valueSchema": SchemaReference.parse(codec).in_the_log()})
    if kind == "jsonschema":
        if not has_schema:
            _check_columns(codec)
        return RecordFormat({"value": "json"}, None if has_schema else codec)
    if has_schema:
        return RecordFormat({"value": "msgpack" if codec == "msgpack" else "json"})
    return RecordFormat({"value": "string" if codec in ("text", "json") else "binary"})


def _check_columns(codec: str) -> None:
    try:
        open_schema(codec).arrow_schema()
    except ValueError as error:
        raise ValueError(f"{error}; give the pipeline columns: Pipeline(…, schema=…)") from None

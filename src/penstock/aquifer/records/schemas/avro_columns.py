"""The Arrow columns for an Avro schema."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow

__all__ = ["columns_of"]

_SIMPLE: Final = {
    "boolean": "bool",
    "int": "int32",
    "long": "int64",
    "float": "float32",
    "double": "float64",
    "bytes": "binary",
    "string": "string",
}


def columns_of(schema: Any) -> pyarrow.Schema:
    """A column for each field of a record; ValueError names a field that no column can hold."""
    import pyarrow as pa

    if not isinstance(schema, dict) or schema.get("type") not in ("record", "error"):
        raise ValueError("columns need a schema of the type record")
    return pa.schema(list(_kind(schema, schema["name"], {})))


def _kind(schema: Any, path: str, named: dict[str, Any]) -> pyarrow.DataType:
    import pyarrow as pa

    if isinstance(schema, list):
        kinds = [kind for kind in schema if kind != "null"]
        if len(kinds) != 1:
            raise ValueError(f"no column can hold {path}: it is a union of several types")
        return _kind(kinds[0], path, named)
    if isinstance(schema, str):
        if schema in _SIMPLE:
            return pa.type_for_alias(_SIMPLE[schema])
        if named.get(schema) is None:
            raise ValueError(f"no column can hold {path}: it contains itself, or is only null")
        return named[schema]
    logical = _logical(schema)
    if logical is not None:
        return logical
    kind = schema["type"]
    if kind == "array":
        return pa.list_(_kind(schema["items"], f"{path}[]", named))
    if kind == "map":
        return pa.map_(pa.string(), _kind(schema["values"], f"{path}{{}}", named))
    if kind not in ("record", "error", "enum", "fixed"):
        return _kind(kind, path, named)
    made: pyarrow.DataType
    if kind in ("record", "error"):
        named[schema["name"]] = None
        fields = [
            (each["name"], _kind(each["type"], f"{path}.{each['name']}", named)) for each in schema["fields"]
        ]
        if not fields:
            raise ValueError(f"no column can hold {path}: it has no fields")
        made = pa.struct(fields)
    else:
        made = pa.string() if kind == "enum" else pa.binary(schema["size"])
    named[schema["name"]] = made
    return made


def _logical(schema: dict[str, Any]) -> pyarrow.DataType | None:
    import pyarrow as pa

    match schema.get("logicalType"), schema["type"]:
        case "decimal", _:
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        case "uuid", "string":
            return None
        case "date", "int":
            return pa.date32()
        case "time-millis" | "time-micros", _:
            return pa.time64("us")
        case "timestamp-millis" | "timestamp-micros", "long":
            return pa.timestamp("us", tz="UTC")
        case "local-timestamp-millis" | "local-timestamp-micros", "long":
            return pa.timestamp("us")
    return None

"""JSON that is checked against a JSON Schema; in the log it is JSON, and its codec is ``json``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.aquifer.records.schemas.reference import SchemaReference, missing_package
from penstock.aquifer.records.schemas.registry_header import schema_ids, strip_header

if TYPE_CHECKING:
    import pyarrow

__all__ = ["JsonSchemaCodec"]

_LONGEST: Final = 200
"""Characters of a reason: the library's texts repeat the value."""


class JsonSchemaCodec:
    """Elements are what JSON can say, and fit a schema. References to other files are not followed."""

    name = "json"

    def __init__(self, reference: SchemaReference) -> None:
        reference.check_parameters(("id",))
        try:
            import jsonschema
            import referencing
        except ImportError as error:
            missing_package("jsonschema", "jsonschema", error)
        self._reference = reference
        self._ids = schema_ids(reference)
        if any(path is not None for path in self._ids.values()):
            raise reference.wrong("records of all ids have to fit this schema; write id=7 without a file")
        try:
            schema = msgspec.json.decode(reference.file())
            kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
            kind.check_schema(schema)
        except msgspec.DecodeError as error:
            raise reference.wrong(f"{reference.path} is not JSON: {error}") from None
        except jsonschema.SchemaError as error:
            raise reference.wrong(f"{reference.path} is not a JSON Schema: {error.message}") from None
        self._schema = schema
        self._unresolvable: type[Exception] = referencing.exceptions.Unresolvable
        # An empty registry: without one, the library would fetch references from the network.
        self._errors = kind(schema, registry=referencing.Registry()).iter_errors
        self._encode = msgspec.json.Encoder().encode
        self.decode = msgspec.json.Decoder().decode
        """The element in a record, which was checked on its way into the log."""

    def read(self, data: bytes) -> Any:
        """The value in what was sent; ValueError if it is not JSON, or does not fit the schema."""
        if self._ids:
            _, data = strip_header(data, self._ids)
        value = self.decode(data)
        if value is None:
            raise ValueError("null is not a record")
        self._check(value)
        return value

    checked = read

    def encode(self, element: Any) -> bytes:
        """The record for a value; ValueError if it does not fit the schema."""
        self._check(element)
        return self._encode(element)

    def _check(self, value: Any) -> None:
        try:
            error = next(self._errors(value), None)
        except self._unresolvable as missing:
            raise self._reference.wrong(f"a reference of the schema leads nowhere: {missing}") from None
        if error is not None:
            text = error.message if len(error.message) <= _LONGEST else f"{error.message[:_LONGEST]}…"
            raise ValueError(f"it does not fit the schema at {error.json_path}: {text}")

    def row(self, element: Any) -> Any:
        """The element itself: columns can hold all of its values."""
        return element

    def arrow_schema(self) -> pyarrow.Schema:
        """The columns of its properties; ValueError names one that no column can hold."""
        import pyarrow as pa

        if not isinstance(self._schema, dict) or self._schema.get("type") != "object":
            raise self._reference.wrong("columns need a schema of the type object")
        return pa.schema(list(self._column(self._schema, "$")))

    def _column(self, schema: Any, path: str) -> pyarrow.DataType:
        import pyarrow as pa

        kinds = schema.get("type") if isinstance(schema, dict) else None
        kinds = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind != "null"]
        simple = {"string": pa.string(), "boolean": pa.bool_(), "integer": pa.int64(), "number": pa.float64()}
        if set(kinds) == {"integer", "number"}:
            kinds = ["number"]
        if len(kinds) != 1 or kinds[0] is None:
            raise self._reference.wrong(f"no column can hold {path}: give it one type, such as string")
        if kinds[0] in simple:
            return simple[kinds[0]]
        if kinds[0] == "array":
            return pa.list_(self._column(schema.get("items"), f"{path}[*]"))
        properties = schema.get("properties")
        if not properties:
            raise self._reference.wrong(f"no column can hold {path}: an object needs properties")
        return pa.struct(
            [(name, self._column(inner, f"{path}.{name}")) for name, inner in properties.items()]
        )

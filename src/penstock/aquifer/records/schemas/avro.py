"""Avro: records in the log carry the fingerprint of their schema, as Avro's single-object encoding says.

What a sender sends is one datum: bare, in single-object encoding, or behind the header of a schema registry.
If it was written with an older schema, it is resolved to the present one, as Avro's rules of schema
resolution say, so that the log has one schema from then on.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

import msgspec

from penstock.aquifer.records.schemas.reference import EncodedRecord, SchemaReference, missing_package
from penstock.aquifer.records.schemas.registry_header import schema_ids, strip_header

if TYPE_CHECKING:
    import pyarrow

__all__ = ["AvroCodec"]

_MARKER: Final = b"\xc3\x01"
_PREFIX: Final = 10
"""Bytes of the marker and the fingerprint."""
_SHALLOW: Final = 2000
"""A datum of so many bytes may be nested as deeply as it likes: each level has a byte at least."""


class AvroCodec:
    """Elements are what Avro can say: for a record, a dictionary."""

    name = "avro"

    def __init__(self, reference: SchemaReference) -> None:
        reference.check_parameters(("id", "writer"))
        try:
            import fastavro
            from fastavro import _read_py as in_python
            from fastavro.read import SchemaResolutionError
        except ImportError as error:
            missing_package("avro", "fastavro", error)
        self._reference = reference
        self._write, self._read = fastavro.schemaless_writer, fastavro.schemaless_reader
        self._errors = (SchemaResolutionError, ValueError, TypeError, LookupError, EOFError, ArithmeticError)
        self._schema = self._load(None)
        self._prefix = self._prefix_of(self._schema)
        self._writers: dict[bytes, Any] = {self._prefix: self._schema}
        for path in reference.given("writer"):
            older = self._load(path)
            self._writers[self._prefix_of(older)] = older
        self._ids = {number: self._load(path) for number, path in schema_ids(reference).items()}
        for older in self._ids.values():
            self._writers[self._prefix_of(older)] = older
        self._bare = self._single_writer()
        known = self._writers.values()
        self._read_deep = in_python.schemaless_reader if any(map(_contains_itself, known)) else None
        """Reads a datum that may be nested without end. What is compiled ends the process in that case."""
        self._has_uuids = any(each.get("logicalType") == "uuid" for each in _parts(self._schema))

    def _load(self, path: str | None) -> Any:
        import fastavro
        from fastavro.schema import SchemaParseException, UnknownType

        if path is None and hasattr(self, "_schema"):
            return self._schema
        try:
            return fastavro.parse_schema(msgspec.json.decode(self._reference.file(path)))
        except msgspec.DecodeError as error:
            raise self._reference.wrong(f"{path or self._reference.path} is not JSON: {error}") from None
        except (SchemaParseException, UnknownType) as error:
            raise self._reference.wrong(
                f"{path or self._reference.path} is not an Avro schema: {error}"
            ) from None

    @staticmethod
    def _prefix_of(schema: Any) -> bytes:
        from fastavro.schema import fingerprint, to_parsing_canonical_form

        return _MARKER + bytes.fromhex(fingerprint(to_parsing_canonical_form(schema), "CRC-64-AVRO"))

    def _single_writer(self) -> Any:
        """The schema of data without anything that tells: that of ``writer``, if there is exactly one."""
        given = self._reference.given("writer")
        return self._load(given[0]) if len(given) == 1 else self._schema

    # ---------------------------------------------------------------- the codec
    def encode(self, element: Any) -> bytes:
        """The record for an element; ValueError if it does not fit the schema."""
        if type(element) is EncodedRecord:
            return bytes(element)
        out = io.BytesIO(self._prefix)
        out.seek(_PREFIX)
        try:
            self._write(out, self._schema, element, strict_allow_default=True)
        except self._errors as error:
            raise ValueError(f"it does not fit the schema: {_told(error)}") from None
        return out.getvalue()

    def decode(self, value: bytes) -> Any:
        """The element in a record of the log."""
        writer = self._writers.get(value[:_PREFIX])
        if writer is None:
            raise ValueError(
                "it was written with another schema than those of this codec: name the older one, as in "
                f"avro:{self._reference.path}?writer=OLDER.avsc"
            )
        return self._datum(value[_PREFIX:], writer)

    # ---------------------------------------------------------------- the door
    def read(self, data: bytes) -> Any:
        """The element in what was sent; ValueError if it is not one datum of the schema."""
        return self._datum(*self._sent(data))

    def checked(self, data: bytes) -> Any:
        """The record for what was sent: the same bytes, unless they were written with an older schema."""
        datum, writer = self._sent(data)
        element = self._datum(datum, writer)
        if writer is self._schema:
            return EncodedRecord(self._prefix + datum)
        return EncodedRecord(self.encode(element))

    def _sent(self, data: bytes) -> tuple[bytes, Any]:
        if self._ids:
            writer, datum = strip_header(data, self._ids)
            return datum, writer
        writer = self._writers.get(data[:_PREFIX])
        return (data, self._bare) if writer is None else (data[_PREFIX:], writer)

    def _datum(self, data: bytes, writer: Any) -> Any:
        source = io.BytesIO(data)
        read = self._read if self._read_deep is None or len(data) <= _SHALLOW else self._read_deep
        try:
            element = read(source, writer, None if writer is self._schema else self._schema)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        except self._errors as error:
            raise ValueError(f"it is not a datum of the schema: {_told(error)}") from None
        if source.tell() != len(data):
            raise ValueError(f"{len(data) - source.tell()} bytes follow the datum: another schema wrote it")
        if element is None:
            raise ValueError("null is not a record")
        return element

    # ---------------------------------------------------------------- columns
    def row(self, element: Any) -> Any:
        """The element with its UUIDs as texts."""
        return _with_texts(element) if self._has_uuids else element

    def arrow_schema(self) -> pyarrow.Schema:
        """The columns of its fields; ValueError names one that no column can hold."""
        from penstock.aquifer.records.schemas.avro_columns import columns_of

        try:
            return columns_of(self._schema)
        except ValueError as error:
            raise self._reference.wrong(error) from None


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    """The schema and everything inside that is not a mere name."""
    if isinstance(schema, list):
        for each in schema:
            yield from _parts(each)
    elif isinstance(schema, dict):
        yield schema
        yield from _parts([field["type"] for field in schema.get("fields", ())])
        yield from _parts([schema[inner] for inner in ("type", "items", "values") if inner in schema])


def _contains_itself(schema: Any) -> bool:
    """Whether a record of the schema has a field that may have such a record in it."""
    return any(
        name == part.get("name")
        for part in _parts(schema)
        if part["type"] in ("record", "error")
        for name in _names(part["fields"])
    )


def _names(schema: Any) -> Iterator[str]:
    """The names of types in a schema."""
    if isinstance(schema, str):
        yield schema
    elif isinstance(schema, list):
        for each in schema:
            yield from _names(each)
    else:
        for inner in ("type", "items", "values", "fields"):
            yield from _names(schema.get(inner, []))


def _with_texts(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {name: _with_texts(each) for name, each in value.items()}
    return [_with_texts(each) for each in value] if isinstance(value, list) else value


def _told(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__

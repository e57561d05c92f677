"""Protocol Buffers: messages of a type from a file that ``protoc --descriptor_set_out`` has written.

Messages of an older or newer version of the type are accepted as Protocol Buffers themselves do: fields that
are missing have their default, and fields that are not known stay in the bytes.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from penstock.aquifer.records.schemas.reference import EncodedRecord, SchemaReference, missing_package
from penstock.aquifer.records.schemas.registry_header import message_indexes, schema_ids, strip_header

if TYPE_CHECKING:
    import pyarrow
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

__all__ = ["ProtobufCodec"]

_EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_TIMESTAMP: Final = "google.protobuf.Timestamp"


class ProtobufCodec:
    """Elements are dictionaries of the fields; those of an enum are names, a Timestamp is a datetime."""

    name = "protobuf"

    def __init__(self, reference: SchemaReference) -> None:
        reference.check_parameters(("id", "message"))
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
        except ImportError as error:
            missing_package("protobuf", "protobuf", error)
        self._reference = reference
        self._ids = schema_ids(reference)
        if any(path is not None for path in self._ids.values()):
            raise reference.wrong("messages of all ids are read with this file; write id=7 without a file")
        pool = descriptor_pool.DescriptorPool()
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(reference.file()).file
            for file in files:
                pool.Add(file)
        except (message.DecodeError, TypeError) as error:
            raise reference.wrong(
                f"{reference.path} is not a file of descriptors ({error}); make one with protoc "
                "--include_imports --descriptor_set_out=FILE"
            ) from None
        self._decode_error: type[Exception] = message.DecodeError
        self._descriptor = self._chosen(pool, files)
        self._class: Callable[[], Message] = message_factory.GetMessageClass(self._descriptor)
        self._to_dict = _reader(self._descriptor, {})

    def _chosen(self, pool: Any, files: Any) -> Descriptor:
        prefix = {file.name: f"{file.package}." if file.package else "" for file in files}
        names = [f"{prefix[file.name]}{kind.name}" for file in files for kind in file.message_type]
        own = [f"{prefix[file.name]}{kind.name}" for file in files[-1:] for kind in file.message_type]
        wanted = self._reference.given("message") or (own if len(own) == 1 else [])
        if len(wanted) != 1:
            raise self._reference.wrong(f"which message? Write ?message=NAME; there are {', '.join(names)}")
        try:
            found: Descriptor = pool.FindMessageTypeByName(wanted[0])
        except KeyError:
            raise self._reference.wrong(
                f"there is no message {wanted[0]}; there are {', '.join(names)}"
            ) from None
        return found

    # ---------------------------------------------------------------- the codec
    def encode(self, element: Any) -> bytes:
        """The message for a dictionary; ValueError if it does not fit the type."""
        if type(element) is EncodedRecord:
            return bytes(element)
        message = self._class()
        try:
            _fill(message, element)
            return bytes(message.SerializeToString())
        except (TypeError, ValueError, LookupError, AttributeError, OverflowError) as error:
            raise ValueError(f"it does not fit {self._descriptor.full_name}: {error}") from None

    def decode(self, value: bytes) -> Any:
        """The fields of a message."""
        return self._to_dict(self._parsed(value))

    # ---------------------------------------------------------------- the door
    def read(self, data: bytes) -> Any:
        """The fields of what was sent; ValueError if it is not a message of this type."""
        return self._to_dict(self._parsed(self._sent(data)))

    def checked(self, data: bytes) -> Any:
        """The bytes of the message, which were parsed; fields that are not known stay in them."""
        sent = self._sent(data)
        self._parsed(sent)
        return EncodedRecord(sent)

    def _sent(self, data: bytes) -> bytes:
        if not self._ids:
            return data
        _, rest = strip_header(data, self._ids)
        indexes, sent = message_indexes(rest)
        if indexes != _indexes_of(self._descriptor):
            raise ValueError(
                f"its header names another message of the schema than {self._descriptor.full_name}"
            )
        return sent

    def _parsed(self, data: bytes) -> Message:
        message = self._class()
        try:
            message.ParseFromString(data)
        except self._decode_error as error:
            raise ValueError(f"it is not a {self._descriptor.full_name}: {error}") from None
        return message

    # ---------------------------------------------------------------- columns
    def row(self, element: Any) -> Any:
        """The element itself: columns can hold all of its values."""
        return element

    def arrow_schema(self) -> pyarrow.Schema:
        """The columns of its fields; ValueError names one that no column can hold."""
        import pyarrow as pa

        try:
            return pa.schema(list(_struct(self._descriptor, ())))
        except ValueError as error:
            raise self._reference.wrong(error) from None


def _indexes_of(descriptor: Descriptor) -> list[int]:
    outer = descriptor.containing_type
    if outer is not None:
        return [*_indexes_of(outer), [each.name for each in outer.nested_types].index(descriptor.name)]
    return [list(descriptor.file.message_types_by_name).index(descriptor.name)]


def _is_map(field: FieldDescriptor) -> bool:
    kind = field.message_type
    return kind is not None and kind.GetOptions().map_entry


# ---------------------------------------------------------------- from messages
def _reader(descriptor: Descriptor, known: dict[str, Any]) -> Callable[[Any], dict[str, Any]]:
    """Makes a dictionary of a message."""
    if descriptor.full_name in known:  # A message that contains itself.
        return lambda message: known[descriptor.full_name](message)
    known[descriptor.full_name] = None
    parts = [(field.name, _field_reader(field, known)) for field in descriptor.fields]

    def read(message: Any) -> dict[str, Any]:
        return {name: of(message) for name, of in parts}

    known[descriptor.full_name] = read
    return read


def _field_reader(field: FieldDescriptor, known: dict[str, Any]) -> Callable[[Any], Any]:
    name = field.name
    if _is_map(field):
        value = _value_reader(field.message_type.fields_by_name["value"], known)
        return lambda message: {key: value(each) for key, each in getattr(message, name).items()}
    value = _value_reader(field, known)
    if field.is_repeated:
        return lambda message: [value(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: value(getattr(message, name)) if message.HasField(name) else None
    return lambda message: value(getattr(message, name))


def _value_reader(field: FieldDescriptor, known: dict[str, Any]) -> Callable[[Any], Any]:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return _time_of
        return _reader(field.message_type, known)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    return lambda value: value


def _time_of(timestamp: Any) -> datetime.datetime:
    try:
        return _EPOCH + datetime.timedelta(seconds=timestamp.seconds, microseconds=timestamp.nanos // 1000)
    except OverflowError:
        raise ValueError(f"the time {timestamp.seconds} s is beyond the year 9999") from None


# ---------------------------------------------------------------- to messages
def _fill(message: Any, fields: Any) -> None:
    if not isinstance(fields, dict):
        raise TypeError(f"a message is made of a dictionary, not of {type(fields).__name__}")
    for name, value in fields.items():
        field = message.DESCRIPTOR.fields_by_name.get(name)
        if field is None:
            raise KeyError(f"{message.DESCRIPTOR.full_name} has no field {name!r}")
        if value is None:
            continue
        if _is_map(field):
            entry = field.message_type.fields_by_name["value"]
            for key, each in value.items():
                if entry.message_type is not None:
                    _fill_message(getattr(message, name)[key], each)
                else:
                    getattr(message, name)[key] = _scalar(entry, each)
        elif field.is_repeated:
            for each in value:
                if field.message_type is not None:
                    _fill_message(getattr(message, name).add(), each)
                else:
                    getattr(message, name).append(_scalar(field, each))
        elif field.message_type is not None:
            getattr(message, name).SetInParent()
            _fill_message(getattr(message, name), value)
        else:
            setattr(message, name, _scalar(field, value))


def _fill_message(message: Any, value: Any) -> None:
    if isinstance(value, datetime.datetime) and message.DESCRIPTOR.full_name == _TIMESTAMP:
        since = value.astimezone(datetime.UTC) - _EPOCH
        message.seconds = since.days * 86400 + since.seconds
        message.nanos = since.microseconds * 1000
    else:
        _fill(message, value)


def _scalar(field: FieldDescriptor, value: Any) -> Any:
    if field.enum_type is not None and isinstance(value, str):
        known = field.enum_type.values_by_name.get(value)
        if known is not None:
            return known.number
        if value.lstrip("-").isdigit():
            return int(value)
        raise KeyError(f"{field.enum_type.full_name} has no value {value!r}")
    if isinstance(value, decimal.Decimal) and value == value.to_integral_value():
        return int(value)  # As columns have the largest whole numbers.
    return value


# ---------------------------------------------------------------- columns
def _struct(descriptor: Descriptor, within: tuple[str, ...]) -> pyarrow.DataType:
    import pyarrow as pa

    if descriptor.full_name in within:
        raise ValueError(f"no column can hold {descriptor.full_name}: it contains itself")
    inside = (*within, descriptor.full_name)
    fields = []
    for field in descriptor.fields:
        if _is_map(field):
            entry = field.message_type.fields_by_name
            kind = pa.map_(_column(entry["key"], inside), _column(entry["value"], inside))
        else:
            kind = _column(field, inside)
            kind = pa.list_(kind) if field.is_repeated else kind
        fields.append((field.name, kind))
    if not fields:
        raise ValueError(f"no column can hold {descriptor.full_name}: it has no fields")
    return pa.struct(fields)


def _column(field: FieldDescriptor, within: tuple[str, ...]) -> pyarrow.DataType:
    import pyarrow as pa

    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return pa.timestamp("us", tz="UTC")
        return _struct(field.message_type, within)
    if field.enum_type is not None:
        return pa.string()
    kinds = {
        field.CPPTYPE_INT32: pa.int32(),
        field.CPPTYPE_INT64: pa.int64(),
        field.CPPTYPE_UINT32: pa.int64(),  # Spark has no unsigned numbers.
        field.CPPTYPE_UINT64: pa.decimal128(20, 0),
        field.CPPTYPE_DOUBLE: pa.float64(),
        field.CPPTYPE_FLOAT: pa.float32(),
        field.CPPTYPE_BOOL: pa.bool_(),
    }
    if field.cpp_type in kinds:
        return kinds[field.cpp_type]
    return pa.binary() if field.type == field.TYPE_BYTES else pa.string()

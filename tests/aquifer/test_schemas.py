"""Codecs with a schema: what fits is stored, what does not is said, and versions are resolved."""

from __future__ import annotations

import contextlib
import datetime
import decimal
import io
import json
import struct
import sys
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from penstock.aquifer import AquiferPublisher, EncodedRecord, Gateway, SchemaCodec, open_schema
from penstock.aquifer.records.codecs import codec_named
from penstock.aquifer.records.schemas.registry_header import message_indexes
from penstock.streams import Flux

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": ["null", "string"], "default": None}],
}
WIDER = {
    **ORDER,
    "fields": [*ORDER["fields"], {"name": "count", "type": "int", "default": 1}],
}
JSON_SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["id"],
}


def written(path: Path, schema: Any) -> Path:
    path.write_text(json.dumps(schema))
    return path


def datum(schema: Any, element: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), element)
    return out.getvalue()


def header(number: int) -> bytes:
    return struct.pack(">bI", 0, number)


@pytest.fixture
def avro(tmp_path: Path) -> Path:
    return written(tmp_path / "order.avsc", ORDER)


@pytest.fixture
def proto(tmp_path: Path) -> Path:
    """What protoc would write for two messages, one of which has all kinds of fields."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Other").field.add(name="x", number=1, type=kinds.TYPE_BOOL, label=1)
    order = file.message_type.add(name="Order")
    order.field.add(name="id", number=1, type=kinds.TYPE_INT64, label=1)
    order.field.add(name="who", number=2, type=kinds.TYPE_STRING, label=1)
    order.field.add(name="tags", number=3, type=kinds.TYPE_STRING, label=3)
    order.field.add(name="kind", number=4, type=kinds.TYPE_ENUM, type_name=".shop.Order.Kind", label=1)
    order.field.add(name="at", number=5, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.At", label=1)
    order.field.add(
        name="each", number=6, type=kinds.TYPE_MESSAGE, type_name=".shop.Order.EachEntry", label=3
    )
    order.field.add(name="raw", number=7, type=kinds.TYPE_BYTES, label=1)
    order.enum_type.add(name="Kind").value.add(name="NEW", number=0)
    order.enum_type[0].value.add(name="OLD", number=1)
    at = order.nested_type.add(name="At")
    at.field.add(name="x", number=1, type=kinds.TYPE_DOUBLE, label=1)
    entry = order.nested_type.add(name="EachEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=kinds.TYPE_INT32, label=1)
    path = tmp_path / "shop.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString())
    return path


def message(proto: Path, **fields: Any) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(proto.read_bytes()).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(
        **fields
    ).SerializeToString()


# ---------------------------------------------------------------- through a gateway
@pytest.mark.parametrize("kind", ["avro", "protobuf", "jsonschema"])
def test_elements_come_out_as_they_went_in(kind: str, avro: Path, proto: Path, tmp_path: Path) -> None:
    schema = written(tmp_path / "order.json", JSON_SCHEMA)
    codec, element = {
        "avro": (f"avro:{avro}", {"id": 1, "who": "me"}),
        "jsonschema": (f"jsonschema:{schema}", {"id": 1, "tags": ["a"]}),
        "protobuf": (
            f"protobuf:{proto}?message=shop.Order",
            {
                "id": 1,
                "who": "",
                "tags": ["a"],
                "kind": "OLD",
                "at": {"x": 0.5},
                "each": {"k": 2},
                "raw": b"\xff",
            },
        ),
    }[kind]
    with Gateway(Flux.just(element), "tcp://127.0.0.1:0", codec=codec) as gateway:
        assert list(AquiferPublisher(gateway.endpoint, codec=codec).flux()) == [element]
        assert gateway.status().codec == ("json" if kind == "jsonschema" else kind)


def test_an_element_that_does_not_fit_is_a_dead_letter(avro: Path) -> None:
    source = Flux.just({"id": 1}, {"id": "two"}, {"id": 3, "more": 4})
    with Gateway(source, "tcp://127.0.0.1:0", codec=f"avro:{avro}", on_bad_record="dead-letter") as gateway:
        assert [order["id"] for order in AquiferPublisher(gateway.endpoint, codec=f"avro:{avro}").flux()] == [
            1
        ]
        letters = list(AquiferPublisher(f"{gateway.endpoint}/dead-letters", codec="json").flux())
        assert len(letters) == 2
        assert "does not fit the schema" in letters[0]["reason"]


# ---------------------------------------------------------------- Avro
orders = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1), "who": st.none() | st.text(max_size=9)}
)


@given(orders)
def test_an_avro_record_is_what_was_encoded(order: dict[str, Any]) -> None:
    codec = _codec_of(ORDER)
    assert codec.decode(codec.encode(order)) == order
    sent = codec.checked(datum(ORDER, order))
    assert type(sent) is EncodedRecord
    assert codec.encode(sent) == codec.encode(order)
    assert codec.read(datum(ORDER, order)) == order
    assert codec.read(codec.encode(order)) == order, "in single-object encoding"


def _codec_of(schema: Any) -> SchemaCodec:
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".avsc") as file:
        json.dump(schema, file)
        file.flush()
        return open_schema(f"avro:{file.name}")


@given(orders)
def test_an_older_version_is_resolved_to_the_present_one(order: dict[str, Any]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        old, new = written(Path(folder, "1"), ORDER), written(Path(folder, "2"), WIDER)
        by_id = open_schema(f"avro:{new}?id=7&id=3={old}")
        by_name, older = open_schema(f"avro:{new}?writer={old}"), open_schema(f"avro:{old}")
    wider = {**order, "count": 1}
    assert by_id.read(header(3) + datum(ORDER, order)) == wider
    assert by_id.decode(by_id.encode(by_id.checked(header(3) + datum(ORDER, order)))) == wider
    assert by_id.read(header(7) + datum(WIDER, {**order, "count": 5}))["count"] == 5
    assert by_name.read(datum(ORDER, order)) == wider
    assert by_name.decode(older.encode(order)) == wider, "a log has records from before"


def test_a_schema_that_is_not_compatible_says_so(tmp_path: Path, avro: Path) -> None:
    needs = {**ORDER, "fields": [*ORDER["fields"], {"name": "must", "type": "int"}]}
    codec = open_schema(f"avro:{written(tmp_path / 'new', needs)}?writer={avro}")
    with pytest.raises(ValueError, match=r"No default value for .*must"):
        codec.read(datum(ORDER, {"id": 1}))


@pytest.mark.parametrize(
    ("parameters", "data", "reason"),
    [
        ("", b"", "EOFError|not a datum"),
        ("", datum(ORDER, {"id": 1}) + b"x", "1 bytes follow the datum"),
        ("?id=7", datum(ORDER, {"id": 1}), "no header of a schema registry"),
        ("?id=7", header(8) + datum(ORDER, {"id": 1}), "the id 8 of the registry, and only 7 is known"),
        ("?id=7", header(7), "not a datum"),
    ],
)
def test_what_is_not_a_datum_says_why(avro: Path, parameters: str, data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        open_schema(f"avro:{avro}{parameters}").checked(data)


@given(st.binary(max_size=40))
def test_no_bytes_make_a_codec_raise_anything_but_a_value_error(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        _codec_of(WIDER).checked(data)


# ---------------------------------------------------------------- Protocol Buffers
def test_a_message_is_checked_and_its_unknown_fields_stay(proto: Path) -> None:
    codec = open_schema(f"protobuf:{proto}?message=shop.Order")
    newer = message(proto, id=1, kind=1) + b"\xa0\x06\x05"  # And the field 100, which the file does not have.
    assert codec.read(newer)["kind"] == "OLD"
    assert codec.encode(codec.checked(newer)) == newer
    for bad in (b"\x08", b"\x12\xff"):
        with pytest.raises(ValueError, match=r"not a shop\.Order"):
            codec.checked(bad)


def test_the_header_of_a_registry_names_the_message(proto: Path) -> None:
    codec = open_schema(f"protobuf:{proto}?message=shop.Order&id=7")
    data = message(proto, id=5)
    assert codec.read(header(7) + b"\x02\x02" + data)["id"] == 5
    with pytest.raises(ValueError, match="another message"):
        codec.read(header(7) + b"\x00" + data)
    with pytest.raises(ValueError, match="message indexes"):
        codec.read(header(7) + b"\x80")


@given(st.lists(st.integers(0, 300), min_size=1, max_size=4), st.binary(max_size=5))
def test_message_indexes_are_read_as_they_are_written(indexes: list[int], rest: bytes) -> None:
    written_out = b"".join(_varint(2 * number) for number in (len(indexes), *indexes))
    assert message_indexes(written_out + rest) == (indexes, rest)


def _varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


@pytest.mark.parametrize(
    "wrong", [{"id": "x"}, {"nothing": 1}, {"kind": "WHAT"}, {"tags": 5}, {"id": 2**70}, [1], {"at": 3}]
)
def test_a_dictionary_that_is_not_a_message_says_why(proto: Path, wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"does not fit shop\.Order"):
        open_schema(f"protobuf:{proto}?message=shop.Order").encode(wrong)


# ---------------------------------------------------------------- JSON Schema
def test_json_is_checked_against_its_schema(tmp_path: Path) -> None:
    codec = open_schema(f"jsonschema:{written(tmp_path / 's', JSON_SCHEMA)}")
    assert codec.read(b'{"id": 1, "more": true}') == {"id": 1, "more": True}
    for data, reason in {
        b'{"id": "1"}': r"at \$\.id: '1' is not of type 'integer'",
        b"{}": r"at \$: 'id' is a required property",
        b'{"id": 1': "truncated",
        b"null": "null is not a record",
    }.items():
        with pytest.raises(ValueError, match=reason):
            codec.checked(data)


def test_references_are_not_fetched(tmp_path: Path) -> None:
    schema = {"$ref": "http://127.0.0.1:9/schema.json"}
    codec = open_schema(f"jsonschema:{written(tmp_path / 's', schema)}")
    with pytest.raises(ValueError, match="leads nowhere"):
        codec.read(b"1")


# ---------------------------------------------------------------- what is wrong with a codec
@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("avro:", None, "names no file; write avro:FILE"),
        ("avro:/nowhere.avsc", None, "cannot read /nowhere.avsc: No such file"),
        ("avro:{}", "{", "is not JSON"),
        ("avro:{}", '{"type": "rekord"}', "is not an Avro schema"),
        ("avro:{}?od=7", json.dumps(ORDER), "no parameter 'od'; there are id, writer"),
        ("avro:{}?id=seven", json.dumps(ORDER), "'seven' is not a number of a schema registry"),
        ("jsonschema:{}", '{"type": 7}', "is not a JSON Schema"),
        ("protobuf:{}", "message Order {}", "make one with protoc"),
        ("parquet:{}", "", "no codec named"),
    ],
)
def test_a_wrong_codec_says_what_to_write(
    tmp_path: Path, name: str, content: str | None, reason: str
) -> None:
    if content is not None:
        (tmp_path / "schema").write_text(content)
    with pytest.raises(ValueError, match=reason):
        codec_named(name.format(tmp_path / "schema"))


def test_a_descriptor_file_with_several_messages_asks_which(proto: Path) -> None:
    with pytest.raises(ValueError, match=r"which message\? .* there are shop\.Other, shop\.Order"):
        open_schema(f"protobuf:{proto}")
    with pytest.raises(ValueError, match=r"no message Order; there are"):
        open_schema(f"protobuf:{proto}?message=Order")


@pytest.mark.parametrize(
    ("kind", "package"), [("avro", "fastavro"), ("jsonschema", "jsonschema"), ("protobuf", "google.protobuf")]
)
def test_a_missing_package_names_its_extra(
    kind: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"pip install 'penstock-streams\[schemas\]'"):
        open_schema(f"{kind}:{written(tmp_path / 'schema', ORDER)}")


# ---------------------------------------------------------------- columns
def test_a_schema_gives_columns(tmp_path: Path, avro: Path, proto: Path) -> None:
    import pyarrow as pa

    fields = {
        "day": {"type": "int", "logicalType": "date"},
        "at": {"type": "long", "logicalType": "timestamp-millis"},
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        "kind": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]},
        "inner": ORDER,
        "again": "Order",
        "many": {"type": "array", "items": "double"},
        "each": {"type": "map", "values": ["null", "int"]},
        "four": {"type": "fixed", "name": "Four", "size": 4},
    }
    schema = {
        "type": "record",
        "name": "All",
        "fields": [{"name": name, "type": kind} for name, kind in fields.items()],
    }
    codec = open_schema(f"avro:{written(tmp_path / 'all', schema)}")
    moment = datetime.datetime(2026, 1, 2, 3, tzinfo=datetime.UTC)
    element = {
        "day": moment.date(),
        "at": moment,
        "price": decimal.Decimal("1.50"),
        "kind": "B",
        "inner": {"id": 1, "who": None},
        "again": {"id": 2, "who": "x"},
        "many": [1.5],
        "each": {"a": None},
        "four": b"1234",
    }
    (row,) = pa.RecordBatch.from_pylist(
        [codec.decode(codec.encode(element))], schema=codec.arrow_schema()
    ).to_pylist()
    assert {**row, "each": dict(row["each"])} == element
    assert open_schema(f"protobuf:{proto}?message=shop.Order").arrow_schema().names == [
        *("id", "who", "tags", "kind", "at", "each", "raw")
    ]
    assert open_schema(f"jsonschema:{written(tmp_path / 's', JSON_SCHEMA)}").arrow_schema() == pa.schema(
        {"id": pa.int64(), "tags": pa.list_(pa.string())}
    )


@pytest.mark.parametrize(
    ("kind", "schema", "reason"),
    [
        ("avro", "long", "columns need a schema of the type record"),
        (
            "avro",
            {"type": "record", "name": "R", "fields": [{"name": "u", "type": ["int", "string"]}]},
            r"R\.u: it is a union of several types",
        ),
        (
            "avro",
            {"type": "record", "name": "R", "fields": [{"name": "r", "type": ["null", "R"]}]},
            r"R\.r: it contains itself",
        ),
        ("jsonschema", {"type": "object", "properties": {"a": {}}}, r"\$\.a: give it one type"),
        ("jsonschema", {"type": "string"}, "type object"),
    ],
)
def test_a_field_that_no_column_can_hold_is_named(
    tmp_path: Path, kind: str, schema: Any, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        open_schema(f"{kind}:{written(tmp_path / 's', schema)}").arrow_schema()

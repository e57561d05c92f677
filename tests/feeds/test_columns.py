"""Records with a schema at the door: checked, and stored as they are or as columns."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Gateway, Record, SqliteJournal
from penstock.streams import Flux
from tests.cli.running import Gateway as GatewayProgram
from tests.cli.running import penstock

ANYWHERE = "tcp://127.0.0.1:0"
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "who", "type": ["null", "string"], "default": None}],
}
SCHEMA = {
    "type": "object",
    "properties": {"id": {"type": "integer"}, "price": {"type": ["number", "null"]}},
    "required": ["id"],
}


@pytest.fixture
def avro(tmp_path: Path) -> str:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    return f"avro:{tmp_path / 'order.avsc'}"


@pytest.fixture
def schema(tmp_path: Path) -> str:
    (tmp_path / "order.json").write_text(json.dumps(SCHEMA))
    return f"jsonschema:{tmp_path / 'order.json'}"


def datum(element: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(ORDER), element)
    return out.getvalue()


def rows_of(endpoint: str) -> list[dict[str, Any]]:
    return [row for batch in AquiferPublisher(endpoint, codec="arrow").flux() for row in batch.to_pylist()]


def letters_of(gateway: Gateway) -> list[dict[str, Any]]:
    return list(AquiferPublisher(f"{gateway.endpoint}/dead-letters", codec="json").flux())


def test_avro_that_is_posted_is_checked(avro: str) -> None:
    import httpx2

    options = feeds.FeedOptions(codec=avro, on_bad_line="dead-letter")
    with (
        feeds.open("webhook+http://127.0.0.1:0/in", options) as feed,
        Gateway(feed, ANYWHERE, codec=avro, on_bad_record="dead-letter") as gateway,
        httpx2.Client(base_url=f"http://127.0.0.1:{feed.port}") as client,  # type: ignore[attr-defined]
    ):
        assert client.post("/in", content=datum({"id": 1, "who": "me"})).json() == {"stored": 1}
        assert client.post("/in", content=b"\xff").json() == {"stored": 0, "dead_letters": 1}
        rows = client.post("/in", content=b"id,who\n2,you\nx,\n", headers={"content-type": "text/csv"})
        assert rows.json() == {"stored": 1, "dead_letters": 1}
        assert list(AquiferPublisher(gateway.endpoint, codec=avro).flux().take(2)) == [
            {"id": 1, "who": "me"},
            {"id": 2, "who": "you"},
        ]
        letters = list(AquiferPublisher(f"{gateway.endpoint}/dead-letters", codec="json").flux().take(2))
        assert "not a datum of the schema" in letters[0]["reason"]
        assert letters[1]["reason"] == "id: 'x' is not of the type int64"


def test_lines_of_json_become_columns(tmp_path: Path, schema: str) -> None:
    lines = [b'{"id": %d, "price": %d.5}' % (n, n) for n in range(2000)]
    lines[500], lines[700], lines[900] = b'{"id": "x"}', b"{", b'{"id": 99999999999999999999}'
    (tmp_path / "in").write_bytes(b"\n".join(lines) + b"\n")
    options = feeds.FeedOptions(codec=schema, columns=True, on_bad_line="dead-letter")
    with (
        feeds.open(f"file:{tmp_path / 'in'}", options) as feed,
        Gateway(feed, ANYWHERE, codec=options.stored_codec, on_bad_record="dead-letter") as gateway,
    ):
        batches = list(AquiferPublisher(gateway.endpoint, codec="arrow").flux())
        assert batches[0].schema == pa.schema({"id": pa.int64(), "price": pa.float64()})
        rows = [row for batch in batches for row in batch.to_pylist()]
        assert [row["id"] for row in rows] == [n for n in range(2000) if n not in (500, 700, 900)]
        assert len(batches) < 20, "rows are together in batches"
        reasons = [letter["reason"] for letter in letters_of(gateway)]
        assert len(reasons) == 3
        assert any("does not fit its columns" in reason for reason in reasons)


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_value_that_no_column_can_hold_follows_the_policy(tmp_path: Path, schema: str, policy: Any) -> None:
    (tmp_path / "in").write_bytes(b'{"id": 1}\n{"id": 99999999999999999999}\n{"id": 2}\n')
    options = feeds.FeedOptions(codec=schema, columns=True, on_bad_line=policy)
    with (
        feeds.open(f"file:{tmp_path / 'in'}", options) as feed,
        Gateway(feed, ANYWHERE, codec=options.stored_codec, on_bad_record=policy) as gateway,
    ):
        gateway.join()
        if policy == "fail":
            assert "does not fit its columns" in (gateway.failure or "")
        else:
            assert [row["id"] for row in rows_of(gateway.endpoint)] == [1, 2]
            assert gateway.skipped == 1


def test_columns_continue_at_the_position_of_the_journal(tmp_path: Path, schema: str) -> None:
    source, journal = tmp_path / "in", str(tmp_path / "log.db")
    options = feeds.FeedOptions(codec=schema, columns=True)
    source.write_bytes(b'{"id": 1}\n{"id": 2}\n')
    for expected in ([1, 2], [1, 2, 3]):
        with (
            feeds.open(f"file:{source}", options) as feed,
            Gateway(feed, ANYWHERE, codec=options.stored_codec, journal=SqliteJournal(journal)) as gateway,
        ):
            assert [row["id"] for row in rows_of(gateway.endpoint)] == expected
        with source.open("ab") as more:
            more.write(b'{"id": %d}\n' % (len(expected) + 1))


def test_columns_keep_the_keys_of_records(schema: str) -> None:
    codec = feeds.FeedOptions(codec=schema, columns=True).stored_codec
    source = Flux.range(0, 100).map(lambda n: Record({"id": n}, key=b"%d" % n) if n % 2 else {"id": n})
    with Gateway(source, ANYWHERE, codec=codec) as gateway:
        assert [row["id"] for row in rows_of(gateway.endpoint)] == list(range(100))
        records = list(AquiferPublisher(gateway.endpoint, codec="json", records=True).flux())
        assert [record.key for record in records] == [b"%d" % n if n % 2 else None for n in range(100)]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"codec": "json", "columns": True}, r"--columns\) needs a codec with a schema"),
        ({"codec": "avro:/nowhere"}, r"^codec='avro:/nowhere' \(--codec\): cannot read /nowhere"),
        ({"codec": "yaml"}, "'yaml' is not a codec; write bytes, text, json, msgpack, jsonschema:FILE"),
    ],
)
def test_wrong_options_say_what_to_write(options: dict[str, Any], text: str) -> None:
    with pytest.raises(feeds.BadFeed, match=text):
        feeds.FeedOptions(**options)


@pytest.mark.slow
def test_the_command_line_checks_and_shows_what_has_a_schema(tmp_path: Path, schema: str) -> None:
    source = tmp_path / "in"
    source.write_bytes(b'{"id": 1, "price": 2}\n{"id": "x"}\n')
    arguments = ("--source", f"file:{source}", "--follow", "--codec", schema, "--on-bad-line", "dead-letter")
    with GatewayProgram(*arguments, "--columns", "--journal", str(tmp_path / "log.db")) as gateway:
        shown = penstock("tail", gateway.endpoint, "--count", "1", "--codec", "json")
        assert shown.stdout == '{"id":1,"price":2.0}\n'
        letter = json.loads(penstock("tail", f"{gateway.endpoint}/dead-letters", "--count", "1").stdout)
        assert letter["reason"] == "it does not fit the schema at $.id: 'x' is not of type 'integer'"
        gateway.process.send_signal(signal.SIGKILL)
    with source.open("ab") as more:
        more.write(b'{"id": 2}\n')
    with GatewayProgram(*arguments, "--columns", "--journal", str(tmp_path / "log.db")) as gateway:
        shown = penstock("tail", gateway.endpoint, "--count", "2", "--codec", "json")
        assert shown.stdout.splitlines() == ['{"id":1,"price":2.0}', '{"id":2,"price":null}']
    wrong = penstock("gateway", "--source", f"file:{source}", "--codec", "avro:/nowhere")
    assert (wrong.returncode, "--codec" in wrong.stderr) == (2, True), wrong.stderr

"""Each stream of a gateway can have options of its own."""

from __future__ import annotations

import contextlib
import io
import json
from contextlib import ExitStack
from pathlib import Path

import fastavro
import pytest

from penstock.aquifer import AquiferPublisher, GatewayOptions, JournalOptions
from penstock.cli import main
from penstock.cli.gateway.served import open_streams
from penstock.cli.gateway.stream_options import OptionsOfStream, StreamOption, parse_stream_option
from penstock.feeds import FeedOptions
from tests.cli.running import Gateway

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
FOR_ALL = OptionsOfStream(FeedOptions(codec="json"), JournalOptions(max_records=7), GatewayOptions())


@pytest.mark.parametrize(
    ("text", "option"),
    [
        ("orders.codec=avro:o.avsc?id=7", StreamOption("orders", "codec", "avro:o.avsc?id=7")),
        ("eu.orders.max-bytes=64M", StreamOption("eu.orders", "max-bytes", 64 << 20)),
        ("app.follow", StreamOption("app", "follow", True)),
        ("app.on-bad-line=skip", StreamOption("app", "on-bad-line", "skip")),
        ("app.compress=zstd:9", StreamOption("app", "compress", "zstd:9")),
    ],
)
def test_it_is_read_as_the_option_of_the_gateway_is(text: str, option: StreamOption) -> None:
    assert parse_stream_option(text) == option


def test_a_stream_has_what_is_given_for_it_and_else_what_is_given_for_all() -> None:
    given = [parse_stream_option("a.codec=text"), parse_stream_option("a.max-records=5")]
    given += [parse_stream_option("b.max-line=10"), parse_stream_option("b.compress=zstd")]

    a, b = (FOR_ALL.of(name, given) for name in "ab")

    assert (a.feed, a.journal.max_records, a.gateway) == (FeedOptions(codec="text"), 5, FOR_ALL.gateway)
    assert (b.feed, b.journal) == (FeedOptions(codec="json", max_line=10), FOR_ALL.journal)
    assert b.gateway.compress == "zstd"


def test_each_journal_has_the_bounds_of_its_stream(tmp_path: Path) -> None:
    options = OptionsOfStream(FeedOptions(), JournalOptions(path=str(tmp_path)), GatewayOptions())
    own = [parse_stream_option("a.max-records=5")]
    with ExitStack() as opened:
        a, b = open_streams(None, ["a=writers", "b=writers"], options, own, opened)
        assert (a.journal.max_records, b.journal.max_records) == (5, 10_000_000)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--stream-option", "codec=json"], "write NAME.OPTION=VALUE, as in orders.codec=json"),
        (["--stream-option", "a.kodec=json"], "has no option 'kodec' (did you mean codec?); it has codec, "),
        (["--stream-option", "a.journal=x.db"], "has no option 'journal'"),
        (["--stream-option", "a.codec"], "a.codec needs a value; write a.codec=CODEC"),
        (["--stream-option", "a.codec=xml"], "a.codec: 'xml' is not a codec"),
        (["--stream-option", "a.follow=yes"], "a.follow takes no value; leave out =yes"),
        (["--stream-option", "a.restart=soon"], "'soon' is not known; write never, on-failure, always"),
        (["--stream-option", "aa.codec=json"], "no stream 'aa' (did you mean a?); there are a, b"),
        (["--stream-option", "a.columns"], "--stream-option a: columns=True (--columns) needs a codec"),
        (["--stream-option", "a.max-age=1h"], "--max-age needs a journal in a file"),
        (["--stream-option", "a.follow", "--stream-option", "a.follow"], "a.follow is given twice"),
    ],
)
def test_a_wrong_one_is_told_in_a_line(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with contextlib.suppress(SystemExit):
        assert main(["gateway", "--stream", "a=writers", "--stream", "b=writers", *arguments]) == 2

    told = capsys.readouterr().err
    assert says in told
    assert told.count("\n") == 1


def test_without_streams_there_is_nothing_to_have_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gateway", "--source", "stdin", "--stream-option", "a.codec=json"]) == 2
    assert "give them with --stream NAME=SOURCE, or use the option itself" in capsys.readouterr().err


def test_one_gateway_serves_json_and_avro_and_drops_the_bad_lines_of_one(tmp_path: Path) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, fastavro.parse_schema(ORDER), {"id": 1})
    (tmp_path / "orders").write_bytes(datum.getvalue() + b"\n")
    (tmp_path / "app").write_bytes(b'{"n": 1}\n{n: 2}\n{"n": 3}\n')
    codec = f"avro:{tmp_path / 'order.avsc'}"
    sources = [f"--stream={name}=file:{tmp_path / name}" for name in ("orders", "app")]
    own = ["--stream-option", f"orders.codec={codec}", "--stream-option", "app.on-bad-line=skip"]

    with Gateway(*sources, *own, "--codec", "json", "--stay") as gateway:
        orders = AquiferPublisher(f"{gateway.endpoint}/orders", codec=codec).flux()
        app = AquiferPublisher(f"{gateway.endpoint}/app", codec="json").flux()
        assert list(orders) == [{"id": 1}]
        assert list(app) == [{"n": 1}, {"n": 3}]

"""The options of the format: what is understood, and what is said about the rest."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.spark import BadOption
from penstock.spark.options import SinkOptions, SourceOptions

HERE = "tcp://127.0.0.1:5556"
THERE = "tcp://127.0.0.1:5557"


def source(**given: str) -> SourceOptions:
    return SourceOptions.of({"endpoint": HERE} | given)


def test_an_endpoint_is_all_that_is_needed() -> None:
    options = source()
    assert options.endpoints == (HERE,)
    assert (options.starting, options.ending, options.value) == (None, "latest", "binary")
    assert (options.lease, options.stream_lease) == (None, 3600.0)
    assert options.fail_on_data_loss
    assert options.max_records is options.max_bytes is options.target_seconds is options.partitions is None


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("startingOffsets", "latest", "starting", "latest"),
        ("startingOffsets", "Earliest", "starting", "earliest"),
        ("startingOffsets", "17", "starting", {HERE: 17}),
        ("endingOffsets", f'{{"{HERE}": 4}}', "ending", {HERE: 4}),
        ("partitions", "8", "partitions", 8),
        ("maxRecordsPerTrigger", "1000", "max_records", 1000),
        ("maxBytesPerTrigger", "1000000", "max_bytes", 1_000_000),
        ("targetBatchSeconds", "0.5", "target_seconds", 0.5),
        ("subscription", "totals", "subscription", "totals"),
        ("value", "JSON", "value", "json"),
        ("failOnDataLoss", "False", "fail_on_data_loss", False),
        ("patienceSeconds", "5", "patience", 5.0),
        ("leaseSeconds", "60", "lease", 60.0),
        ("waitSeconds", "2.5", "wait", 2.5),
        ("curveKey", "client.key", "curve_key", "client.key"),
        ("curveServer", "gateway.pub", "curve_server", "gateway.pub"),
    ],
)
def test_every_option_becomes_a_typed_value(name: str, text: str, field: str, value: Any) -> None:
    assert getattr(source(**{name: text}), field) == value
    assert getattr(source(**{name.upper(): text}), field) == value


@pytest.mark.parametrize(
    ("misspelt", "near"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxRecordPerTrigger", "maxRecordsPerTrigger"),
        ("failOnDataloss_", "failOnDataLoss"),
        ("partition", "partitions"),
        ("endpoints", "endpoint"),
    ],
)
def test_a_misspelt_option_is_told_what_was_meant(misspelt: str, near: str) -> None:
    with pytest.raises(BadOption, match=rf'option "{misspelt}" is .*did you mean {near}\?'):
        source(**{misspelt: "1"})


def test_an_unknown_option_is_told_what_there_is() -> None:
    with pytest.raises(
        BadOption,
        match=r"there are endpoint, value, valueSchema, sep, inferSchema, includeMetadata, .*curveServer",
    ):
        source(zzz="1")


def test_what_spark_adds_by_itself_is_no_mistake() -> None:
    source(path="x", checkpointLocation="y", queryName="q")


@pytest.mark.parametrize(
    "name", ["max.records", "maxRecords.PerTrigger", "spark.sql.something", "kafka.acks", "."]
)
def test_an_option_with_a_dot_in_its_name_is_as_unknown_as_any_other(name: str) -> None:
    with pytest.raises(BadOption, match="there is no such option"):
        source(**{name: "1"})
    with pytest.raises(BadOption, match="there is no such option"):
        SinkOptions.of({"endpoint": HERE, name: "1"})


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"sep": ";", "value": "json"},
            "\"sep\" is ';': option \"value\" is 'json', and only records of csv",
        ),
        ({"sep": ";"}, "\"sep\" is ';': option \"value\" is 'binary'"),
        (
            {"valueSchema": "a.avsc", "value": "json"},
            '"valueSchema" is .* only avro and protobuf have a schema',
        ),
        (
            {"inferSchema": "true"},
            "\"inferSchema\" is 'true': .*'binary', and its columns are known without that",
        ),
        ({"inferSchema": "true", "value": "avro", "valueSchema": "a.avsc"}, '"inferSchema" is'),
    ],
)
def test_an_option_that_the_format_does_not_have_is_refused(given: dict[str, str], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        source(**given)


def test_an_option_that_says_what_is_so_anyway_is_not_refused() -> None:
    source(value="json", sep=",", inferSchema="false", valueSchema="")
    source(value="csv", sep=";")
    source(value="protobuf", valueSchema="shop.desc")


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        ("partitions", "0", "at least 1"),
        ("partitions", "two", "at least 1"),
        ("maxRecordsPerTrigger", "-5", "at least 1"),
        ("maxRecordsPerTrigger", "1.5", "at least 1"),
        ("maxRecordsPerTrigger", str(2**63), "at least 1"),
        ("maxBytesPerTrigger", "1MB", "at least 1"),
        ("targetBatchSeconds", "0", "above 0"),
        ("targetBatchSeconds", "nan", "above 0"),
        ("leaseSeconds", "inf", "above 0"),
        ("waitSeconds", "soon", "above 0"),
        ("value", "xml", "binary, string, json, msgpack, arrow"),
        ("failOnDataLoss", "no", "true or false"),
        ("startingOffsets", "newest", "earliest, latest, a number"),
        ("startingOffsets", "-1", "earliest, latest, a number"),
        ("startingOffsets", "true", "earliest, latest, a number"),
        ("startingOffsets", "[1]", "earliest, latest, a number"),
        ("startingOffsets", "[" * 100_000, "earliest, latest, a number"),
        ("subscription", "x" * 257, "it has 257 characters: give 256 at most"),
        ("startingOffsets", '{"tcp://127.0.0.1:9": 1}', HERE),
        ("startingOffsets", f'{{"{HERE}": "1"}}', "earliest, latest, a number"),
        ("endpoint", "127.0.0.1", "tcp://"),
        ("endpoint", "http://127.0.0.1:80", "tcp://"),
        ("endpoint", " , ", "tcp://"),
        ("endpoint", "", "give the address of a gateway"),
    ],
)
def test_a_bad_value_is_told_what_would_do(name: str, text: str, remedy: str) -> None:
    with pytest.raises(BadOption, match=rf'option "{name}" is .*{remedy}'):
        source(**{name: text})


def test_a_long_value_is_not_repeated_as_a_whole() -> None:
    with pytest.raises(BadOption, match="give one of binary") as refused:
        source(value="x" * 100_000)
    assert len(str(refused.value)) < 500


def test_a_name_that_no_gateway_accepts_is_told_by_its_option() -> None:
    with pytest.raises(BadOption, match=r'"writerId" is .*give 256 at most'):
        SinkOptions.of({"endpoint": HERE, "writerId": "x" * 257, "batchId": "1"})


def test_what_is_told_survives_the_way_between_sparks_processes() -> None:
    bad = BadOption("partitions", 0, "give a whole number of at least 1")
    assert str(pickle.loads(pickle.dumps(bad))) == str(bad) != ""


def test_wrong_records_do_not_fail_a_query_unless_it_is_told_to() -> None:
    assert source().mode == "PERMISSIVE"
    assert source(mode="dropMalformed").mode == "DROPMALFORMED"
    assert source(mode="failfast").mode == "FAILFAST"
    assert source(deadLetter=THERE).mode == "DROPMALFORMED"
    assert source(deadLetter=THERE, mode="permissive").mode == "PERMISSIVE"
    assert source(deadLetter=f"{HERE}/wrong").dead_letter == f"{HERE}/wrong"


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"mode": "IGNORE"}, "option \"mode\" is 'IGNORE': give one of PERMISSIVE, DROPMALFORMED, FAILFAST"),
        ({"deadLetter": THERE, "mode": "FAILFAST"}, '"deadLetter" is .* fails at the first wrong record'),
        ({"deadLetter": HERE}, '"deadLetter" is .* would read its own dead letters'),
        ({"deadLetter": "letters"}, '"deadLetter" is .* is not an endpoint'),
        (
            {"deadLetter": f"{THERE},{THERE}/b"},
            '"deadLetter" is .*: dead letters go to one gateway, or one stream',
        ),
    ],
)
def test_what_contradicts_itself_about_wrong_records_is_told(given: dict[str, str], told: str) -> None:
    with pytest.raises(BadOption, match=told):
        source(**given)


@pytest.mark.parametrize("name", ["mode", "header"])
def test_an_option_that_a_sink_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(BadOption, match="there is no such option"):
        SinkOptions.of({"endpoint": HERE, name: "append"})


def test_no_endpoint_is_told_with_an_example() -> None:
    with pytest.raises(BadOption, match=r"give the address of a gateway: \.option"):
        SourceOptions.of({})


def test_several_endpoints_have_one_order_and_none_counts_twice() -> None:
    assert source(endpoint=f" {THERE}, {HERE} ,{THERE}").endpoints == (HERE, THERE)


def test_several_endpoints_need_an_offset_for_each() -> None:
    both = f"{HERE},{THERE}"
    text = f'{{"{THERE}": 2, "{HERE}": 1}}'
    assert source(endpoint=both, startingOffsets=text).starting == {HERE: 1, THERE: 2}
    for incomplete in ("5", f'{{"{HERE}": 1}}', "{}"):
        with pytest.raises(BadOption, match="JSON object with an offset for each"):
            source(endpoint=both, startingOffsets=incomplete)


@given(st.sampled_from(["startingOffsets", "partitions", "waitSeconds", "endpoint", "value"]), st.text())
def test_whatever_is_written_is_understood_or_told(name: str, text: str) -> None:
    told = f'option "{name}" is '
    try:
        source(**{name: text})
    except BadOption as bad:
        told = str(bad)
    assert told.startswith(f'option "{name}" is ')


def test_a_sink_writes_to_one_gateway() -> None:
    options = SinkOptions.of({"endpoint": HERE})
    assert (options.endpoint, options.value) == (HERE, "json")
    with pytest.raises(BadOption, match="a query writes to one gateway: give one endpoint"):
        SinkOptions.of({"endpoint": f"{HERE},{THERE}"})

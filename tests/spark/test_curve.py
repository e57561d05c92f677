"""Reading from and writing to gateways with keys: the options that name them, and what is told without."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from penstock.aquifer import CurveServer, Gateway, generate_keys, load_keys, save_keys
from penstock.spark import BadOption
from penstock.spark.options import SourceOptions
from tests.aquifer.faults.rigs import ANYWHERE, Numbers
from tests.spark.conftest import Queries, Serve, failure_of
from tests.spark.sinking import log_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with keys of a gateway, of Alice, whom it knows, and of Mallory."""
    for name in ("gateway", "alice", "mallory"):
        save_keys(generate_keys(), tmp_path / name)
    return tmp_path


@pytest.fixture
def guarded(serve: Serve, keys: Path) -> Any:
    """Makes gateways that let Alice in, and have no endpoint without keys unless one is wished for."""

    def start(source: Any, control: str | None = None, **wishes: Any) -> Gateway:
        curve = CurveServer(load_keys(keys / "gateway"), [load_keys(keys / "alice").public])
        return serve(source, control, curve=curve, curve_control=ANYWHERE, **wishes)

    return start


def as_(name: str, keys: Path, server: str = "gateway") -> dict[str, str]:
    """The options of somebody with keys."""
    return {"curveKey": str(keys / f"{name}.key"), "curveServer": str(keys / f"{server}.pub")}


@pytest.mark.rare(35)
def test_a_stream_a_read_and_both_ways_of_writing_go_through_gateways_with_keys(
    queries: Queries, guarded: Any, keys: Path, spark: SparkSession
) -> None:
    source = guarded(Numbers(30))
    assert source.join(120)
    # Only to look at what has come; the queries use the other endpoint.
    sink = guarded(None, ANYWHERE, writable=True)
    alice = as_("alice", keys)

    stream = queries.frame(source.curve_endpoint, maxRecordsPerTrigger=10, partitions=2, **alice)
    writer = stream.select("value").writeStream.format("aquifer").option("value", "binary").options(**alice)
    writer = writer.option("endpoint", sink.curve_endpoint).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(keys / "checkpoint")).start()
    assert query.awaitTermination(400)
    # A public key may stand for the file that it is in.
    by_key = alice | {"curveServer": load_keys(keys / "gateway").public}
    reader = spark.read.format("aquifer").option("endpoint", source.curve_endpoint).options(**by_key)
    last = reader.option("startingOffsets", "28").load().select("value")
    last.write.format("aquifer").mode("append").options(**by_key).option("value", "binary").option(
        "endpoint", sink.curve_endpoint
    ).save()

    assert log_of(sink, "bytes") == [*Numbers().values(0, 30), *Numbers().values(28, 30)]


@pytest.mark.parametrize(
    ("name", "server", "told"),
    [
        ("mallory", "gateway", 'list of allowed clients. The option "curveKey" is'),
        ("alice", "mallory", 'only if the option "curveServer" is its own public key'),
        (None, None, 'if the gateway needs keys, set the options "curveKey" and "curveServer"'),
    ],
    ids=["a key that it does not know", "a key of another gateway", "no keys"],
)
def test_who_does_not_come_in_is_told_which_option_to_look_at(
    queries: Queries, guarded: Any, keys: Path, name: str | None, server: str | None, told: str
) -> None:
    # Long enough for the gateway to refuse a key, also on a busy machine.
    options = {"patienceSeconds": "5"}
    if name is not None and server is not None:
        options |= as_(name, keys, server)
    source, sink = guarded(Numbers(3)), guarded(None, writable=True)

    assert told in failure_of(queries.start(source.curve_endpoint, **options))

    writer = queries.spark.range(3).write.format("aquifer").mode("append").options(**options)
    with pytest.raises(PySparkException) as failed:
        writer.option("endpoint", sink.curve_endpoint).save()
    assert told in str(failed.value)
    assert sink.status()["head"] == 0


def test_keys_that_cannot_be_read_are_told_before_a_gateway_is_asked(keys: Path) -> None:
    (keys / "text.key").write_text("a letter to nobody")
    alice, gateway = str(keys / "alice.key"), str(keys / "gateway.pub")
    for key, server, told in (
        (str(keys / "bob.key"), gateway, 'option "curveKey" is .*there is no key file'),
        (str(keys / "text.key"), gateway, 'option "curveKey" is .*this is not a key file'),
        (gateway, gateway, 'option "curveKey" is .*has no secret key'),
        (alice, str(keys / "nobody.pub"), 'option "curveServer" is .*there is no key file'),
        (alice, "too short", 'option "curveServer" is .*not a key either'),
        (alice, None, 'option "curveServer" is None: set both'),
        (None, gateway, 'option "curveKey" is None: set both'),
    ):
        named = {"curveKey": key or "", "curveServer": server or ""}
        options = SourceOptions.of({"endpoint": "tcp://127.0.0.1:9"} | named)
        with pytest.raises(BadOption, match=told):
            options.curve_client()


def test_keys_that_cannot_be_read_fail_a_query_in_one_line(queries: Queries, keys: Path) -> None:
    options = as_("bob", keys)
    told = failure_of(queries.start("tcp://127.0.0.1:9", **options))
    assert told.startswith(f"BadOption: option \"curveKey\" is '{options['curveKey']}': there is no key file")

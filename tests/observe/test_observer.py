"""What an observer says of gateways, from their status: who the source waits for, and what went wrong."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping

import pytest

from penstock.aquifer import (
    AquiferError,
    AquiferPublisher,
    CursorStatus,
    GatewayStatus,
    HopTimes,
    LogFigures,
    QueryReport,
    SessionStatus,
    SourceStatus,
)
from penstock.observe import Observer, Snapshot, Verdict

HERE = "tcp://127.0.0.1:5556"
THERE = "tcp://127.0.0.1:5557"


def status(
    *subscribers: SessionStatus, full: float | None = 3.0, head: int = 1000, **others: object
) -> GatewayStatus:
    return GatewayStatus(
        head=head,
        low_watermark=900,
        records=100,
        max_records=100,
        source=SourceStatus(requested=1000, received=1000),
        subscribers=list(subscribers),
        log=LogFigures(full_seconds=full),
        **others,  # type: ignore[arg-type]
    )


def reader(
    id: str, acknowledged: int, *, required: bool = True, state: str = "streaming", number: int = 1
) -> SessionStatus:
    return SessionStatus(
        number=number,
        id=id,
        acknowledged=acknowledged,
        cursor=acknowledged,
        required=required,
        lag=1000 - acknowledged,
        state=state,
    )


def observer(looks: Mapping[str, Callable[[], GatewayStatus]]) -> Observer:
    return Observer(*looks, looks=looks)


def last_of(*seen: GatewayStatus) -> Snapshot:
    left = iter(seen)
    looking = observer({HERE: left.__next__})
    return [looking.look() for _ in seen][-1]


def verdict(*seen: GatewayStatus) -> Verdict:
    found = last_of(*seen).verdict
    assert found is not None
    return found


def silence() -> GatewayStatus:
    raise AquiferError("no answer")


def test_the_first_snapshot_has_no_verdict() -> None:
    assert last_of(status()).verdict is None


def test_the_required_reader_that_is_last_limits_a_full_log() -> None:
    now = status(reader("quick", 990), reader("slow", 900), reader("optional", 10, required=False))

    found = verdict(now, now)

    assert found.limiting == f"{HERE}/cursor/slow"
    assert found.sentence.startswith(f"The reader `slow` at {HERE} limits the flow: ")
    assert "the log has been full for 3" in found.sentence


def test_the_advice_for_a_slow_reader_is_an_option_that_a_reader_has() -> None:
    now = status(reader("quick", 990), reader("slow", 900))

    (name,) = re.findall(r"`(\w+)=False`", verdict(now, now).advice)

    assert name in inspect.signature(AquiferPublisher).parameters


def test_the_time_before_another_hop_limited_the_flow_is_not_counted() -> None:
    first = status(reader("a", 900), reader("b", 990), full=600.0)
    then = status(reader("a", 995), reader("b", 990), full=600.0)

    assert (verdict(first, first).since or 0.0) >= 600.0
    found = verdict(first, first, then)
    assert found.limiting == f"{HERE}/cursor/b"
    assert found.since is not None
    assert found.since < 600.0


def test_a_reader_that_is_away_is_named_with_what_to_do() -> None:
    now = status(reader("quick", 990), saved={"gone": CursorStatus(acknowledged=900, remaining=30.0)})

    found = verdict(now, now)

    assert found.limiting == f"{HERE}/cursor/gone"
    assert "`gone`" in found.sentence
    assert "is away" in found.sentence
    assert "penstock gateway forget" in found.advice


@pytest.mark.parametrize("state", ["joining", "streaming"])
def test_a_reader_that_is_here_is_never_called_away(state: str) -> None:
    now = status(reader("slow", 900, state=state))

    snapshot = last_of(now, now)

    assert snapshot.verdict is not None
    assert snapshot.verdict.limiting == f"{HERE}/cursor/slow"
    assert "away" not in snapshot.verdict.sentence
    assert snapshot.hop(f"{HERE}/cursor/slow").state != "away"


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (CursorStatus(acknowledged=800), CursorStatus(acknowledged=900)),
        (CursorStatus(acknowledged=900, times=HopTimes()), CursorStatus(acknowledged=900, times=HopTimes())),
    ],
    ids=["it has acknowledged records", "it has asked for a range"],
)
def test_a_query_that_reads_is_never_called_away(before: CursorStatus, now: CursorStatus) -> None:
    found = verdict(status(saved={"rollup": before}), status(saved={"rollup": now}))

    assert found.limiting is not None
    assert found.limiting.endswith("/rollup")
    assert "away" not in found.sentence


@pytest.mark.parametrize(
    "now",
    [
        status(reader("slow", 900), full=None),
        status(reader("slow", 900), full=None, end=1000),
    ],
    ids=["the log has space", "the source has ended"],
)
def test_nobody_limits_the_flow(now: GatewayStatus) -> None:
    found = verdict(now, now)

    assert found.limiting is None
    assert found.sentence.startswith("Nobody limits the flow: ")


def test_a_log_that_cannot_be_written_limits_the_flow_and_is_an_error() -> None:
    now = status(stalled="the disk is full")

    snapshot = last_of(now, now)

    assert snapshot.verdict is not None
    assert snapshot.verdict.limiting == f"{HERE}/log"
    assert [(each.hop, each.message) for each in snapshot.errors] == [(f"{HERE}/log", "the disk is full")]


def test_an_error_is_told_again_only_when_it_comes_back() -> None:
    good, bad = status(), status(failure="the sender is gone", end=1000)

    assert len(last_of(bad, bad, bad).errors) == 1
    assert [each.hop for each in last_of(bad, good, bad).errors] == [f"{HERE}/intake"] * 2


def test_of_two_gateways_one_that_does_not_answer_is_a_failed_hop() -> None:
    now = status(reader("slow", 900))
    looking = observer({THERE: silence, HERE: lambda: now})
    looking.look()

    snapshot = looking.look()

    assert snapshot.hop(f"{THERE}/log").state == "failed"
    assert [each.message for each in snapshot.errors] == ["no answer"]
    assert snapshot.verdict is not None
    assert snapshot.verdict.limiting == f"{HERE}/cursor/slow"
    with pytest.raises(AquiferError):
        observer({HERE: silence}).look()


def test_the_hops_stand_below_their_upstreams() -> None:
    snapshot = last_of(status(reader("a", 1), reader("b", 2)))

    seen: set[str] = set()
    for hop in snapshot.hops:
        assert set(hop.upstream) <= seen
        seen.add(hop.id)
    assert [hop.kind for hop in snapshot.hops] == ["intake", "log", "cursor", "cursor"]
    assert [each.hop for each in snapshot.subscribers] == [f"{HERE}/cursor/a", f"{HERE}/cursor/b"]


@pytest.mark.parametrize(
    ("described", "named"),
    [
        ("FileSink[file:/data/hot]", "files in /data/hot"),
        ("FileSink[s3a://bucket/a [b]]", "files in s3a://bucket/a [b]"),
        ("ForeachBatchSink", "foreachBatch"),
        ("org.apache.spark.sql.execution.streaming.ConsoleTable$@5ed4bc", "ConsoleTable"),
        ("org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable@1f2e", "KafkaTable"),
        ("DeltaSink[/table]", "DeltaSink[/table]"),
    ],
)
def test_a_sink_that_is_no_gateway_is_the_last_hop_of_its_query(described: str, named: str) -> None:
    report = QueryReport(
        name="hot", batch=3, seconds=2.0, rows=50, phases={"addBatch": 1.9}, sink=described, rows_out=20
    )
    cursor = CursorStatus(acknowledged=900, times=HopTimes(), batches=[report])
    now = status(saved={"hot": cursor})

    snapshot = last_of(now, now)

    sink = snapshot.hop(f"{HERE}/sink/hot")
    assert (sink.kind, sink.name, sink.where) == ("sink", named, described)
    assert sink.upstream == (f"{HERE}/query/hot",)
    assert sink.details == {"rows": 20.0, "batch_seconds": 2.0, "addBatch": 1.9}
    assert [batch.rows_out for batch in snapshot.batches] == [20]
    assert snapshot.verdict is not None
    assert snapshot.verdict.limiting == f"{HERE}/query/hot"
    assert (
        f"95% of each batch in `addBatch`, which computes and writes to {named}" in snapshot.verdict.sentence
    )


def test_more_streams_than_are_looked_at_are_an_error() -> None:
    looks = {f"tcp://127.0.0.1:{port}": status for port in range(6000, 6070)}

    snapshot = observer(looks).look()

    assert len([hop for hop in snapshot.hops if hop.kind == "log"]) == 64
    assert "6 more streams are not shown" in snapshot.errors[0].message

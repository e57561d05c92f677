"""The hops of a gateway, from its status: who the source waits for."""

from __future__ import annotations

import pytest

from penstock.aquifer import CursorStatus, GatewayStatus, SessionStatus, SourceStatus
from penstock.observe import GatewayObserver, Verdict

HERE = "tcp://127.0.0.1:5556"


def status(
    *subscribers: SessionStatus, records: int = 100, low: int = 900, asked: int = 1000, **others: object
) -> GatewayStatus:
    return GatewayStatus(
        head=1000,
        low_watermark=low,
        records=records,
        max_records=100,
        source=SourceStatus(requested=asked, received=1000),
        subscribers=list(subscribers),
        **others,  # type: ignore[arg-type]
    )


def reader(id: str, acknowledged: int, *, required: bool = True, number: int = 1) -> SessionStatus:
    return SessionStatus(
        number=number, id=id, acknowledged=acknowledged, cursor=acknowledged, required=required, lag=7
    )


def verdict(*seen: GatewayStatus) -> Verdict:
    left = iter(seen)
    observer = GatewayObserver({HERE: left.__next__})
    snapshots = [observer.snapshot() for _ in seen]
    found = snapshots[-1].verdict
    assert found is not None
    return found


def test_the_required_reader_that_is_last_limits_a_full_log() -> None:
    now = status(reader("quick", 990), reader("slow", 900), reader("optional", 10, required=False))

    found = verdict(now, now)

    assert found.limiting == f"{HERE}/cursor/slow"
    assert "slow limits the flow: it is 100 records behind" in found.sentence


def test_a_reader_that_is_away_is_named_with_what_to_do() -> None:
    now = status(reader("quick", 990), saved={"gone": CursorStatus(acknowledged=900, remaining=30.0)})

    found = verdict(now, now)

    assert found.limiting == f"{HERE}/cursor/gone"
    assert f"penstock gateway forget {HERE} gone" in found.advice


def test_a_transaction_beyond_the_bounds_fills_a_log_though_a_part_of_it_is_read() -> None:
    now = status(reader("slow", 860), records=200, low=860)

    assert verdict(now, now).limiting == f"{HERE}/cursor/slow"


@pytest.mark.parametrize(
    "now",
    [
        status(reader("slow", 900), records=20, low=980),
        status(reader("slow", 900), asked=2000, records=80, low=920),
        status(reader("optional", 10, required=False), low=1000),
        status(reader("slow", 900), end=1000),
    ],
    ids=[
        "the log is nearly empty",
        "the source has demand",
        "nobody needs the records",
        "the source has ended",
    ],
)
def test_nothing_limits_the_flow(now: GatewayStatus) -> None:
    assert verdict(now, now).limiting is None


def test_a_log_that_cannot_be_written_limits_the_flow_and_is_an_error() -> None:
    now = status(stalled="the disk is full")
    observer = GatewayObserver({HERE: lambda: now})
    observer.snapshot()
    snapshot = observer.snapshot()

    assert snapshot.verdict is not None
    assert snapshot.verdict.limiting == f"{HERE}/log"
    assert [(each.hop, each.message) for each in snapshot.errors] == [(f"{HERE}/log", "the disk is full")]


def test_of_two_gateways_one_that_does_not_answer_is_a_failed_hop() -> None:
    def fail() -> GatewayStatus:
        raise ConnectionError("no answer")

    snapshot = GatewayObserver({HERE: status, "tcp://127.0.0.1:1": fail}).snapshot()

    assert [(each.id, each.state) for each in snapshot.hops][-1] == ("tcp://127.0.0.1:1/log", "failed")
    assert [each.message for each in snapshot.errors] == ["no answer"]
    with pytest.raises(ConnectionError):
        GatewayObserver({HERE: fail}).snapshot()


def test_the_hops_stand_below_their_upstreams() -> None:
    snapshot = GatewayObserver({HERE: lambda: status(reader("a", 1), reader("b", 2))}).snapshot()

    seen: set[str] = set()
    for hop in snapshot.hops:
        assert set(hop.upstream) <= seen
        seen.add(hop.id)
    assert [hop.kind for hop in snapshot.hops] == ["feed", "log", "cursor", "cursor"]
    assert [each.hop for each in snapshot.subscribers] == [f"{HERE}/cursor/a", f"{HERE}/cursor/b"]

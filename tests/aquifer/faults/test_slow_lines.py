"""Lines that are slow, far away, silent for a while, or cut for good: what arrives, and what is told."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock.aquifer import AquiferPublisher, Gateway, GatewayUnreachable, MemoryJournal, SqliteJournal
from penstock.streams import Flux
from tests.aquifer.faults.rigs import UNBOUNDED, eventually, free_endpoint, read_range
from tests.aquifer.faults.slow_line import SlowLine
from tests.streams.recording import Recorder

KBIT = 1000 / 8


def numbered(count: int, width: int) -> list[bytes]:
    return [b"%08d" % number + b"." * (width - 8) for number in range(count)]


@contextmanager
def over_a_slow_line(
    records: list[bytes], *, rate: float, delay: float = 0.0, **settings: Any
) -> Iterator[tuple[Gateway, SlowLine, str]]:
    """A gateway that has these records, a slow line before its ports, and the endpoint behind the line."""
    ports = [free_endpoint(), free_endpoint()]
    numbers = [int(port.rpartition(":")[2]) for port in ports]
    settings.setdefault("journal", MemoryJournal(max_bytes=256 << 20))
    with (
        Gateway(Flux.from_iterable(records), ports[0], data=ports[1], **settings) as gateway,
        SlowLine(*numbers, rate=rate, delay=delay) as line,
    ):
        assert gateway.join(60)
        yield gateway, line, f"tcp://{line.host}:{numbers[0]}"


def read_all(endpoint: str, **settings: Any) -> tuple[Recorder, AquiferPublisher]:
    publisher = AquiferPublisher(endpoint, **settings)
    return Recorder.of(publisher, UNBOUNDED), publisher


# ---------------------------------------------------------------- slow, and far away
@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "delay", "count", "width"),
    [
        pytest.param(64 * KBIT, 0.0, 100, 1000, id="64 kbit/s"),
        pytest.param(360 * KBIT, 0.0, 400, 1000, id="360 kbit/s"),
        pytest.param(360 * KBIT, 0.4, 200, 1000, id="360 kbit/s, 0.8 s there and back"),
        pytest.param(360 * KBIT, 0.0, 2, 300_000, id="360 kbit/s, large records"),
        pytest.param(8000 * KBIT, 0.0, 2, 6_000_000, id="8 Mbit/s, records of 6 MB"),
        pytest.param(8000 * KBIT, 0.1, 2000, 1000, id="8 Mbit/s, 0.2 s there and back"),
        pytest.param(8000 * KBIT, 1.5, 10, 1000, id="8 Mbit/s, 3 s there and back"),
    ],
)
def test_everything_arrives_over_a_slow_line_and_nothing_is_sent_twice(
    rate: float, delay: float, count: int, width: int
) -> None:
    records = numbered(count, width)
    with over_a_slow_line(records, rate=rate, delay=delay) as (_, line, endpoint):
        reader, _ = read_all(endpoint, patience=60)
        reader.wait(100)
        assert reader.error is None
        assert reader.items == records
        sent = count * width
        assert line.passed < 1.2 * sent + 20_000, "nothing started over"


@pytest.mark.slow
def test_what_is_on_the_way_is_what_the_line_carries_in_a_moment() -> None:
    """And not the whole window: everything that is said later would wait behind it."""
    rate = 360 * KBIT
    with over_a_slow_line(numbered(600, 1000), rate=rate) as (gateway, line, endpoint):
        reader, _ = read_all(endpoint)
        eventually(lambda: line.passed > 300_000, timeout=60)
        (session,) = gateway.status()["subscribers"]
        assert session["in_flight"] < 4 * rate
        reader.cancel()


@pytest.mark.slow
def test_on_a_slow_line_records_arrive_one_after_the_other_and_not_all_at_the_end() -> None:
    with over_a_slow_line(numbered(600, 1000), rate=360 * KBIT) as (gateway, _, endpoint):
        reader, publisher = read_all(endpoint, batches=True)
        reader.wait(60)
        sizes = [len(batch) for batch in reader.items]
        assert sum(sizes) == 600
        assert sum(size < 100 for size in sizes) > 3, "the log has them in batches of 256 KiB"
        assert gateway.status()["counters"].get("overtaken") is None
        assert publisher.metrics()[0].subscriptions == 1


@pytest.mark.slow
def test_a_range_is_read_over_a_slow_line() -> None:
    records = numbered(300, 1000)
    with over_a_slow_line(records, rate=360 * KBIT) as (_, _, endpoint):
        got = list(read_range(endpoint, start=0, stop=300))
        assert got[0].first == 0
        assert sum(frame.count for frame in got) == 300


# ---------------------------------------------------------------- silence
@pytest.mark.slow
def test_a_line_that_is_silent_for_ten_seconds_goes_on_where_it_was() -> None:
    records = numbered(1, 400_000)
    pause = threading.Event()
    with over_a_slow_line(records, rate=360 * KBIT) as (_, line, endpoint):
        reader, _ = read_all(endpoint, patience=40)
        eventually(lambda: line.passed > 200_000)
        line.stall()
        pause.wait(10)
        line.flow()
        reader.wait(60)
        assert reader.error is None
        assert reader.items == records
        assert line.passed < 560_000, "what had come of the record was not sent again"


@pytest.mark.slow
def test_a_large_record_arrives_though_the_line_never_holds_for_as_long_as_it_takes(tmp_path: Any) -> None:
    """It takes 9 s, and the connections are cut every 3 s."""
    records = numbered(1, 400_000)
    journal = SqliteJournal(tmp_path / "log.db")
    with over_a_slow_line(records, rate=360 * KBIT, journal=journal) as (_, line, endpoint):
        reader, publisher = read_all(endpoint, patience=40)
        while not reader.finished.wait(3):
            line.cut()
        assert reader.error is None
        assert reader.items == records
        assert publisher.metrics()[0].subscriptions > 2


@pytest.mark.slow
def test_a_line_that_is_cut_for_good_is_told_in_the_users_patience() -> None:
    with over_a_slow_line(numbered(1000, 1000), rate=360 * KBIT) as (_, line, endpoint):
        reader, _ = read_all(endpoint, patience=8)
        eventually(lambda: len(reader.items) > 0)
        line.stall()
        cut = time.monotonic()
        reader.wait(60)
        assert isinstance(reader.error, GatewayUnreachable)
        assert "was lost for more than 8 s" in str(reader.error)
        assert "data port" not in str(reader.error)
        assert time.monotonic() - cut < 30


@pytest.mark.slow
def test_a_data_port_that_cannot_be_reached_is_told_as_such() -> None:
    ports = [free_endpoint(), free_endpoint()]
    numbers = [int(port.rpartition(":")[2]) for port in ports]
    with (
        Gateway(Flux.just(b"x"), ports[0], data=ports[1]),
        SlowLine(numbers[0]) as line,
    ):
        reader, _ = read_all(f"tcp://{line.host}:{numbers[0]}", patience=6)
        reader.wait(60)
        assert isinstance(reader.error, GatewayUnreachable)
        assert "can its data port be reached from here" in str(reader.error)

"""Reading a range of offsets in a loop that may block: all of it, in order, no more at a time than asked."""

from __future__ import annotations

import time

import pytest

from penstock.aquifer import (
    EpochChanged,
    Gateway,
    GatewayUnreachable,
    Limits,
    LogReader,
    MemoryJournal,
    OffsetGone,
    Record,
)
from penstock.aquifer.protocol.frames import Frame
from penstock.aquifer.records.batch import unpack_values
from penstock.streams import Flux
from tests.aquifer.faults.rigs import (
    ANYWHERE,
    Numbers,
    eventually,
    free_endpoint,
    has,
    read,
    read_range,
    stays,
)


def values(read: list[Frame]) -> list[bytes]:
    return [value for frame in read for value in unpack_values(frame.payload)]


@pytest.mark.parametrize(("start", "stop"), [(0, 5000), (1, 4999), (1234, 1235), (4999, 5000)])
def test_a_range_is_read_exactly(start: int, stop: int) -> None:
    source = Numbers(5000)
    with Gateway(source, ANYWHERE, limits=Limits(max_frame_records=300)) as gateway:
        assert gateway.join(60)
        read = list(read_range(gateway.endpoint, start=start, stop=stop))
    assert values(read) == source.values(start, stop)
    assert read[0].first == start


def test_who_reads_slowly_is_not_sent_more_than_a_window() -> None:
    source = Numbers(20_000, width=10)
    with Gateway(source, ANYWHERE, limits=Limits(max_frame_records=100)) as gateway:
        assert gateway.join(60)
        reading = read_range(gateway.endpoint, start=0, stop=20_000, window=1000)
        first = next(reading)

        def sent() -> int:
            return sum(session["records"] for session in gateway.status()["subscribers"])

        eventually(lambda: sent() >= 900)
        stays(lambda: sent() <= 1000, "more was sent than asked for")
        assert values([first, *reading]) == source.values()


def test_who_is_away_for_longer_than_a_lease_goes_on_where_it_was() -> None:
    source = Numbers(5000)
    with Gateway(source, ANYWHERE, limits=Limits(max_frame_records=100, max_lease=0.3)) as gateway:
        assert gateway.join(60)
        reading = read_range(gateway.endpoint, start=0, stop=5000, window=500)
        read = [next(reading)]
        eventually(lambda: gateway.status()["counters"].get("leases ended"), "the lease does not end")
        assert values([*read, *reading]) == source.values()


def test_a_reader_holds_nothing_back_and_is_told_when_it_was_overtaken() -> None:
    with Gateway(
        Numbers(width=10),
        ANYWHERE,
        journal=MemoryJournal(max_records=1000),
        prefetch=100,
        limits=Limits(max_frame_records=50),
    ) as gateway:
        eventually(lambda: gateway.status()["head"] >= 900)

        def read_slowly() -> None:
            # From the moment it is here nothing holds the source up, and the log goes on without it.
            for frame in read_range(gateway.endpoint, start=0, stop=900, window=100):
                eventually(lambda: gateway.status()["first"] > 900)
                stop = frame.first + frame.count
                assert unpack_values(frame.payload) == Numbers(width=10).values(frame.first, stop)

        with pytest.raises(OffsetGone) as gone:
            read_slowly()
        assert gone.value.first is not None
        assert gone.value.first > 0


def test_a_range_that_is_gone_or_of_another_log_is_told() -> None:
    with Gateway(Numbers(10), ANYWHERE) as gateway:
        assert gateway.join(60)
        with pytest.raises(OffsetGone, match="there are 0 to 9"):
            list(read_range(gateway.endpoint, start=11, stop=12))
        with pytest.raises(EpochChanged):
            list(read_range(gateway.endpoint, start=0, stop=5, epoch="another"))


def test_a_gateway_that_is_not_there_is_told_in_time() -> None:
    begun = time.monotonic()
    with pytest.raises(GatewayUnreachable, match=r"after 0\.5 s; is it running there"):
        list(read_range(free_endpoint(), start=0, stop=5, patience=0.5))
    assert time.monotonic() - begun < 25, "the usual patience is 30 s"


def test_a_reader_that_stops_half_way_leaves_the_gateway() -> None:
    with Gateway(Numbers(5000), ANYWHERE) as gateway:
        assert gateway.join(60)
        reading = read_range(gateway.endpoint, start=0, stop=5000, window=10)
        next(reading)
        assert len(gateway.status()["subscribers"]) == 1
        reading.close()
        eventually(lambda: not gateway.status()["subscribers"])


def test_a_time_is_found_in_the_log() -> None:
    times = [10, 10, 20, 30, 30, 30, 40]
    records = [Record(b"x", timestamp=time) for time in times]
    with Gateway(Flux.from_iterable(records), ANYWHERE) as gateway, LogReader(gateway.endpoint) as log:
        assert gateway.join(60)

        found = [log.offset_at(time) for time in (0, 10, 11, 20, 25, 30, 31, 40, 41)]

        assert found == [0, 0, 2, 2, 3, 3, 6, 6, 7]
        assert [log.time_of(offset) for offset in range(7)] == times


def test_a_time_is_found_though_the_oldest_records_are_gone() -> None:
    records = [Record(b"x", timestamp=offset) for offset in range(1000)]
    journal = MemoryJournal(max_records=100)
    with (
        Gateway(Flux.from_iterable(records), ANYWHERE, journal=journal) as gateway,
        LogReader(gateway.endpoint) as log,
    ):
        reader = read(gateway.endpoint)
        eventually(has(reader, 1000))
        first = log.state().first

        assert first > 0
        assert [log.offset_at(time) for time in (0, first + 5, 999, 1000)] == [first, first + 5, 999, 1000]
        assert log.time_of(0) is None


def test_with_a_state_the_log_counts_as_it_was_then() -> None:
    with Gateway(Flux.just(b"x"), ANYWHERE) as gateway, LogReader(gateway.endpoint) as log:
        assert gateway.join(60)

        assert log.offset_at(0, state=log.state()._replace(head=0)) == 0
        assert log.offset_at(1 << 60) == 1

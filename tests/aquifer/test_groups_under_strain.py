"""Reader groups beside others, with little demand and large records, and while somebody changes their ids."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from penstock.aquifer import Evicted, Gateway, MemoryJournal, Record, SqliteJournal
from penstock.aquifer.protocol.extended_reader import ExtendedReader
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, UNBOUNDED, ByHand, eventually, our_threads, read, stays
from tests.aquifer.test_groups import (
    KEYS,
    PATIENT,
    Member,
    assert_in_order,
    handled,
    is_acknowledged,
    join,
    members,
    once,
    record,
    records,
    shared,
)


@pytest.mark.parametrize("compress", [None, "zstd"])
def test_two_groups_and_a_reader_of_one_log_get_all_of_it_each(tmp_path: Path, compress: str | None) -> None:
    journal = SqliteJournal(tmp_path / "log.db")
    with Gateway(
        Flux.from_iterable(records(3000)), ANYWHERE, journal=journal, compress=compress, limits=PATIENT
    ) as gateway:
        billing = [join(gateway.endpoint, group="billing") for _ in range(2)]
        stock = [join(gateway.endpoint, group="stock", partitions=3)]
        alone = read(gateway.endpoint, id="billing")  # The name of a group is no id.
        for member in [*billing, *stock]:
            assert member.over.wait(60)
            assert member.error is None
        assert len(alone.wait().items) == 3000
        for group in (billing, stock):
            assert handled(group) == once(3000)
            assert_in_order(group)
    eventually(lambda: our_threads() == [], "a thread is left")


def test_what_waits_for_a_member_that_requests_nothing_is_within_its_window() -> None:
    window, size = 100_000, 1000
    source = Flux.from_iterable(Record(bytes(size), key=b"k%d" % (n % KEYS)) for n in range(2000))
    with Gateway(source, ANYWHERE, limits=PATIENT) as gateway:
        idle = join(gateway.endpoint, Member(0), window_bytes=window)
        eventually(shared([idle]))
        eventually(lambda: all(one.bytes for one in gateway.status().subscribers))
        # While there is any credit, one record may go: so it is one more for each partition.
        most = window + 8 * (size + 100)
        stays(lambda: sum(one.bytes for one in gateway.status().subscribers) <= most)
        idle.subscription.request(UNBOUNDED)
        assert idle.over.wait(60)
        idle.leave()


def test_records_of_a_megabyte_are_shared_as_well() -> None:
    source = Flux.from_iterable(Record(bytes(1_000_000), key=b"k%d" % n) for n in range(16))
    with Gateway(source, ANYWHERE, journal=MemoryJournal(max_bytes=4_000_000), limits=PATIENT) as gateway:
        joined = [join(gateway.endpoint, partitions=4, window_bytes=100_000) for _ in range(2)]
        for member in joined:
            assert member.over.wait(60)
    assert handled(joined) == once(16)


@pytest.mark.parametrize("heard", [True, False])
def test_a_member_that_cancels_inside_of_a_signal_gets_no_other_and_nothing_comes_twice(
    monkeypatch: pytest.MonkeyPatch, heard: bool
) -> None:
    """Also if the gateway hears from the member itself that it leaves, and from no partition."""
    source, gone = ByHand(), threading.Event()

    def judge(element: Record) -> str | None:
        leaver.subscription.cancel()
        gone.set()
        return None

    with Gateway(source, ANYWHERE, limits=PATIENT) as gateway:
        leaver = join(gateway.endpoint, Member(judge=judge))
        eventually(shared([leaver]))
        if not heard:
            monkeypatch.setattr(ExtendedReader, "goodbye", lambda reader: [])
        source.give(*records(50))
        assert gone.wait(60)
        assert leaver.subscription.join(60)
        assert len(leaver.got) == 1
        monkeypatch.undo()
        with members(gateway.endpoint, 1) as (other,):
            eventually(lambda: set(other.got) >= set(range(50)) - set(leaver.got))
            eventually(is_acknowledged(gateway, 50))
            assert handled([leaver, other]) == once(50)


def test_a_partition_that_is_moved_back_is_read_again_by_the_next_member() -> None:
    source = ByHand()
    with Gateway(source, ANYWHERE, limits=PATIENT) as gateway:
        joined = [join(gateway.endpoint, partitions=2) for _ in range(2)]
        eventually(shared(joined, 2))
        source.give(*records(KEYS))
        eventually(is_acknowledged(gateway, KEYS))
        (number,) = joined[0].partitions
        first = list(joined[0].got)
        gateway.move(f"g/{number}-of-2", 0)
        assert joined[0].over.wait(60)
        assert isinstance(joined[0].error, Evicted)
        eventually(lambda: sorted(joined[1].got) == list(range(KEYS)), "and those of the other one once more")
        assert set(first) <= set(joined[1].got)
        joined[1].leave()


def test_a_partition_that_is_forgotten_begins_anew_while_there_are_members() -> None:
    source = ByHand()
    with Gateway(source, ANYWHERE, limits=PATIENT) as gateway:
        first = join(gateway.endpoint, partitions=2)
        eventually(shared([first], 2))
        source.give(*records(KEYS))
        eventually(is_acknowledged(gateway, KEYS))
        gateway.forget("g/1-of-2")
        assert first.over.wait(60)
        assert isinstance(first.error, Evicted)
        with members(gateway.endpoint, 1) as (second,):
            source.give(record(KEYS))
            eventually(lambda: KEYS in second.got)
            eventually(is_acknowledged(gateway, KEYS + 1))
            assert len(gateway.status().groups or []) == 1

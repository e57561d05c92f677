"""Readers of a few keys: they get the records of these in order, and pass all others."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET

from penstock.aquifer.errors import ErrorCode, ProtocolViolation
from penstock.aquifer.limits import Limits
from penstock.aquifer.log import Log, MemoryJournal
from penstock.aquifer.protocol.frames import Frame, with_positions
from penstock.aquifer.protocol.key_filter import KeyFilter
from penstock.aquifer.protocol.messages import (
    Next,
    OnError,
    OnSubscribe,
    Subscribe,
    SubscribeFields,
    extension,
)
from penstock.aquifer.protocol.session import Reply
from penstock.aquifer.protocol.subscribe_options import SubscribeOptions
from penstock.aquifer.records.batch import (
    ARROW,
    MSGPACK,
    Batch,
    ChosenMetadata,
    offsets_of,
    pack_metadata,
    unpack_metadata,
    unpack_values,
)
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog
from tests.aquifer.protocol.simulated_gateway import SimulatedGateway, Source, batch_of, key_at, offset_in
from tests.aquifer.protocol.simulated_network import SimulatedSubscriber, Trouble, World

TOTAL = 100


def wanted(total: int, keys: int, asked: list[bytes], start: int = 0) -> list[int]:
    """The offsets that a reader of these keys gets."""
    return [offset for offset in range(start, total) if key_at(offset, keys) in asked]


# ---------------------------------------------------------------- searching the log
@settings(max_examples=100, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=12),
    keys=st.integers(1, 6),
    asked=st.sets(st.integers(0, 7), min_size=1, max_size=3),
    widths=st.integers(1, 40),
    portions=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 200)), min_size=1, max_size=40),
    at_once=st.sampled_from([1, 100, 1 << 20]),
    format=st.sampled_from([MSGPACK, ARROW]),
)
def test_every_record_with_a_key_is_found_once_and_ranges_follow_each_other(
    sizes: list[int],
    keys: int,
    asked: set[int],
    widths: int,
    portions: list[tuple[int, int]],
    at_once: int,
    format: str,
) -> None:
    log = Log(MemoryJournal())
    for size in sizes:
        log.append([batch_of(log.head, size, widths, keys)])
    names = [b"k%d" % number for number in asked]
    chooser = KeyFilter(log, names, format, 0)
    chooser.at_once = at_once  # type: ignore[misc]
    cursor, found, portion = 0, [], 0
    while cursor < log.head:
        most, nbytes = portions[portion % len(portions)]
        portion += 1
        batch = chooser.next_batch(cursor, log.head, most, nbytes)
        if batch is None:
            assert chooser.seen > cursor, "the search goes on"
            batch = chooser.left_out(cursor)
            assert not batch.count
        else:
            assert 1 <= batch.count <= most
            if format == MSGPACK and batch.count > 1:
                assert sum(map(len, unpack_values(batch.payload))) <= nbytes
            again = KeyFilter(log, names, format, cursor).range(cursor, batch.end)
            assert again == batch, "who has the beginning of a frame gets the rest of the same one"
        assert batch.first == cursor < batch.end
        offsets = list(offsets_of(batch))
        if batch.count and format == MSGPACK:
            assert list(map(offset_in, unpack_values(batch.payload))) == offsets
            assert unpack_metadata(batch.metadata).keys == [key_at(offset, keys) for offset in offsets]
        found += offsets
        cursor = batch.end
    assert found == wanted(log.head, keys, names)


def test_arrow_rows_have_the_offsets_of_their_records() -> None:
    arrow = pytest.importorskip("penstock.aquifer.records.arrow")
    pytest.importorskip("pyarrow")
    log = Log(MemoryJournal())
    log.append([batch_of(0, 50, keys=4)])
    batch = KeyFilter(log, [b"k1"], ARROW, 0).next_batch(0, 50, 100, 10_000)
    assert batch is not None
    rows = arrow.from_arrow_stream(batch.payload).to_pylist()
    assert [row["offset"] for row in rows] == wanted(50, 4, [b"k1"])
    assert {row["key"] for row in rows} == {b"k1"}


@pytest.mark.parametrize("places", [[3, 2], [0, 0], [5], [-1]])
def test_positions_that_a_frame_does_not_have_are_refused(places: list[int]) -> None:
    frame = Frame(0, 10, 5, b"", pack_metadata(ChosenMetadata(0, chosen=places)))
    with pytest.raises(ProtocolViolation, match="in places that it does not have"):
        with_positions(frame)


# ---------------------------------------------------------------- both sides
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), trouble=st.sampled_from(["none", "control", "data", "all"]))
def test_readers_of_keys_get_theirs_in_order_over_whatever_lines(seed: int, trouble: str) -> None:
    random = Random(seed)
    pick = random.choice
    keys = pick([1, 3, 20])
    lines = {
        "none": Trouble(),
        "control": Trouble(lose=0.2, repeat=0.2, delay=0.3),
        "data": Trouble(drop=0.01),
        "all": Trouble(lose=0.1, repeat=0.1, delay=0.2, late=2.0, drop=0.005, restart=0.002),
    }[trouble]
    gateway = SimulatedGateway(
        Source(TOTAL, batch=pick([1, 3, 20]), width=pick([1, 8, 200]), keys=keys),
        Limits(
            frames_in_flight=pick([1, 5, 1024]),
            bytes_in_flight=pick([1, 1000, 1 << 24]),
            max_frame_records=pick([1, 3, 10_000]),
        ),
        max_records=pick([1, 5, 20, 1000]),
        max_bytes=pick([1, 300, 1 << 20]),
        random=random,
        readers=2,
        piece=pick([0, 0, 7]),
    )
    readers = []
    for number in range(2):
        asked = [b"k%d" % random.randrange(keys + 1) for _ in range(pick([1, 2]))]
        options = SubscribeOptions(
            dialect="extended",
            name=f"reader {number}",
            keys=asked,
            window=pick([1, 7, 100]),
            max_window=1000,
            window_bytes=pick([1, 500, 1 << 20]),
            patience=600,
        )
        pace = pick([0.2, 1, 10])
        readers.append(SimulatedSubscriber(f"reader {number}", options, random, pace, pick([False, True])))
    world = World(gateway, readers, Trouble(), random)
    while not all(reader.reading for reader in readers):
        world.step()
    world.trouble = lines
    world.run(most=400)
    for reader in readers:
        assert reader.finished is None
        assert reader.wishes.keys is not None
        assert reader.got == wanted(TOTAL, keys, reader.wishes.keys)
        assert reader.reading is not None
        assert reader.reading.next == TOTAL, "it has passed all records, also those that it did not want"


def test_a_long_run_of_other_keys_moves_the_cursor_and_makes_room() -> None:
    """The log is much smaller than the stream, and nothing has the key: the source must not stop."""
    random = Random(3)
    gateway = SimulatedGateway(Source(5000, batch=10, keys=3), max_records=40, random=random)
    options = SubscribeOptions(dialect="extended", name="reader", keys=[b"nobody"], window=1, max_window=1)
    reader = SimulatedSubscriber("reader", options, random)
    world = World(gateway, [reader], Trouble(), random)
    world.run(most=120)
    assert reader.got == []
    for _ in range(10):
        world.step()  # Its last words arrive.
    assert gateway.table.cursors.saved["reader"].acknowledged == 5000


# ---------------------------------------------------------------- asking
def test_a_gateway_says_that_it_chooses_and_does_not_know_how_many_will_come() -> None:
    front = FrontTable(log=PretendedLog(head=1000))
    answer = front.ask(Subscribe(x=SubscribeFields(v=1, keys=[b"a"], to=10)))
    assert isinstance(answer, OnSubscribe)
    details = extension(answer.x)
    assert details is not None
    assert (details.keys, answer.size) == (True, 2**63 - 1)


@pytest.mark.parametrize("count", [0, 4])
def test_too_many_keys_and_none_are_refused(count: int) -> None:
    front = FrontTable(limits=Limits(max_keys=3))
    answer = front.ask(Subscribe(x=SubscribeFields(v=1, keys=[b"%d" % number for number in range(count)])))
    assert isinstance(answer, OnError)
    details = extension(answer.x)
    assert details is not None
    assert details.code == ErrorCode.BAD
    assert "1 to 3 keys" in answer.message


def test_a_request_that_counts_records_beforehand_is_refused() -> None:
    front = FrontTable(log=PretendedLog(head=1000))
    front.subscribe(keys=[b"a"])
    answer = front.ask(Next(5))
    assert isinstance(answer, OnError)
    assert "needs x.limit" in answer.message


def test_a_gateway_of_an_earlier_version_is_not_read_as_if_it_chose() -> None:
    random = Random(4)
    gateway = SimulatedGateway(Source(20, keys=2), random=random)
    options = SubscribeOptions(dialect="extended", keys=[b"k1"])
    reader = SimulatedSubscriber("reader", options, random)
    world = World(gateway, [reader], Trouble(), random)
    known = gateway.reply

    def forget(reply: Reply) -> None:
        details = extension(reply.message.x) if isinstance(reply.message, OnSubscribe) else None
        if details is not None:
            details.keys = UNSET
        known(reply)

    gateway.reply = forget
    world.run(most=20)
    assert reader.finished is not None
    assert isinstance(reader.finished.error, ProtocolViolation)
    assert "earlier version" in str(reader.finished.error)


def test_an_optional_reader_does_not_miss_what_it_does_not_want() -> None:
    """Records with other keys are forgotten before it is told of them: that is no gap."""
    log = PretendedLog(head=0)
    front = FrontTable(log=log)
    session = front.subscribe(keys=[b"a"], keep=False)
    log.head = 100
    assert session.filter is not None
    session.filter.seen = 80
    log.first = 70
    assert not session.overtaken
    log.first = 90
    assert session.overtaken


def test_a_batch_that_stands_for_more_than_it_has_ends_where_its_range_does() -> None:
    batch = Batch(10, 2, b"\x92\xc4\x00\xc4\x00", pack_metadata(ChosenMetadata(0, chosen=[1, 7])), span=9)
    assert batch.end == 19
    assert list(offsets_of(batch)) == [11, 17]

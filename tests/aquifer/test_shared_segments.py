"""Payloads in shared memory: what is looked at never changes, and nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import mmap
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from pickle import PickleBuffer
from typing import Any

import hypothesis.strategies as some
import msgspec
import pytest
from hypothesis import given

from penstock.aquifer import Gateway, Limits, ProtocolViolation, SqliteJournal
from penstock.aquifer.client import segment_reader
from penstock.aquifer.client.segment_reader import SegmentFinder, SegmentReader
from penstock.aquifer.gateway.shared_memory import SharedSegment, SharedSegments
from penstock.aquifer.protocol.frames import PLACE
from penstock.aquifer.protocol.messages import SegmentFields
from penstock.aquifer.protocol.plain_session import PlainSession
from penstock.aquifer.protocol.session import Session
from penstock.aquifer.records.batch import Batch, unpack_values
from penstock.aquifer.security import LOCAL
from tests.aquifer.faults.rigs import ANYWHERE, Numbers, read_range
from tests.aquifer.protocol.front_table import PretendedLog

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="memory without a name is Linux's")

SIZE = 4096
RECORDS, WIDTH = 40_000, 200
"""In frames of a thousand: payloads of some 200 KiB, more of them than a segment has room for."""


@pytest.fixture(autouse=True)
def nothing_from_before() -> Iterator[None]:
    segment_reader._idle.clear()
    yield
    segment_reader._idle.clear()


@pytest.fixture
def segment() -> Iterator[SharedSegment]:
    segment = SharedSegment(SIZE)
    yield segment
    segment.close()


def seen(terms: SegmentFields) -> SegmentReader:
    view = SegmentFinder("tcp://somewhere:1").open(terms)
    assert view is not None
    return view


def shelves_of_this_process() -> set[int]:
    """Those that somebody here has open, however often."""
    gc.collect()
    found: set[int] = set()
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # That of the list itself.
            if "penstock-segment" in os.readlink(f"/proc/self/fd/{number}"):
                found.add(os.fstat(int(number)).st_ino)
    return found


def is_shared(batch: Batch) -> bool:
    """Whether the payload is seen where the gateway has put it."""
    seen: Any = batch.payload
    while isinstance(seen, memoryview):
        seen = seen.obj
    return isinstance(seen, mmap.mmap)


def a_session() -> Session:
    return PlainSession(b"peer", PretendedLog(), 0, Limits(), 0.0, LOCAL)


# -------------------------------------------------------------------- the two ends of a segment
def test_a_payload_is_seen_where_it_was_put(segment: SharedSegment) -> None:
    view = seen(segment.fields)
    places = [segment.put(text) for text in (b"one", b"two" * 100, b"")]
    assert [bytes(view.payload(place)) for place in places if place] == [b"one", b"two" * 100, b""]


@given(some.lists(some.tuples(some.integers(0, 1500), some.sets(some.integers(0, 9)))))
def test_what_is_looked_at_stays_as_it_is(steps: list[tuple[int, set[int]]]) -> None:
    segment = SharedSegment(SIZE)
    view = seen(segment.fields)
    held: list[tuple[bytes, memoryview]] = []
    for number, (length, dropped) in enumerate(steps):
        held = [pair for index, pair in enumerate(held) if index not in dropped]
        segment.keep_only(view.in_use())
        text = bytes([number % 256]) * length
        place = segment.put(text)
        if place is not None:
            held.append((text, view.payload(place)))
        assert all(payload == text for text, payload in held)
    segment.close()
    assert all(payload == text for text, payload in held)


def test_there_is_room_again_when_nobody_looks_any_more(segment: SharedSegment) -> None:
    view = seen(segment.fields)
    held = [view.payload(place) for _ in range(10) if (place := segment.put(bytes(960)))]
    assert len(held) == 4
    segment.keep_only(view.in_use())
    assert segment.put(bytes(960)) is None
    del held[1:3]  # From the middle: a reader may keep what came first for as long as it likes.
    segment.keep_only(view.in_use())
    assert segment.put(bytes(1900)) is not None
    assert segment.put(bytes(960)) is None


def test_what_was_not_seen_yet_is_not_overwritten(segment: SharedSegment) -> None:
    view = seen(segment.fields)
    places = [place for number in range(4) if (place := segment.put(bytes([number]) * 960))]
    view.payload(places[0])
    segment.keep_only(view.in_use())
    assert segment.put(bytes(960)) is not None
    assert segment.put(bytes(960)) is None
    assert [bytes(view.payload(place)) for place in places[1:]] == [bytes([n]) * 960 for n in (1, 2, 3)]


@pytest.mark.parametrize(
    "part_of",
    [
        lambda payload: payload[100:200],
        lambda payload: payload[50:][50:150],
        lambda payload: memoryview(payload)[100:200],
        lambda payload: payload.cast("I").cast("B")[100:200],
        lambda payload: payload.toreadonly()[100:200],
        lambda payload: memoryview(PickleBuffer(payload[100:200])),
    ],
    ids=["slice", "slice of a slice", "view", "cast", "read-only", "buffer"],
)
def test_what_lives_on_in_a_part_counts_as_looked_at(
    segment: SharedSegment, part_of: Callable[[memoryview], memoryview]
) -> None:
    view = seen(segment.fields)
    place = segment.put(b"kept" * 240)
    assert place is not None
    part = part_of(view.payload(place))
    gc.collect()
    assert view.in_use() == [1, 0]
    segment.keep_only(view.in_use())
    while (place := segment.put(b"next" * 240)) is not None:
        view.payload(place)
    assert part == b"kept" * 25, "the gateway has put something else there"
    del part
    assert 0 not in view.in_use()[1:]


def test_what_lives_on_in_arrow_counts_as_looked_at(segment: SharedSegment) -> None:
    arrow = pytest.importorskip("pyarrow")
    from penstock.aquifer.records.arrow import from_arrow_stream, to_arrow_stream

    view = seen(segment.fields)
    place = segment.put(to_arrow_stream(arrow.record_batch({"number": list(range(20))})))
    assert place is not None
    numbers = from_arrow_stream(view.payload(place)).column("number")[3:5]
    gc.collect()
    assert view.in_use() == [1, 0]
    assert numbers.to_pylist() == [3, 4]
    del numbers
    assert view.in_use() == [1]


@pytest.mark.parametrize(
    "place",
    [b"", b"short", PLACE.pack(0, SIZE, 1), PLACE.pack(0, 2**63, 2**63), PLACE.pack(0, 0, 2**64 - 1)],
)
def test_a_place_that_cannot_be_is_refused(segment: SharedSegment, place: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="shared segment"):
        seen(segment.fields).payload(place)


def test_a_number_comes_once(segment: SharedSegment) -> None:
    view = seen(segment.fields)
    view.payload(PLACE.pack(3, 0, 10))
    with pytest.raises(ProtocolViolation, match="in which 4 have been seen"):
        view.payload(PLACE.pack(3, 0, 10))


# -------------------------------------------------------------------- finding it
def test_another_process_sees_it_and_cannot_write_to_it(segment: SharedSegment) -> None:
    place = segment.put(b"over here")
    assert place is not None
    script = f"""
        from penstock.aquifer.protocol.messages import SegmentFields
        from penstock.aquifer.client.segment_reader import SegmentFinder

        view = SegmentFinder("tcp://somewhere:1").open(SegmentFields(**{msgspec.structs.asdict(segment.fields)!r}))
        payload = view.payload({place!r})
        print(bytes(payload).decode(), payload.readonly)
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True
    )
    assert said.stdout == "over here True\n"


def test_what_is_not_the_gateways_shelf_is_not_used(segment: SharedSegment) -> None:
    terms = segment.fields
    with tempfile.TemporaryFile() as ordinary:
        ordinary.write(bytes.fromhex(terms.token).ljust(SIZE, b"\0"))
        ordinary.flush()
        reading, writing = os.pipe()
        wrong = {
            "another token": {"token": "00" * 16},
            "no token": {"token": ""},
            "another size": {"size": SIZE + 1},
            "nothing": {"size": 0},
            "no such process": {"pid": 2**22 + 1},
            "no such file": {"fd": 99_999},
            "a file that can shrink": {"fd": ordinary.fileno()},
            "a pipe": {"fd": reading},
        }
        for what, difference in wrong.items():
            other = msgspec.structs.replace(terms, **difference)
            assert SegmentFinder("tcp://somewhere:1").open(other) is None, what
        os.close(reading)
        os.close(writing)


# -------------------------------------------------------------------- the segments of a gateway
def test_a_reader_that_comes_back_gets_its_shelf_again() -> None:
    segments = SharedSegments(SIZE)
    first = a_session()
    terms = segments.lend(first, "")
    assert terms is not None
    view = seen(terms)
    for _ in range(2):
        assert segments.put(first, bytes(1500), view.in_use()) is not None
    segments.take_back(first, 0.0)
    second = a_session()
    assert segments.lend(second, terms.token) == terms
    # The two that nobody has seen, and nobody will see any more, are not in the way.
    assert segments.put(second, bytes(3000), view.in_use()) is not None
    another = segments.lend(a_session(), terms.token)
    assert another is not None
    assert another.token != terms.token
    segments.close()


def test_shelves_that_wait_for_their_readers_are_few_and_do_not_wait_for_ever() -> None:
    before = shelves_of_this_process()
    segments = SharedSegments(SIZE)
    for _ in range(30):
        session = a_session()
        segments.lend(session, "")
        segments.take_back(session, 0.0)
    assert len(shelves_of_this_process() - before) == 8
    segments.tick(60.0)
    assert len(shelves_of_this_process() - before) == 8
    late = a_session()
    segments.lend(late, "")
    segments.take_back(late, 50.0)
    segments.tick(60.1)
    assert len(shelves_of_this_process() - before) == 1
    segments.close()
    assert shelves_of_this_process() <= before


def test_without_memory_there_is_no_shelf_and_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "penstock.aquifer")
    segments = SharedSegments(2**62)
    session = a_session()
    assert segments.lend(session, "") is None
    assert segments.put(session, b"payload", [0]) is None
    segments.take_back(session, 0.0)
    assert "its payloads go through the socket" in caplog.text


# -------------------------------------------------------------------- through a gateway
def values(read: list[Batch]) -> list[bytes]:
    return [value for frame in read for value in unpack_values(frame.payload)]


def test_a_reader_on_the_same_machine_looks_at_large_payloads(tmp_path: Path) -> None:
    source = Numbers(RECORDS, width=WIDTH)
    limits = Limits(max_frame_records=1000)
    with Gateway(source, ANYWHERE, journal=SqliteJournal(tmp_path / "journal.db"), limits=limits) as gateway:
        assert gateway.join(60)
        seen_there = 0
        read = []
        for frame in read_range(gateway.endpoint, start=0, stop=RECORDS):
            seen_there += is_shared(frame)
            read += unpack_values(frame.payload)
        assert read == source.values()
        assert seen_there > 0


def test_who_keeps_everything_is_sent_what_has_no_room() -> None:
    source = Numbers(RECORDS, width=WIDTH)
    with Gateway(source, ANYWHERE, limits=Limits(shared_memory=1 << 20, max_frame_records=1000)) as gateway:
        assert gateway.join(60)
        read = list(read_range(gateway.endpoint, start=0, stop=RECORDS))
        segment_use = sum(is_shared(frame) for frame in read)
        assert 0 < segment_use < len(read)
        assert values(read) == source.values()
    # The gateway is gone, and its segment is still there for whom looks at it.
    assert values(read) == source.values()


def test_a_limit_too_low_for_a_shelf_means_none() -> None:
    source = Numbers(2000, width=WIDTH)
    with Gateway(source, ANYWHERE, limits=Limits(shared_memory=1, max_frame_records=1000)) as gateway:
        assert gateway.join(60)
        read = list(read_range(gateway.endpoint, start=0, stop=2000))
        assert values(read) == source.values()
        assert not any(map(is_shared, read))
        assert not gateway.status()["counters"]


def test_who_leaves_in_the_middle_leaves_nothing_behind() -> None:
    before = shelves_of_this_process()
    source = Numbers(RECORDS, width=WIDTH)
    with Gateway(source, ANYWHERE, limits=Limits(max_frame_records=1000)) as gateway:
        assert gateway.join(60)
        kept = []
        for start in range(0, RECORDS, 2000):
            reading = read_range(gateway.endpoint, start=start, stop=RECORDS)
            kept.append(next(reading))
            reading.close()  # type: ignore[attr-defined]
        # A reader may be back before its goodbye has been heard, and is then given another.
        assert len(shelves_of_this_process() - before) <= 10
        wanted = [value for frame in kept for value in source.values(frame.first, frame.first + frame.count)]
        assert values(kept) == wanted
    del kept
    segment_reader._idle.clear()  # As if another process had read.
    assert shelves_of_this_process() <= before


def test_who_cannot_be_on_the_same_machine_asks_for_nothing() -> None:
    source = Numbers(2000, width=WIDTH)
    with Gateway(source, "tcp://*:0", allow_remote=True, limits=Limits(max_frame_records=1000)) as gateway:
        assert gateway.join(60)
        port = gateway.endpoint.rpartition(":")[2]
        # Linux takes it for this machine; as an address it says nothing of the kind.
        read = list(read_range(f"tcp://0.0.0.0:{port}", start=0, stop=2000))
    assert values(read) == source.values()
    assert not any(map(is_shared, read))


def test_a_child_of_a_reader_does_not_use_its_shelf(segment: SharedSegment) -> None:
    lookout = SegmentFinder("tcp://somewhere:1")
    assert lookout.open(segment.fields) is not None
    lookout.close()
    child = os.fork()
    if not child:
        os._exit(len(segment_reader._idle))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert SegmentFinder("tcp://somewhere:1").token == segment.fields.token

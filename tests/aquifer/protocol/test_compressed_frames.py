"""Compressed batches between a gateway and its subscribers, without sockets: who gets what, and how."""

from __future__ import annotations

from itertools import cycle
from random import Random
from typing import Any

import pytest
import zstandard
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.log import Log, MemoryJournal
from penstock.aquifer.protocol import subscribe_options
from penstock.aquifer.protocol.extended_session import ExtendedSession
from penstock.aquifer.protocol.frames import CutFrame, Flag, Frame, FrameAssembly, payload_of, unpacked_bytes
from penstock.aquifer.protocol.key_filter import KeyFilter
from penstock.aquifer.protocol.pace import Pace
from penstock.aquifer.protocol.subscribe_options import SubscribeOptions
from penstock.aquifer.records import MSGPACK, Batch, compression, offsets_of, pack_values, unpack_values
from penstock.aquifer.records.compression import Compressor, expanded
from tests.aquifer.protocol.on_the_line import OnTheLine, asked, taken
from tests.aquifer.protocol.simulated_gateway import Source, batch_of, offset_in
from tests.aquifer.protocol.simulated_network import Trouble
from tests.aquifer.protocol.test_both_sides import assert_all_was_read, reader, roomy_world, tight_world


@pytest.fixture
def everything_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of a few bytes are compressed, too."""
    monkeypatch.setattr(compression, "_LEAST", 1)
    monkeypatch.setattr(compression, "_PAYS", 100)


def compressed(first: int = 0, count: int = 50, width: int = 100) -> Batch:
    made = Compressor().compressed(batch_of(first, count, width))
    assert made.compressed
    return made


def frame_with(batch: Batch, flags: int = Flag.ZSTD) -> Frame:
    return Frame(flags, batch.first, batch.count, batch.payload, batch.metadata)


def offsets_in(frame: Frame) -> list[int]:
    return list(map(offset_in, unpack_values(payload_of(frame))))


# ---------------------------------------------------------------- the subscriber
def test_a_subscriber_says_what_it_knows() -> None:
    (wishes,) = asked(OnTheLine().effects)
    assert wishes is not None
    assert wishes.compress == ["zstd"]


def test_a_subscriber_without_the_package_does_not_ask_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    assert SubscribeOptions().compressions == []
    line = OnTheLine()
    (wishes,) = asked(line.effects)
    assert wishes is not None
    assert not wishes.compress
    line.welcome()
    line.did(line.reader.frame(frame_with(Batch(0, 1, b"?", b"")), line.now))
    assert isinstance(line.finished, ProtocolViolation)
    assert "that was not asked for" in str(line.finished)


def test_a_compressed_frame_is_taken_as_it_came_and_costs_what_it_weighs() -> None:
    line, batch = OnTheLine(window_bytes=1000), compressed()
    line.welcome(pieces=True)
    assert taken(line.did(line.reader.frame(frame_with(batch), line.now))) == [0]
    assert line.reader.next == 50
    assert line.reader._arrived_bytes == batch.nbytes
    assert unpacked_bytes(frame_with(batch)) == batch_of(0, 50, 100).nbytes


@pytest.mark.parametrize("size", [10, 100, 1000])
def test_a_compressed_frame_comes_in_pieces_like_any_other(size: int) -> None:
    batch, assembly = compressed(), FrameAssembly()
    cut, whole, last = CutFrame(batch), None, False
    assert cut.compressed
    while not last:
        data, place, last = cut.piece(size)
        whole = assembly.add(Frame(Flag.PIECE | Flag.ZSTD, 0, 50, bytes(data), place))
        assert assembly.compressed
    assert whole is not None
    assert whole.flags == Flag.ZSTD
    assert offsets_in(whole) == list(range(50))


def test_after_a_loss_the_subscriber_says_that_its_pieces_are_compressed() -> None:
    line = OnTheLine(window_bytes=1000)
    line.welcome(pieces=True)
    data, place, _ = CutFrame(compressed()).piece(60)
    line.did(line.reader.frame(Frame(Flag.PIECE | Flag.ZSTD, 0, 50, bytes(data), place), line.now))
    (wishes,) = asked(line.did(line.side.lost("a test", line.now)))
    assert wishes is not None
    assert wishes.pieces == [60, 50, 1]


@pytest.mark.parametrize(
    "payload",
    [b"", b"nothing", zstandard.ZstdCompressor(write_content_size=False).compress(b"." * 100)],
    ids=["empty", "not zstd", "no size"],
)
def test_a_frame_that_cannot_be_expanded_is_a_violation(payload: bytes) -> None:
    frame = Frame(Flag.ZSTD, 7, 1, payload)
    for read in (payload_of, unpacked_bytes):
        with pytest.raises(ProtocolViolation, match="the frame at offset 7 is compressed, and it"):
            read(frame)


def test_a_frame_that_would_fill_the_memory_is_a_violation() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(65 << 20))
    assert len(bomb) < 10_000
    with pytest.raises(ProtocolViolation, match="claims to have 68157440 bytes, and at most 67108864"):
        payload_of(Frame(Flag.ZSTD, 0, 1, bomb))


# ---------------------------------------------------------------- the gateway
def session_for(log: Log, **wishes: Any) -> ExtendedSession:
    """A session that is streaming, with credit for everything, unless the wishes say otherwise."""
    played = roomy_world(reader(Random(1), **wishes), source=Source(1, batch=10_000))
    played.gateway.log = log
    played.gateway.table = played.gateway._new_desk()
    for _ in range(20):
        played.step()
        sessions = played.gateway.table.by_topic
        if sessions:
            break
    (session,) = sessions.values()
    return session


class Wire:
    """The frames that a simulated gateway has sent, by what they are."""

    def __init__(self) -> None:
        self.compressed = self.plain = self.bytes = 0

    def watch(self, played: Any) -> None:
        send = played.gateway.send

        def noting(topic: bytes, parts: list[bytes]) -> None:
            if parts[1][1] & Flag.ZSTD:
                self.compressed += 1
            elif int.from_bytes(parts[1][12:], "big"):
                self.plain += 1
            self.bytes += sum(map(len, parts))
            send(topic, parts)

        played.gateway.send = noting


def played_with(*readers: Any, compress: bool = True, **gateway: Any) -> tuple[Any, Wire]:
    played, wire = roomy_world(*readers, **gateway), Wire()
    wire.watch(played)
    if compress:
        played.gateway.log.compressor = Compressor()
    return played, wire


def test_who_knows_zstd_gets_the_batches_as_they_are_stored() -> None:
    source = Source(2000, batch=100, width=200)
    played, wire = played_with(reader(Random(1), window=500), source=source)
    played.run(most=20)
    assert_all_was_read(played, 2000)
    assert wire.compressed > 20
    assert wire.bytes < 2000 * 200 / 4


def test_who_does_not_know_zstd_gets_them_expanded() -> None:
    source = Source(2000, batch=100, width=200)
    played, wire = played_with(reader(Random(1), window=500, compressions=[]), source=source)
    played.run(most=20)
    assert_all_was_read(played, 2000)
    assert wire.compressed == 0
    assert wire.plain > 20


def test_a_way_of_compressing_that_the_gateway_does_not_know_is_ignored() -> None:
    played, wire = played_with(
        reader(Random(1), window=500, compressions=["lz9"]), source=Source(500, batch=100, width=200)
    )
    played.run(most=20)
    assert_all_was_read(played, 500)
    assert wire.compressed == 0


def test_both_kinds_of_readers_and_plain_and_compressed_batches_are_served_beside_each_other() -> None:
    readers = [
        reader(Random(1), "knows", window=300),
        reader(Random(2), "does not", window=300, compressions=[]),
    ]
    played, wire = played_with(*readers, source=Source(3000, batch=40, width=40))
    played.run(most=60)
    assert_all_was_read(played, 3000)
    assert wire.compressed > 5
    assert wire.plain > 5


@pytest.mark.usefixtures("everything_pays")
@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_sizes_and_the_troubles_everything_arrives_in_order(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    knows = cycle([True, seed % 2 == 0, False])
    monkeypatch.setattr(subscribe_options, "knows_zstd", lambda: next(knows))
    trouble = Trouble(lose=0.1, repeat=0.1, delay=0.2, drop=0.005, restart=0.002)
    played = tight_world(seed, trouble, readers=3, named=True)
    played.gateway.log.compressor = Compressor()
    played.run(most=300)
    assert_all_was_read(played)


@pytest.mark.usefixtures("everything_pays")
@pytest.mark.parametrize("seed", range(6))
def test_pieces_of_compressed_frames_arrive_in_order_whatever_goes_wrong(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pace, "message", 10)
    trouble = Trouble(lose=0.05, repeat=0.05, delay=0.1, drop=0.004, restart=0.001)
    played = tight_world(seed, trouble, readers=2, named=True)
    played.gateway.log.compressor = Compressor()
    played.gateway.frames_a_turn = 16
    played.run(most=3000)
    assert_all_was_read(played)
    assert played.gateway.pieces > 120


def test_a_compressed_record_that_takes_longer_than_any_connection_holds_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Pace, "message", 1)
    source = Source(1, width=20_000_000)
    played, _ = played_with(
        reader(Random(1), window_bytes=1000), source=source, max_bytes=32 << 20, trouble=Trouble(drop=0.02)
    )
    played.gateway.frames_a_turn = 1
    played.run(most=300)
    assert played.lines[0].subscriber.got == [0]
    assert played.lines[0].subscriber.side.subscriptions > 3
    stored = played.gateway.log.find(0)
    assert stored.compressed
    assert played.gateway.pieces < 2 * stored.nbytes, "and is not sent from its beginning each time"


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 99),
    st.integers(1, 100),
    st.integers(1, 30_000),
    st.booleans(),
    st.booleans(),
    st.sampled_from([[200], [10, 2000], [5000, *[20] * 99], [*[20] * 99, 5000]]),
)
@example(0, 17, 3436, False, False, [200])
def test_what_is_sent_is_within_the_credit_in_records_and_bytes(
    start: int, records: int, nbytes: int, slow: bool, knows: bool, widths: list[int]
) -> None:
    log = Log(MemoryJournal())
    log.compressor = Compressor()
    values = [str(offset).encode().ljust(width, b".") for offset, width in zip(range(100), cycle(widths))]
    log.append([log.compressed(Batch(0, 100, pack_values(values), batch_of(0, 100).metadata))])
    session = session_for(log, start=start, compressions=["zstd"] if knows else [])
    assert session.pace is not None
    if slow:
        session.pace._fastest, session.pace._quick = 1.0, False
    session.spoke = -10.0
    batch = session._next_batch(min(records, 100 - start), nbytes, 0.0)
    assert batch is not None
    assert batch.compressed <= knows
    plain = expanded(batch)
    assert list(map(offset_in, unpack_values(plain.payload))) == list(range(start, start + batch.count))
    assert batch.count <= records
    assert batch.count == 1 or batch.nbytes <= nbytes


def test_on_a_slow_line_parts_and_small_batches_are_compressed_as_well() -> None:
    log = Log(MemoryJournal())
    log.compressor = Compressor()
    log.append([batch_of(0, 10, 90), batch_of(10, 10, 90), log.compressed(batch_of(20, 1000, 100))])
    session = session_for(log, compressions=["zstd"])
    assert session.pace is not None
    session.pace._fastest, session.pace._quick = 1.0, False
    joined = session._next_batch(1000, 1 << 20, 0.0)
    assert joined is not None
    assert (joined.first, joined.count, joined.compressed) == (0, 20, True)
    session.cursor = 70
    session.spoke = -10.0
    part = session._next_batch(300, 1 << 20, 0.0)
    assert part is not None
    assert (part.first, part.compressed) == (70, True)
    session.takes_zstd = False
    plain = session._next_batch(300, 1 << 20, 0.0)
    assert plain is not None
    assert not plain.compressed


# ---------------------------------------------------------------- a few keys
@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=10), st.integers(1, 5), st.integers(0, 4))
def test_a_filter_finds_the_same_with_and_without_compression(counts: list[int], keys: int, key: int) -> None:
    plain, packed = Log(MemoryJournal()), Log(MemoryJournal())
    packed.compressor = Compressor()
    for count in counts:
        batch = batch_of(plain.head, count, 60, keys)
        plain.append([batch])
        packed.append([packed.compressed(batch)])
    names = [b"k%d" % key]
    found = [KeyFilter(log, names, MSGPACK, 0).range(0, log.head) for log in (plain, packed)]
    assert found[0] == found[1]
    assert found[0] is not None
    offsets, cursor, chooser = [], 0, KeyFilter(packed, names, MSGPACK, 0)
    while (batch := chooser.next_batch(cursor, packed.head, 7, 500)) is not None:  # type: ignore[assignment]
        offsets += offsets_of(batch)
        cursor = batch.end
    assert offsets == list(offsets_of(found[0]))


def test_a_batch_without_the_key_is_not_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(MemoryJournal())
    log.compressor = Compressor()
    log.append([log.compressed(batch_of(0, 500, 60, 3))])
    monkeypatch.setattr(compression, "expand", None)
    assert KeyFilter(log, [b"another"], MSGPACK, 0).next_batch(0, 500, 100, 1 << 20) is None

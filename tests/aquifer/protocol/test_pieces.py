"""Frames that are cut, put together again, and gone on with after a loss."""

from __future__ import annotations

from random import Random

import pytest
from msgspec import UNSET

from penstock.aquifer.errors import ProtocolViolation
from penstock.aquifer.limits import Limits
from penstock.aquifer.protocol.frames import PIECE, CutFrame, Flag, Frame, FrameAssembly
from penstock.aquifer.protocol.messages import Next, NextFields, OnError
from penstock.aquifer.protocol.subscriber_side import Phase
from penstock.aquifer.records.batch import Batch, RecordMetadata, pack_metadata, pack_values
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog
from tests.aquifer.protocol.on_the_line import OnTheLine, asked, connects, grants, taken
from tests.aquifer.protocol.simulated_gateway import Source
from tests.aquifer.protocol.simulated_network import Trouble
from tests.aquifer.protocol.test_both_sides import assert_all_was_read, reader, roomy_world, tight_world


def batch(first: int = 0, count: int = 3, width: int = 50, fill: bytes = b".") -> Batch:
    metadata = pack_metadata(RecordMetadata(1, keys=[b"key"] * count))
    return Batch(first, count, pack_values([fill * width] * count), metadata)


def cut(whole: Batch, size: int, start: int = 0) -> list[Frame]:
    """The pieces of a frame, as they come out of the socket."""
    frame, pieces, last = CutFrame(whole, start), [], False
    while not last:
        data, place, last = frame.piece(size)
        pieces.append(Frame(Flag.PIECE, whole.first, whole.count, bytes(data), place))
    return pieces


@pytest.mark.parametrize("size", [1, 7, 100, 156, 157, 1000])
def test_the_pieces_of_a_frame_are_the_frame(size: int) -> None:
    whole, assembly = batch(), FrameAssembly()
    *before, last = cut(whole, size)
    assert [assembly.add(piece) for piece in before] == [None] * len(before)
    frame = assembly.add(last)
    assert frame is not None
    assert (frame.flags, frame.first, frame.count) == (0, 0, 3)
    assert (bytes(frame.payload), frame.metadata) == (whole.payload, whole.metadata)


def test_a_piece_that_was_lost_is_noticed() -> None:
    assembly = FrameAssembly()
    first, _, third, *_ = cut(batch(), 20)
    assembly.add(first)
    assert assembly.misfit(third) == "the piece starts at byte 40, but 20 bytes have arrived"


def test_pieces_of_two_frames_are_not_put_together() -> None:
    assembly = FrameAssembly()
    assembly.add(cut(batch(), 20)[0])
    assert assembly.misfit(cut(batch(fill=b"!"), 20)[1]) == "the piece belongs to another frame"


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"", PIECE.pack(0, 5, 10, 0)),
        (b"12345678901", PIECE.pack(0, 5, 10, 0)),
        (b"123", PIECE.pack(8, 5, 10, 0)),
        (b"123", PIECE.pack(0, 11, 10, 0)),
        (b"123", PIECE.pack(2**63, 5, 10, 0)),
        (b"123", b"?"),
    ],
)
def test_a_piece_that_is_none_is_a_violation(data: bytes, place: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        FrameAssembly().add(Frame(Flag.PIECE, 0, 1, data, place))


# -------------------------------------------------------------------- the subscriber
class InPieces(OnTheLine):
    """Welcomed by a gateway that sends pieces."""

    def piece(self, piece: Frame, flags: int = 0) -> list[object]:
        frame = Frame(piece.flags | flags, piece.first, piece.count, piece.payload, piece.metadata)
        return list(self.did(self.side.reader.frame(frame, self.now)))


@pytest.fixture
def line() -> InPieces:
    made = InPieces(window=100, max_window=100, window_bytes=1000)
    made.welcome(pieces=True)
    return made


def test_a_subscriber_says_that_it_takes_pieces_and_a_gateway_that_does_not_hears_no_more_of_it() -> None:
    line = OnTheLine()
    (wishes,) = asked(line.effects)
    assert wishes is not None
    assert wishes.pieces == []
    (grant,) = grants(line.welcome())
    assert grant.gotb is UNSET


def test_a_frame_is_taken_when_it_is_whole_and_bytes_are_told_before(line: InPieces) -> None:
    first, *middle, last = cut(batch(), 50)
    assert line.piece(first, Flag.ACK) == []
    (grant,) = grants(line.tick())
    assert (grant.got, grant.gotb) == (0, 50)
    for piece in middle:
        assert line.piece(piece) == []
    assert taken(line.did(line.reader.frame(last, line.now))) == [0]
    assert line.reader.next == 3
    assert line.reader.assembly.have == 0


def test_after_a_loss_the_next_session_goes_on_in_the_middle(line: InPieces) -> None:
    whole = batch()
    line.piece(cut(whole, 60)[0])
    effects = line.did(line.side.lost("a test", line.now))
    (wishes,) = asked(effects)
    assert wishes is not None
    assert (wishes.from_, wishes.pieces) == (0, [60, 3])
    line.welcome(pieces=True)
    for piece in cut(whole, 60, start=60):
        line.piece(piece)
    assert taken(line.effects) == [0]


def test_after_a_loss_the_gateway_may_begin_anew(line: InPieces) -> None:
    line.piece(cut(batch(), 60)[0])
    line.did(line.side.lost("a test", line.now))
    line.welcome(pieces=True)
    for piece in cut(batch(count=2), 60):
        line.piece(piece)
    assert taken(line.effects) == [0]
    assert line.reader.next == 2


def test_after_a_loss_the_frame_may_come_as_a_whole(line: InPieces) -> None:
    line.piece(cut(batch(), 60)[0])
    line.did(line.side.lost("a test", line.now))
    line.welcome(pieces=True)
    assert taken(line.frame(0, 3)) == [0]
    assert line.reader.assembly.have == 0


def test_a_piece_that_was_lost_makes_it_subscribe_again_with_what_it_has(line: InPieces) -> None:
    first, _, third, *_ = cut(batch(), 50)
    line.piece(first)
    line.piece(third)
    (_, wishes) = asked(line.effects)
    assert wishes is not None
    assert wishes.pieces == [50, 3]


def test_when_what_is_here_does_not_fit_any_more_it_begins_anew(line: InPieces) -> None:
    """The gateway may have been restarted, and show these records in another way."""
    line.piece(cut(batch(), 50)[0])
    line.did(line.side.lost("a test", line.now))
    line.welcome(pieces=True)
    line.piece(cut(batch(fill=b"!"), 50, start=50)[0])
    *_, wishes = asked(line.effects)
    assert wishes is not None
    assert wishes.pieces == []
    line.welcome(pieces=True)
    for piece in cut(batch(fill=b"!"), 50):
        line.piece(piece)
    assert taken(line.effects) == [0]


def test_a_frame_above_the_window_is_granted_the_rest_after_a_loss(line: InPieces) -> None:
    """What is here of it must not stand in its own way: it cannot be handed on before all of it has come."""
    whole = batch(count=1, width=5000)
    line.piece(cut(whole, 3000)[0])
    line.did(line.side.lost("a test", line.now))
    (grant,) = grants(line.welcome(pieces=True))
    assert grant.limitb == 1000
    for piece in cut(whole, 3000, start=3000):
        line.piece(piece)
    assert taken(line.effects) == [0]
    assert line.reader._demand_bytes() <= 0, "all of it waits here now"
    line.hand_on(1, whole.nbytes)
    (grant,) = grants(line.tick())
    assert grant.limitb == 1000 + whole.nbytes - 3000


def test_a_gap_drops_the_pieces_of_what_is_gone() -> None:
    line = InPieces(keep=False, on_gap=lambda *gap: None, window_bytes=1000)
    line.welcome(pieces=True)
    line.piece(cut(batch(), 60)[0])
    line.frame(10, 0, Flag.GAP)
    assert line.reader.assembly.have == 0
    (grant,) = grants(line.pass_time(0.51))
    assert grant.limitb == 1060
    assert taken(line.frame(10, 2)) == [10]


def test_pieces_that_are_none_end_the_stream() -> None:
    line = InPieces()
    line.welcome(pieces=True)
    line.piece(Frame(Flag.PIECE, 0, 1, b"x", b"?"))
    assert isinstance(line.finished, ProtocolViolation)


# -------------------------------------------------------------------- the gateway
def test_a_peer_that_does_not_say_pieces_gets_whole_frames() -> None:
    front = FrontTable(log=PretendedLog(head=100))
    session = front.subscribe()
    assert session.pace is None
    assert not session.cut_up(batch(count=1, width=10**6))


def test_more_bytes_than_were_sent_cannot_have_come() -> None:
    front = FrontTable(log=PretendedLog(head=100))
    session = front.subscribe(pieces=[])
    session.sent(1, 100)
    assert isinstance(front.ask(Next(1, x=NextFields(limit=50, gotb=101))), OnError)
    assert session.status()["in_flight"] == 100
    assert front.grant(limit=50, gotb=100) == []
    assert session.status()["in_flight"] == 0


@pytest.mark.parametrize("pieces", [[5], [1, 2, 3], [-1, 3], [3, 0], [10**30, 10**30]])
def test_pieces_that_make_no_sense_are_none(pieces: list[int]) -> None:
    front = FrontTable(log=PretendedLog(head=100))
    session = front.subscribe(pieces=pieces, from_=0)
    whole = batch(count=3, width=100_000)
    assert session.cut_up(whole)
    assert session.cut is not None
    assert PIECE.unpack(session.cut.piece(10)[1])[0] == 0


# -------------------------------------------------------------------- both
@pytest.mark.parametrize("seed", range(10))
def test_pieces_arrive_in_order_whatever_goes_wrong(seed: int) -> None:
    """Records of 20 kB, pieces of a few bytes up to several kB."""
    trouble = Trouble(lose=0.05, repeat=0.05, delay=0.1, drop=0.004, restart=0.001)
    played = tight_world(seed, trouble, readers=2, named=True)
    played.gateway.source.width = 20_000
    played.gateway.piece = Random(seed).choice([700, 4000, 0])
    played.gateway.frames_a_turn = 16
    played.run(most=3000)
    assert_all_was_read(played)
    assert played.gateway.pieces > 120


def test_a_record_that_takes_longer_than_any_connection_holds_arrives() -> None:
    gateway = {"source": Source(1, width=300_000), "max_bytes": 1 << 20}
    played = roomy_world(reader(Random(1), window_bytes=1000), trouble=Trouble(drop=0.02), **gateway)
    played.gateway.piece = 1000
    played.gateway.frames_a_turn = 1
    played.run(most=300)
    assert played.lines[0].subscriber.got == [0]
    assert played.lines[0].subscriber.side.subscriptions > 3
    assert played.gateway.pieces < 2 * 300, "and is not sent from its beginning each time"


def test_after_the_end_nothing_is_left_of_a_assembly(line: InPieces) -> None:
    line.piece(cut(batch(), 60)[0])
    line.side.leave()
    assert line.side.phase is Phase.OVER
    assert connects(line.effects) == 1


def test_a_limit_on_bytes_bounds_the_pace() -> None:
    front = FrontTable(log=PretendedLog(head=100), limits=Limits(bytes_in_flight=1000))
    session = front.subscribe(pieces=[])
    assert session.pace is not None
    assert session.pace.ahead == 1000

"""Reading frames: credit and acknowledgement in time, gaps noticed, ends not missed."""

from __future__ import annotations

import pytest
from msgspec import UNSET

from penstock.aquifer.errors import Overtaken, ProtocolViolation, SourceFailed, TakenOver
from penstock.aquifer.protocol.effects import Connect, Effect, Finish
from penstock.aquifer.protocol.frames import Flag, Frame
from penstock.aquifer.protocol.messages import OnComplete, OnNext, SegmentFields
from penstock.aquifer.protocol.subscriber_side import Phase
from tests.aquifer.protocol.on_the_line import OnTheLine, asked, connects, grants, taken


@pytest.fixture
def line() -> OnTheLine:
    welcomed = OnTheLine(window=100, max_window=100, window_bytes=1000)
    welcomed.welcome()
    return welcomed


def assert_asks_from(line: OnTheLine, effects: list[Effect], offset: int) -> None:
    assert effects[0] == Connect()
    (wishes,) = asked(effects)
    assert wishes is not None
    assert wishes.from_ == offset
    assert line.side.phase is Phase.ASKING


# -------------------------------------------------------------------- frames
def test_frames_in_order_are_taken(line: OnTheLine) -> None:
    assert taken(line.frame(0, 10)) == [0]
    assert taken(line.frame(10, 5)) == [10]
    assert line.reader.next == 15


def test_a_frame_that_was_lost_is_asked_for_again(line: OnTheLine) -> None:
    line.frame(0, 10)
    effects = line.frame(20, 10)
    assert taken(effects) == []
    assert_asks_from(line, effects, 10)
    assert line.reader.gaps == 1


def test_a_frame_that_came_before_is_ignored(line: OnTheLine) -> None:
    line.frame(0, 10)
    assert line.frame(0, 10) == []
    assert line.frame(5, 3) == []
    assert line.reader.next == 10


@pytest.mark.parametrize("flag", [Flag.HB, Flag.END])
def test_a_lost_tail_is_noticed_by_the_next_sign(line: OnTheLine, flag: Flag) -> None:
    line.frame(0, 10)
    assert_asks_from(line, line.frame(12, 0, flag), 10)
    assert not line.reader.ended


def test_a_sign_of_life_tells_the_head(line: OnTheLine) -> None:
    line.pass_time(3)
    payload = (77).to_bytes(8, "big")
    line.reader.frame(Frame(Flag.HB, 0, 0, payload, b""), line.now)
    assert line.reader.head == 77
    assert connects(line.pass_time(3)) == 0, "it was heard of"


def test_silence_is_a_lost_gateway(line: OnTheLine) -> None:
    line.frame(0, 10)
    assert connects(line.pass_time(3.9)) == 0
    effects = line.pass_time(0.2)
    assert connects(effects) == 1
    assert_asks_from(line, [effect for effect in effects if grants([effect]) == []], 10)


def test_the_end_is_the_end(line: OnTheLine) -> None:
    line.frame(0, 10)
    assert line.frame(10, 0, Flag.END) == []
    assert line.reader.ended
    assert line.frame(10, 5) == []


# -------------------------------------------------------------------- credit
def test_credit_is_given_again_when_a_quarter_was_handed_on(line: OnTheLine) -> None:
    line.frame(0, 60)
    line.hand_on(24)
    assert line.tick() == []
    line.hand_on(25)
    (grant,) = grants(line.tick())
    assert (grant.limit, grant.ack, grant.got) == (125, 25, 60)


def test_records_that_wait_here_count(line: OnTheLine) -> None:
    line.frame(0, 100)
    (grant,) = grants(line.pass_time(0.51))
    assert (grant.limit, grant.got) == (100, 100), "no more before something was handed on"


def test_bytes_are_credit_too(line: OnTheLine) -> None:
    line.frame(0, 4, width=200)
    nbytes = line.reader._arrived_bytes
    line.hand_on(4, nbytes)
    (grant,) = grants(line.tick())
    assert grant.limitb == 1000 + nbytes


def test_bytes_that_wait_from_a_session_before_count_against_the_new_one(line: OnTheLine) -> None:
    line.frame(0, 5, width=300)
    waiting = line.reader._arrived_bytes
    line.did(line.side.lost("a test", line.now))
    (grant,) = grants(line.welcome(start=5))
    assert waiting > 1000
    assert grant.limitb == 0
    line.hand_on(5, waiting)
    (grant,) = grants(line.tick())
    assert grant.limitb == 1000


def test_a_grant_is_repeated_while_nothing_comes(line: OnTheLine) -> None:
    first, second = grants(line.pass_time(1.05))
    assert first == second
    assert first.limit == 100


def test_a_short_lease_is_kept_up() -> None:
    line = OnTheLine(lease=0.3)
    line.welcome()
    assert len(grants(line.pass_time(1.0))) >= 9


def test_the_window_grows_to_twice_the_rate_times_the_round_trip() -> None:
    line = OnTheLine(window=10, max_window=1000)
    line.connect()
    line.pass_time(0.1)
    line.welcome()
    assert line.side.ahead.round_trip == pytest.approx(0.1)
    offset = 0
    sizes = []
    for _ in range(40):
        line.frame(offset, 10)
        offset += 10
        line.hand_on(offset)
        line.pass_time(0.06)
        sizes.append(line.side.ahead.size)
    rate = 10 / 0.06
    assert line.side.ahead.size == pytest.approx(2 * rate * 0.1, rel=0.1)
    assert sizes == sorted(sizes)
    assert sizes[1] == 20, "at most twice as much at a time"


def test_the_window_does_not_grow_beyond_its_bound() -> None:
    line = OnTheLine(window=10, max_window=15)
    line.pass_time(0.5)
    line.welcome()
    for number in range(10):
        line.frame(number * 10, 10)
        line.hand_on((number + 1) * 10)
        line.pass_time(0.06)
    assert line.side.ahead.size == 15


# -------------------------------------------------------------------- acknowledgement
def test_an_acknowledgement_may_wait_a_little_for_a_grant_to_ride_on(line: OnTheLine) -> None:
    line.frame(0, 5)
    line.hand_on(5)
    assert grants(line.pass_time(0.05)) == []
    (grant,) = grants(line.pass_time(0.06))
    assert grant.ack == 5
    assert grants(line.pass_time(0.3)) == [], "nothing new"


def test_a_frame_can_ask_for_an_answer(line: OnTheLine) -> None:
    line.frame(0, 5, Flag.ACK)
    (grant,) = grants(line.tick())
    assert (grant.got, grant.ack) == (5, 0)
    assert line.tick() == []


def test_the_answer_comes_again_when_the_records_were_dealt_with(line: OnTheLine) -> None:
    line.frame(0, 5)
    line.frame(5, 5, Flag.ACK)
    line.tick()
    line.hand_on(5)
    assert line.tick() == []
    line.hand_on(10)
    (grant,) = grants(line.tick())
    assert grant.ack == 10
    line.hand_on(10)
    assert line.tick() == []


def test_as_many_records_as_the_gateway_can_hold_are_not_waited_for() -> None:
    line = OnTheLine(window=1000)
    line.welcome(ackevery=3)
    line.frame(0, 10)
    line.hand_on(2)
    assert line.tick() == []
    line.hand_on(3)
    (grant,) = grants(line.tick())
    assert grant.ack == 3


def test_after_the_end_what_is_dealt_with_is_still_acknowledged(line: OnTheLine) -> None:
    line.frame(0, 60)
    line.frame(60, 0, Flag.END)
    line.hand_on(30)
    (grant,) = grants(line.pass_time(0.2))
    assert grant.ack == 30


def test_after_the_end_the_lease_is_kept_up_and_silence_is_no_matter() -> None:
    line = OnTheLine(lease=9.0)
    line.welcome()
    line.frame(0, 60)
    line.frame(60, 0, Flag.END)
    effects = line.pass_time(20)
    assert connects(effects) == 0
    assert 6 <= len(grants(effects)) <= 7


@pytest.mark.parametrize("code", ["SESSION", "LEASE", "CLOSING", "BUSY", "TAKEN"])
def test_after_the_end_no_error_matters(line: OnTheLine, code: str) -> None:
    line.frame(0, 0, Flag.END)
    assert line.refuse(code) == []
    assert line.side.phase is Phase.READING


@pytest.mark.parametrize("failed", [True, False])
def test_after_the_end_a_durable_subscriber_that_has_not_acknowledged_all_comes_back(failed: bool) -> None:
    line = OnTheLine(name="r")
    line.welcome()
    line.frame(0, 60)
    if failed:
        line.error_frame(60, "SOURCE")
    else:
        line.frame(60, 0, Flag.END)
    line.hand_on(20)
    effects = line.refuse("SESSION")
    assert_asks_from(line, effects, 60)
    (wishes,) = asked(effects)
    assert wishes is not None
    assert (wishes.to, wishes.ack) == (60, 20), "nothing more is wanted"


def reader_at_the_end(handed: int) -> OnTheLine:
    """A durable subscriber that has received 60 records and the end, and has handed on so many."""
    line = OnTheLine(name="r")
    line.welcome()
    line.frame(0, 60)
    line.frame(60, 0, Flag.END)
    line.hand_on(handed)
    line.pass_time(2)
    return line


def test_after_the_end_a_lost_connection_matters_as_long_as_there_is_something_to_tell() -> None:
    line = reader_at_the_end(60)
    assert line.side.disconnected(line.now) == [], "it was told long ago"
    line = reader_at_the_end(20)
    assert_asks_from(line, line.side.disconnected(line.now), 60)


# -------------------------------------------------------------------- errors
def test_a_failed_source_is_an_error(line: OnTheLine) -> None:
    line.frame(0, 10)
    line.error_frame(10, "SOURCE")
    assert isinstance(line.finished, SourceFailed)
    assert str(line.finished) == "broken"


def test_what_came_before_the_failure_comes_first(line: OnTheLine) -> None:
    line.frame(0, 10)
    assert_asks_from(line, line.error_frame(15, "SOURCE"), 10)


def test_another_reader_with_the_same_id_ends_this_one(line: OnTheLine) -> None:
    line.frame(0, 50)
    line.error_frame(50, "TAKEN")
    assert isinstance(line.finished, TakenOver)
    line.hand_on(20)
    assert connects(line.pass_time(30)) == 0, "it does not take the id back while it still hands records on"


def test_what_came_before_a_failure_is_acknowledged_as_it_is_handed_on(line: OnTheLine) -> None:
    line.frame(0, 50)
    line.error_frame(50, "SOURCE")
    line.hand_on(20)
    (grant,) = grants(line.pass_time(0.2))
    assert grant.ack == 20
    assert grants(line.side.leave()) != []


@pytest.mark.parametrize("code", ["LEASE", "SESSION"])
def test_a_session_that_is_over_is_opened_again(line: OnTheLine, code: str) -> None:
    line.frame(0, 10)
    assert_asks_from(line, line.refuse(code), 10)


@pytest.mark.parametrize("code", ["BUSY", "CLOSING"])
def test_a_gateway_that_is_busy_or_closing_is_left_alone_for_a_while(line: OnTheLine, code: str) -> None:
    line.error_frame(0, code)
    assert line.side.phase is Phase.RESTING
    effects = line.pass_time(0.3)
    assert connects(effects) == 1


@pytest.mark.parametrize("payload", [b"garbage", b'{"jsonClass":"OnNext","count":1}'])
def test_a_bad_error_frame_is_a_violation(line: OnTheLine, payload: bytes) -> None:
    (finish,) = line.reader.frame(Frame(Flag.ERR, 0, 0, payload, b""), line.now)
    assert isinstance(finish, Finish)
    assert isinstance(finish.error, ProtocolViolation)


def test_other_answers_do_not_matter_while_reading(line: OnTheLine) -> None:
    assert line.hear(OnNext(5)) == line.hear(OnComplete()) == line.welcome(start=50) == []
    assert line.hear(b"garbage") == []


# -------------------------------------------------------------------- gaps that were announced
def test_without_on_gap_being_overtaken_is_an_error() -> None:
    line = OnTheLine(keep=False)
    line.welcome()
    line.frame(0, 10)
    line.frame(30, 0, Flag.GAP)
    assert isinstance(line.finished, Overtaken)
    assert line.finished.first == 30
    assert "records 10 to 29 are gone" in str(line.finished)


def test_with_on_gap_reading_goes_on() -> None:
    gaps: list[tuple[int, int]] = []
    line = OnTheLine(keep=False, on_gap=lambda *gap: gaps.append(gap))
    line.welcome()
    line.frame(0, 10)
    assert line.frame(30, 0, Flag.GAP) == []
    assert gaps == [(10, 30)]
    assert taken(line.frame(30, 5)) == [30]


def test_a_gap_wider_than_the_window_does_not_close_it() -> None:
    line = OnTheLine(keep=False, on_gap=lambda *gap: None, window=10, max_window=10)
    line.welcome()
    line.frame(0, 10)
    line.frame(500, 0, Flag.GAP)
    line.hand_on(10)
    (grant,) = grants(line.tick())
    assert (grant.limit, grant.got) == (510, 500)
    line.frame(500, 10)
    line.frame(900, 0, Flag.GAP)
    line.frame(990, 0, Flag.GAP)
    line.hand_on(510)
    (grant,) = grants(line.tick())
    assert grant.limit == 1000


def test_a_gap_that_lies_behind_is_none() -> None:
    gaps: list[tuple[int, int]] = []
    line = OnTheLine(keep=False, on_gap=lambda *gap: gaps.append(gap))
    line.welcome()
    line.frame(0, 10)
    line.frame(5, 0, Flag.GAP)
    assert gaps == []
    assert line.reader.next == 10


def test_being_overtaken_while_away_is_a_gap_too() -> None:
    gaps: list[tuple[int, int]] = []
    line = OnTheLine(keep=False, on_gap=lambda *gap: gaps.append(gap))
    line.welcome()
    line.frame(0, 10)
    line.did(line.side.lost("a test", line.now))
    effects = line.refuse("OFFSET", first=40, head=90)
    assert gaps == [(10, 40)]
    assert_asks_from(line, effects, 40)
    line.welcome(start=40)
    assert taken(line.frame(40, 5)) == [40]


def test_being_overtaken_while_away_is_an_error_without_on_gap() -> None:
    line = OnTheLine(keep=False)
    line.welcome()
    line.did(line.side.lost("a test", line.now))
    line.refuse("OFFSET", first=40, head=90)
    assert isinstance(line.finished, Overtaken)
    assert line.side.phase is Phase.OVER


# -------------------------------------------------------------------- shared memory
class Shelves:
    """Sees every shelf, or none."""

    token = "had"

    def __init__(self, *, sees: bool = True) -> None:
        self.sees = sees
        self.opened: list[SegmentFields] = []
        self.looked_at: list[bytes] = []

    def open(self, terms: SegmentFields) -> Shelves | None:
        self.opened.append(terms)
        return self if self.sees else None

    def payload(self, place: bytes | memoryview) -> memoryview:
        self.looked_at.append(bytes(place))
        return memoryview(b"." * 600)

    def in_use(self) -> list[int]:
        return [len(self.looked_at)]


TERMS = SegmentFields(1, 2, 3, "token")


def test_a_payload_on_the_shelf_counts_as_if_it_had_come() -> None:
    shelves = Shelves()
    line = OnTheLine(window=100, max_window=100, window_bytes=1000, segments=shelves)
    assert [wishes.shelf for wishes in asked(line.effects) if wishes] == ["had"]
    assert [grant.shelf for grant in grants(line.welcome(shelf=TERMS))] == [[0]]
    assert shelves.opened == [TERMS]
    (take,) = line.reader.frame(Frame(Flag.SHARED, 0, 10, b"place", b""), line.now)
    assert (bytes(take.frame.payload), shelves.looked_at) == (b"." * 600, [b"place"])
    line.hand_on(10, 600)
    (grant,) = grants(line.tick())
    assert (grant.limitb, grant.shelf) == (1600, [1])


def test_who_cannot_see_the_shelf_does_not_mention_it() -> None:
    line = OnTheLine(segments=Shelves(sees=False))
    assert [grant.shelf for grant in grants(line.welcome(shelf=TERMS))] == [UNSET]


def test_who_wants_no_shelf_asks_for_none_and_opens_none(line: OnTheLine) -> None:
    assert [wishes.shelf for wishes in asked(line.effects) if wishes] == [UNSET]
    line.frame(0, 10)
    line.frame(20, 10)  # One was lost.
    assert [grant.shelf for grant in grants(line.welcome(10, shelf=TERMS))] == [UNSET]


def test_a_payload_on_a_shelf_that_is_not_there_is_a_violation(line: OnTheLine) -> None:
    (finish,) = line.reader.frame(Frame(Flag.SHARED, 0, 10, b"place", b""), line.now)
    assert isinstance(finish, Finish)
    assert isinstance(finish.error, ProtocolViolation)
    assert line.reader.next == 0


def test_a_shelf_is_that_of_its_session() -> None:
    line = OnTheLine(segments=Shelves())
    line.welcome(shelf=TERMS)
    line.frame(10, 10)  # One was lost, and the next gateway has no shelves.
    line.welcome()
    (finish,) = line.reader.frame(Frame(Flag.SHARED, 0, 10, b"place", b""), line.now)
    assert isinstance(finish, Finish)

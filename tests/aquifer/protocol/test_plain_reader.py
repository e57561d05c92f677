"""Reading from a gateway that knows nothing but the document: requests, deficits, ends."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.aquifer.errors import AquiferError, GatewayUnreachable
from penstock.aquifer.protocol.credit import RequestRate
from penstock.aquifer.protocol.effects import Connect, Effect, Send
from penstock.aquifer.protocol.messages import Next, OnComplete, OnError, OnNext, OnSubscribe, encode
from tests.aquifer.protocol.on_the_line import OnTheLine, connects, counts


class PlainLine(OnTheLine):
    """Welcomed by a plain gateway, and joined."""

    def __init__(self, **wishes: Any) -> None:
        size = wishes.pop("size", 2**63 - 1)
        super().__init__(**{"window": 100, "max_window": 100, "timeout": 1.0, **wishes})
        self.hear(OnSubscribe(size, 5557))
        self.join()

    def join(self) -> None:
        self.did(self.side.joined(self.now))

    def records(self, count: int, *, hand_on: bool = True) -> list[Effect]:
        """So many records come, and the reader takes them at once."""
        effects = self.did(self.reader.records(count, self.now))
        if hand_on:
            self.hand_on(self.reader.next)
            effects += self.tick()
        return effects


@pytest.fixture
def line() -> PlainLine:
    joined = PlainLine()
    joined.pass_time(0.03)
    return joined


def test_the_first_request_waits_until_the_wish_to_listen_has_arrived() -> None:
    line = PlainLine()
    assert line.pass_time(0.015) == []
    (say,) = line.pass_time(0.01)
    assert say == Send(Next(100))
    assert encode(Next(100)) == b'{"jsonClass":"Next","count":100}'


def test_without_a_data_connection_nothing_is_asked_for() -> None:
    line = OnTheLine()
    line.hear(OnSubscribe(1, 5557))
    assert line.pass_time(4.9) == []
    assert connects(line.pass_time(0.2)) == 1


def test_a_second_welcome_waits_for_the_data_connection_as_the_first_did() -> None:
    """And does not ask again at once, and again, each time with a new session in the gateway."""
    line = OnTheLine(window=100)
    line.hear(OnSubscribe(1, 5557))
    line.pass_time(5.1)
    line.connect()
    line.hear(OnSubscribe(1, 5558))
    assert line.pass_time(4.9) == []
    line.did(line.side.joined(line.now))
    assert counts(line.pass_time(0.05)) == [1], "as many as there will be"


def test_a_data_connection_that_took_too_long_is_given_twice_the_time() -> None:
    """On a line where the handshake takes 8 s it would otherwise never come about."""
    line = OnTheLine()
    line.hear(OnSubscribe(2**63 - 1, 5557))
    assert connects(line.pass_time(5.1)) == 1
    line.connect()
    line.hear(OnSubscribe(2**63 - 1, 5558))
    assert line.pass_time(9.9) == []
    assert connects(line.pass_time(0.2)) == 1


def test_when_everything_declared_has_come_the_next_batch_is_asked_for(line: PlainLine) -> None:
    assert line.hear(OnNext(60)) == []
    assert line.records(40) == []
    assert counts(line.records(20)) == [80], "twenty are still to be handed on"


def test_records_may_come_before_their_declaration(line: PlainLine) -> None:
    assert line.records(60) == []
    assert counts(line.hear(OnNext(60))) == [100]


def test_a_deficit_is_logged_told_and_makes_requests_smaller(caplog: pytest.LogCaptureFixture) -> None:
    told: list[tuple[int, int, int]] = []
    line = PlainLine(on_deficit=lambda *figures: told.append(figures))
    line.pass_time(0.03)
    line.hear(OnNext(100))
    line.records(96)
    with caplog.at_level(logging.WARNING, "penstock.aquifer"):
        assert line.pass_time(0.9) == []
        assert counts(line.pass_time(0.2)) == [80]
    assert told == [(100, 96, 80)]
    assert (
        "deficit: 96 of 100 declared records arrived within 1 s; asking for 80 at a time now" in caplog.text
    )
    assert (line.reader.deficits, line.reader.missing) == (1, 4)


def test_the_time_out_counts_from_the_last_record(line: PlainLine) -> None:
    line.hear(OnNext(10))
    for _ in range(9):
        line.pass_time(0.9)
        line.records(1)
    assert line.reader.deficits == 0


def test_as_long_as_everything_arrives_requests_grow_again_slowly(line: PlainLine) -> None:
    line.hear(OnNext(100))
    line.pass_time(1.1)
    sizes = []
    for _ in range(10):
        size = line.reader.rate.size
        line.hear(OnNext(size))
        line.records(size)
        sizes.append(line.reader.rate.size)
    assert sizes == [84, 88, 92, 96, 100, 100, 100, 100, 100, 100]


def test_requests_never_ask_for_nothing() -> None:
    rate = RequestRate(3)
    for _ in range(20):
        rate.fell_short(rate.size, rate.size - 1)
    assert (rate.size, rate.lowest) == (1, 1)
    for _ in range(20):
        rate.arrived_in_full()
    assert (rate.size, rate.lowest) == (3, 1)


@pytest.mark.parametrize(
    ("window", "declared", "received", "then"),
    [
        (65536, 2048, 1000, 1000),
        (65536, 2048, 2000, 1638),
        (65536, 2048, 0, 1638),
        (100, 100, 96, 80),
        (100, 2, 1, 1),
    ],
)
def test_a_deficit_lowers_the_request_below_what_was_declared_and_received(
    window: int, declared: int, received: int, then: int
) -> None:
    """Not below our own window: a gateway that never gives as many would not notice."""
    rate = RequestRate(window)
    rate.fell_short(declared, received)
    assert rate.size == then


def test_a_gateway_that_gives_less_than_it_is_asked_for_is_asked_for_less_after_a_deficit() -> None:
    line = PlainLine(window=65_536, max_window=65_536)
    line.pass_time(0.03)
    line.hear(OnNext(2048))
    line.records(1000)
    assert counts(line.pass_time(1.1)) == [1000]


def test_records_that_come_late_are_taken_and_no_longer_missing(line: PlainLine) -> None:
    line.hear(OnNext(100))
    line.records(96)
    line.pass_time(1.1)
    assert line.reader.missing == 4
    assert line.records(4) == []
    assert line.reader.missing == 0
    line.hear(OnNext(80))
    assert counts(line.records(80)) == [84]
    assert line.reader.deficits == 1


def test_a_gateway_that_has_nothing_is_asked_ever_more_rarely(line: PlainLine) -> None:
    pauses = []
    for _ in range(10):
        line.hear(OnNext(0))
        pauses.append(round(line.side.deadline() - line.now, 3))
        line.pass_time(0.11)
    assert pauses == [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.1, 0.1, 0.1]
    line.hear(OnNext(5))
    line.records(5)
    line.hear(OnNext(0))
    assert line.side.deadline() - line.now == pytest.approx(0.001)


def test_a_negative_count_is_nothing(line: PlainLine) -> None:
    line.hear(OnNext(-5))
    assert line.reader.declared == 0


# -------------------------------------------------------------------- the reader
def test_a_reader_that_is_behind_is_waited_for(line: PlainLine) -> None:
    line.hear(OnNext(100))
    assert line.records(100, hand_on=False) == []
    assert line.pass_time(5) == []
    line.hand_on(30)
    assert counts(line.pass_time(0.11)) == [30], "what there is room for, after a while"


def test_a_reader_that_has_caught_up_is_not_kept_waiting(line: PlainLine) -> None:
    line.hear(OnNext(100))
    line.records(100, hand_on=False)
    line.hand_on(100)
    assert counts(line.tick()) == [100], "at once, not at the next tenth of a second"


def test_a_reader_of_single_records_does_not_cost_a_request_for_each(line: PlainLine) -> None:
    line.hear(OnNext(100))
    line.records(100, hand_on=False)
    asked = []
    for number in range(1, 101):
        line.hand_on(number)
        asked += counts(line.tick())
    assert asked == [50]


# -------------------------------------------------------------------- ends
def test_the_end_is_the_end(line: PlainLine) -> None:
    assert line.hear(OnComplete()) == []
    assert line.reader.ended
    assert line.pass_time(10) == []
    assert line.side.deadline() == float("inf")


def test_the_end_waits_for_records_that_were_declared(line: PlainLine) -> None:
    line.hear(OnNext(10))
    line.records(4)
    line.hear(OnComplete())
    assert not line.reader.ended
    line.records(6)
    assert line.reader.ended
    assert line.reader.deficits == 0


def test_the_end_does_not_wait_for_ever(line: PlainLine) -> None:
    line.hear(OnNext(10))
    line.records(4)
    line.hear(OnComplete())
    assert line.pass_time(1.1) == []
    assert line.reader.ended
    assert (line.reader.deficits, line.reader.missing) == (1, 6)


def test_an_error_is_the_end_too(line: PlainLine) -> None:
    line.hear(OnError("stuffed"))
    assert type(line.finished) is AquiferError
    assert str(line.finished) == "stuffed"


def test_an_error_that_is_not_the_end_is_asked_after(line: PlainLine) -> None:
    line.hear(OnError("resending data", recoverable=True))
    assert counts(line.pass_time(0.2)) == [100]


def test_goodbye_in_the_words_of_the_document(line: PlainLine) -> None:
    (say,) = line.side.leave()
    assert isinstance(say, Send)
    assert encode(say.message) == b'{"jsonClass":"Subscribe","cancel":true}'


# -------------------------------------------------------------------- how many there will be
def sized(size: int) -> PlainLine:
    """Welcomed by a gateway that says how many records it will send."""
    line = PlainLine(size=size)
    line.pass_time(0.03)
    return line


def test_when_as_many_have_come_as_the_gateway_said_the_stream_is_complete() -> None:
    line = sized(130)
    assert counts(line.effects) == [100]
    line.hear(OnNext(100))
    assert counts(line.records(100)) == [30], "no more than there will be"
    line.hear(OnNext(30))
    line.records(29)
    assert not line.reader.ended
    line.records(1)
    assert line.reader.ended
    assert line.pass_time(10) == []


def test_a_gateway_without_records_completes_at_once() -> None:
    assert sized(0).reader.ended


def test_the_records_may_all_come_before_their_declaration() -> None:
    line = sized(10)
    line.records(10)
    assert line.reader.ended


def test_what_was_given_up_does_not_keep_the_end_from_coming() -> None:
    line = sized(100)
    line.hear(OnNext(100))
    line.records(90)
    line.pass_time(1.1)
    assert line.reader.ended
    assert (line.reader.deficits, line.reader.missing) == (1, 10)


def test_after_a_second_welcome_as_many_come_again() -> None:
    """A plain gateway starts at its oldest record: it knows nothing of what came before."""
    line = sized(50)
    line.hear(OnNext(20))
    line.records(20)
    line.did(line.side.lost("a test", line.now))
    line.connect()
    line.hear(OnSubscribe(40, 5557))
    line.join()
    line.pass_time(0.03)
    line.hear(OnNext(40))
    line.records(39)
    assert not line.reader.ended
    line.records(1)
    assert line.reader.ended


# -------------------------------------------------------------------- bytes
def test_until_a_record_has_come_few_are_asked_for() -> None:
    line = PlainLine(window=65_536, max_window=65_536, window_bytes=1 << 20)
    assert counts(line.pass_time(0.03)) == [16], "64 KiB for each, until it is known"


def test_no_more_is_asked_for_than_the_window_has_bytes_for() -> None:
    line = PlainLine(window=65_536, max_window=65_536, window_bytes=1_000_000)
    line.pass_time(0.03)
    line.hear(OnNext(15))
    line.did(line.reader.records(15, line.now, 15 * 10_000))
    assert counts(line.effects)[-1] == 85, "and fifteen wait"


def test_what_waits_for_the_reader_counts_in_bytes() -> None:
    line = PlainLine(window=65_536, max_window=65_536, window_bytes=1_000_000)
    line.pass_time(0.03)
    line.hear(OnNext(15))
    line.did(line.reader.records(15, line.now, 15 * 60_000))
    assert counts(line.pass_time(5)) == [1], "nine tenths of the window wait"
    line.hear(OnNext(1))
    line.did(line.reader.records(1, line.now, 60_000))
    assert line.pass_time(5) == []
    line.hand_on(15, 15 * 60_000)
    assert counts(line.tick()) == [15]


def test_records_that_became_larger_are_believed_at_once() -> None:
    line = PlainLine(window=65_536, max_window=65_536, window_bytes=1_000_000)
    line.pass_time(0.03)
    for count, width in ((15, 100), (10, 100_000)):
        line.hear(OnNext(count))
        line.did(line.reader.records(count, line.now, count * width))
        line.hand_on(line.reader.next, count * width)
        asked = counts(line.tick() + line.effects)[-1]
    assert asked == 10


def test_a_record_that_is_larger_than_the_window_is_asked_for_alone() -> None:
    line = PlainLine(window=65_536, max_window=65_536, window_bytes=1000)
    assert counts(line.pass_time(0.03)) == [1]
    line.hear(OnNext(1))
    line.did(line.reader.records(1, line.now, 5000))
    assert line.pass_time(5) == []
    line.hand_on(1, 5000)
    assert counts(line.tick()) == [1]


def test_a_record_of_which_bytes_come_is_not_given_up(line: PlainLine) -> None:
    line.hear(OnNext(1))
    for _ in range(20):
        line.pass_time(0.9)
        line.side.bytes_came(line.now)
    line.records(1)
    assert line.reader.deficits == 0


# -------------------------------------------------------------------- answers that do not come
def test_an_answer_is_waited_for_as_long_as_patience_lasts() -> None:
    """A gateway may be slow; and not every one survives the same question on a second connection."""
    line = PlainLine(patience=20.0)
    line.pass_time(0.03)
    assert line.pass_time(19.9) == []
    assert counts(line.hear(OnNext(100))) == []
    assert counts(line.records(100)) == [100]


def test_when_the_connection_is_lost_the_question_is_asked_on_a_new_one(line: PlainLine) -> None:
    line.pass_time(1.9)
    line.did(line.side.disconnected(line.now))
    connect, say = line.pass_time(0.2)
    assert connect == Connect(keep_data=True)
    assert say == Send(Next(100))


def test_a_connection_that_is_lost_between_two_questions_does_no_harm(line: PlainLine) -> None:
    line.hear(OnNext(10))
    line.did(line.side.disconnected(line.now))
    assert counts(line.records(10)) == [90]
    assert connects(line.effects) == 1


def test_a_gateway_that_never_answers_is_given_up() -> None:
    line = PlainLine(patience=7.0)
    line.pass_time(20)
    assert isinstance(line.finished, GatewayUnreachable)
    assert connects(line.effects) == 1


def test_a_gateway_that_is_lost_again_and_again_is_given_up() -> None:
    line = PlainLine(patience=7.0)
    for _ in range(80):
        line.pass_time(0.12)
        line.did(line.side.disconnected(line.now))
    assert isinstance(line.finished, GatewayUnreachable)


def lose_the_answer(line: PlainLine) -> list[Effect]:
    line.did(line.side.disconnected(line.now))
    return line.pass_time(0.2)


def test_records_whose_declaration_was_lost_are_not_taken_for_those_of_the_next(line: PlainLine) -> None:
    line.records(100)
    lose_the_answer(line)
    line.hear(OnNext(50))
    assert line.records(40) == [], "ten are still to come"
    assert counts(line.records(10)) == [90]


def test_after_a_lost_declaration_the_end_waits_for_what_nobody_has_counted(line: PlainLine) -> None:
    """The records of the lost declaration are taken for those of the next: one batch is always behind."""
    lose_the_answer(line)
    line.hear(OnNext(100))
    line.records(100)
    line.hear(OnComplete())
    assert not line.reader.ended
    line.pass_time(0.9)
    line.records(100)
    assert not line.reader.ended
    line.pass_time(1.1)
    assert line.reader.ended
    assert line.reader.deficits == 0


def test_an_answer_that_is_asked_for_again_asks_for_no_more_than_there_is_room_for(line: PlainLine) -> None:
    line.records(70, hand_on=False)
    assert counts(lose_the_answer(line)) == [30]

"""A subscriber asks, is welcomed or refused, falls back to the document's words, or gives up."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from msgspec import UNSET

from penstock.aquifer.errors import (
    AquiferError,
    EpochChanged,
    GatewayUnreachable,
    LeaseEnded,
    OffsetGone,
    Overtaken,
    ProtocolViolation,
    Refused,
    SourceFailed,
    TakenOver,
    Unreadable,
)
from penstock.aquifer.protocol.effects import Connect, Finish, Join, Send
from penstock.aquifer.protocol.messages import (
    OnComplete,
    OnError,
    OnNext,
    OnSubscribe,
    OnSubscribeFields,
    Subscribe,
    encode,
)
from penstock.aquifer.protocol.subscriber_side import Phase
from tests.aquifer.protocol.front_table import FrontTable, PretendedLog
from tests.aquifer.protocol.on_the_line import TOPIC, OnTheLine, asked, connects, grants, joins

DOCUMENT = b'{"jsonClass":"Subscribe","cancel":false}'


def test_it_asks_in_the_extended_dialect_first() -> None:
    line = OnTheLine(lease=5.0)
    assert line.effects[0] == Connect()
    (wishes,) = asked(line.effects)
    assert wishes is not None
    assert (wishes.v, wishes.fmt, wishes.keep, wishes.lease) == (1, ["msgpack"], True, 5000)
    assert (wishes.id, wishes.from_, wishes.to, wishes.epoch) == (UNSET, UNSET, UNSET, UNSET)


def test_it_says_what_was_wished_for() -> None:
    line = OnTheLine(name="me", start=5, stop=9, epoch="e", keep=False, formats=["arrow"], lease=0.0001)
    (wishes,) = asked(line.effects)
    assert wishes is not None
    assert (wishes.id, wishes.from_, wishes.to, wishes.epoch) == ("me", 5, 9, "e")
    assert (wishes.keep, wishes.fmt, wishes.lease) == (False, ["arrow"], 1)


def test_welcomed_it_joins_and_grants_a_window() -> None:
    line = OnTheLine(window=100, window_bytes=1000)
    join, say = line.welcome(start=7)
    assert join == Join(5557, bytes.fromhex(TOPIC))
    (grant,) = grants([say])
    assert (grant.limit, grant.limitb, grant.ack, grant.got) == (107, 1000, 7, 7)
    assert (line.side.dialect, line.side.epoch) == ("extended", "epoch-1")


def test_a_gateway_that_answers_without_x_is_a_plain_one() -> None:
    line = OnTheLine()
    assert line.hear(b'{"jsonClass":"OnSubscribe","size":9223372036854775807,"port":5557}') == [
        Join(5557, b"")
    ]
    assert line.side.dialect == "plain"


@pytest.mark.parametrize(
    "answer",
    [OnError("stuffed"), OnError("no", recoverable=True), OnNext(0), OnComplete(), b"garbage", b"", b"\xff"],
    ids=repr,
)
def test_one_that_did_not_like_the_x_is_asked_again_in_the_words_of_the_document(answer: Any) -> None:
    line = OnTheLine()
    connect, say = line.hear(answer)
    assert connect == Connect()
    assert isinstance(say, Send)
    assert encode(say.message) == DOCUMENT
    line.hear(OnSubscribe(1, 5557))
    assert line.side.dialect == "plain"


def test_one_that_is_there_but_silent_is_asked_plainly_in_the_last_quarter_of_patience() -> None:
    line = OnTheLine(patience=12.0)
    for _ in range(3):
        line.connect()
        line.pass_time(2.9)
        line.pass_time(0.11)
    kinds = [wishes is not None for wishes in asked(line.effects)]
    assert kinds == [True, True, True, False]
    assert encode(line.said[-1]) == DOCUMENT


def test_the_question_of_the_document_is_asked_once_and_waits_as_long_as_patience_lasts() -> None:
    """The original gateway takes its time for the first answer, and does not survive the second question."""
    line = OnTheLine(dialect="plain", patience=20.0)
    line.connect()
    assert line.pass_time(19.9) == []
    line.hear(OnSubscribe(1, 5557))
    assert line.side.phase is Phase.READING


def test_when_patience_is_over_the_error_says_that_somebody_was_there() -> None:
    line = OnTheLine(dialect="plain", patience=20.0)
    line.connect()
    line.pass_time(20.1)
    assert isinstance(line.finished, GatewayUnreachable)
    assert "something listens at tcp://gateway:5556, but no gateway answers after 20 s" in str(line.finished)


@pytest.mark.parametrize("dialect", ["plain", "extended", "auto"])
def test_a_question_whose_connection_was_lost_is_asked_again_soon(dialect: str) -> None:
    line = OnTheLine(dialect=dialect)
    line.connect()
    line.pass_time(1.5)
    line.did(line.side.disconnected(line.now))
    assert connects(line.pass_time(0.5)) == 1


def test_a_connection_that_is_lost_again_and_again_is_given_up() -> None:
    line = OnTheLine(dialect="plain", patience=10.0)
    while line.side.phase is not Phase.OVER:
        line.connect()
        line.did(line.side.disconnected(line.now))
        line.pass_time(0.1)
    assert isinstance(line.finished, GatewayUnreachable)
    assert line.now == pytest.approx(1010, abs=0.2)
    assert connects(line.effects) < 20, "and not as fast as the line allows"


def test_a_gateway_that_is_known_is_asked_again_ever_more_rarely() -> None:
    """It is harmless; but on a slow line an answer must have time to come."""
    line = OnTheLine(patience=60.0)
    line.welcome()
    line.did(line.side.lost("a test", line.now))
    pauses = []
    for _ in range(4):
        line.connect()
        before = line.now
        while not connects(line.pass_time(0.1)):
            pass
        pauses.append(round(line.now - before))
    assert pauses == [1, 2, 4, 8]


def test_one_that_is_not_there_is_never_taken_for_a_plain_one() -> None:
    line = OnTheLine(patience=10.0)
    line.pass_time(9.9)
    assert None not in asked(line.effects)
    line.pass_time(2)
    assert isinstance(line.finished, GatewayUnreachable)
    assert "no gateway answers at tcp://gateway:5556 after 10 s" in str(line.finished)


def test_a_slow_handshake_is_not_started_over() -> None:
    """On a line of a few hundred milliseconds no handshake would ever be done within the second."""
    line = OnTheLine()
    assert line.pass_time(2.5) == []
    line.connect()
    assert line.pass_time(0.9) == []
    line.welcome()
    assert line.side.phase is Phase.READING
    assert line.side.ahead.round_trip == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"name": "me"}, "a durable id"),
        ({"start": 5}, "start=5"),
        ({"start": "latest"}, "start='latest'"),
        ({"stop": 5}, "stop="),
        ({"dialect": "extended"}, "dialect='extended'"),
    ],
)
@pytest.mark.parametrize("answer", [OnSubscribe(1, 5557), OnSubscribe(1, 5557, x=OnSubscribeFields(v=1))])
def test_what_only_offsets_can_give_is_not_had_from_a_plain_gateway(
    wishes: dict[str, Any], words: str, answer: OnSubscribe
) -> None:
    line = OnTheLine(**wishes)
    line.hear(answer)
    assert isinstance(line.finished, ProtocolViolation)
    assert "speaks the plain dialect only, which has no offsets" in str(line.finished)
    assert words in str(line.finished)


def test_offsets_are_not_asked_for_plainly_either() -> None:
    line = OnTheLine(name="me")
    line.hear(OnError("stuffed"))
    assert isinstance(line.finished, ProtocolViolation)


def test_the_beginning_can_be_had_from_a_plain_gateway() -> None:
    line = OnTheLine(start="earliest")
    assert joins(line.hear(OnSubscribe(1, 5557))) == [Join(5557, b"")]


def test_the_plain_dialect_can_be_chosen() -> None:
    line = OnTheLine(dialect="plain")
    assert [encode(message) for message in line.said] == [DOCUMENT]
    line.hear(OnError("stuffed"))
    assert type(line.finished) is AquiferError
    assert str(line.finished) == "stuffed"


def test_the_extended_dialect_can_be_insisted_on() -> None:
    line = OnTheLine(dialect="extended")
    for _ in range(5):
        line.connect()
        line.pass_time(1.01)
    assert None not in asked(line.effects)
    line.hear(b"garbage")
    assert isinstance(line.finished, ProtocolViolation)


# -------------------------------------------------------------------- refused
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("BAD", ProtocolViolation),
        ("OFFSET", OffsetGone),
        ("LAG", Overtaken),
        ("EPOCH", EpochChanged),
        ("LEASE", LeaseEnded),
        ("TAKEN", TakenOver),
        ("AUTH", Refused),
        ("SOURCE", SourceFailed),
        ("JOURNAL", Unreadable),
        ("NEW", AquiferError),
    ],
)
def test_every_code_has_its_exception(code: str, kind: type[AquiferError]) -> None:
    line = OnTheLine()
    line.refuse(code, first=5, head=9)
    assert type(line.finished) is kind
    assert str(line.finished) == "no"
    if isinstance(line.finished, OffsetGone):
        assert (line.finished.first, line.finished.head) == (5, 9)


@pytest.mark.parametrize("code", ["BUSY", "CLOSING", "SESSION"])
def test_one_that_is_busy_is_asked_again_later(code: str) -> None:
    line = OnTheLine()
    assert line.refuse(code, retry=3000) == []
    assert line.side.phase is Phase.RESTING
    assert line.side.deadline() == line.now + 3
    assert line.pass_time(2.9) == []
    effects = line.pass_time(0.2)
    assert connects(effects) == 1
    assert len(asked(effects)) == 1


def test_it_comes_back_until_its_patience_is_over_and_then_says_why_it_was_not_let_in() -> None:
    line = OnTheLine(patience=5.0)
    times = 0
    while line.side.phase is not Phase.OVER:
        line.refuse("BUSY", retry=1000)
        line.pass_time(1.01)
        times += 1
    assert times == 6
    assert isinstance(line.finished, GatewayUnreachable)
    assert "has told this client to come back later for 5 s; it says: no" in str(line.finished)


def test_patience_begins_anew_when_it_was_let_in() -> None:
    line = OnTheLine(patience=5.0)
    for _ in range(3):
        line.refuse("BUSY", retry=3000)
        line.pass_time(3.01)
        line.welcome()
        line.error_frame(0, "CLOSING")
        line.pass_time(0.3)
    assert line.side.phase is Phase.ASKING


def test_one_that_is_not_let_in_says_so_at_once_and_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    line = OnTheLine(patience=60.0)
    for _ in range(25):
        line.refuse("BUSY", retry=1000)
        line.pass_time(1.01)
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.getMessage() for record in said] == [
        "tcp://gateway:5556 says: no (BUSY); trying again"
    ] * 3


@pytest.mark.parametrize(("retry", "seconds"), [(0, 0.001), (-5, 0.001), (10**30, 30.0)])
def test_a_rest_is_neither_nothing_nor_for_ever(retry: int, seconds: float) -> None:
    line = OnTheLine()
    line.refuse("BUSY", retry=retry)
    assert line.side.deadline() == pytest.approx(line.now + seconds)


def test_a_key_that_is_not_let_in_is_told() -> None:
    line = OnTheLine()
    line.did(line.side.turned_away())
    assert isinstance(line.finished, Refused)


@pytest.mark.parametrize("topic", ["", "xyz", "0123", TOPIC + "00"])
def test_a_topic_that_is_none_is_a_violation(topic: str) -> None:
    """An empty one would make us hear what everybody gets."""
    line = OnTheLine()
    line.welcome(topic=topic)
    assert isinstance(line.finished, ProtocolViolation)
    assert joins(line.effects) == []


def test_a_welcome_without_a_place_is_a_violation() -> None:
    line = OnTheLine()
    line.hear(OnSubscribe(1, 5557, x=OnSubscribeFields(v=1, topic=TOPIC)))
    assert isinstance(line.finished, ProtocolViolation)


@pytest.mark.parametrize("dialect", ["auto", "plain", "extended"])
def test_a_server_that_sends_back_what_it_receives_is_not_waited_for(dialect: str) -> None:
    """Its echo is a control message: it would count as a sign of life, for ever."""
    line = OnTheLine(dialect=dialect)
    (question,) = (effect.message for effect in line.effects if isinstance(effect, Send))
    assert isinstance(question, Subscribe)

    line.hear(question)

    assert isinstance(line.finished, ProtocolViolation)
    assert "not a gateway; check the host and the port" in str(line.finished)


# -------------------------------------------------------------------- again
def test_a_lost_gateway_is_asked_again_from_where_we_are() -> None:
    line = OnTheLine(name="me", stop=50)
    line.welcome()
    line.frame(0, 10)
    effects = line.did(line.side.lost("a test", line.now))
    assert effects[0] == Connect()
    (wishes,) = asked(effects)
    assert wishes is not None
    assert (wishes.from_, wishes.to, wishes.epoch, wishes.id) == (10, 50, "epoch-1", "me")


def test_every_request_tells_who_asks_and_how_often_it_did() -> None:
    line = OnTheLine()
    line.welcome()
    line.did(line.side.lost("a test", line.now))
    first, second = asked(line.effects)
    assert first is not None
    assert second is not None
    assert first.me == second.me
    assert (first.nth, second.nth) == (1, 2)
    (other,) = asked(OnTheLine().effects)
    assert other is not None
    assert other.me != first.me


def test_a_gateway_that_starts_elsewhere_is_a_violation() -> None:
    line = OnTheLine()
    line.welcome()
    line.frame(0, 10)
    line.did(line.side.lost("a test", line.now))
    line.welcome(start=20)
    assert isinstance(line.finished, ProtocolViolation)
    assert "starts at offset 20, but 10 was asked for" in str(line.finished)


def test_a_gateway_that_does_not_come_back_is_given_up() -> None:
    line = OnTheLine(patience=6.0)
    line.welcome()
    line.pass_time(4.1)
    assert line.side.phase is Phase.ASKING
    line.pass_time(2)
    assert isinstance(line.finished, GatewayUnreachable)
    assert "was lost for more than 6 s" in str(line.finished)


def test_who_was_busy_for_longer_than_its_patience_still_looks_for_the_gateway() -> None:
    line = OnTheLine(patience=6.0)
    line.welcome()
    line.now += 60
    assert connects(line.tick()) == 1
    assert line.side.phase is Phase.ASKING
    line.connect()
    line.welcome()
    assert line.side.phase is Phase.READING


def test_where_nothing_came_in_time_the_next_session_is_given_twice_as_long() -> None:
    line = OnTheLine(patience=60.0)
    line.welcome()
    assert connects(line.pass_time(4.1)) == 1
    line.connect()
    line.welcome()
    assert connects(line.pass_time(7.9)) == 0
    line.frame(0, 10)
    assert connects(line.pass_time(7.9)) == 0, "what was learned of the line is kept"
    assert connects(line.pass_time(0.2)) == 1


def test_bytes_that_come_are_a_sign_of_life() -> None:
    line = OnTheLine(patience=10.0)
    line.welcome()
    for _ in range(20):
        line.pass_time(3)
        line.side.bytes_came(line.now)
    assert connects(line.effects) == 1
    assert connects(line.pass_time(4.1)) == 1


@pytest.mark.parametrize("dialect", ["plain", "extended"])
def test_a_data_port_that_cannot_be_reached_is_told_in_the_end(dialect: str) -> None:
    """The control port answers every time: without an end this would go on for ever."""
    line = OnTheLine(patience=20.0, dialect=dialect)
    welcomes = 0
    while line.side.phase is not Phase.OVER:
        line.connect()
        line.hear(OnSubscribe(1, 5557)) if dialect == "plain" else line.welcome()
        welcomes += 1
        while line.side.phase is Phase.READING:
            line.pass_time(0.1, step=0.1)
    assert isinstance(line.finished, GatewayUnreachable)
    assert "can its data port be reached" in str(line.finished)
    assert welcomes <= 7, "and not more often than the time-outs want it"


def test_after_the_end_nothing_matters() -> None:
    line = OnTheLine()
    line.refuse("BAD")
    assert line.welcome() == []
    assert line.pass_time(100, step=1) == []
    assert line.side.leave() == []
    assert [type(effect) for effect in line.effects if isinstance(effect, Finish)] == [Finish]


# -------------------------------------------------------------------- goodbye
@pytest.mark.parametrize(("name", "keep"), [(None, False), ("me", True)])
def test_leaving_says_how_far_it_came_and_whether_it_comes_back(name: str | None, keep: bool) -> None:
    line = OnTheLine(name=name)
    line.welcome()
    line.frame(0, 10)
    line.hand_on(4)
    effects = line.side.leave()
    (grant,) = grants(effects)
    assert (grant.ack, grant.got) == (4, 10)
    (wishes,) = asked(effects)
    assert wishes is not None
    assert wishes.keep is keep
    last = effects[-1]
    assert isinstance(last, Send)
    assert isinstance(last.message, Subscribe)
    assert last.message.cancel
    assert line.side.phase is Phase.OVER


def test_leaving_while_it_asks_again_says_what_was_acknowledged_meanwhile() -> None:
    """The gateway knows what was acknowledged when the request was made, and never heard of the rest."""
    front = FrontTable(log=PretendedLog(head=100))
    line = OnTheLine(name="me", epoch="epoch-1")
    line.welcome()
    line.frame(0, 10)
    line.hand_on(4)
    (again,) = asked(line.did(line.side.lost("the gateway was restarted", line.now)))
    assert again is not None
    assert again.ack == 4
    line.hand_on(9)
    front.ask(Subscribe(x=again))
    for effect in line.side.leave():
        assert isinstance(effect, Send)
        front.say(effect.message)
    assert front.table.sessions == {}
    assert front.table.cursors.saved["me"].acknowledged == 9
    assert front.table.counters == {}, "it was well-behaved"


def test_leaving_before_the_welcome_takes_the_request_back() -> None:
    """The session may be there already, and would hold the source up until its lease ends."""
    (say,) = OnTheLine().side.leave()
    assert isinstance(say, Send)
    assert encode(say.message) == b'{"jsonClass":"Subscribe","cancel":true,"x":{"v":1,"keep":false}}'
    (say,) = OnTheLine(dialect="plain").side.leave()
    assert isinstance(say, Send)
    assert encode(say.message) == b'{"jsonClass":"Subscribe","cancel":true}'

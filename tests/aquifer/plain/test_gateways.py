"""A publisher of ours reads from gateways that were written from the document alone."""

import logging
import time
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, Protocol

import pytest

from penstock.aquifer import AquiferPublisher, AquiferSubscription, Deficit, Metrics, ProtocolViolation
from penstock.aquifer.protocol import plain_reader
from penstock.spec import UNBOUNDED
from tests.aquifer.faults.rigs import eventually
from tests.aquifer.plain.conftest import Start
from tests.aquifer.plain.gateways import (
    GarbageGateway,
    HoldingGateway,
    LateGateway,
    LazyGateway,
    LosingGateway,
    PlainGateway,
    SilentGateway,
    SlowGateway,
    StrictGateway,
    is_plain,
)
from tests.streams.recording import Recorder


def some(count: int, first: int = 0) -> list[bytes]:
    return [b"record %d" % number for number in range(first, first + count)]


class Read(Protocol):
    """Subscribe a recorder; its publisher has to find out by itself what the gateway can."""

    def __call__(self, endpoint: str, first: int = UNBOUNDED, **settings: Any) -> Recorder: ...


@pytest.fixture
def read(cleanup: ExitStack) -> Read:
    def subscribe(endpoint: str, first: int = UNBOUNDED, **settings: Any) -> Recorder:
        recorder = Recorder.of(AquiferPublisher(endpoint, **settings), first)
        cleanup.callback(recorder.cancel)
        return recorder

    return subscribe


def metrics(recorder: Recorder) -> Metrics:
    assert isinstance(recorder.subscription, AquiferSubscription)
    return recorder.subscription.metrics()


def requests(gateway: PlainGateway, kind: str) -> list[dict[str, Any]]:
    return [request for request in gateway.heard if request["jsonClass"] == kind]


def check_everything_came(recorder: Recorder, count: int) -> None:
    recorder.wait(60)
    assert recorder.error is None
    assert recorder.items == some(count)
    seen = metrics(recorder)
    assert (seen.dialect, seen.records, seen.deficits, seen.missing) == ("plain", count, 0, 0)


# --- finding out what the gateway can -----------------------------------------------------------------------


def test_a_gateway_that_ignores_what_it_does_not_know_is_read_at_once(start: Start, read: Read) -> None:
    gateway = PlainGateway(some(5000))
    recorder = read(start(gateway), window=1000)

    check_everything_came(recorder, 5000)
    assert [is_plain(request) for request in gateway.heard].count(False) == 1


def test_a_gateway_that_refuses_what_it_does_not_know_is_asked_again_in_plain_words(
    start: Start, read: Read
) -> None:
    gateway = StrictGateway(some(5000))
    recorder = read(start(gateway), window=1000)

    check_everything_came(recorder, 5000)
    assert requests(gateway, "Subscribe")[1] == {"jsonClass": "Subscribe", "cancel": False}
    assert len([request for request in gateway.heard if not is_plain(request)]) == 1


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"\xff\xfe",
        b"error: unknown field",
        b"null",
        b"[]",
        b"{}",
        b'{"jsonClass":"Whatever"}',
        b'{"jsonClass":"OnNext","count":0}',
        b'{"jsonClass":"OnSubscribe"}',
    ],
    ids=repr,
)
def test_a_gateway_that_answers_garbage_is_asked_again_in_plain_words(
    start: Start, read: Read, garbage: bytes
) -> None:
    gateway = GarbageGateway(some(500), garbage)

    check_everything_came(read(start(gateway), window=100), 500)


def test_one_that_answers_nothing_but_garbage_is_an_error(start: Start, read: Read) -> None:
    recorder = read(start(GarbageGateway([], b"what?", always=True))).wait()

    assert isinstance(recorder.error, ProtocolViolation)


@pytest.mark.slow
def test_a_gateway_that_is_silent_is_asked_again_in_plain_words(start: Start, read: Read) -> None:
    gateway = SilentGateway(some(500))

    # For three quarters of its patience it may be a slow one that understood the question.
    check_everything_came(read(start(gateway), window=100, patience=12.0), 500)


def test_with_dialect_plain_a_gateway_hears_the_words_of_the_document_only(start: Start, read: Read) -> None:
    gateway = StrictGateway(some(500))

    check_everything_came(read(start(gateway), window=100, dialect="plain"), 500)
    eventually(lambda: len(requests(gateway, "Subscribe")) == 2)
    assert all(map(is_plain, gateway.heard))


def test_what_a_plain_gateway_cannot_do_is_an_error_that_says_so(start: Start, read: Read) -> None:
    recorder = read(start(PlainGateway(some(5))), id="dashboard").wait()

    assert isinstance(recorder.error, ProtocolViolation)
    assert "a durable id" in str(recorder.error)


# --- joining ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_no_record_is_lost_to_a_gateway_that_does_not_look_who_listens(start: Start, read: Read) -> None:
    for _ in range(30):
        check_everything_came(read(start(PlainGateway(some(500))), window=500), 500)


def test_the_first_next_waits_for_the_data_connection(start: Start, read: Read) -> None:
    gateway = LazyGateway(some(500), after=0.3)

    check_everything_came(read(start(gateway), window=100), 500)
    assert gateway.asked_early == 0


def test_a_data_port_that_stays_shut_is_not_asked_for_as_fast_as_the_line(
    start: Start, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain_reader, "_JOIN", 0.2)
    gateway = LazyGateway(some(500), after=1.0)

    check_everything_came(read(start(gateway), window=100), 500)
    assert len(requests(gateway, "Subscribe")) <= 10


# --- pace ---------------------------------------------------------------------------------------------------


def test_a_slow_gateway_is_waited_for(start: Start, read: Read) -> None:
    gateway = SlowGateway(some(60), answer=0.05, record=0.002)

    check_everything_came(read(start(gateway), window=20), 60)


@pytest.mark.slow
@pytest.mark.parametrize("lag", [0.0, 0.1], ids=["", "records-lag-behind"])
def test_a_gateway_that_holds_its_answer_is_waited_for(
    start: Start, read: Read, lag: float, caplog: pytest.LogCaptureFixture
) -> None:
    gateway = HoldingGateway(some(50), held=2, seconds=4, lag=lag)

    recorder = read(start(gateway), window=10, timeout=2).wait()

    assert recorder.error is None
    assert recorder.items == some(50)
    assert "asking again" not in caplog.text
    # On a busy machine a question is for fewer records, if some of the window still wait to be taken. However
    # many questions there were, one is left over at the end; if one had been asked twice, there would be two.
    asked_before = [sum(gateway.asked[:number]) for number in range(len(gateway.asked))]
    assert len([before for before in asked_before if before >= 50]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["plain", "auto"])
def test_a_gateway_that_takes_its_time_for_the_first_answer_is_asked_once(
    start: Start, read: Read, dialect: str
) -> None:
    gateway = SlowGateway(some(20), answer=2.5)
    recorder = read(start(gateway), window=10, dialect=dialect).wait(60)

    assert recorder.error is None
    assert recorder.items == some(20)
    assert [request["cancel"] for request in requests(gateway, "Subscribe")][:2] in ([False], [False, True])


def test_no_more_is_asked_for_than_the_reader_has_room_for(start: Start, read: Read) -> None:
    gateway = PlainGateway(some(1000))
    recorder = read(start(gateway), first=30, window=100)

    eventually(lambda: len(recorder.items) == 30)
    assert not recorder.finished.wait(0.2)
    # What was handed on, and a window beyond it.
    assert sum(gateway.asked) <= 30 + 100
    recorder.request(UNBOUNDED)

    check_everything_came(recorder, 1000)


@pytest.mark.parametrize("window", [1, 10])
def test_the_next_request_follows_as_soon_as_the_batch_was_handed_on(
    start: Start, read: Read, window: int
) -> None:
    heard_at: list[float] = []

    class TimedGateway(PlainGateway):
        def reply(self, request: dict[str, Any]) -> bytes | None:
            heard_at.append(time.monotonic())
            return super().reply(request)

    check_everything_came(read(start(TimedGateway(some(40 * window))), window=window), 40 * window)
    # A busy machine may take its time for some of the 40 round trips, but a pause would be in each of them.
    between = sorted(after - before for before, after in pairwise(heard_at))
    assert between[10] < 0.1


def test_cancel_is_told_to_the_gateway_in_its_own_words(start: Start, read: Read) -> None:
    gateway = PlainGateway(some(1000))
    recorder = read(start(gateway), first=30, window=100)
    eventually(lambda: len(recorder.items) == 30)

    recorder.cancel()

    eventually(lambda: gateway.heard[-1] == {"jsonClass": "Subscribe", "cancel": True})
    assert recorder.check().items == some(30)


# --- deficits -----------------------------------------------------------------------------------------------


def expected_sizes(sizes: list[int], losing: set[int], most: int) -> list[int]:
    """The most that may be asked for in each request, and after the last: less when a batch was lossy."""
    expected = [most]
    for number, _ in enumerate(sizes, start=1):
        size = expected[-1]
        expected.append(size * 4 // 5 if number in losing else min(most, size + max(1, size // 20)))
    return expected


@pytest.mark.slow
def test_a_deficit_is_logged_told_and_answered_with_smaller_requests(
    start: Start, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "penstock.aquifer")
    losing = {1, 3, 4, 8}
    gateway = LosingGateway(
        some(6000), keeps=lambda number, batch: batch[:-3] if number in losing and len(batch) > 3 else batch
    )
    told: list[Deficit] = []
    seen: list[Metrics] = []

    def on_deficit(deficit: Deficit) -> None:
        told.append(deficit)
        seen.append(metrics(recorder))

    recorder = read(start(gateway), window=100, timeout=2, on_deficit=on_deficit)
    recorder.wait()

    # Each deficit is told as it was.
    sizes = gateway.sizes
    most = expected_sizes(sizes, losing, most=100)
    assert sizes[0] == 100
    assert told == [Deficit(sizes[n - 1], sizes[n - 1] - 3, most[n]) for n in sorted(losing)]
    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 4
    assert "deficit: 97 of 100 declared records" in warnings[0]
    assert "asking for 80" in warnings[0]
    # The requests become smaller at once, and grow again slowly, up to what they were.
    assert [(m.deficits, m.missing, m.request_size) for m in seen] == [
        (1, 3, 80),
        (2, 6, most[3]),
        (3, 9, most[4]),
        (4, 12, most[8]),
    ]
    assert all(size <= allowed for size, allowed in zip(sizes, most, strict=False))
    assert min(most) <= 60
    assert most.index(100, 4) - 8 > 10
    assert max(sizes[-20:]) > 60
    # Everything that was sent has come, in order, and so has the end.
    assert recorder.completed
    assert recorder.items == gateway.sent
    end = metrics(recorder)
    assert (end.deficits, end.missing, end.request_size, end.records) == (4, 12, 100, 5988)


def test_a_deficit_in_the_last_batch_does_not_keep_the_end_from_coming(start: Start, read: Read) -> None:
    last = some(30)[-1]
    gateway = LosingGateway(some(30), keeps=lambda _, batch: [each for each in batch if each != last])
    told: list[Deficit] = []
    recorder = read(start(gateway), window=10, timeout=1.5, on_deficit=told.append).wait()

    assert recorder.completed
    assert recorder.items == some(29)
    # Of 10 records, unless the reader had not handed on all that came before when it asked.
    declared = gateway.sizes[-1]
    assert told == [Deficit(declared, declared - 1, max(1, declared * 4 // 5))]


def test_a_batch_that_is_lost_as_a_whole_is_a_deficit_too(start: Start, read: Read) -> None:
    gateway = LosingGateway(some(30), keeps=lambda number, batch: [] if number == 1 else batch)
    told: list[Deficit] = []
    recorder = read(start(gateway), window=10, timeout=1.5, on_deficit=told.append).wait()

    assert recorder.completed
    assert recorder.items == some(20, first=10)
    assert told == [Deficit(10, 0, 8)]


def test_records_that_come_late_are_handed_on_and_no_longer_missing(start: Start, read: Read) -> None:
    told: list[Deficit] = []
    recorder = read(start(LateGateway(some(100))), window=10, timeout=1.5, on_deficit=told.append).wait()

    assert recorder.completed
    assert recorder.items == some(100)
    assert told == [Deficit(10, 7, 7)], "no more than came"
    assert (metrics(recorder).deficits, metrics(recorder).missing) == (1, 0)


def test_what_the_callback_raises_does_not_hang_the_reader(start: Start, read: Read) -> None:
    def raises(_: Deficit) -> None:
        raise RuntimeError("a defect of the callback")

    gateway = LosingGateway(some(30), keeps=lambda number, batch: batch[number == 1 :])
    recorder = read(start(gateway), window=10, timeout=1.5, on_deficit=raises).wait()

    assert recorder.terminated

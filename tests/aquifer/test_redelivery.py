"""Readers that settle each record by itself, and refuse some, over real sockets."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.aquifer import (
    AquiferPublisher,
    AquiferSubscription,
    CurveClient,
    CurveServer,
    Gateway,
    GatewayUnreachable,
    LogReader,
    MemoryJournal,
    Record,
    Redelivery,
    Refused,
    RefusedTooOften,
    generate_keys,
    unpack_values,
)
from penstock.spec import Subscription
from penstock.streams import Flux
from tests.aquifer.faults.processes import GatewayProcess
from tests.aquifer.faults.rigs import ANYWHERE, UNBOUNDED, Numbers, eventually, free_endpoint, session_of


class Worker:
    """A Subscriber that settles what it gets as a function says: None for done, or a reason."""

    def __init__(self, judge: Callable[[Record], str | None], first: int = UNBOUNDED) -> None:
        self.judge = judge
        self.first = first
        self.got: list[int] = []
        self.error: BaseException | None = None
        self.over = threading.Event()
        self.subscription: AquiferSubscription

    def on_subscribe(self, subscription: Subscription, /) -> None:
        assert isinstance(subscription, AquiferSubscription)
        self.subscription = subscription
        subscription.request(self.first)

    def on_next(self, record: Record, /) -> None:
        assert record.offset is not None
        self.got.append(record.offset)
        reason = self.judge(record)
        if reason is None:
            self.subscription.ack(record.offset)
        elif reason:
            self.subscription.nack(record.offset, reason)

    def on_error(self, error: BaseException, /) -> None:
        self.error = error
        self.over.set()

    def on_complete(self) -> None:
        self.over.set()


def work(endpoint: str, worker: Worker, **settings: Any) -> Worker:
    AquiferPublisher(endpoint, acknowledge="each", records=True, **settings).subscribe(worker)
    return worker


def all_but_five(record: Record) -> str | None:
    return "" if record.offset == 5 else None


def place_of(gateway: Gateway) -> int | None:
    """The saved cursor of the reader, once it has left."""
    saved = gateway.status().saved.get("me")
    return None if saved is None else saved.acknowledged


def letters_of(endpoint: str) -> list[dict[str, Any]]:
    with LogReader(endpoint) as log:
        state = log.state()
        return [
            json.loads(value)
            for batch in log.read(state.first, state.head)
            for value in unpack_values(batch.payload)
        ]


def test_a_refused_record_comes_again_and_the_others_go_on() -> None:
    seen: Counter[int] = Counter()

    def judge(record: Record) -> str | None:
        seen[record.offset or 0] += 1
        return "not yet" if record.offset in (3, 7) and seen[record.offset] < 3 else None

    with Gateway(Numbers(50), ANYWHERE) as gateway:
        assert gateway.join(60)
        worker = work(gateway.endpoint, Worker(judge), id="me", redelivery=Redelivery(delay=0.7))
        assert worker.over.wait(60)
        assert worker.error is None
        assert worker.subscription.join(60)
        eventually(lambda: place_of(gateway) == 50)
    assert sorted(worker.got) == sorted([*range(50), 3, 3, 7, 7])
    assert worker.got[:50] == list(range(50)), "those behind a refused record did not wait"


def test_the_cursor_stays_before_a_record_that_is_not_settled() -> None:
    with Gateway(Numbers(), ANYWHERE) as gateway:
        worker = work(
            gateway.endpoint, Worker(lambda record: "" if record.offset == 5 else None, 20), id="me"
        )
        eventually(lambda: len(worker.got) == 20)
        eventually(lambda: session_of(gateway, id="me")["acknowledged"] == 5)
        worker.subscription.ack(5)
        eventually(lambda: session_of(gateway, id="me")["acknowledged"] == 20)
        worker.subscription.cancel()


def test_what_was_not_settled_comes_to_the_successor() -> None:
    with Gateway(Numbers(), ANYWHERE) as gateway:
        first = work(gateway.endpoint, Worker(all_but_five, 20), id="me")
        eventually(lambda: session_of(gateway, id="me")["acknowledged"] == 5)
        first.subscription.cancel()
        assert first.subscription.join(60)
        second = work(gateway.endpoint, Worker(lambda record: None, 3), id="me")
        eventually(lambda: second.got == [5, 6, 7])
        second.subscription.cancel()


def test_redeliveries_need_demand_and_the_status_counts_them() -> None:
    with Gateway(Numbers(), ANYWHERE) as gateway:
        worker = work(
            gateway.endpoint, Worker(lambda record: "no", 4), id="me", redelivery=Redelivery(delay=0, limit=9)
        )
        eventually(lambda: len(worker.got) == 4)
        worker.subscription.request(3)
        eventually(lambda: len(worker.got) == 7)
        eventually(lambda: session_of(gateway, id="me")["redelivered"] == 3)
        assert len(worker.got) == 7, "not more than was requested"
        worker.subscription.cancel()


def test_no_more_is_delivered_than_may_be_unsettled() -> None:
    with Gateway(Numbers(), ANYWHERE) as gateway:
        worker = work(gateway.endpoint, Worker(lambda record: ""), redelivery=Redelivery(max_pending=10))
        eventually(lambda: len(worker.got) == 10)
        worker.subscription.ack(4)
        eventually(lambda: len(worker.got) == 11)
        assert worker.got == list(range(11))
        worker.subscription.cancel()


@pytest.mark.parametrize("keys", [None, ["k1"]])
def test_a_record_that_is_refused_too_often_is_a_dead_letter_with_the_reason(keys: list[str] | None) -> None:
    records = [Record({"n": number}, key=b"k%d" % (number % 2)) for number in range(20)]
    with (
        Gateway(None, ANYWHERE, journal=MemoryJournal(), writable=True, codec="bytes") as rejected,
        Gateway(Flux.from_iterable(records), ANYWHERE, codec="json") as gateway,
    ):
        worker = work(
            gateway.endpoint,
            Worker(lambda record: "odd one" if record.offset in (7, 13) else None),
            id="me",
            codec="json",
            keys=keys,
            redelivery=Redelivery(delay=0.01, limit=3, dead_letters=rejected.endpoint),
        )
        assert worker.over.wait(60)
        assert worker.error is None
        assert worker.subscription.join(60)
        letters = letters_of(rejected.endpoint)
        eventually(lambda: place_of(gateway) == 20)
    assert sorted((letter["offset"], letter["reason"], letter["text"]) for letter in letters) == [
        (7, "odd one", '{"n":7}'),
        (13, "odd one", '{"n":13}'),
    ]
    assert {(letter["deliveries"], letter["reader"]) for letter in letters} == {(3, "me")}
    assert letters[0]["endpoint"] == gateway.endpoint
    assert Counter(worker.got)[7] == 3


def test_without_a_stream_for_dead_letters_the_subscription_fails_and_acknowledges_nothing() -> None:
    with Gateway(Numbers(20), ANYWHERE) as gateway:
        worker = work(
            gateway.endpoint,
            Worker(lambda record: "bad" if record.offset == 4 else None),
            id="me",
            redelivery=Redelivery(delay=0, limit=2),
        )
        assert worker.over.wait(60)
        assert isinstance(worker.error, RefusedTooOften)
        assert "record 4 was refused 2 times, the last time because of: bad" in str(worker.error)
        eventually(lambda: place_of(gateway) == 4)


def test_dead_letters_that_nobody_takes_fail_the_subscription() -> None:
    with Gateway(Numbers(), ANYWHERE) as gateway:
        worker = work(
            gateway.endpoint,
            Worker(lambda record: "bad" if record.offset == 4 else None, 10),
            id="me",
            patience=3.0,
            redelivery=Redelivery(limit=1, dead_letters=free_endpoint()),
        )
        assert worker.over.wait(60)
        assert isinstance(worker.error, GatewayUnreachable)
        eventually(lambda: place_of(gateway) == 4)


def test_refused_records_survive_killed_gateways(tmp_path: Path) -> None:
    """Both gateways are killed while records are refused; each becomes a dead letter, at least once."""
    endpoint, rejected = free_endpoint(), free_endpoint()
    arguments = (
        f"lambda done: Flux.from_iterable([str(n).encode() for n in range(done, 600)]), {endpoint!r}, "
        f"journal=SqliteJournal({str(tmp_path / 'log.db')!r}, max_records=200)"
    )
    letters = f"None, {rejected!r}, writable=True, journal=SqliteJournal({str(tmp_path / 'dead.db')!r})"
    wanted = {number for number in range(600) if number % 50 == 7}
    with GatewayProcess(letters) as for_letters, GatewayProcess(arguments) as gateway:
        worker = work(
            endpoint,
            Worker(lambda record: "seven" if record.offset in wanted else None, 150),
            id="me",
            redelivery=Redelivery(delay=0.2, limit=2, dead_letters=rejected),
        )
        eventually(lambda: len(worker.got) >= 150)
        gateway.kill()
        for_letters.kill()
        worker.subscription.request(UNBOUNDED)
        with GatewayProcess(arguments), GatewayProcess(letters):
            assert worker.over.wait(120)
            assert worker.error is None
            assert {letter["offset"] for letter in letters_of(rejected)} == wanted
    assert set(worker.got) == set(range(600))
    assert {offset for offset, times in Counter(worker.got).items() if times > 1} == wanted


def test_dead_letters_need_the_right_to_write() -> None:
    server, reader = generate_keys(), generate_keys()
    curve = CurveServer(server, {reader.public: "read"})
    with (
        Gateway(None, None, writable=True, curve=curve, curve_control=ANYWHERE) as rejected,
        Gateway(Numbers(), None, curve=curve, curve_control=ANYWHERE) as gateway,
    ):
        assert gateway.curve_endpoint is not None
        worker = work(
            gateway.curve_endpoint,
            Worker(lambda record: "bad", 3),
            curve=CurveClient(reader, server.public),
            redelivery=Redelivery(limit=1, dead_letters=rejected.curve_endpoint),
        )
        assert worker.over.wait(60)
    assert isinstance(worker.error, Refused)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"acknowledge": "each"}, "needs records=True"),
        ({"acknowledge": "each", "records": True, "batches": True}, "needs records=True"),
        ({"acknowledge": "each", "records": True, "keep": False}, "have to be kept"),
        ({"redelivery": Redelivery()}, "needs acknowledge='each'"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        AquiferPublisher("tcp://127.0.0.1:1", **settings)


def test_ack_and_acknowledge_belong_to_different_ways() -> None:
    with Gateway(Numbers(), ANYWHERE) as gateway:
        worker = work(gateway.endpoint, Worker(lambda record: None, 1))
        with pytest.raises(RuntimeError, match=r"ack\(\) or nack\(\)"):
            worker.subscription.acknowledge(1)
        worker.subscription.cancel()


@pytest.mark.parametrize("stream", ["", "/orders"])
def test_the_stream_that_is_read_cannot_have_its_dead_letters(stream: str) -> None:
    here = f"tcp://127.0.0.1:5556{stream}"
    with pytest.raises(ValueError, match="is the stream that is read"):
        AquiferPublisher(here, acknowledge="each", records=True, redelivery=Redelivery(dead_letters=here))
    other = Redelivery(dead_letters="tcp://127.0.0.1:5556/letters")
    AquiferPublisher(here, acknowledge="each", records=True, redelivery=other)

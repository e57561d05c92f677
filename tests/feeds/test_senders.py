"""Who sends to a feed: each sender, a few of many, and all of them together."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import feeds
from penstock.aquifer import ConnectionFigures, Gateway, MemoryJournal
from penstock.feeds.senders import DATA, DEMAND, SHOWN, WORKING, SenderLedger
from tests.cli.running import PATIENCE
from tests.feeds.reading import Reader


def test_the_time_of_a_sender_goes_where_it_was_seen() -> None:
    ledger = SenderLedger()
    ledger.sample(100.0)
    with ledger.visit("one") as one, ledger.visit("two") as two:
        one.doing, two.doing = DEMAND, DATA
        ledger.sample(100.5)
        one.doing = WORKING
        ledger.sample(100.75)
        one.took(3, 30)
        two.took(4, 44)
        shown = ledger.figures()
    first, second = shown.few
    assert (first.waiting_for_demand, first.waiting_for_data, first.working) == (0.5, 0.0, 0.25)
    assert (second.waiting_for_demand, second.waiting_for_data, second.working) == (0.0, 0.75, 0.0)
    total = shown.total
    assert (total.waiting_for_demand, total.waiting_for_data, total.working) == (0.25, 0.25, 0.25)
    assert (total.open, total.records, total.bytes) == (2, 7, 74)
    assert ledger.figures().few == ()
    assert ledger.figures().total.records == 7, "what a sender has sent stays in the sum"


def test_of_ten_thousand_connections_those_that_send_most_are_shown() -> None:
    ledger = SenderLedger()
    with ExitStack() as open_connections:
        visits = [open_connections.enter_context(ledger.visit(f"10.0.0.1:{n}")) for n in range(10_000)]
        for number, visit in enumerate(visits):
            visit.took(1, number)
        ledger.sample(0.0)
        ledger.sample(1.0)
        shown = ledger.figures()
        assert shown.total.open == 10_000
        assert {each.name for each in shown.few} == {f"10.0.0.1:{n}" for n in range(10_000 - SHOWN, 10_000)}
        visits[0].took(1, 10_001)  # A little more than those that are shown is not enough to replace one.
        ledger.sample(2.0)
        assert "10.0.0.1:0" not in {each.name for each in ledger.figures().few}
        visits[0].took(1, 20_000)
        ledger.sample(3.0)
        assert "10.0.0.1:0" in {each.name for each in ledger.figures().few}
    assert ledger.figures().total.open == 0


def test_a_sender_that_connects_for_each_request_is_remembered_within_bounds() -> None:
    ledger = SenderLedger(remember=True, capacity_bytes=1000)
    for number in range(1000):
        with ledger.visit(f"host-{number}") as visit:
            visit.took(1)
    with ledger.visit("host-999") as visit:
        visit.took(1)
    assert ledger.figures().total.records == 1001
    assert ledger.figures().total.capacity_bytes == 1000
    assert len(ledger._senders) == 256
    assert ledger._senders["host-999"].records == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([DEMAND, DATA, WORKING]), st.floats(0, 3))))
def test_the_three_times_are_the_time_that_has_passed(steps: list[tuple[int, int, float]]) -> None:
    ledger = SenderLedger()
    now = 50.0
    counted = 0.0
    last = now
    ledger.sample(now)
    with ExitStack() as connections:
        visits = [connections.enter_context(ledger.visit(f"sender {n}")) for n in range(4)]
        for which, doing, passed in steps:
            visits[which].doing = doing
            now += passed
            ledger.sample(now)
            if ledger._sampled == now:
                counted += min(now - last, 1.0)
                last = now
        total = ledger.figures().total
    assert total.waiting_for_demand + total.waiting_for_data + total.working == pytest.approx(counted)


def test_threads_come_and_go_while_others_look() -> None:
    ledger = SenderLedger(remember=True)
    ended = threading.Event()

    def look() -> None:
        now = 0.0
        while not ended.is_set():
            now += 0.1
            ledger.sample(now)
            assert len(ledger.figures().few) <= SHOWN

    def send(name: str) -> None:
        for _ in range(2000):
            with ledger.visit(name) as visit:
                visit.doing = DEMAND
                visit.took(1, 10)

    looking = threading.Thread(target=look)
    senders = [threading.Thread(target=send, args=(f"sender {n}",)) for n in range(4)]
    for thread in (looking, *senders):
        thread.start()
    for thread in senders:
        thread.join(PATIENCE)
    ended.set()
    looking.join(PATIENCE)
    assert not looking.is_alive()
    assert ledger.figures().total.open == 0
    assert all(each.open == 0 for each in ledger.figures().few)


def shown_by(gateway: Gateway, until: Callable[[ConnectionFigures], bool]) -> ConnectionFigures:
    """The connections in the status, as soon as they are as expected."""
    wait = threading.Event()
    deadline = time.monotonic() + PATIENCE
    while True:
        figures = gateway.status().source.connections
        assert isinstance(figures, ConnectionFigures)
        if until(figures):
            return figures
        assert time.monotonic() < deadline, f"{figures} is not as expected"
        wait.wait(0.05)


def test_a_sender_that_has_to_wait_is_paused_in_the_status_of_the_gateway() -> None:
    journal = MemoryJournal(max_records=100)
    with (
        feeds.open("tcp-listen://127.0.0.1:0") as feed,
        Gateway(feed, "tcp://127.0.0.1:0", journal=journal, prefetch=50) as gateway,
        socket.create_connection(("127.0.0.1", feed.port)) as sender,  # type: ignore[attr-defined]
    ):
        host, port = sender.getsockname()
        sender.setblocking(False)
        line = b"x" * 99 + b"\n"

        def stuck(figures: ConnectionFigures) -> bool:
            try:
                while True:
                    sender.send(line * 1000)
            except BlockingIOError:
                return figures.paused == 1 and figures.times.waiting_for_demand > 0.2

        figures = shown_by(gateway, stuck)
    [one] = figures.senders
    assert one.name == f"{host}:{port}"
    assert (one.open, one.paused) == (1, 1)
    assert one.waiting_bytes > 0
    assert one.capacity_bytes > 0
    assert one.times.waiting_for_demand > 0.1


def test_a_webhook_knows_its_senders_by_their_host() -> None:
    with (
        feeds.open("webhook+http://127.0.0.1:0/in") as feed,
        Gateway(feed, "tcp://127.0.0.1:0") as gateway,
    ):
        address = f"http://127.0.0.1:{feed.port}/in"  # type: ignore[attr-defined]
        for _ in range(3):
            with urllib.request.urlopen(address, data=b"a record", timeout=PATIENCE) as answer:
                assert answer.status == 200
        figures = shown_by(gateway, lambda each: each.open == 0 and each.records == 3)
    [one] = figures.senders
    assert (one.name, one.records, one.bytes) == ("127.0.0.1", 3, 24)


def test_a_feed_that_connects_shows_its_one_connection(tmp_path: object) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        path = f"{tmp_path}/lines"
        server.bind(path)
        server.listen()
        with feeds.open(f"unix:{path}") as feed:
            reader = Reader()
            feed(0).subscribe(reader)
            reader.subscription.request(10)
            sender, _ = server.accept()
            with sender:
                sender.sendall(b"one\ntwo\n")
                assert reader.take(2) == [b"one", b"two"]
                assert feed.senders is not None
                [one] = feed.senders.figures().few
                assert (one.name, one.open, one.bytes) == (f"unix:{path}", 1, 8)
                reader.subscription.cancel()

"""Questions to a gateway: how far its log goes, and having a place kept in it."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
import zmq

from penstock.aquifer import (
    EpochChanged,
    Gateway,
    GatewayUnreachable,
    Limits,
    LogReader,
    MemoryJournal,
    OffsetGone,
    ProtocolViolation,
    SqliteJournal,
)
from penstock.streams import Flux
from tests.aquifer.faults.rigs import ANYWHERE, ByHand, Numbers, counted, eventually, free_endpoint, stays


@pytest.fixture
def clients() -> list[LogReader]:
    made: list[LogReader] = []
    yield made
    for client in made:
        client.close()


def ask(clients: list[LogReader], gateway: Gateway | str, patience: float = 60.0) -> LogReader:
    endpoint = gateway if isinstance(gateway, str) else gateway.endpoint
    clients.append(LogReader(endpoint, patience=patience))
    return clients[-1]


def test_a_look_says_how_the_log_is(clients: list[LogReader]) -> None:
    with Gateway(Flux.just(b"a", b"bc"), ANYWHERE) as gateway:
        assert gateway.join(60)
        state = ask(clients, gateway).state()
        status = gateway.status()
    assert (state.first, state.head, state.end, state.records) == (0, 2, 2, 2)
    assert (state.epoch, state.nbytes, state.acknowledged) == (status["epoch"], status["bytes"], None)


@pytest.mark.parametrize("journal", ["memory", "disk"])
def test_a_look_counts_the_records_that_fit_to_the_last_one(
    clients: list[LogReader], journal: str, tmp_path: Path
) -> None:
    sizes = [*[100] * 3000, *[200_000] * 60, *[10] * 500]
    kept = MemoryJournal() if journal == "memory" else SqliteJournal(tmp_path / "log.db", cache_bytes=1)
    source = Flux.from_iterable(bytes(size) for size in sizes)
    with Gateway(source, ANYWHERE, journal=kept) as gateway:
        assert gateway.join(60)
        client = ask(clients, gateway)
        for start, within in [
            (0, 50_000),
            (0, 1_000_000),
            (2995, 1_000_000),
            (3001, 5_000_000),
            (3059, 10**9),
        ]:
            fits = client.state(start=start, within=within).fits
            assert fits is not None
            count, nbytes = fits
            exactly = sum(sizes[start : start + count])
            assert exactly <= nbytes <= within
            rest = sizes[start + count : start + count + 1]
            # What comes with a record, its time and the head of its value, counts for some bytes more.
            assert not rest or exactly + rest[0] > within - 20 * (count + 1)
        assert client.state(start=3000, within=199_999).fits == (0, 0)
        # Of many megabytes a part is looked at: the rest is asked for.
        some = client.state(start=3000, within=10**9).fits
        assert some is not None
        assert 30 <= some[0] < 60
        assert client.state().fits is None


def test_a_look_beyond_waits_for_news(clients: list[LogReader]) -> None:
    source = ByHand()
    with Gateway(source, ANYWHERE) as gateway:
        client = ask(clients, gateway)
        begun = time.monotonic()
        assert client.state(beyond=0, wait=0.3).head == 0
        assert time.monotonic() - begun >= 0.25
        giving = threading.Timer(0.1, source.give, [b"x"])
        giving.start()
        assert client.state(beyond=0, wait=600).head == 1
        giving.join()


def test_a_place_that_is_kept_holds_the_source_back_until_it_moves(clients: list[LogReader]) -> None:
    source = Numbers()
    with Gateway(source, ANYWHERE, journal=MemoryJournal(max_records=1000), prefetch=100) as gateway:
        eventually(lambda: gateway.status()["head"] >= 900)
        client = ask(clients, gateway)
        assert client.state(name="q", lease=60, acknowledge=500).acknowledged == 500
        eventually(lambda: gateway.status()["floor"] == 500)
        stays(lambda: source.given <= 1500 + 100)
        assert client.state(name="q").acknowledged == 500
        client.state(name="q", acknowledge=800)
        eventually(lambda: source.given > 1650)
        # Places do not go back: a repeated question does no harm.
        assert client.state(name="q", acknowledge=700).acknowledged == 800


def test_a_place_is_given_up_when_its_lease_is_over(clients: list[LogReader]) -> None:
    with Gateway(Flux.range(0, 10).map(str), ANYWHERE, codec="text") as gateway:
        client = ask(clients, gateway)
        eventually(lambda: gateway.status()["head"] == 10)
        client.state(name="q", lease=60, acknowledge=5)
        assert gateway.status()["absent"]["q"]["acknowledged"] == 5
        client.state(name="q", lease=1e-9)
        eventually(lambda: not gateway.status()["absent"])
        assert client.state(name="q").acknowledged is None


def test_a_place_is_of_one_log(clients: list[LogReader]) -> None:
    with Gateway(Flux.just(b"x"), ANYWHERE) as gateway:
        assert gateway.join(60)
        client = ask(clients, gateway)
        epoch = client.state().epoch
        assert client.state(name="q", epoch=epoch, acknowledge=1).acknowledged == 1
        with pytest.raises(EpochChanged):
            client.state(name="q", epoch="another", acknowledge=0)
        with pytest.raises(ProtocolViolation, match="the log goes up to 1"):
            client.state(name="q", acknowledge=2)


def test_a_place_before_the_oldest_record_cannot_be_kept(clients: list[LogReader]) -> None:
    with Gateway(Numbers(), ANYWHERE, journal=MemoryJournal(max_records=100), prefetch=10) as gateway:
        client = ask(clients, gateway)
        eventually(lambda: gateway.status()["head"] >= 90)
        client.state(name="q", lease=60, acknowledge=80)
        eventually(lambda: gateway.status()["first"] > 0)
        with pytest.raises(OffsetGone) as gone:
            client.state(name="another", lease=60, acknowledge=0)
        assert gone.value.first is not None
        assert 0 < gone.value.first <= gateway.status()["first"]


@pytest.mark.parametrize("seconds", [1e-12, 1e300])
def test_any_time_can_be_asked_for(clients: list[LogReader], seconds: float) -> None:
    with Gateway(Flux.just(b"x"), ANYWHERE) as gateway:
        assert gateway.join(60)
        client = ask(clients, gateway)
        assert client.state(name="q", lease=seconds, acknowledge=0, beyond=0, wait=seconds).head == 1


def test_nobody_there_is_told_in_time_with_a_remedy(clients: list[LogReader]) -> None:
    begun = time.monotonic()
    with pytest.raises(GatewayUnreachable, match=r"after 0\.5 s; is it running there, and do both sides"):
        ask(clients, free_endpoint(), patience=0.5).state()
    assert time.monotonic() - begun < 25


def test_a_gateway_that_comes_late_is_waited_for(clients: list[LogReader]) -> None:
    endpoint = free_endpoint()
    client = ask(clients, endpoint, patience=60)
    gateway = Gateway(Flux.just(b"x"), endpoint)
    starting = threading.Timer(0.3, gateway.start)
    starting.start()
    try:
        assert client.state().epoch
    finally:
        starting.join()
        gateway.close()


def test_a_restarted_gateway_is_found_again(clients: list[LogReader]) -> None:
    endpoint = free_endpoint()
    with Gateway(Flux.just(b"x"), endpoint):
        client = ask(clients, endpoint)
        before = client.state()
    with Gateway(Flux.just(b"x"), endpoint):
        assert client.state().epoch != before.epoch


def test_a_busy_gateway_is_asked_again(clients: list[LogReader]) -> None:
    with Gateway(Flux.just(b"x"), ANYWHERE, limits=Limits(requests_per_second=2)) as gateway:
        client = ask(clients, gateway)

        def is_answered() -> bool:
            return client.state().epoch == gateway.status()["epoch"]

        eventually(lambda: is_answered() and counted(gateway, "too many requests") > 0)
        assert is_answered()


def test_a_peer_that_speaks_the_plain_dialect_only_is_told(clients: list[LogReader]) -> None:
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    port = router.bind_to_random_port("tcp://127.0.0.1")

    def answer() -> None:
        parts = router.recv_multipart()
        router.send_multipart([*parts[:2], json.dumps({"OnSubscribe": {"size": 1, "port": 5}}).encode()])

    answering = threading.Thread(target=answer)
    answering.start()
    try:
        with pytest.raises(ProtocolViolation):
            ask(clients, f"tcp://127.0.0.1:{port}").state()
    finally:
        answering.join()
        router.close(0)
        context.term()

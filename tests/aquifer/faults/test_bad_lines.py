"""Lines that break, stall and lose messages: every record arrives once, and in order."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.aquifer import AquiferPublisher, Gateway, Limits, MemoryJournal, SqliteJournal
from tests.aquifer.faults.processes import GatewayProcess
from tests.aquifer.faults.proxy import ControlProxy, TcpProxy
from tests.aquifer.faults.rigs import (
    ANYWHERE,
    UNBOUNDED,
    ByHand,
    Numbers,
    counted,
    eventually,
    free_endpoint,
    has,
    read,
    reading,
)
from tests.streams.recording import Recorder

SEED = 20_240


@contextmanager
def over_a_bad_line(source: Any, **settings: Any) -> Iterator[tuple[Gateway, TcpProxy, str]]:
    """A gateway, a proxy before its two ports, and the endpoint on the proxy's side."""
    ports = [free_endpoint(), free_endpoint()]
    numbers = [int(port.rpartition(":")[2]) for port in ports]
    with Gateway(source, ports[0], data=ports[1], **settings) as gateway, TcpProxy(*numbers) as proxy:
        yield gateway, proxy, f"tcp://{proxy.host}:{numbers[0]}"


def small() -> MemoryJournal:
    """So small that the source has to wait for whoever was cut off."""
    return MemoryJournal(max_records=5000)


@pytest.mark.parametrize("name", [None, pytest.param("ledger", marks=pytest.mark.slow)])
def test_nothing_is_lost_and_nothing_comes_twice_when_connections_are_cut_again_and_again(
    name: str | None,
) -> None:
    source = Numbers(20_000, width=100)
    chance = random.Random(SEED)
    with over_a_bad_line(source, journal=small()) as (gateway, proxy, endpoint):
        # Of two megabytes: also if the connections that get little to carry are those with the low bounds.
        proxy.cut_after = lambda: chance.randrange(1000, 400_000)
        publisher = AquiferPublisher(endpoint, id=name, window=1000, max_window=4000, patience=30)
        reader = Recorder.of(publisher, UNBOUNDED)
        assert reader.wait(100).completed
        assert reader.items == source.values()
        assert proxy.cuts >= 5
        # Its goodbye may be lost as well; but of the sessions before the last one none is kept.
        assert len(gateway.status()["subscribers"]) <= 1


@pytest.mark.parametrize("moment", range(6))
def test_a_cut_at_any_moment_of_the_beginning_does_no_harm(moment: int) -> None:
    source = Numbers(3000, width=100)
    with over_a_bad_line(source) as (_, proxy, endpoint):
        # The greeting of ØMQ is 64 bytes, its handshake some 50; then come our own messages.
        limits = iter([(10, 10), (64, 70), (100, 120), (150, 400), (420, 500), (600, 5000)][moment])
        proxy.cut_after = lambda: next(limits, 10**9)
        assert read(endpoint, patience=60).wait(100).items == source.values()
        assert proxy.connections > 2


def test_a_subscriber_that_was_cut_off_goes_on_within_a_moment() -> None:
    with over_a_bad_line(Numbers(), journal=small()) as (_, proxy, endpoint):
        with reading(endpoint, window=500, max_window=500) as reader:
            for _ in range(5):
                reached = len(reader.items)
                eventually(has(reader, reached + 2000))
                proxy.cut()
            reached = len(reader.items)
            eventually(has(reader, reached + 2000))
        assert reader.items == Numbers().values(0, len(reader.items))


@pytest.mark.parametrize("moment", ["at first", "later"])
def test_connections_that_are_accepted_and_silent_are_given_up_for_others(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those to a proxy or a tunnel with nobody behind it."""
    monkeypatch.setattr("penstock.aquifer.client.sockets._HANDSHAKE", 500, raising=False)
    source = ByHand()
    with over_a_bad_line(source) as (_, proxy, endpoint):
        proxy.mute = 3 if moment == "at first" else 0
        with reading(endpoint, patience=60) as reader:
            source.give(b"first")
            eventually(has(reader, 1), "the first record")
            proxy.mute = 3 if moment == "later" else 0
            proxy.swallow()
            source.give(b"second")
            eventually(has(reader, 2), "the second record")
        assert proxy.mute == 0


def test_a_line_that_stalls_for_a_moment_loses_nothing() -> None:
    source = Numbers(20_000, width=100)
    pause = threading.Event()
    with over_a_bad_line(source, journal=small()) as (_, proxy, endpoint):
        reader = read(endpoint, window=1000, max_window=1000)
        for reached in (1, 5000, 10_000):
            eventually(lambda it=reached: len(reader.items) >= it or reader.terminated)
            proxy.stall()
            pause.wait(0.5)
            proxy.flow()
        assert reader.wait(60).items == source.values()


@pytest.mark.slow
@pytest.mark.parametrize("name", [None, "ledger"])
def test_a_line_that_stalls_for_longer_than_the_gateway_may_be_silent_loses_nothing(name: str | None) -> None:
    source = Numbers(20_000, width=100)
    pause = threading.Event()
    with over_a_bad_line(source, journal=small()) as (_, proxy, endpoint):
        publisher = AquiferPublisher(endpoint, id=name, window=1000, max_window=1000, patience=30)
        reader = Recorder.of(publisher, UNBOUNDED)
        for reached, seconds in ((1, 2.5), (6000, 6.0), (12_000, 2.5)):
            eventually(lambda it=reached: len(reader.items) >= it or reader.terminated)
            proxy.stall()
            pause.wait(seconds)
            proxy.flow()
        reader.wait(60)
        assert reader.error is None
        assert reader.items == source.values()


@pytest.mark.slow
def test_connections_that_die_without_a_word_are_given_up_and_made_anew() -> None:
    source = Numbers(20_000, width=100)
    with over_a_bad_line(source, journal=small()) as (gateway, proxy, endpoint):
        reader = read(endpoint, 3000, window=1000, max_window=1000)
        eventually(has(reader, 3000))
        # In the middle of the stream: a goodbye that is swallowed is missed until the lease ends.
        proxy.swallow()
        reader.request(UNBOUNDED)
        assert reader.wait(60).items == source.values()
        eventually(lambda: gateway.status()["subscribers"] == [])


@pytest.mark.slow
def test_connections_that_die_without_a_word_hold_the_source_up_no_longer_than_the_lease() -> None:
    source = Numbers()
    with over_a_bad_line(source, journal=small()) as (gateway, proxy, endpoint):
        lost = read(endpoint, lease=2.0)
        with reading(gateway.endpoint, window=1000, max_window=1000) as other:
            eventually(has(lost, 3000))
            proxy.stall()
            eventually(lambda: counted(gateway, "leases ended") >= 1)
            reached = len(other.items)
            eventually(has(other, reached + 10_000))
        proxy.flow()
        lost.cancel()


@pytest.mark.parametrize("seed", [SEED, *(pytest.param(SEED + n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_control_messages_may_be_lost_or_come_twice(seed: int) -> None:
    source = Numbers(8000)
    print(f"seed {seed}")
    with (
        Gateway(source, ANYWHERE, journal=small(), limits=Limits(lease=5)) as gateway,
        ControlProxy(gateway.endpoint, seed=seed) as proxy,
    ):
        readers = [
            # Not "auto": three lost questions in a row would make it take the gateway for a plain one.
            Recorder.of(
                AquiferPublisher(proxy.endpoint, dialect="extended", id=name, window=200, max_window=200),
                0,
            )
            for name in (None, "ledger", None)
        ]
        # The log holds 5000 records. A reader that arrives after the others have read some starts later.
        eventually(lambda: len(gateway.status().subscribers) == len(readers))
        for reader in readers:
            reader.request(UNBOUNDED)
        for reader in readers:
            reader.wait(50)
            assert reader.error is None
            assert reader.items == source.values()
        assert proxy.dropped > 5
        assert proxy.repeated > 5


def test_a_gateway_that_is_killed_and_started_again_goes_on_without_a_gap(tmp_path: Path) -> None:
    control, data = free_endpoint(), free_endpoint()
    arguments = (
        f"lambda head: Flux.from_iterable(Numbers(40_000).values(head)), {control!r}, data={data!r}, "
        f"journal=SqliteJournal({str(tmp_path / 'log.db')!r}), prefetch=2000"
    )
    readers = [
        Recorder.of(AquiferPublisher(control, window=500, max_window=500, id=name), UNBOUNDED)
        for name in (None, "ledger")
    ]
    for reached in (500, 6000, 15_000):
        with GatewayProcess(arguments) as gateway:
            eventually(lambda it=reached: min(len(reader.items) for reader in readers) >= it)
            gateway.kill()
    with GatewayProcess(arguments):
        for reader in readers:
            assert reader.wait(60).items == Numbers().values(0, 40_000)


@pytest.mark.slow
def test_a_subscriber_reads_on_from_a_journal_while_another_is_cut_off(tmp_path: Path) -> None:
    source = Numbers(20_000, width=100)
    journal = SqliteJournal(tmp_path / "log.db", cache_bytes=100_000)
    with over_a_bad_line(source, journal=journal) as (gateway, proxy, endpoint):
        chance = random.Random(SEED)
        proxy.cut_after = lambda: chance.randrange(1000, 600_000)
        unlucky, lucky = read(endpoint, window=500), read(gateway.endpoint)
        assert lucky.wait(60).items == source.values()
        assert unlucky.wait(50).items == source.values()

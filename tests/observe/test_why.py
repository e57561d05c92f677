"""``penstock why`` and a process that shows its streams."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal, Producer
from penstock.cli import main
from penstock.observe import NotPublished, Observer, Snapshot, publish, why
from penstock.streams import Flux

SLOW = """
import sys, threading, time
from penstock.streams import Flux, schedulers

def think(number):
    if number == "0":
        print("ready", flush=True)  # Not before: on a busy machine the thread may begin much later.
    time.sleep(0.02)
    return number

numbers = Flux.range(10**9).map(str).map(think)
running = numbers.subscribe_on(schedulers.single("work")).subscribe(lambda _: None)
sys.stdin.read()
running.cancel()
"""


@contextmanager
def slow_process(**environment: str) -> Iterator[int]:
    """A process with a stream in which ``think`` is slow; yields its number."""
    command = [sys.executable, "-c", SLOW]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=os.environ | environment, text=True, **pipes) as process:  # type: ignore[call-overload]
        assert process.stdout.readline() == "ready\n"
        try:
            yield process.pid
        finally:
            process.stdin.close()


def test_the_slow_operator_of_another_process_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with slow_process(PENSTOCK_OBSERVE="1") as pid:
        assert main(["why", str(pid), "--within", "1s"]) == 3
    said = capsys.readouterr().out
    assert said.startswith("`map(think)` at pid:")
    assert "Try: " in said


def test_a_process_that_shows_nothing_is_told_how_to(capsys: pytest.CaptureFixture[str]) -> None:
    with slow_process() as pid:
        assert main(["why", str(pid)]) == 1
    assert "PENSTOCK_OBSERVE=1" in capsys.readouterr().err


def test_the_socket_of_a_process_is_reachable_for_its_owner_alone() -> None:
    published = publish()
    try:
        assert publish() is published
        assert stat.S_IMODE(published.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(published.path.parent.stat().st_mode) == 0o700
        assert Observer(str(os.getpid())).look().hops == ()
    finally:
        published.close()
    assert not published.path.exists()
    with pytest.raises(NotPublished):
        Observer(str(os.getpid())).look()


def test_a_log_that_nobody_reads_waits_for_its_first_reader(capsys: pytest.CaptureFixture[str]) -> None:
    with Gateway(
        Flux.range(10**9).map(lambda n: b"%d" % n),
        "tcp://127.0.0.1:0",
        journal=MemoryJournal(max_records=1000),
    ) as gateway:
        verdict = why(gateway.endpoint, within=1.5)
        assert verdict.limiting == f"{gateway.endpoint}/log"
        assert "waits for its first reader" in verdict.sentence
        assert main(["why", gateway.endpoint, "--json", "--within", "1s"]) == 3
    snapshot = Snapshot.from_json(capsys.readouterr().out)
    assert snapshot.verdict is not None
    assert [hop.kind for hop in snapshot.hops] == ["stage", "intake", "log"]
    assert json.loads(snapshot.to_json())["hops"][2]["state"] == "full"


def test_an_idle_gateway_is_limited_by_nobody() -> None:
    with Gateway(Flux.never(), "tcp://127.0.0.1:0") as gateway:
        verdict = why(gateway.endpoint, within=0.5)
    assert verdict.limiting is None
    assert verdict.sentence == "Nobody limits the flow: the source is idle."


def test_a_digit_that_is_no_number_is_not_taken_for_a_process(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "²"]) == 2
    assert "'²' is not an endpoint: it has to start with tcp://" in capsys.readouterr().err


def test_no_gateway_is_an_error_with_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "tcp://127.0.0.1:1"]) == 1
    assert "tcp://127.0.0.1:1" in capsys.readouterr().err


def test_a_producer_shows_whether_it_sends_or_waits_for_a_commit() -> None:
    published = publish()
    try:
        with (
            Gateway(
                None, "tcp://127.0.0.1:0", journal=MemoryJournal(max_records=100), writable=True
            ) as gateway,
            Producer(gateway.endpoint, "thermometer") as producer,
            Observer(str(os.getpid()), gateway.endpoint) as observer,
        ):
            writing = threading.Thread(target=write_too_much, args=(producer,))
            writing.start()
            while True:
                snapshot = observer.look()
                hop = next(each for each in snapshot.hops if each.kind == "producer" and each.peer)
                if (hop.waiting_for_demand or 0.0) > 0.2:
                    break
            place = snapshot.hop(f"{gateway.endpoint}/producer/thermometer")
            assert place.upstream == (hop.id,)
            assert hop.records_out == 200
            order = [each.id for each in snapshot.hops]
            assert order.index(hop.id) < order.index(place.id) < order.index(f"{gateway.endpoint}/log")
            AquiferPublisher(gateway.endpoint, id="late").flux().take(200).collect_list().block(30)
            writing.join(30)
            assert not writing.is_alive()
        while any(each.kind == "producer" for each in published.snapshot().hops):
            pass  # One that is closed is gone with the next look.
    finally:
        published.close()


def write_too_much(producer: Producer) -> None:
    """The second batch has to wait until somebody reads the first one."""
    for batch in range(2):
        with producer.transaction(batch) as transaction:
            transaction.write(b"%d" % number for number in range(100))


def test_a_process_is_followed_to_the_gateway_that_it_reads() -> None:
    published = publish()
    try:
        with Gateway(Flux.never(), "tcp://127.0.0.1:0") as gateway:
            here = gateway.endpoint.replace("127.0.0.1", "localhost")
            reading = AquiferPublisher(here, id="mine").flux().map(bytes).subscribe(lambda _: None)
            with Observer(str(os.getpid())) as observer:
                while True:
                    snapshot = observer.look()
                    readers = [hop for hop in snapshot.hops if hop.kind == "reader"]
                    if readers and readers[0].upstream:
                        break
            assert readers[0].upstream == (f"{here}/cursor/mine",)
            assert [hop.kind for hop in snapshot.hops if hop.upstream == (readers[0].id,)] == ["stage"]
            reading.cancel()
    finally:
        published.close()


def test_a_gateway_that_does_not_answer_its_reader_is_asked_once() -> None:
    published = publish()
    try:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            endpoint = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
            reading = (
                AquiferPublisher(endpoint, id="mine").flux().on_error_complete().subscribe(lambda _: None)
            )
            with Observer(str(os.getpid()), timeout=0.2) as observer:
                first, second = observer.look(), observer.look()
            assert [hop.state for hop in first.hops if hop.kind == "log"] == ["failed"]
            assert [hop.state for hop in second.hops if hop.kind == "log"] == []
            reading.cancel()
    finally:
        published.close()

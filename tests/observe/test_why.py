"""``penstock why`` and a process that shows its streams."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from penstock.aquifer import Gateway, MemoryJournal
from penstock.cli import main
from penstock.observe import NotPublished, Observer, Snapshot, publish, why
from penstock.streams import Flux

SLOW = """
import sys, threading, time
from penstock.streams import Flux, schedulers

def think(number):
    time.sleep(0.02)
    return number

numbers = Flux.range(10**9).map(str).map(think)
running = numbers.subscribe_on(schedulers.single("work")).subscribe(lambda _: None)
print("ready", flush=True)
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


def test_no_gateway_is_an_error_with_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["why", "tcp://127.0.0.1:1"]) == 1
    assert "tcp://127.0.0.1:1" in capsys.readouterr().err

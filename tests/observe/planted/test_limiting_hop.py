"""A slow hop is planted in each place in turn, and the verdict names it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.observe import Observer, Snapshot, Verdict

PROCESS = Path(__file__).with_name("pipeline_process.py")
WITHIN = float(os.environ.get("PENSTOCK_NAMED_WITHIN", "40"))
"""Seconds of the observer's clock, from the first look on, in which the slow hop has to be named.

Five are enough on a machine with nothing else to do; one that runs other tests may take longer.
"""


@contextmanager
def running(*arguments: str, **environment: str) -> Iterator[str]:
    """A process of the pipeline; yields what it prints first: an endpoint, or that it runs."""
    command = [sys.executable, str(PROCESS), *arguments]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env=os.environ | environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()  # The process ends with its standard input.
            process.wait(30)


def named_in_time(endpoint: str, expected: str) -> tuple[Verdict, Snapshot]:
    """Look until the verdict names what was planted; it may not take for ever."""
    with Observer(endpoint) as observer:
        began = observer.look().clock
        while True:
            time.sleep(0.5)  # The observer's pace, not a wait for something.
            snapshot = observer.look()
            assert snapshot.verdict is not None
            text = f"{snapshot.verdict.limiting} {snapshot.verdict.sentence}"
            if expected in text:
                return snapshot.verdict, snapshot
            assert snapshot.clock - began < WITHIN, f"{text!r} does not name {expected!r}"


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        ("receive", "map(read_slowly)"),
        ("map", "map(enrich_slowly)"),
        ("journal", "/log"),
        ("reader", "/cursor/last"),
        ("map,reader", "/cursor/last"),
        ("map,quick-reader", "map(enrich_slowly)"),
        ("none", "Nobody limits the flow: the source gives"),
    ],
)
def test_the_planted_hop_is_named(slow: str, expected: str) -> None:
    with running("gateway", slow) as endpoint, running("reader", slow, endpoint) as ready:
        assert ready == "reading"
        verdict, snapshot = named_in_time(endpoint, expected)
    if slow != "none":
        assert verdict.advice
        assert verdict.rate is not None
        assert verdict.limiting in {hop.id for hop in snapshot.hops}


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        ("decoding", "/connections Reading from "),
        ("reader", "/cursor/last"),
        ("down", "The source at"),
    ],
)
def test_the_senders_of_a_feed_are_hops(slow: str, expected: str) -> None:
    with running("listening", slow) as endpoint, running("reader", slow, endpoint) as ready:
        assert ready == "reading"
        verdict, snapshot = named_in_time(endpoint, expected)
    if slow == "down":
        assert "is down, and limits the flow: " in verdict.sentence
        assert "Connection refused" in verdict.sentence
        return
    senders = [hop for hop in snapshot.hops if hop.kind == "connection"]
    # A loop that decodes all the time lets new connections in only now and then.
    assert 1 < len(senders) <= 9 if slow == "decoding" else len(senders) == 9, "a few, and all together"
    assert senders[-1].id == f"{endpoint}/connections"
    assert set(senders[-1].upstream) == {hop.id for hop in senders[:-1]}
    assert senders[-1].records_out >= sum(hop.records_out for hop in senders[:-1]) > 0
    if slow == "reader":
        assert "the senders' sockets are paused" in verdict.sentence


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        ("reader", "The program that reads as `last` at pid:"),
        ("stage-of-reader", "`map(enrich_slowly)` at pid:"),
    ],
)
def test_a_slow_client_that_shows_its_streams_is_named_itself(slow: str, expected: str) -> None:
    with (
        running("gateway", "") as endpoint,
        running("reader", slow, endpoint, PENSTOCK_OBSERVE="1") as ready,
    ):
        assert ready == "reading"
        verdict, snapshot = named_in_time(endpoint, expected)
    assert verdict.limiting is not None
    reader = next(hop for hop in snapshot.hops if hop.kind == "reader")
    assert reader.upstream == (f"{endpoint}/cursor/last",)
    assert verdict.possible is not None
    assert verdict.rate is not None
    assert "the log has been full for " in verdict.sentence

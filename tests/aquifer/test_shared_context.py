"""Readers and producers that come and go can share the threads of one ØMQ context."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from penstock.aquifer import Gateway, LogReader, Producer, unpack_values
from tests.aquifer.faults.rigs import ANYWHERE, eventually

THREADS = Path("/proc/self/task")


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq.Context() as shared:
        yield shared


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway(None, ANYWHERE, writable=True) as running:
        yield running


def _write_and_read(gateway: Gateway, context: zmq.Context[zmq.Socket[bytes]], batch: int) -> list[bytes]:
    value = b"%d" % batch
    producer = Producer(gateway.endpoint, "sharing", context=context)
    with producer, producer.transaction(batch) as transaction:
        transaction.write([value])
    with LogReader(gateway.endpoint, context=context) as log:
        head = log.state().head
        return [each for read in log.read(head - 1, head) for each in unpack_values(read.payload)]


def _threads_of_contexts() -> set[str]:
    """Those of this process that ØMQ has started: others come and go, and so may these of an earlier test."""
    found = set()
    for thread in THREADS.iterdir():
        with suppress(OSError):  # It has ended.
            if (thread / "comm").read_text().startswith("ZMQ"):
                found.add(thread.name)
    return found


def test_who_shares_a_context_leaves_it_open_for_the_others(
    gateway: Gateway, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    assert [_write_and_read(gateway, context, batch) for batch in range(5)] == [
        [b"%d" % batch] for batch in range(5)
    ]
    assert not context.closed


@pytest.mark.skipif(not THREADS.exists(), reason="counts the threads of this process in /proc")
def test_who_shares_a_context_starts_no_threads(
    gateway: Gateway, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    _write_and_read(gateway, context, 0)  # The context starts its own.
    with Producer(gateway.endpoint, context=context) as shared, Producer(gateway.endpoint) as alone:
        before = _threads_of_contexts()
        shared.transaction(0).commit()
        assert _threads_of_contexts() <= before
        alone.transaction(0).commit()
        assert not _threads_of_contexts() <= before, "this sees the threads of a context"


def test_a_reader_that_gives_up_leaves_no_socket_in_a_shared_context(
    gateway: Gateway, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    for batch in range(3):
        _write_and_read(gateway, context, batch)
    reading = LogReader(gateway.endpoint, context=context).read(0, 3)
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    eventually(lambda: not gateway.status()["subscribers"])
    context.term()  # Would wait for ever for a socket that is open.

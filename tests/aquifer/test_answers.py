"""A gateway answers when there is something to answer, not when it next looks at the clock."""

from __future__ import annotations

from contextlib import closing
from threading import Event, Thread

import pytest

from penstock.aquifer import Gateway, LogReader, LogState, Producer
from tests.aquifer.faults.rigs import ANYWHERE, ByHand, eventually


@pytest.fixture(autouse=True)
def nobody_looks_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway's thread waits for an hour unless somebody wakes it, and no question is repeated earlier."""
    monkeypatch.setattr("penstock.aquifer.gateway.server._TICK", 3600.0)
    monkeypatch.setattr("penstock.aquifer.gateway.server._IDLE_TICK", 3600.0)
    monkeypatch.setattr("penstock.aquifer.client.connection._REPEAT", 3600.0)


@pytest.mark.timeout(60)
def test_a_commit_is_answered_when_it_is_written() -> None:
    with Gateway(None, ANYWHERE, writable=True) as gateway:
        for batch in range(3):
            with Producer(gateway.endpoint, "tests", patience=20_000.0) as producer:
                transaction = producer.transaction(batch)
                transaction.write([b"one", b"two"])
                transaction.commit()
        with LogReader(gateway.endpoint) as log:
            assert log.state().head == 6


@pytest.mark.timeout(60)
def test_a_question_that_waits_for_records_is_answered_when_they_come() -> None:
    feed = ByHand()
    with Gateway(feed, ANYWHERE) as gateway, closing(LogReader(gateway.endpoint, patience=20_000.0)) as log:
        assert log.state().head == 0
        states: list[LogState] = []
        question = {"name": "tests", "lease": 60.0, "acknowledge": 0, "beyond": 1, "wait": 4000.0}
        asking = Thread(target=lambda: states.append(log.state(**question)), daemon=True)
        asking.start()
        eventually(lambda: gateway._server.streams.default._probes.names() == {"tests"})
        feed.give(b"one", b"two")
        asking.join(50)
        assert [state.head for state in states] == [2]


@pytest.mark.timeout(60)
def test_a_gateway_that_is_closed_just_as_it_is_woken_for_something_else_closes() -> None:
    gateway = Gateway(None, ANYWHERE, writable=True).start()
    server, is_told = gateway._server, Event()
    waker = server._waker
    drain, wake = waker.drain, waker.wake
    closing = Thread(target=gateway.close, daemon=True)

    def wake_and_tell() -> None:
        wake()
        if server._stopping:
            is_told.set()

    def drain_late() -> None:
        if not closing.ident:
            closing.start()
            assert is_told.wait(50)
        drain()

    waker.drain, waker.wake = drain_late, wake_and_tell  # type: ignore[method-assign]
    wake()
    assert is_told.wait(50)
    closing.join(50)
    assert not closing.is_alive()

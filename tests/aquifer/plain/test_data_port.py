"""The data port of a plain subscriber: a stranger who finds it gets nothing, and she loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import zmq

from penstock.aquifer import CurveClient, CurveServer, Gateway, generate_keys
from tests.aquifer.faults.rigs import ANYWHERE, Numbers, Peer, counted, eventually, session_of

PATIENCE = 60_000
SERVER, ALICE, BOB = generate_keys(), generate_keys(), generate_keys()


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with Gateway(Numbers(10), ANYWHERE) as gateway:
        gateway.join()
        yield gateway


@contextmanager
def stranger(port: int, source: str = "127.0.0.1", curve: CurveClient | None = None) -> Iterator[Any]:
    """Somebody else who has found a port; yields what tells whether it was let in."""
    with zmq.Context() as context, context.socket(zmq.SUB) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        if curve is not None:
            curve.secure(socket)
        socket.subscribe(b"")
        monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        socket.connect(f"tcp://{source}:0;127.0.0.1:{port}")
        assert monitor.poll(PATIENCE), "nobody listens there"
        try:
            yield socket
        finally:
            socket.disable_monitor()
            monitor.close(0)


def next_of(peer: Peer, count: int = 10) -> dict[str, Any]:
    return peer.ask({"jsonClass": "Next", "count": count}, timeout=PATIENCE / 1000)


def read_all(peer: Peer) -> list[bytes]:
    """Everything, as a plain subscriber reads that asks again when there is nothing."""
    records: list[bytes] = []
    assert peer.data is not None
    while (answer := next_of(peer))["jsonClass"] == "OnNext":
        for _ in range(answer["count"]):
            assert peer.data.poll(PATIENCE), "declared, and did not come"
            records.append(peer.data.recv())
    assert answer["jsonClass"] == "OnComplete", answer
    return records


def subscribe_again(peer: Peer) -> None:
    """A session and a port that are new, as a subscriber does that was told to."""
    assert peer.data is not None
    peer.data.close(0)
    peer.subscribe_plainly()
    peer.join(b"")


def heard(gateway: Gateway) -> None:
    """Until the gateway has noticed that somebody is at the port."""
    session_of(gateway, state="streaming")


def test_a_stranger_who_is_first_gets_nothing_and_the_subscriber_everything(gateway: Gateway) -> None:
    with Peer(gateway.endpoint) as peer:
        peer.subscribe_plainly()
        with stranger(peer.port) as other:
            heard(gateway)
            assert next_of(peer) == {"jsonClass": "OnNext", "count": 0}
            peer.join(b"")
            eventually(lambda: counted(gateway, "contested data ports") == 1)
            answer = next_of(peer)
            assert answer["jsonClass"] == "OnError"
            assert "a second connection came to the data port" in answer["message"]
            subscribe_again(peer)
            assert read_all(peer) == Numbers().values(0, 10)
            assert not other.poll(0)


def test_a_stranger_who_comes_later_gets_nothing_and_the_subscriber_can_start_again(gateway: Gateway) -> None:
    with Peer(gateway.endpoint) as peer:
        peer.subscribe_plainly()
        peer.join(b"")
        heard(gateway)
        assert next_of(peer, 3)["count"] == 0
        assert next_of(peer, 3)["count"] == 3
        with stranger(peer.port) as other:
            eventually(lambda: counted(gateway, "contested data ports") == 1)
            assert next_of(peer)["jsonClass"] == "OnError"
            subscribe_again(peer)
            assert read_all(peer) == Numbers().values(0, 10)
            assert not other.poll(0)


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
def test_a_stranger_at_another_address_changes_nothing(gateway: Gateway, first: bool) -> None:
    with Peer(gateway.endpoint) as peer:
        peer.subscribe_plainly()
        if not first:
            peer.join(b"")
            heard(gateway)
        with stranger(peer.port, "127.0.0.2") as other:
            eventually(lambda: counted(gateway, "strangers at a data port") == 1)
            if first:
                peer.join(b"")
                heard(gateway)
            assert next_of(peer, 3)["count"] == 0
            assert next_of(peer, 3)["count"] == 3
            assert not other.poll(0)
        assert peer.data is not None
        for number in range(3):
            assert peer.data.poll(PATIENCE)
            assert peer.data.recv() == Numbers().value(number)
        assert read_all(peer) == Numbers().values(3, 10), "the stranger has left, and she goes on"


def test_a_subscriber_that_joins_once_and_leaves_can_come_back_to_its_port(gateway: Gateway) -> None:
    with Peer(gateway.endpoint) as peer:
        peer.subscribe_plainly()
        joined = peer.join(b"")
        heard(gateway)
        joined.close(0)
        eventually(lambda: session_of(gateway)["state"] == "joining")
        peer.join(b"")
        assert read_all(peer) == Numbers().values(0, 10)


def test_with_keys_nobody_else_is_at_the_port_and_nothing_has_to_be_waited_for() -> None:
    curve = CurveServer(SERVER, [ALICE.public, BOB.public])
    with Gateway(Numbers(10), None, curve=curve, curve_control=ANYWHERE) as gateway:
        gateway.join()
        with Peer(gateway.curve_endpoint, CurveClient(ALICE, SERVER.public)) as peer:
            peer.subscribe_plainly()
            with stranger(peer.port, curve=CurveClient(BOB, SERVER.public)) as bob:
                eventually(lambda: counted(gateway, "strangers at a data port") == 1)
                peer.join(b"")
                heard(gateway)
                assert next_of(peer, 4)["count"] == 4
                assert peer.data is not None
                assert [peer.data.recv() for _ in range(4)] == Numbers().values(0, 4)
                assert read_all(peer) == Numbers().values(4, 10)
                assert not bob.poll(0)

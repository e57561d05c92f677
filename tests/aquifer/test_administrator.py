"""An administrator moves ids, and meets a gateway of an earlier version, which cannot be administered."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing

import pytest
import zmq

from penstock import Flux
from penstock.aquifer import (
    Administrator,
    AquiferError,
    AquiferPublisher,
    Evicted,
    Gateway,
    GatewayStatus,
    LogReader,
    ProtocolViolation,
)
from penstock.aquifer.protocol.messages import (
    VERSION,
    OnSubscribe,
    OnSubscribeFields,
    encode,
    raw_status,
    unwrap,
)
from tests.aquifer.faults.rigs import ANYWHERE, Numbers, eventually, has, read


@pytest.fixture
def earlier_gateway() -> Iterator[str]:
    """Takes every question for a probe, as gateways did before there were administrators."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        port = router.bind_to_random_port("tcp://127.0.0.1")
        ended = threading.Event()

        def answer() -> None:
            fields = OnSubscribeFields(v=VERSION, status=raw_status(GatewayStatus(head=7)))
            while not ended.is_set():
                if router.poll(50):
                    envelope, _, _ = unwrap(router.recv_multipart())
                    router.send_multipart([*envelope, encode(OnSubscribe(1, 0, x=fields))])

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"tcp://127.0.0.1:{port}"
        ended.set()
        thread.join()


def test_a_gateway_that_cannot_list_its_ids_is_not_taken_for_one_without_any(earlier_gateway: str) -> None:
    with Administrator(earlier_gateway) as administrator:
        with pytest.raises(ProtocolViolation, match="cannot be administered from elsewhere"):
            administrator.ids()
        with pytest.raises(ProtocolViolation, match="cannot be administered from elsewhere"):
            administrator.evict("nightly")


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    """A hundred records, and an id that has acknowledged ten of them and is away."""
    source = Flux.concat(Flux.from_iterable(Numbers().values(0, 100)), Flux.never())
    with Gateway(source, ANYWHERE) as gateway:
        eventually(lambda: gateway.status().head == 100)
        with closing(LogReader(gateway.endpoint)) as client:
            client.state(name="nightly", acknowledge=10, lease=3600)
        yield gateway


def test_an_id_is_moved_forward_and_back_and_its_reader_continues_there(gateway: Gateway) -> None:
    with Administrator(gateway.endpoint) as administrator:
        moved = administrator.move("nightly", 90)
        assert (moved.id, moved.acknowledged, moved.offset) == ("nightly", 10, 90)
        assert gateway.status().saved["nightly"].acknowledged == 90
        moved = administrator.move("nightly", 95)
        assert (moved.acknowledged, moved.offset) == (90, 95)
        administrator.move("nightly", 30)
    reader = AquiferPublisher(gateway.endpoint, id="nightly", records=True).flux()
    assert [record.offset for record in reader.take(3)] == [30, 31, 32]


@pytest.mark.parametrize("from_elsewhere", [False, True])
def test_the_log_keeps_what_a_moved_id_needs(gateway: Gateway, from_elsewhere: bool) -> None:
    with Administrator(gateway.endpoint) as administrator:
        move = administrator.move if from_elsewhere else gateway.move
        move("nightly", 50)
        assert gateway.status().low_watermark == 50
        move("nightly", 20)
        assert gateway.status().low_watermark == 20


def test_a_reader_of_a_moved_id_is_evicted(gateway: Gateway) -> None:
    reader = read(gateway.endpoint, 10, id="nightly")
    eventually(has(reader, 10))
    with Administrator(gateway.endpoint) as administrator:
        administrator.move("nightly", 60)
    assert isinstance(reader.wait().error, Evicted)
    assert gateway.status().saved["nightly"].acknowledged == 60


@pytest.mark.parametrize(
    ("id", "offset", "told"), [("nobody", 5, "there is no id"), ("nightly", 101, "the log has the offsets")]
)
def test_an_id_or_an_offset_that_does_not_exist_is_refused_and_nobody_is_evicted(
    gateway: Gateway, id: str, offset: int, told: str
) -> None:
    reader = read(gateway.endpoint, 10, id="nightly")
    eventually(has(reader, 10))
    with Administrator(gateway.endpoint) as administrator, pytest.raises(AquiferError, match=told):
        administrator.move(id, offset)
    assert [one.here for one in gateway.ids().ids] == [True]
    reader.cancel()

"""An administrator and a gateway of an earlier version, which does not know what an administrator asks."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import zmq

from penstock.aquifer import Administrator, GatewayStatus, ProtocolViolation
from penstock.aquifer.protocol.messages import (
    VERSION,
    OnSubscribe,
    OnSubscribeFields,
    encode,
    raw_status,
    unwrap,
)


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

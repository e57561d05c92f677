"""Questions to a gateway: how long an answer is waited for, and when a question is asked again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import zmq

from penstock.aquifer import (
    AquiferPublisher,
    Batch,
    Endpoint,
    Gateway,
    GatewayUnreachable,
    LogReader,
    Producer,
)
from penstock.aquifer.client.connection import GatewayConnection
from penstock.aquifer.protocol.messages import Complete, Next, OnComplete, OnNext, decode, encode
from penstock.aquifer.records.batch import RecordMetadata, pack_metadata, pack_values
from penstock.streams import Flux
from tests.aquifer.faults.proxy import ControlProxy
from tests.aquifer.faults.rigs import free_endpoint
from tests.aquifer.faults.slow_line import SlowLine
from tests.aquifer.writing import Courier

Answer = Callable[[int], float | None]
"""After how many seconds the so-manieth question is answered; None: never."""


class Peer:
    """Answers questions with ``OnComplete``, when it likes."""

    def __init__(self, answer: Answer) -> None:
        self.heard = 0
        self.repeats = False
        self._last: list[bytes] = []
        self._answer = answer
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self.endpoint = f"tcp://127.0.0.1:{self._socket.bind_to_random_port('tcp://127.0.0.1')}"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._socket.poll(20):
                *envelope, question = self._socket.recv_multipart()
                self.heard += 1
                if self.repeats:
                    # The last answer once more, before this one.
                    self._last, last = [*envelope, self._reply(question)], self._last
                    for message in (last, self._last):
                        if message:
                            self._socket.send_multipart(message)
                    continue
                after = self._answer(self.heard)
                if after is not None and not self._stopping.wait(after):
                    self._socket.send_multipart([*envelope, encode(OnComplete())])

    def _reply(self, question: bytes) -> bytes:
        asked = decode(question)
        return encode(OnNext(asked.count) if isinstance(asked, Next) else OnComplete())

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._context.destroy(0)


@contextmanager
def asking(answer: Answer) -> Iterator[tuple[Peer, GatewayConnection]]:
    peer = Peer(answer)
    asker = GatewayConnection(Endpoint.parse(peer.endpoint), None, patience=30)
    try:
        yield peer, asker
    finally:
        asker.close()
        peer.close()


@pytest.mark.slow
def test_a_slow_answer_is_waited_for_and_the_question_not_repeated() -> None:
    with asking(lambda number: 1.5) as (peer, asker):
        assert isinstance(asker.ask(Complete(), patience=60), OnComplete)
        assert peer.heard == 1


@pytest.mark.slow
def test_a_question_without_an_answer_is_asked_again_after_a_while() -> None:
    with asking(lambda number: None if number == 1 else 0.0) as (peer, asker):
        assert isinstance(asker.ask(Complete(), patience=8), OnComplete)
        assert peer.heard == 2


@pytest.mark.slow
def test_when_patience_is_over_there_is_no_answer() -> None:
    with asking(lambda number: None) as (peer, asker):
        with pytest.raises(GatewayUnreachable, match="something listens"):
            asker.ask(Complete(), patience=3)
        assert asker.connected
        assert 2 <= peer.heard <= 3


def test_a_question_whose_connection_was_lost_is_asked_again_soon() -> None:
    """And not after a quarter of the patience: the answer cannot come any more."""
    endpoint = free_endpoint()
    port = int(endpoint.rpartition(":")[2])
    reached = threading.Event()
    with SlowLine(port) as line, Gateway(Flux.just(b"x"), endpoint) as gateway:
        assert gateway.join(60)
        client = LogReader(f"tcp://{line.host}:{port}", patience=3000)
        try:
            assert client.state().head == 1
            line.stall()

            def ask() -> None:
                assert client.state().head == 1
                reached.set()

            thread = threading.Thread(target=ask)
            thread.start()
            assert not reached.wait(0.5)
            line.flow()
            line.cut()
            assert reached.wait(60), "the first repetition would come after 15 s, but a loss is seen"
            thread.join()
        finally:
            client.close()


def test_an_answer_to_an_earlier_question_is_not_taken_for_that_to_the_next() -> None:
    """Each answer comes twice, the second one late: after the next question."""
    with asking(lambda number: 0.0) as (peer, asker):
        peer.repeats = True
        for number in range(20):
            answer = asker.ask(Next(number), patience=60)
            assert isinstance(answer, OnNext)
            assert answer.count == number


@pytest.mark.parametrize("seed", range(3))
def test_a_line_that_doubles_every_message_makes_no_difference(seed: int) -> None:
    with (
        Gateway(None, "tcp://127.0.0.1:0", writable=True) as gateway,
        ControlProxy(gateway.endpoint, seed=seed, drop=0.0, repeat=1.0) as line,
        Producer(line.endpoint, "doubled", patience=20) as producer,
        LogReader(line.endpoint, patience=20) as log,
    ):
        for batch in range(20):
            with producer.transaction(batch) as transaction:
                for piece in range(3):
                    transaction.write_batch(
                        Batch(
                            0, 1, pack_values([b"%d.%d" % (batch, piece)]), pack_metadata(RecordMetadata(1))
                        )
                    )
            assert log.state().head == 3 * (batch + 1)
            assert log.state(name="reader", acknowledge=batch).acknowledged == batch
        assert line.repeated > 100
        gateway.complete()
        expected = [b"%d.%d" % (batch, piece) for batch in range(20) for piece in range(3)]
        assert list(AquiferPublisher(gateway.endpoint).flux()) == expected


@pytest.mark.slow
def test_a_large_batch_is_written_over_a_slow_line_though_it_takes_longer_than_patience() -> None:
    """As long as its bytes leave, the gateway is there."""
    endpoint = free_endpoint()
    port = int(endpoint.rpartition(":")[2])
    values = [bytes(200_000)]
    with Gateway(None, endpoint, writable=True) as gateway, SlowLine(port, rate=20_000) as line:
        line.backwards = True
        courier = Courier(f"tcp://{line.host}:{port}", patience=4)
        try:
            courier.stage(
                "query", 0, part=0, attempt=1, seq=0,
                count=1, payload=pack_values(values), metadata=pack_metadata(RecordMetadata(1)),
            )  # fmt: skip
            courier.publish("query", 0, parts=[(0, 1, 1)])
        finally:
            courier.close()
        assert line.connections == 1, "and it was not begun anew"
        gateway.complete()
        assert list(AquiferPublisher(endpoint).flux()) == values


@pytest.mark.slow
def test_a_line_that_is_cut_while_a_batch_is_written_is_told_in_time() -> None:
    endpoint = free_endpoint()
    port = int(endpoint.rpartition(":")[2])
    with Gateway(None, endpoint, writable=True), SlowLine(port, rate=20_000) as line:
        line.backwards = True
        courier = Courier(f"tcp://{line.host}:{port}", patience=3)
        timer = threading.Timer(1.0, line.stall)
        timer.start()
        try:
            with pytest.raises(GatewayUnreachable):
                courier.stage(
                    "query", 0, part=0, attempt=1, seq=0,
                    count=1, payload=pack_values([bytes(200_000)]), metadata=pack_metadata(RecordMetadata(1)),
                )  # fmt: skip
        finally:
            timer.join()
            line.flow()
            courier.close()

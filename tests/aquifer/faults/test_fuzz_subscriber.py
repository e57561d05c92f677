"""Gateways that say anything: whatever comes, a subscriber ends with a signal, in time, and by the rules."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import zmq

from penstock.aquifer import AquiferPublisher, GatewayUnreachable, ProtocolViolation
from tests.aquifer.faults.fuzzing import Fuzzer
from tests.aquifer.faults.rigs import UNBOUNDED, eventually, our_threads
from tests.streams.recording import Recorder

SEED = 4_242
ROUNDS = 150
TOPIC = b"ABCDEFGH"


class HostileGateway:
    """Answers and sends what a fuzzer makes up, until it is closed; then it is gone without a word."""

    def __init__(self, seed: int) -> None:
        self.fuzzer = Fuzzer(seed)
        self.welcomes = self.fuzzer.random() < 0.8
        """Whether it begins as a gateway should, so that the subscriber gets further."""
        self.sent = 0
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._control, self._data = self._context.socket(zmq.ROUTER), self._context.socket(zmq.XPUB)
        for socket in (self._control, self._data):
            socket.setsockopt(zmq.LINGER, 0)
        self.endpoint = f"tcp://127.0.0.1:{self._control.bind_to_random_port('tcp://127.0.0.1')}"
        self._port = self._data.bind_to_random_port("tcp://127.0.0.1")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"hostile-{seed}", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._context.destroy(linger=0)

    def _run(self) -> None:
        fuzzer, offset, plain = self.fuzzer, 0, False
        while not self._stopping.is_set():
            if self._control.poll(5):
                *envelope, body = self._control.recv_multipart()
                plain = b'"x"' not in body
                for answer in self._answers(plain):
                    self._control.send_multipart([*envelope, answer])
            while self._data.poll(0):
                self._data.recv()
            for _ in range(fuzzer.randrange(8)):
                self.sent += 1
                if plain:
                    self._data.send_multipart([fuzzer.randbytes(9)] * fuzzer.choice((1, 1, 1, 1, 3)))
                else:
                    parts, offset = fuzzer.frame(TOPIC, offset)
                    self._data.send_multipart(parts)

    def _answers(self, plain: bool) -> list[bytes]:
        fuzzer = self.fuzzer
        if self.welcomes:
            self.welcomes = False
            if plain:
                return [b'{"jsonClass":"OnSubscribe","size":10,"port":%d}' % self._port]
            return [
                fuzzer.text(fuzzer.welcome(self._port, TOPIC))
                if fuzzer.random() < 0.5
                else _welcome(self._port)
            ]
        return [fuzzer.answer(self._port, TOPIC) for _ in range(fuzzer.choice((0, 1, 1, 1, 2)))]


def _welcome(port: int) -> bytes:
    return (
        b'{"jsonClass":"OnSubscribe","size":9223372036854775807,"port":%d,'
        b'"x":{"v":1,"topic":"%s","epoch":"e","first":0,"next":0,"head":9,"fmt":"msgpack"}}'
        % (port, TOPIC.hex().encode())
    )


class Scripted(HostileGateway):
    """Welcomes everybody, always with the same words, and sends nothing."""

    def __init__(self, port: int) -> None:
        self._named = port
        super().__init__(0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._control.poll(5):
                *envelope, body = self._control.recv_multipart()
                if b'"cancel":true' not in body:
                    self._control.send_multipart([*envelope, _welcome(self._named)])


@pytest.mark.parametrize("port", [-1, 0, 65_536, 2**70])
def test_a_data_port_that_cannot_be_is_the_fault_of_the_gateway(port: int) -> None:
    gateway = Scripted(port)
    error = Recorder.of(AquiferPublisher(gateway.endpoint)).wait().error
    gateway.close()
    assert isinstance(error, ProtocolViolation)
    assert f"{port} as its data port" in str(error)


@pytest.mark.slow
def test_a_data_port_that_cannot_be_reached_is_an_error_after_the_patience_that_was_given() -> None:
    gateway = Scripted(1)
    error = Recorder.of(AquiferPublisher(gateway.endpoint, patience=1.0)).wait().error
    gateway.close()
    assert isinstance(error, GatewayUnreachable)
    assert "can its data port be reached from here?" in str(error)


def subscribe(gateway: HostileGateway, fuzzer: Fuzzer) -> Recorder:
    """A subscriber with settings drawn at random, who asks for a little or for everything."""
    settings: dict[str, Any] = {
        "dialect": fuzzer.choice(("auto", "auto", "extended", "plain")),
        "codec": fuzzer.choice(("bytes", "bytes", "bytes", "json", "msgpack", "arrow")),
        "keep": fuzzer.random() < 0.5,
    }
    if settings["codec"] != "arrow":
        settings["records"] = fuzzer.random() < 0.5
    if fuzzer.random() < 0.3:
        settings["on_gap"] = lambda missing, available: None
    if fuzzer.random() < 0.1:
        settings["on_gap"] = lambda missing, available: 1 / 0
    publisher = AquiferPublisher(gateway.endpoint, patience=0.5, timeout=0.2, **settings)
    return Recorder.of(publisher, fuzzer.choice((1, 3, 100, UNBOUNDED)))


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_whatever_a_gateway_says_its_subscriber_keeps_to_the_rules_and_comes_to_an_end() -> None:
    print(f"seed {SEED}")
    fuzzer = Fuzzer(SEED)
    pause = threading.Event()
    running: list[tuple[int, HostileGateway, Recorder]] = []
    waiting: list[tuple[int, Recorder]] = []
    outcomes: dict[str, int] = {}
    for seed in range(SEED, SEED + ROUNDS):
        gateway = HostileGateway(seed)
        running.append((seed, gateway, subscribe(gateway, fuzzer)))
        pause.wait(0.02)
        if len(running) >= 12:
            _end(*running.pop(0), waiting)
    for each in running:
        _end(*each, waiting)

    for seed, recorder in waiting:
        # It gives a silent gateway up after four seconds, then asks for as long as its patience lasts.
        assert recorder.finished.wait(60), f"seed {seed}: neither an error nor an end"
        recorder.check()
        outcome = "complete" if recorder.completed else type(recorder.error).__name__
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    print(outcomes)
    assert sum(outcomes.values()) == ROUNDS
    assert outcomes["ProtocolViolation"] > ROUNDS // 10
    assert outcomes["GatewayUnreachable"] > 0
    # Errors that say nothing to a user: something was not looked at before it was used.
    assert (
        set(outcomes) & {"AssertionError", "AttributeError", "KeyError", "TypeError", "OverflowError"}
        == set()
    )
    eventually(lambda: our_threads() == [], "a thread is left")


def _end(seed: int, gateway: HostileGateway, recorder: Recorder, waiting: list[tuple[int, Recorder]]) -> None:
    recorder.finished.wait(0.2)
    gateway.close()
    recorder.check()
    recorder.request(UNBOUNDED)  # Or what came before the end would wait to be asked for.
    waiting.append((seed, recorder))

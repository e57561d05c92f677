"""A gateway among peers that send whatever comes to their minds: it stays, and serves those who behave."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
from typing import Any

import pytest
import zmq

from penstock.aquifer import AquiferPublisher
from tests.aquifer.faults.fuzzing import Fuzzer
from tests.aquifer.faults.processes import GatewayProcess
from tests.aquifer.faults.rigs import Counting, Numbers, Peer, eventually, has, read

SEED = 7_311
MESSAGES = 100_000
SENDERS = 4
RECORDS = 400_000


class Attack:
    """The threads that send nonsense, and what went wrong in them."""

    def __init__(self, endpoint: str, data_port: int) -> None:
        self.endpoint = endpoint
        self.host, _, self.control_port = endpoint.rpartition("//")[2].partition(":")
        self.data_endpoint = f"tcp://{self.host}:{data_port}"
        self.sent = 0
        """Roughly: several threads count."""
        self.problems: list[BaseException] = []
        self.stop = threading.Event()
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        jobs = [(self.talk, SEED + number) for number in range(SENDERS)]
        jobs += [(self.disturb_the_data_port, SEED + 100), (self.speak_no_zeromq, SEED + 200)]
        self.threads = [
            threading.Thread(target=self._guarded, args=job, name=f"attack-{job[1]}") for job in jobs
        ]

    def _guarded(self, job, seed: int) -> None:  # type: ignore[no-untyped-def]
        try:
            job(Fuzzer(seed))
        except BaseException as error:
            self.problems.append(error)

    def talk(self, fuzzer: Fuzzer) -> None:
        """Control messages, on connections that come and go."""
        while not self.stop.is_set():
            control = self.context.socket(zmq.DEALER)
            control.setsockopt(zmq.LINGER, 1000)
            control.setsockopt(zmq.SNDTIMEO, 2000)
            control.connect(self.endpoint)
            listens = fuzzer.random() < 0.7
            for _ in range(2500):
                huge = fuzzer.random() < 0.001
                parts = [b"", b"x" * fuzzer.choice((60_000, 70_000, 2_000_000))] if huge else fuzzer.request()
                try:
                    control.send_multipart(parts)
                except zmq.Again:
                    break  # Perhaps it was turned away; the next connection.
                self.sent += 1
                if self.stop.is_set():
                    break
                while listens and control.poll(0):
                    control.recv_multipart()
            control.close()

    def disturb_the_data_port(self, fuzzer: Fuzzer) -> None:
        """Subscriptions to anything, and messages that nobody expects there."""
        while not self.stop.is_set():
            data = self.context.socket(zmq.XSUB)
            data.setsockopt(zmq.LINGER, 0)
            data.connect(self.data_endpoint)
            for _ in range(200):
                start = fuzzer.choice((b"\x01", b"\x01", b"\x00", b"", b"\x02"))
                size = fuzzer.choice((0, 1, 7, 8, 9, 100, 5000))
                shape = [start + fuzzer.randbytes(size)] * fuzzer.choice((1, 1, 1, 2, 5))
                if data.poll(100, zmq.POLLOUT):
                    data.send_multipart(shape)
                if self.stop.wait(0.001):
                    break
            data.close()

    def speak_no_zeromq(self, fuzzer: Fuzzer) -> None:
        """TCP connections with a broken greeting, or one half of it."""
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(48)
        while not self.stop.is_set():
            port = int(fuzzer.choice((self.control_port, self.data_endpoint.rpartition(":")[2])))
            with contextlib.suppress(OSError), socket.create_connection((self.host, port), 2) as line:
                line.sendall(
                    fuzzer.choice((b"GET / HTTP/1.1\r\n\r\n", greeting[:30], fuzzer.damaged(greeting)))
                )
                line.sendall(fuzzer.randbytes(fuzzer.randrange(500)))
            self.stop.wait(0.01)

    def __enter__(self) -> Attack:
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join(30)
        self.context.destroy(linger=0)


def status(probe: Peer) -> dict[str, Any]:
    """What the gateway says of itself."""
    answer = probe.ask({"jsonClass": "Subscribe", "x": {"v": 1, "probe": True}})
    return dict(answer["x"]["status"])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_gateway_among_peers_that_talk_nonsense_serves_those_who_behave() -> None:
    print(f"seed {SEED}")
    source = Numbers(RECORDS)
    expected = hashlib.sha256(b"".join(source.values())).hexdigest()
    # Short leases: what nonsense subscribes to is kept for it as for anybody.
    limits = "Limits(lease=2, max_lease=2, requests_per_second=10**9)"
    arguments = f"Numbers({RECORDS}), ANYWHERE, journal=MemoryJournal(max_records=50_000), limits={limits}"
    with GatewayProcess(arguments) as gateway, Peer(gateway.endpoint) as probe:
        extended, plain = Counting(demand=0), Counting()
        AquiferPublisher(gateway.endpoint, lease=2, window=1000, max_window=1000, patience=60).subscribe(
            extended
        )
        # The log is shorter than the stream: the plain reader has all of it only if the other one has read
        # nothing when it comes.
        eventually(lambda: status(probe)["subscribers"])
        AquiferPublisher(gateway.endpoint, dialect="plain", window=1000, patience=60).subscribe(plain)
        eventually(lambda: plain.count)
        extended.request()
        eventually(lambda: extended.count)
        port = probe.subscribe(keep=False)["port"]
        probe.ask({"jsonClass": "Subscribe", "cancel": True, "x": {"v": 1}})
        started = time.monotonic()
        with Attack(gateway.endpoint, port) as attack:
            eventually(lambda: attack.sent > MESSAGES // 2 or attack.problems, timeout=150)
            before = gateway.memory_mib()
            newcomer = read(gateway.endpoint, 1, keep=False, patience=60)
            eventually(has(newcomer, 1), "a newcomer was not served during the attack")
            newcomer.cancel()
            # Not all that was sent arrives: connections are closed in the middle, and those are not read that
            # do not read. So it goes on until enough has.
            eventually(lambda: attack.sent >= MESSAGES or attack.problems, timeout=150)
            eventually(
                lambda: status(probe)["counters"]["malformed"] > MESSAGES // 10 or attack.problems,
                timeout=150,
            )
        took = time.monotonic() - started
        assert attack.problems == []

        for reader in (extended, plain):
            assert reader.finished.wait(100), f"{reader.count} records"
            assert reader.error is None
            assert (reader.count, reader.hash) == (RECORDS, expected)
        final = status(probe)
        counters, after = final["counters"], gateway.memory_mib()
        print(f"{attack.sent} messages in {took:.1f} s; {before:.0f} and {after:.0f} MiB; {counters}")
        assert counters["malformed"] > MESSAGES // 10
        assert counters["oversized"] > 0
        assert counters.get("defects", 0) == 0
        assert (final["head"], final["end"]) == (RECORDS, RECORDS)
        assert after - before < 30


@pytest.mark.slow
def test_a_gateway_that_lets_others_write_stands_nonsense_as_well() -> None:
    messages = 30_000
    limits = "Limits(lease=2, max_lease=2, requests_per_second=10**9)"
    journal = "MemoryJournal(max_records=10_000)"
    arguments = f"None, ANYWHERE, writable=True, journal={journal}, limits={limits}"
    with GatewayProcess(arguments) as gateway, Peer(gateway.endpoint) as probe:
        reader = Counting()
        AquiferPublisher(gateway.endpoint, lease=2, patience=60).subscribe(reader)
        port = probe.subscribe(keep=False)["port"]
        probe.ask({"jsonClass": "Subscribe", "cancel": True, "x": {"v": 1}})
        with Attack(gateway.endpoint, port) as attack:
            eventually(lambda: attack.sent >= messages or attack.problems, timeout=100)
        assert attack.problems == []
        final = status(probe)
        print(final["counters"], final["head"], reader.count)
        assert final["counters"].get("defects", 0) == 0
        # What some of the nonsense wrote is there, and is read.
        eventually(lambda: reader.count >= final["head"] or reader.finished.is_set())
        assert reader.error is None
        reader.cancel()

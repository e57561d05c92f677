"""What the tests of gateways have in common: sources that count, peers that speak raw ØMQ, patience."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import zmq

from penstock.aquifer import AquiferPublisher, CurveClient, Gateway, LogReader
from penstock.aquifer.protocol.frames import Flag, Frame, parse
from penstock.aquifer.records.batch import Batch
from penstock.spec import Publisher, Subscriber, Subscription
from tests.free_ports import free_port
from tests.streams.recording import Recorder

ANYWHERE = "tcp://127.0.0.1:0"
"""Any free port: tests run beside one another."""
UNBOUNDED = 2**63 - 1
_LARGE_MESSAGES: list[zmq.Frame] = []
"""The first one of a process starts a thread with sockets that stays, and may come late in a slow test."""


def free_endpoint() -> str:
    """An endpoint where nobody listens, and nobody will but a test."""
    return f"tcp://127.0.0.1:{free_port()}"


def eventually(condition: Callable[[], Any], what: str = "", timeout: float = 60.0) -> None:
    """Wait until the condition holds; only a test that fails waits for so long."""
    deadline = time.monotonic() + timeout
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what or "it did not come about in time"
        pause.wait(0.005)


def stays(condition: Callable[[], Any], what: str = "", seconds: float = 0.4) -> None:
    """See that the condition holds for a while: what must not happen can be waited for only so."""
    deadline = time.monotonic() + seconds
    pause = threading.Event()
    while time.monotonic() < deadline:
        assert condition(), what or "it did not stay so"
        pause.wait(0.01)


class Numbers(Publisher[bytes]):
    """Gives 0, 1, 2, … as bytes, and writes down how many it was asked for and how many it gave."""

    def __init__(self, count: int | None = None, *, width: int = 0, error: Exception | None = None) -> None:
        self.count = count
        self.width = width
        self.error = error
        self.asked = self.given = 0
        self.cancelled = threading.Event()
        self.subscribed = 0

    def subscribe(self, subscriber: Subscriber[bytes], /) -> None:
        self.subscribed += 1
        subscriber.on_subscribe(_NumbersSubscription(self, subscriber))

    def value(self, number: int) -> bytes:
        return str(number).encode().rjust(self.width, b"0")

    def values(self, start: int = 0, stop: int | None = None) -> list[bytes]:
        """The elements from ``start`` up to ``stop``."""
        stop = self.count if stop is None else stop
        assert stop is not None
        return [self.value(number) for number in range(start, stop)]


class _NumbersSubscription:
    """Works inside ``request``, which the gateway calls from one thread."""

    def __init__(self, source: Numbers, subscriber: Subscriber[bytes]) -> None:
        self._source = source
        self._subscriber = subscriber
        self._ended = False

    def request(self, n: int, /) -> None:
        source = self._source
        source.asked += n
        for _ in range(n):
            if source.cancelled.is_set() or source.given == source.count:
                break
            number = source.given
            source.given += 1
            self._subscriber.on_next(source.value(number))
        if source.given == source.count and not self._ended and not source.cancelled.is_set():
            self._ended = True
            if source.error is None:
                self._subscriber.on_complete()
            else:
                self._subscriber.on_error(source.error)

    def cancel(self) -> None:
        self._source.cancelled.set()


class ByHand(Publisher[Any]):
    """Gives what the test says when the test says so, if it was asked for."""

    def __init__(self) -> None:
        self.asked = 0
        self.cancelled = threading.Event()
        self._subscriber: Subscriber[Any] | None = None

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        self._subscriber = subscriber
        subscriber.on_subscribe(self)

    def request(self, n: int, /) -> None:
        self.asked += n

    def cancel(self) -> None:
        self.cancelled.set()

    def give(self, *elements: Any) -> None:
        assert self._subscriber is not None
        for element in elements:
            eventually(lambda: self.asked > 0, "the gateway asks for nothing")
            self.asked -= 1
            self._subscriber.on_next(element)

    def complete(self) -> None:
        assert self._subscriber is not None
        self._subscriber.on_complete()


def read(endpoint: str, first: int = UNBOUNDED, **settings: Any) -> Recorder:
    """A recorder that reads from a gateway."""
    return Recorder.of(AquiferPublisher(endpoint, **settings), first)


def read_range(endpoint: str, *, patience: float = 30.0, **wanted: Any) -> Iterator[Batch]:
    """Read from ``start`` up to ``stop`` in this thread."""
    return LogReader(endpoint, patience=patience).read(**wanted)


def set_patience(subscription: Any, seconds: float) -> None:
    """Have a subscription give up a gateway that is lost for so long.

    One that was impatient from the beginning might not find its gateway on a busy machine.
    """
    side = subscription._side
    side.options = replace(side.options, patience=seconds)


def has(recorder: Recorder, count: int) -> Callable[[], bool]:
    """Whether so many elements have come."""
    return lambda: len(recorder.items) >= count


@contextmanager
def reading(endpoint: str, first: int = UNBOUNDED, **settings: Any) -> Iterator[Recorder]:
    """A recorder that reads from a gateway, and leaves at the end."""
    recorder = read(endpoint, first, **settings)
    try:
        yield recorder
    finally:
        recorder.cancel()
        recorder.check()


class Counting:
    """A Subscriber that counts what arrives and keeps a hash of it: for streams that are long."""

    def __init__(self, *, demand: int = UNBOUNDED) -> None:
        self.demand = demand
        """What it requests at once."""
        self.count = 0
        self.error: BaseException | None = None
        self.finished = threading.Event()
        self._hash = hashlib.sha256()
        self._subscription: Subscription | None = None

    @property
    def hash(self) -> str:
        return self._hash.hexdigest()

    def cancel(self) -> None:
        assert self._subscription is not None
        self._subscription.cancel()

    def request(self, n: int = UNBOUNDED) -> None:
        assert self._subscription is not None
        self._subscription.request(n)

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscription = subscription
        if self.demand:
            subscription.request(self.demand)

    def on_next(self, element: bytes, /) -> None:
        self.count += 1
        self._hash.update(element)

    def on_error(self, error: BaseException, /) -> None:
        self.error = error
        self.finished.set()

    def on_complete(self) -> None:
        self.finished.set()


class Peer:
    """A subscriber made of raw sockets, which says what a test wants said."""

    def __init__(self, endpoint: str, curve: CurveClient | None = None) -> None:
        self.endpoint = endpoint
        self._curve = curve
        self.host = endpoint.rpartition(":")[0]
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.control = self._socket(zmq.DEALER)
        self.control.connect(endpoint)
        self.data: zmq.Socket[bytes] | None = None
        self.terms: dict[str, Any] = {}
        self.port = 0

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self.context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        if self._curve is not None:
            self._curve.secure(socket)
        return socket

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.destroy(linger=0)

    def say(self, message: dict[str, Any] | bytes) -> None:
        body = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.control.send_multipart([b"", body])

    def hear(self, timeout: float = 60.0) -> dict[str, Any] | None:
        """The next answer, or None if there is none in time."""
        if not self.control.poll(int(timeout * 1000)):
            return None
        answer: dict[str, Any] = json.loads(self.control.recv_multipart()[-1])
        return answer

    def ask(self, message: dict[str, Any] | bytes, timeout: float = 60.0) -> dict[str, Any]:
        self.say(message)
        answer = self.hear(timeout)
        assert answer is not None, f"no answer to {message!r}"
        return answer

    def subscribe(self, **terms: Any) -> dict[str, Any]:
        """Subscribe in the extended dialect; the answer."""
        answer = self.ask({"jsonClass": "Subscribe", "cancel": False, "x": {"v": 1, **terms}})
        if answer["jsonClass"] == "OnSubscribe":
            self.terms, self.port = answer["x"], answer["port"]
        return answer

    def subscribe_plainly(self) -> dict[str, Any]:
        answer = self.ask({"jsonClass": "Subscribe", "cancel": False})
        self.port = answer.get("port", 0)
        return answer

    def join(self, topic: bytes | None = None, hwm: int = 0, tiny: bool = False) -> zmq.Socket[bytes]:
        """Open the data connection; with ``tiny`` as little as possible is buffered on this side."""
        self.data = self._socket(zmq.SUB)
        self.data.setsockopt(zmq.RCVHWM, hwm)
        if tiny:
            self.data.setsockopt(zmq.RCVBUF, 4096)
        self.data.setsockopt(zmq.SUBSCRIBE, bytes.fromhex(self.terms["topic"]) if topic is None else topic)
        self.data.connect(f"{self.host}:{self.port}")
        return self.data

    def grant(self, **terms: Any) -> None:
        self.say({"jsonClass": "Next", "count": 1, "x": terms})

    def frame(self, timeout: float = 60.0) -> Frame:
        """The next frame that is no sign of life."""
        assert self.data is not None
        while True:
            assert self.data.poll(int(timeout * 1000)), "no frame"
            frame = parse(self.data.recv_multipart())
            if not frame.flags & Flag.HB:
                return frame


def session_of(gateway: Gateway, **wanted: Any) -> dict[str, Any]:
    """The status of the one session that fits, as soon as there is one."""
    found: list[dict[str, Any]] = []

    def look() -> bool:
        found[:] = [
            session
            for session in gateway.status()["subscribers"]
            if all(session[key] == value for key, value in wanted.items())
        ]
        return len(found) == 1

    eventually(look, f"no session, or several, with {wanted}: {found}")
    return found[0]


def counted(gateway: Gateway, what: str) -> int:
    """How often something came in that should not have."""
    count: int = gateway.status()["counters"].get(what, 0)
    return count


def file_descriptors() -> int:
    """How many this process has open, with those that ØMQ's bindings open once for large messages."""
    if not _LARGE_MESSAGES:
        _LARGE_MESSAGES.append(zmq.Frame(bytes(zmq.COPY_THRESHOLD + 1), copy=False))
    return len(os.listdir("/proc/self/fd"))


def nameless_descriptors(folder: str | os.PathLike[str], pid: int | None = None) -> dict[str, os.stat_result]:
    """What a process has open of the files of this folder that have no name any more, by descriptor."""
    descriptors, found = f"/proc/{pid or os.getpid()}/fd", {}
    for number in os.listdir(descriptors):
        with suppress(FileNotFoundError):  # That of the listing itself, for instance.
            path = os.readlink(f"{descriptors}/{number}")
            if path.startswith(f"{os.fspath(folder)}/") and path.endswith(" (deleted)"):
                found[number] = os.stat(f"{descriptors}/{number}")
    return found


def nameless_files(folder: str | os.PathLike[str], pid: int | None = None) -> dict[int, os.stat_result]:
    """The files of this folder, by inode, that a process has open and that have no name any more."""
    return {status.st_ino: status for status in nameless_descriptors(folder, pid).values()}


def our_threads() -> list[str]:
    """The threads of gateways and subscriptions that are alive; those that a process has for good are not."""
    for_good = {"penstock-loop", "penstock-net", "penstock-timer"}
    names = {thread.name for thread in threading.enumerate() if thread.name.startswith("penstock")}
    return sorted(names - for_good)


def resident_kib(pid: int | None = None, kind: str = "VmRSS") -> int:
    """How much memory a process has in use; ``RssAnon`` is what it has without the pages of files."""
    with open(f"/proc/{pid or os.getpid()}/status") as status:
        line = next(line for line in status if line.startswith(kind))
    return int(line.split()[1])

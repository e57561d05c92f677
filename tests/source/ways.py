"""The way of a record and the way of demand, traced in a real run over loopback.

A plain socket sends lines. ``penstock.net`` receives them, a gateway stores and serves them, a subscriber
with a demand of its own takes them. While that runs, every Python call is looked at:

- **The data's way** is every call in which one module of ours hands a record to another one: as an argument,
  or as what it returns. A record is known by a mark in its bytes, whatever it is wrapped in.
- **Demand's way** is traced when everything stands still: the subscriber asks for nothing, the log is full,
  the socket is not read. Then the subscriber asks for some records. The calls that follow, without those that
  hand a record over and without those that also happen while everything stands still, are demand's way.

Run as ``python ways.py SRC``: it traces the package in that folder and prints JSON. It imports nothing of
ours but the public names, so that it can trace an older tree as well.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import cache
from types import FrameType
from typing import Any

MARK = b"#a-marked-record#"
RECORDS = 300
QUIET = 1.0
"""Seconds without a call that has not been seen before: then everything stands still."""
PATIENCE = 60.0

MEASURING = frozenset(
    {"penstock.aquifer.hop_clock", "penstock.aquifer.log.growth", "penstock.streams.stage_meter"}
)
"""Modules that look on: neither records nor demand pass them."""

Call = tuple[str, str, str, str]
"""Module and function of the caller, module and function of the callee."""


class Recorder:
    """Takes down the calls between modules of ours, by phase, in the order of their first time."""

    def __init__(self) -> None:
        self.phase = ""
        self.calls: dict[str, dict[Call, None]] = {}
        self.handed: dict[str, dict[Call, None]] = {}
        """Calls with a record in them: first who has it, then who gets it."""
        self.changed = time.monotonic()

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        phase = self.phase
        if not phase or event not in ("call", "return"):
            return
        callee = _module(frame)
        if not callee:
            return
        caller = frame.f_back
        while caller is not None and not (giver := _module(caller)):
            caller = caller.f_back
        if caller is None or giver == callee:
            return
        call = (giver, caller.f_code.co_name, callee, frame.f_code.co_name)
        if event == "call":
            self._add(self.calls, phase, call)
            if any(_marked(value) for value in _arguments(frame)):
                self._add(self.handed, phase, call)
        elif _marked(argument):
            self._add(self.handed, phase, (*call[2:], *call[:2]))

    def _add(self, to: dict[str, dict[Call, None]], phase: str, call: Call) -> None:
        seen = to.setdefault(phase, {})
        if call not in seen:
            seen[call] = None
            self.changed = time.monotonic()

    def begin(self, phase: str) -> None:
        """Go on in another phase."""
        self.phase, self.changed = phase, time.monotonic()

    def until_quiet(self, until: Callable[[], bool], meanwhile: Callable[[], object] = bool) -> None:
        """Return when ``until`` holds and no call that is new has been made for a while."""
        deadline = time.monotonic() + PATIENCE
        while not until() or time.monotonic() - self.changed < QUIET:
            if time.monotonic() > deadline:
                raise TimeoutError(f"phase {self.phase} did not come to its end")
            meanwhile()
            time.sleep(0.02)


def _module(frame: FrameType) -> str:
    """The module of ours that a frame belongs to; a compiled loop belongs to the compiler's package."""
    if frame.f_code.co_filename.startswith("<penstock "):
        return _compiler().rpartition(".")[0] + ".<compiled loop>"
    name = frame.f_globals.get("__name__", "")
    if not isinstance(name, str) or name in MEASURING:
        return ""
    return name if name.startswith("penstock.") else ""


@cache
def _compiler() -> str:
    """The module that compiles the loops, whatever it is called."""
    return next(
        name
        for name, module in list(sys.modules.items())
        if getattr(getattr(module, "compile_loop", None), "__module__", "") == name
    )


def _arguments(frame: FrameType) -> list[object]:
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS)
    names = [name for name in code.co_varnames[:count] if name not in ("self", "cls")]
    local = frame.f_locals
    return [local[name] for name in names if name in local]


def _marked(value: object, depth: int = 3) -> bool:
    """Whether a record is in this value: bytes, or something made of bytes."""
    if isinstance(value, bytes | bytearray):
        return MARK in value
    if isinstance(value, memoryview):
        return MARK in bytes(value)
    if depth == 0:
        return False
    if isinstance(value, list | tuple):
        return any(_marked(each, depth - 1) for each in value[:50])
    fields = getattr(type(value), "__struct_fields__", None) or getattr(
        type(value), "__dataclass_fields__", None
    )
    if fields is not None:
        return any(_marked(getattr(value, name, None), depth - 1) for name in fields)
    if type(value).__name__ == "Frame" and type(value).__module__.startswith("zmq"):
        return MARK in bytes(value)  # type: ignore[call-overload]
    return False


class Reader:
    """A subscriber that asks when it is told to."""

    def __init__(self) -> None:
        self.received = 0
        self.subscription: Any = None
        self.ended: object = None
        self.subscribed = threading.Event()

    def on_subscribe(self, subscription: Any) -> None:
        self.subscription = subscription
        self.subscribed.set()

    def on_next(self, element: Any) -> None:
        self.received += 1

    def on_error(self, error: BaseException) -> None:
        self.ended = error

    def on_complete(self) -> None:
        self.ended = "complete"


class LineSource:
    """Sends lines for as long as the other end takes any."""

    def __init__(self, sender: socket.socket, line: bytes) -> None:
        sender.setblocking(False)
        self._sender = sender
        self._line = line
        self._left = b""
        self._taken_at = time.monotonic()

    @property
    def is_stuck(self) -> bool:
        """Whether nothing has been taken for a while."""
        return time.monotonic() - self._taken_at > QUIET

    def send(self) -> None:
        """Send what is taken at once."""
        try:
            while True:
                self._left = self._left or self._line * 10
                self._left = self._left[self._sender.send(self._left) :]
                self._taken_at = time.monotonic()
        except BlockingIOError:
            return


def trace() -> Recorder:
    """Run the pipeline and return what was seen."""
    from penstock.aquifer import AquiferPublisher, Gateway, MemoryJournal
    from penstock.net import TcpClient
    from penstock.net.framing import lines

    recorder = Recorder()
    threading.setprofile(recorder)
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
    loop = asyncio.new_event_loop()
    runner = threading.Thread(target=loop.run_forever, daemon=True)
    runner.start()

    async def connect() -> Any:
        return await TcpClient.create().port(listener.getsockname()[1]).connect()

    connection = asyncio.run_coroutine_threadsafe(connect(), loop).result(PATIENCE)
    sender, _ = listener.accept()
    feed = connection.inbound.receive().transform(lines())
    log = MemoryJournal(max_records=64)
    with Gateway(feed, "tcp://127.0.0.1:0", codec="bytes", journal=log, prefetch=32) as gateway:
        reader = Reader()
        AquiferPublisher(gateway.endpoint, window=16).subscribe(reader)
        assert reader.subscribed.wait(PATIENCE)
        line = MARK + b"." * 1000 + b"\n"

        recorder.begin("data")
        reader.subscription.request(RECORDS)
        for _ in range(RECORDS // 10):
            sender.sendall(line * 10)
        recorder.until_quiet(lambda: reader.received == RECORDS)

        recorder.begin("filling")
        source = LineSource(sender, line)
        recorder.until_quiet(lambda: source.is_stuck, source.send)
        recorder.begin("idle")
        time.sleep(2 * QUIET)

        recorder.begin("demand")
        sys.setprofile(recorder)
        reader.subscription.request(RECORDS)
        sys.setprofile(None)
        recorder.until_quiet(lambda: reader.received == 2 * RECORDS, source.send)
        recorder.phase = ""
        reader.subscription.cancel()
        assert reader.ended is None, reader.ended
    sender.close()
    listener.close()
    loop.call_soon_threadsafe(loop.stop)
    runner.join(PATIENCE)
    return recorder


def ways(recorder: Recorder) -> dict[str, list[Call]]:
    """The two ways, as calls between functions of different modules, in the order of their first time."""
    handed = {pair for phase in recorder.handed.values() for pair in phase}
    others = handed | {(*pair[2:], *pair[:2]) for pair in handed} | set(recorder.calls.get("idle", ()))
    return {
        "data": list(recorder.handed["data"]),
        "demand": [call for call in recorder.calls["demand"] if call not in others],
    }


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    print(json.dumps(ways(trace())))

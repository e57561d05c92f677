"""The application that the tests run under real servers. What it did is told at /state."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import resource
import threading
from collections.abc import Iterator
from typing import Any

from penstock.net.framing import lines
from penstock.net.http import Event, Http, Request, ndjson, sse, stream
from penstock.streams import Flux, Mono, schedulers

CHUNK = os.urandom(4096)
"""Nothing that a server could compress."""

state: dict[str, Any] = {}
gates: dict[str, asyncio.Event] = {}


def endless(name: str) -> Iterator[bytes]:
    """Never waits and never ends: only demand and a cancel can stop it."""
    state[name] = {"produced": 0, "closed": False}
    try:
        while True:
            state[name]["produced"] += len(CHUNK)
            yield CHUNK
    finally:
        state[name]["closed"] = True


def watched(name: str) -> Flux[bytes]:
    return Flux.from_iterable(endless(name))


def silent(name: str) -> Flux[bytes]:
    """One element, and then nothing for ever."""
    state[name] = {"closed": False}

    def cancelled() -> None:
        state[name]["closed"] = True

    return Flux.concat(Flux.just(b"first\n"), Flux.never()).do_on_cancel(cancelled)


def fails_after(count: int) -> Flux[str]:
    def numbers() -> Iterator[str]:
        yield from (f"{number}\n" for number in range(count))
        raise RuntimeError("the source broke")

    return Flux.from_iterable(numbers())


def gate(name: str) -> asyncio.Event:
    return gates.setdefault(name, asyncio.Event())


def open_gate(request: Request) -> str:
    gate(request.path["name"]).set()
    return "open"


def held_upload(request: Request) -> Mono[int]:
    """Takes the first chunk and no other until the gate opens; answers with how many bytes came in all."""
    name = request.path["name"]
    seen = state[name] = {"taken": 0, "error": None}

    async def take(chunk: bytes) -> int:
        seen["taken"] += len(chunk)
        await gate(name).wait()
        return len(chunk)

    def failed(error: BaseException) -> None:
        seen["error"] = type(error).__name__

    return request.body().map_async(take, concurrency=1).do_on_error(failed).reduce(int.__add__)


async def looped_upload(request: Request) -> Any:
    """Takes the first chunk in a plain loop, and no other until the gate opens."""
    name = request.path["name"]
    seen = state[name] = {"taken": 0}
    async for chunk in request.body():
        seen["taken"] += len(chunk)
        await gate(name).wait()
    return str(seen["taken"])


async def read_parts(request: Request) -> str:
    """Reads every part; tells what they were, and by how many KiB the process has grown at most."""
    seen = state[request.path["name"]] = {"parts": [], "grown": 0}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async for part in request.parts():
        size, digest = 0, hashlib.sha256()
        async for chunk in part.body():
            size += len(chunk)
            digest.update(chunk)
        seen["parts"].append([part.name, part.filename, size, digest.hexdigest()])
    seen["grown"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return "read"


async def read_beginnings(request: Request) -> str:
    """Reads the first chunk of each part, and leaves the rest."""
    names = []
    async for part in request.parts():
        async for _ in part.body():
            names.append(part.name)
            break
    return " ".join(names)


def upper(request: Request) -> Any:
    """An upload and a response at once, over a thread of a pool."""
    shouted = request.body().transform(lines()).map(lambda line: line.upper() + b"\n")
    return stream(shouted.publish_on(schedulers.shared_pool()))


def on_a_pool(request: Request) -> Any:
    names = Flux.range(3).map(
        lambda n: {"n": n, "pool": threading.current_thread() is not threading.main_thread()}
    )
    return ndjson(names.subscribe_on(schedulers.shared_pool()))


def chatter(inbound: Any, outbound: Any) -> Any:
    """Sends for ever, and does not listen."""
    return outbound.send(watched(inbound.scope["path"].rpartition("/")[2]))


async def deaf_until_opened(inbound: Any, outbound: Any) -> None:
    """Takes one message, waits for the gate, and then counts all of them."""
    name = inbound.scope["path"].rpartition("/")[2]
    seen = state[name] = {"messages": 0, "bytes": 0, "over": False}
    async for message in inbound.receive().to_async_iterable(prefetch=1):
        seen["messages"] += 1
        seen["bytes"] += len(message)
        await gate(name).wait()
        if message == b"end":
            break
    seen["over"] = True
    await outbound.send(f"{seen['messages']} messages")


async def looped(inbound: Any, outbound: Any) -> None:
    """Takes the first message in a plain loop, and no other until the gate opens."""
    name = inbound.scope["path"].rpartition("/")[2]
    seen = state[name] = {"messages": 0}
    async for _ in inbound.receive():
        seen["messages"] += 1
        await gate(name).wait()


def broken_handler(inbound: Any, outbound: Any) -> Any:
    return outbound.send("one").then(Mono.error(RuntimeError("the handler broke")))


events = [
    Event("one", id="1"),
    Event("two\nlines", event="note", id="2"),
    {"three": 3},
    Event("last", retry=250),
]

packed = (
    Http()
    .compress(minimum=100)
    .decompress()
    .body_limit(1_000_000)
    .get("/packed/numbers/{count}", lambda request: ndjson(Flux.range(int(request.path["count"]))))
    .get("/packed/text", lambda request: "the same again and again\n" * 1000)
    .get("/packed/silent/{name}", lambda request: ndjson(silent(request.path["name"]).map(bytes.decode)))
    .get("/packed/fails/{count}", lambda request: ndjson(fails_after(int(request.path["count"]))))
    .post("/packed/size", lambda request: ndjson(request.body().map(len).reduce(int.__add__, 0)))
)


class Mounted:
    """Two applications as one, by the beginning of the path."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        chosen = packed if scope.get("path", "").startswith("/packed/") else plain
        await chosen(scope, receive, send)


FOLDER = os.environ.get("SERVED_FOLDER")
if FOLDER is not None:
    accesses = logging.getLogger("penstock.net.http.access")
    accesses.setLevel(logging.INFO)
    accesses.addHandler(logging.FileHandler(os.path.join(FOLDER, "access.log")))
    accesses.propagate = False

plain = (
    Http()
    .access_log("json")
    .get("/state/{name}", lambda request: ndjson(Mono.just(state.get(request.path["name"], {}))))
    .post("/gate/{name}", open_gate)
    .get("/numbers/{count}", lambda request: ndjson(Flux.range(int(request.path["count"]))))
    .get("/endless/{name}", lambda request: stream(watched(request.path["name"])))
    .get("/silent/{name}", lambda request: stream(silent(request.path["name"])))
    .get("/fails/{count}", lambda request: stream(fails_after(int(request.path["count"]))))
    .get("/events", lambda request: sse(Flux.from_iterable(events)))
    .get("/heartbeats", lambda request: sse(Flux.never(), headers_within=0.01, heartbeat=0.05))
    .get("/pool", on_a_pool)
    .post("/upload/{name}", held_upload)
    .post("/looped/{name}", looped_upload)
    .post("/parts/{name}", read_parts)
    .post("/beginnings", read_beginnings)
    .post("/form", lambda request: ndjson(request.form().map(lambda form: form.pairs)))
    .directory("/files", FOLDER or ".", index="index.html")
    .post("/upper", upper)
    .ws("/echo", lambda inbound, outbound: outbound.send(inbound.receive()))
    .ws("/chatter/{name}", chatter)
    .ws("/deaf/{name}", deaf_until_opened)
    .ws("/looped/{name}", looped)
    .ws("/broken", broken_handler)
    .ws("/close", lambda inbound, outbound: outbound.send("bye").close(4001, "enough"))
)

app = Mounted()

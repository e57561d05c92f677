"""Gateway, server and sender are killed in turn: nothing acknowledged is lost.

With a key or a position each record is there once. ``PENSTOCK_FEED_RECORDS=200000`` makes it the long run.
The seed is printed, and ``PENSTOCK_FEED_SEED`` repeats it.
"""

import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.feeds.chaos import HEAD, LONG, RECORDS, Chaos, asked_of, number_in, script
from tests.feeds.nginx import nginx_command
from tests.free_ports import free_port
from tests.required_tools import require_tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(LONG + 60)]

NOTING = """
import os
def note(number):
    with open(state + ".new", "w") as file:
        file.write(str(number))
    os.replace(state + ".new", state)
def noted():
    return int(open(state).read()) if os.path.exists(state) else 0
"""
"""Remembers over a kill how far a program has come."""

POSTING = (
    """
import http.client, sys, time
port, total, batch, state = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
"""
    + NOTING
    + """
done = noted()
connection = None
while done < total:
    body = "".join(f"{n}\\n" for n in range(done, min(done + batch, total)))
    try:
        connection = connection or http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        headers = {"content-type": "text/plain", "idempotency-key": f"from {done}"}
        connection.request("POST", "/in", body, headers)
        answer = connection.getresponse()
        answer.read()
        safe = answer.status == 200
    except (OSError, http.client.HTTPException):
        connection, safe = None, False
    if safe:
        done = min(done + batch, total)
        note(done)
    else:
        time.sleep(0.05)
"""
)

EVENTS = """
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
port, total = int(sys.argv[1]), int(sys.argv[2])
class Events(BaseHTTPRequestHandler):
    def do_GET(self):
        first = int(self.headers.get("Last-Event-ID", "-1")) + 1
        self.send_response(200 if first < total else 204)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        try:
            for start in range(first, total, 50):
                numbers = range(start, min(start + 50, total))
                self.wfile.write(b"".join(b"retry: 50\\nid: %d\\ndata: %d\\n\\n" % (n, n) for n in numbers))
        except OSError:
            pass
    def log_message(self, *arguments):
        pass
ThreadingHTTPServer.allow_reuse_address = True
ThreadingHTTPServer(("127.0.0.1", port), Events).serve_forever()
"""

AHEAD = 500
"""So many messages a sender over a WebSocket may be ahead of what was acknowledged."""

SENDING = (
    """
import asyncio, sys, websockets
port, total, state = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
"""
    + NOTING
    + """
ahead = int(sys.argv[4])
safe = noted()
async def listen(socket, first, moved):
    global safe
    try:
        async for message in socket:
            safe = max(safe, first + int(message))  # An older connection may still be read.
            note(safe)
            moved.set()
            if safe >= total:
                return
    finally:
        moved.set()
async def send(socket):
    first, moved = safe, asyncio.Event()
    with open(state + ".connections", "ab") as file:
        file.write(b".")
    listening = asyncio.ensure_future(listen(socket, first, moved))
    try:
        for n in range(first, total):
            while n - safe >= ahead and not listening.done():
                moved.clear()
                await moved.wait()
            await socket.send(str(n))
        await listening
    finally:
        listening.cancel()
"""
)
"""Sends over a WebSocket, and again what was not acknowledged: so many messages at most."""

CLIENT = (
    SENDING
    + """
async def main():
    while safe < total:
        try:
            async with websockets.connect(f"ws://127.0.0.1:{port}/in") as socket:
                await send(socket)
        except (OSError, websockets.WebSocketException):
            await asyncio.sleep(0.05)
asyncio.run(main())
"""
)

SERVER = (
    SENDING
    + """
async def main():
    async with websockets.serve(send, "127.0.0.1", port):
        while safe < total:
            await asyncio.sleep(0.05)
asyncio.run(main())
"""
)

WRITING = (
    """
import sys
path, total, state = sys.argv[1], int(sys.argv[2]), sys.argv[3]
"""
    + NOTING
    + """
with open(path, "ab", 0) as file:
    if noted():
        # What the killed one has begun is finished first; a real program begins with a new line, too.
        size = file.seek(0, 2)
        done = open(path, "rb").read()
        whole = done.rfind(b"\\n") + 1
        first = done.count(b"\\n")
        if whole != size:
            file.write((b"%d\\n" % first)[size - whole:])
            first += 1
    else:
        first = 0
    for n in range(first, total):
        file.write(b"%d\\n" % n)
        if n % 50 == 0:
            note(n + 1)
note(total)
"""
)


def node(url: str, state: Path) -> list[str]:
    """The command for a sender in Node, by POST or over a WebSocket."""
    program = require_tool("node", part="senders in Node", install="apt-get install nodejs")
    sender = Path(__file__).with_name("killed_sender.mjs")
    return [program, "--experimental-websocket", str(sender), url, str(RECORDS), str(state)]


def uvicorn(port: int, state: Path) -> list[str]:
    """The command for a server of events and messages in uvicorn."""
    return [sys.executable, "-m", "tests.feeds.number_server", str(port), str(RECORDS), str(state)]


def over_the_web(name: str) -> Any:
    """One of the variants with other servers and clients; each of them shows the same in its own way."""
    return pytest.param(name, marks=pytest.mark.rare(8, kind="killed over the web"))


@pytest.mark.parametrize("sender", ["http.client", over_the_web("Node through nginx")])
def test_a_webhook_with_keys_has_every_record_once(tmp_path: Path, sender: str) -> None:
    port, proxy, state = free_port(), free_port(), tmp_path / "state"
    programs = {"sender": script(POSTING, port, RECORDS, 10, state)}
    if sender != "http.client":
        programs = {
            "nginx": nginx_command(tmp_path / "nginx", proxy, port),
            "sender": node(f"http://127.0.0.1:{proxy}/in", state),
        }
    with Chaos.of(tmp_path / "log.db", f"webhook+http://127.0.0.1:{port}/in", programs) as chaos:
        chaos.run(lambda: number_in(state), RECORDS)
    assert chaos.stored() == list(range(RECORDS)), f"seed {chaos.seed}"


@pytest.mark.parametrize(
    "peer", ["client", "server", over_the_web("client in Node"), over_the_web("server in uvicorn")]
)
def test_a_websocket_that_repeats_what_was_not_acknowledged_loses_nothing(tmp_path: Path, peer: str) -> None:
    port, state = free_port(), tmp_path / "state"
    commands = {
        "client": lambda: script(CLIENT, port, RECORDS, state, AHEAD),
        "server": lambda: script(SERVER, port, RECORDS, state, AHEAD),
        "client in Node": lambda: node(f"ws://127.0.0.1:{port}/in", state),
        "server in uvicorn": lambda: uvicorn(port, state),
    }
    place = f"127.0.0.1:{port}/in"
    source = f"ws-listen://{place}?ack={{count}}" if "client" in peer else f"ws://{place}#ack={{count}}"
    with Chaos.of(tmp_path / "log.db", source, {peer: commands[peer]()}) as chaos:
        chaos.run(lambda: number_in(state), RECORDS)
    stored = chaos.stored()
    # At least once: what was on the way when somebody was killed may be there twice.
    assert sorted(set(stored)) == list(range(RECORDS)), f"seed {chaos.seed}"
    if peer in ("client", "server"):
        # These two bound what is on the way.
        connections = state.with_name("state.connections").stat().st_size
        assert len(stored) - RECORDS <= connections * AHEAD, f"seed {chaos.seed}"


@pytest.mark.parametrize("server", ["http.server", over_the_web("uvicorn behind nginx")])
def test_events_with_ids_are_stored_once(tmp_path: Path, server: str) -> None:
    port, proxy, journal = free_port(), free_port(), tmp_path / "log.db"
    programs = {"server": script(EVENTS, proxy, RECORDS)}
    if server != "http.server":
        programs = {
            "server": uvicorn(port, tmp_path / "state"),
            "nginx": nginx_command(tmp_path / "nginx", proxy, port),
        }
    last = "select value + 1 from marks where name = 'feed:last-event-id'"
    with Chaos.of(journal, f"sse+http://127.0.0.1:{proxy}/events", programs) as chaos:
        chaos.run(asked_of(journal, last), RECORDS)
    assert chaos.stored() == list(range(RECORDS)), f"seed {chaos.seed}"


@pytest.mark.rare(8)
def test_lines_that_are_acknowledged_are_stored_once(tmp_path: Path) -> None:
    port, journal, path = free_port(), tmp_path / "log.db", tmp_path / "lines"
    path.write_bytes(b"".join(b"%0500d\n" % number for number in range(RECORDS)))
    sending = ("send", str(path), f"tcp://127.0.0.1:{port}", "--acknowledged", "--patience", "60s", "--quiet")
    program = [sys.executable, "-m", "penstock", *sending]
    with Chaos.of(journal, f"tcp-listen://127.0.0.1:{port}?acknowledge", {"sender": program}) as chaos:
        chaos.run(asked_of(journal, HEAD), RECORDS)
    assert chaos.stored() == list(range(RECORDS)), f"seed {chaos.seed}"


@pytest.mark.rare(8)
@pytest.mark.parametrize("kind", ["file", "dir"])
def test_lines_of_a_file_whose_writer_is_killed_are_stored_once(tmp_path: Path, kind: str) -> None:
    journal, path, state = tmp_path / "log.db", tmp_path / "in" / "lines", tmp_path / "state"
    path.parent.mkdir()
    path.touch()
    source = f"file:{path}" if kind == "file" else f"dir:{path.parent}"
    with Chaos.of(journal, source, {"writer": script(WRITING, path, RECORDS, state)}, "--follow") as chaos:
        chaos.run(asked_of(journal, HEAD), RECORDS)
    assert chaos.stored() == list(range(RECORDS)), f"seed {chaos.seed}"


@pytest.mark.rare(8)
@pytest.mark.parametrize("kind", ["tcp", "tcp-listen", "unix", "http", "exec", "stdin", "udp"])
def test_of_lines_without_acknowledgements_what_arrives_is_whole_in_order_and_never_twice(
    tmp_path: Path, kind: str
) -> None:
    journal, counter, port = tmp_path / "log.db", tmp_path / "counter", free_port()
    address = str(tmp_path / "socket") if kind == "unix" else str(port)
    program = [sys.executable, "-m", "tests.feeds.number_sender", kind, str(counter), address]
    source, beside, arguments = _reading(kind, address, program)
    with Chaos.of(journal, source, {"sender": beside}, *arguments, piped=kind == "stdin") as chaos:
        chaos.run(asked_of(journal, HEAD), RECORDS)
    texts = chaos.texts()
    numbers = [int(text.removeprefix(b"line ").removesuffix(b".")) for text in texts]
    assert texts == [b"line %d." % number for number in numbers], "whole lines"
    assert numbers == sorted(set(numbers)), f"seed {chaos.seed}"
    lost = numbers[-1] + 1 - len(numbers)
    print(f"{kind}: {lost} of {numbers[-1] + 1} lines were on the way when somebody was killed")


def _reading(kind: str, address: str, program: list[str]) -> tuple[str, list[str], list[str]]:
    """The source, the program beside the gateway, and more arguments for the gateway."""
    match kind:
        case "exec":
            return f"exec:{shlex.join(program)}", ["sleep", "infinity"], ["--restart", "always"]
        case "stdin":
            return "stdin", program, []
        case "unix":
            return f"unix:{address}", program, []
        case "http":
            return f"http://127.0.0.1:{address}/lines", program, ["--restart", "on-failure"]
    return f"{kind}://127.0.0.1:{address}", program, []

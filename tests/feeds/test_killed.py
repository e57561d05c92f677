"""Gateway, server and sender are killed in turn: nothing acknowledged is lost.

With a key or a position each record is there once. ``PENSTOCK_FEED_RECORDS=200000`` makes it the long run.
The seed is printed, and ``PENSTOCK_FEED_SEED`` repeats it.
"""

import os
import random
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from penstock.aquifer import AquiferPublisher, SqliteJournal
from tests.cli.running import PATIENCE, Gateway

RECORDS = int(os.environ.get("PENSTOCK_FEED_RECORDS", "3000"))
KILLS = 6 if RECORDS < 10_000 else 20
LONG = max(PATIENCE, RECORDS / 50)

POSTING = """
import http.client, os, sys, time
port, total, batch, state = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
done = int(open(state).read() or 0)
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
        with open(state + ".new", "w") as file:
            file.write(str(done))
        os.replace(state + ".new", state)
    else:
        time.sleep(0.05)
"""

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

SOCKET = """
import asyncio, os, sys, websockets
port, total, state = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
safe = int(open(state).read() or 0)
async def listen(socket, first):
    global safe
    async for message in socket:
        safe = first + int(message)
        with open(state + ".new", "w") as file:
            file.write(str(safe))
        os.replace(state + ".new", state)
        if safe >= total:
            return
async def main():
    while safe < total:
        try:
            async with websockets.connect(f"ws://127.0.0.1:{port}/in") as socket:
                first = safe
                listening = asyncio.ensure_future(listen(socket, first))
                for n in range(first, total):
                    await socket.send(str(n))
                await listening
        except (OSError, websockets.WebSocketException):
            await asyncio.sleep(0.05)
asyncio.run(main())
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


class Chaos:
    """A gateway and a program beside it; each is killed and started again."""

    def __init__(self, journal: Path, source: str, script: str, *arguments: str) -> None:
        self.seed = int(os.environ.get("PENSTOCK_FEED_SEED", random.randrange(10**6)))
        print(f"seed {self.seed}")  # pytest shows it if the test fails.
        self._random = random.Random(self.seed)
        self._gateway_arguments = ("--source", source, "--journal", str(journal), "--stay")
        self._program = [sys.executable, "-c", script, *arguments]
        self.journal = journal
        self.gateway = Gateway(*self._gateway_arguments)
        self.beside = subprocess.Popen(self._program)

    def run(self, progress: Callable[[], int], total: int) -> None:
        """Kill one of them now and then until all is done."""
        points = sorted(self._random.randrange(total) for _ in range(KILLS))
        deadline = time.monotonic() + LONG
        for point in points:
            while progress() < point:
                assert time.monotonic() < deadline, f"seed {self.seed}: stuck at {progress()}"
                time.sleep(0.005)
            if self._random.random() < 0.5:
                self.gateway.process.kill()
                self.gateway.process.wait(PATIENCE)
                self.gateway.__exit__(None, None, None)
                self.gateway = Gateway(*self._gateway_arguments)
            else:
                self.beside.kill()
                self.beside.wait(PATIENCE)
                self.beside = subprocess.Popen(self._program)
        while progress() < total:
            assert time.monotonic() < deadline, f"seed {self.seed}: stuck at {progress()}"
            time.sleep(0.02)

    def close(self) -> None:
        with suppress(ProcessLookupError):
            self.beside.kill()
        self.beside.wait(PATIENCE)
        self.gateway.process.kill()
        self.gateway.process.wait(PATIENCE)
        self.gateway.__exit__(None, None, None)

    def stored(self) -> list[int]:
        """What the log has, read by a gateway that has no source of its own any more."""
        with closing(SqliteJournal(self.journal)) as journal:
            head = journal.head
        with Gateway("--source", "writers", "--journal", str(self.journal), "--stay") as gateway:
            return [int(record) for record in AquiferPublisher(gateway.endpoint, stop=head).flux()]


def number_in(path: Path) -> int:
    return int(path.read_text() or 0)


@pytest.mark.slow
@pytest.mark.timeout(LONG + 60)
def test_a_webhook_with_keys_has_every_record_once(tmp_path: Path) -> None:
    port, state = free_port(), tmp_path / "state"
    state.write_text("")
    source = f"webhook+http://127.0.0.1:{port}/in"
    with ExitStack() as closing_all:
        chaos = Chaos(tmp_path / "log.db", source, POSTING, str(port), str(RECORDS), "10", str(state))
        closing_all.callback(chaos.close)
        chaos.run(lambda: number_in(state), RECORDS)
    assert chaos.stored() == list(range(RECORDS)), f"seed {chaos.seed}"


@pytest.mark.slow
@pytest.mark.timeout(LONG + 60)
def test_a_websocket_sender_that_repeats_what_was_not_acknowledged_loses_nothing(tmp_path: Path) -> None:
    port, state = free_port(), tmp_path / "state"
    state.write_text("")
    source = f"ws-listen://127.0.0.1:{port}/in?ack={{count}}"
    with ExitStack() as closing_all:
        chaos = Chaos(tmp_path / "log.db", source, SOCKET, str(port), str(RECORDS), str(state))
        closing_all.callback(chaos.close)
        chaos.run(lambda: number_in(state), RECORDS)
    # At least once: what was on the way when somebody was killed may be there twice.
    assert sorted(set(chaos.stored())) == list(range(RECORDS)), f"seed {chaos.seed}"


@pytest.mark.slow
@pytest.mark.timeout(LONG + 60)
def test_events_with_ids_are_stored_once(tmp_path: Path) -> None:
    port = free_port()
    journal = tmp_path / "log.db"

    def progress() -> int:
        try:
            with closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True, timeout=1)) as database:
                row = database.execute("select value from marks where name = 'feed:last-event-id'").fetchone()
            return int(row[0]) + 1 if row else 0
        except sqlite3.OperationalError:
            return 0

    with ExitStack() as closing_all:
        chaos = Chaos(journal, f"sse+http://127.0.0.1:{port}/events", EVENTS, str(port), str(RECORDS))
        closing_all.callback(chaos.close)
        chaos.run(progress, RECORDS)
    assert chaos.stored() == list(range(RECORDS)), f"seed {chaos.seed}"

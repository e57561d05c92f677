"""Real ASGI servers as processes of their own, each on a port that is kept for it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.free_ports import free_port
from tests.net.backpressure.peers import largest_buffer

ROOT = Path(__file__).parents[3]
APP = "tests.net.http.served_app:app"
PATIENCE = 60.0
MOST = 32 * 1024 * 1024 + largest_buffer("tcp_rmem") + largest_buffer("tcp_wmem")
"""Far more than a socket holds on both sides, and far less than a source without demand would make."""

SERVERS = {
    "uvicorn-asyncio-h11": ["uvicorn", "--loop", "asyncio", "--http", "h11", "--log-level", "warning"],
    "uvicorn-uvloop": ["uvicorn", "--loop", "uvloop", "--log-level", "warning"],
    "hypercorn": ["hypercorn", "--workers", "0", "--log-level", "warning"],
    "granian": ["granian", "--interface", "asgi", "--log-level", "warning", "--workers", "1"],
}


def command(server: str, port: int) -> list[str]:
    name, *options = SERVERS[server]
    if name == "hypercorn":
        place = ["--bind", f"127.0.0.1:{port}"]
    else:
        place = ["--host", "127.0.0.1", "--port", str(port)]
    return [sys.executable, "-m", name, *options, *place, APP]


class Served:
    """A server that runs, and what a test wants to know from it."""

    def __init__(self, port: int, log: Path, ask: httpx2.Client) -> None:
        self.port = port
        self.log = log
        self.folder = log.parent
        """Its files are served at /files."""
        self.ask = ask

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def ws(self, path: str) -> str:
        return f"ws://127.0.0.1:{self.port}{path}"

    def state(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.ask.get(f"/state/{name}").json()
        return found

    def until(self, name: str, key: str) -> dict[str, Any]:
        """The state of this name, as soon as it has something true at ``key``."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            found = self.state(name)
            if found.get(key):
                return found
            time.sleep(0.02)
        raise AssertionError(f"{name} never got {key}: {self.state(name)}\n{self.log.read_text()}")

    def at_rest(self, name: str, key: str, most: int) -> int:
        """The number at ``key`` when it has stopped growing; it must not grow beyond ``most``."""
        self.until(name, key)
        before, quiet = -1, 0
        while quiet < 4:
            now: int = self.state(name)[key]
            assert now < most, f"{name}: {now} and still growing"
            quiet = quiet + 1 if now == before else 0
            before = now
            time.sleep(0.1)
        return before

    def open_gate(self, name: str) -> None:
        self.ask.post(f"/gate/{name}").raise_for_status()

    def connection(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)


@contextmanager
def served(server: str, folder: Path) -> Iterator[Served]:
    """Run the application under this server; it answers when the block begins and is gone when it ends."""
    log = folder / "server.log"
    port = free_port()
    with log.open("wb") as output:
        # A group of its own, since some servers have worker processes.
        process = subprocess.Popen(
            command(server, port),
            cwd=ROOT,
            env={**os.environ, "SERVED_FOLDER": str(folder)},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            _wait_until_it_answers(process, port, log)
            # Without certificates: there is nothing here that needs them, and reading them takes time.
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, verify=False) as ask:
                yield Served(port, log, ask)
        finally:
            process.terminate()
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        else:
            return
    raise AssertionError(f"the server does not answer: {log.read_text()}")

"""Real brokers for tests: started at free ports, killed, and started again with what they have on disk."""

from __future__ import annotations

import getpass
import random
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import redis

from penstock.aquifer import AquiferPublisher, Gateway, SqliteJournal
from penstock.streams import Flux
from tests.cli.running import PATIENCE
from tests.free_ports import free_port
from tests.required_tools import require_tool


def wait_until(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


class Process:
    """A command that can be killed and started again; it is gone after the block."""

    def __init__(self, log: Path, *command: str) -> None:
        self.log = log
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        assert self._process is not None
        return self._process.poll() is not None

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait(PATIENCE)

    def wait(self) -> int:
        assert self._process is not None
        return self._process.wait(PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()


class RedisServer(Process):
    """A Redis that has on disk what it has acknowledged."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        path = require_tool("redis-server", part="feeds of Redis", install="apt-get install redis-server")
        self.port = free_port()
        folder.mkdir(exist_ok=True)
        durable = ("--appendonly", "yes", "--appendfsync", "always", "--save", "")
        where = ("--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(folder))
        super().__init__(folder / "redis.log", path, *where, *durable, *arguments)

    def client(self, **arguments: Any) -> redis.Redis:
        client = redis.Redis(port=self.port, **arguments)
        wait_until(lambda: _answers(client), "Redis does not answer")
        return client


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.AuthenticationError:
        return True
    except (redis.ConnectionError, redis.TimeoutError):
        return False


def storm(stages: Mapping[str, Process], progress: Callable[[], int], kills: int, step: int) -> None:
    """Kill each stage in turn, in a random order, whenever enough has happened; start it again."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    victims: list[str] = []
    for _ in range(kills):
        victims = victims or chance.sample(sorted(stages), len(stages))
        goal = progress() + chance.randint(1, step)
        wait_until(lambda goal=goal: progress() >= goal, f"no progress to {goal} (seed {seed})")  # type: ignore[misc]
        victim = stages[victims.pop()]
        victim.kill()
        victim.start()


def gateway_command(source: str, *arguments: str, port: int = 0) -> tuple[str, ...]:
    command = (sys.executable, "-m", "penstock", "gateway", "--source", source, "--quiet")
    return (*command, "--control", f"tcp://127.0.0.1:{port}", *arguments)


def records_of(path: Path) -> list[bytes]:
    """Everything that a journal has."""
    nothing: Flux[bytes] = Flux.empty()
    with Gateway(nothing, "tcp://127.0.0.1:0", journal=SqliteJournal(path)) as gateway:
        return list(AquiferPublisher(gateway.endpoint).flux())


def resident(pid: int) -> int:
    """The bytes of memory that a process has."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS:"))) * 1024


class Mosquitto(Process):
    """An MQTT broker that keeps sessions and messages in a file, and drops nothing."""

    def __init__(self, folder: Path, *settings: str, listener: str = "", saved_every: int = 0) -> None:
        path = require_tool("mosquitto", part="feeds of MQTT", install="apt-get install mosquitto")
        self.port = free_port()
        folder.mkdir(exist_ok=True)
        self.database = folder / "mosquitto.db"
        lines = [
            f"user {getpass.getuser()}",
            f"listener {self.port} 127.0.0.1",
            *listener.splitlines(),
            "persistence true",
            f"persistence_location {folder}/",
            f"autosave_interval {saved_every}",
            "max_queued_messages 0",
            "max_inflight_messages 65535",
            *(settings or ("allow_anonymous true",)),
        ]
        configuration = folder / "mosquitto.conf"
        configuration.write_text("\n".join(lines) + "\n")
        super().__init__(folder / "mosquitto.log", path, "-c", str(configuration))

    def start(self) -> None:
        super().start()
        wait_until(self._listens, "mosquitto does not listen")

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

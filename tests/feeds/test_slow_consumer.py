"""A consumer of 1 000 records a second behind a sender that could do 100 000: for every feed.

Sender, server and gateway are processes of their own, and the consumer asks for as much as it wants. The
sender may be ahead of it by the log of the gateway and the buffers on the way, and not by more; the memory of
the gateway does not grow, nothing is lost, and the sender goes at the pace of the consumer.
``pytest -s tests/feeds/test_slow_consumer.py`` shows the figures.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from penstock import feeds
from penstock.aquifer import AquiferPublisher
from tests.cli.running import PATIENCE, Gateway
from tests.feeds.brokers import Mosquitto, Process, RedisServer, resident, wait_until
from tests.feeds.fast_sender import SIZE, Counter, number_of, record
from tests.feeds.mqtt_sender import MqttSender
from tests.feeds.nginx import nginx_command
from tests.feeds.reading import Reader, followed
from tests.free_ports import free_port
from tests.required_tools import require_tool

RATE = 1000
"""Records that the consumer wants in a second."""
WARM_UP = 5
WINDOW = 10
"""Seconds of the consumer, by its own count."""
LONGEST = 60
"""Seconds after which there are no more windows: on a busy machine the sender may not keep up for a while."""
LONGEST_OF_FEW = 20
"""The same where there is only what is there from the beginning."""
TICKS = 20
"""How often it asks in a second."""
LOG = 2000
"""Records in the log of the gateway."""
THERE = 30_000
"""Records that a broker or a file has from the beginning."""
FLAT = 8_000_000
"""Bytes by which a process in Python may grow and shrink while it does the same."""

SOCKET = sum(int(Path(f"/proc/sys/net/ipv4/tcp_{side}mem").read_text().split()[2]) for side in "rw")
"""Bytes that the two ends of a connection may hold, as the system allows."""
PIPE = 1 << 20
"""The same for a pipe or a Unix socket."""
READ_AHEAD = 9 << 20
"""Bytes that the client of Kafka reads ahead."""
DELIVERIES = 5000
"""Records that are in the hands of the gateway and its feed."""

Sent: TypeAlias = Callable[[], int]


@dataclass
class Stage:
    """Where a sender and a gateway are started; both are gone after the test."""

    folder: Path
    ending: ExitStack
    counter: Counter = field(init=False)
    gateway: Gateway = field(init=False)

    def __post_init__(self) -> None:
        self.counter = Counter(self._counted)

    @property
    def _counted(self) -> Path:
        return self.folder / "sent"

    def sent(self) -> int:
        """How many records the sender got rid of."""
        return self.counter.value

    def command(self, kind: str, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "tests.feeds.fast_sender", kind, str(self._counted), *arguments]

    def send(self, kind: str, *arguments: object) -> Process:
        command = self.command(kind, *map(str, arguments))
        return self.ending.enter_context(Process(self.folder / "sender.log", *command))

    def send_from_node(self, url: str) -> None:
        node = require_tool("node", part="a sender in Node", install="apt-get install nodejs")
        script = str(Path(__file__).with_name("fast_sender.mjs"))
        command = (node, "--experimental-websocket", script, url, str(self._counted))
        self.ending.enter_context(Process(self.folder / "node.log", *command))

    def serve(self, source: str, *arguments: str, stdin: Any = subprocess.DEVNULL) -> None:
        bounds = ("--journal", str(self.folder / "log.db"), "--max-records", str(LOG))
        gateway = Gateway("--source", source, *bounds, *arguments, stdin=stdin)
        self.gateway = self.ending.enter_context(gateway)

    def lines(self, count: int) -> Path:
        path = self.folder / "in" / "lines.txt"
        path.parent.mkdir()
        with path.open("wb") as file:
            file.writelines(record(number) + b"\n" for number in range(count))
        return path

    def read_of(self, path: Path) -> int:
        """How many lines of a file the gateway has read: the position of its descriptor."""
        process = Path(f"/proc/{self.gateway.process.pid}")
        for link in (process / "fd").iterdir():
            try:
                if link.readlink() == path:
                    lines = (process / "fdinfo" / link.name).read_text()
                    return int(lines.split("pos:")[1].split()[0]) // SIZE
            except FileNotFoundError:
                continue  # Closed meanwhile.
        return 0

    def received_from(self, port: int) -> int:
        """How many bytes a server at this port has brought to the gateway, by the count of the system."""
        ss = require_tool("ss", part="the count of a broker's bytes", install="apt-get install iproute2")
        shown = subprocess.run(
            [ss, "-tinpHO", f"dport = :{port}"], capture_output=True, text=True, check=True, timeout=PATIENCE
        ).stdout
        ours = [line for line in shown.splitlines() if f"pid={self.gateway.process.pid}," in line]
        return sum(int(number) for line in ours for number in re.findall(r"bytes_received:(\d+)", line))


# -------------------------------------------------------------------- the feeds
def tcp(stage: Stage) -> Sent:
    port = free_port()
    stage.send("tcp", port)
    stage.serve(f"tcp://127.0.0.1:{port}")
    return stage.sent


def tcp_listen(stage: Stage) -> Sent:
    port = free_port()
    stage.serve(f"tcp-listen://127.0.0.1:{port}")
    stage.send("tcp-listen", port)
    return stage.sent


def tcp_acknowledged(stage: Stage) -> Sent:
    port = free_port()
    stage.serve(f"tcp-listen://127.0.0.1:{port}?acknowledge")
    stage.send("acknowledged", port, stage.lines(THERE))
    return stage.sent


def unix(stage: Stage) -> Sent:
    path = stage.folder / "socket"
    stage.send("unix", path)
    stage.serve(f"unix:{path}")
    return stage.sent


def http(stage: Stage) -> Sent:
    port = free_port()
    stage.send("http", port)
    stage.serve(f"http://127.0.0.1:{port}/lines")
    return stage.sent


def sse(stage: Stage) -> Sent:
    port = free_port()
    stage.send("http", port)
    stage.serve(f"sse+http://127.0.0.1:{port}/events")
    return stage.sent


def sse_behind_nginx(stage: Stage) -> Sent:
    port = free_port()
    stage.send("http", port)
    stage.serve(f"sse+http://127.0.0.1:{_nginx(stage, port)}/events")
    return stage.sent


def websocket(stage: Stage) -> Sent:
    port = free_port()
    stage.send("http", port)
    stage.serve(f"ws://127.0.0.1:{port}/messages")
    return stage.sent


def websocket_server(stage: Stage) -> Sent:
    port = free_port()
    stage.serve(f"ws-listen://127.0.0.1:{port}/in")
    stage.send_from_node(f"ws://127.0.0.1:{port}/in")
    return stage.sent


def webhook(stage: Stage) -> Sent:
    port = free_port()
    stage.serve(f"webhook+http://127.0.0.1:{port}/in")
    stage.send_from_node(f"http://127.0.0.1:{port}/in")
    return stage.sent


def webhook_behind_nginx(stage: Stage) -> Sent:
    port = free_port()
    stage.serve(f"webhook+http://127.0.0.1:{port}/in")
    stage.send_from_node(f"http://127.0.0.1:{_nginx(stage, port)}/in")
    return stage.sent


def stdin(stage: Stage) -> Sent:
    sender = subprocess.Popen(stage.command("stdout"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    stage.ending.callback(sender.wait, PATIENCE)
    stage.ending.callback(sender.kill)
    assert sender.stdout is not None
    with sender.stdout:
        stage.serve("stdin", stdin=sender.stdout)
    return stage.sent


def program(stage: Stage) -> Sent:
    stage.serve("exec:" + " ".join(stage.command("stdout")))
    return stage.sent


def file(stage: Stage) -> Sent:
    path = stage.lines(THERE)
    stage.serve(f"file:{path}", "--follow")
    return lambda: stage.read_of(path)


def directory(stage: Stage) -> Sent:
    path = stage.lines(THERE)
    stage.serve(f"dir:{path.parent}", "--follow")
    return lambda: stage.read_of(path)


def redis(stage: Stage) -> Sent:
    server = stage.ending.enter_context(RedisServer(stage.folder / "redis", "--appendonly", "no"))
    client = server.client()
    stage.ending.callback(client.close)
    for first in range(0, THERE, 1000):
        pipe = client.pipeline(transaction=False)
        for number in range(first, first + 1000):
            pipe.xadd("readings", {"value": record(number)})
        pipe.execute()
    stage.serve(f"redis://127.0.0.1:{server.port}/readings?group=g&field=value")
    return lambda: stage.received_from(server.port) // SIZE


def mqtt(stage: Stage) -> Sent:
    broker = stage.ending.enter_context(Mosquitto(stage.folder / "mosquitto"))
    source = f"mqtt://127.0.0.1:{broker.port}/slow/#?client-id=slow&receive-maximum=1000"
    with feeds.open(source) as feed, followed(feed):
        wait_until(lambda: feed.state.status == "up", "it does not subscribe")
    with MqttSender(broker.port) as sender:
        sender.publish((("slow/x", record(number)) for number in range(THERE)), qos=1)
    stage.serve(source)
    return lambda: stage.received_from(broker.port) // SIZE


def kafka(stage: Stage) -> Sent:
    from tests.kafka.broker import KafkaBroker

    broker = stage.ending.enter_context(KafkaBroker(stage.folder / "kafka"))
    topic = broker.topic()
    broker.send(topic, map(record, range(THERE)))
    stage.serve(f"kafka://{broker.address}/{topic}?group={topic}")
    port = int(broker.address.rpartition(":")[2])
    return lambda: stage.received_from(port) // SIZE


def _nginx(stage: Stage, upstream: int) -> int:
    """The port of a proxy."""
    port, folder = free_port(), stage.folder / "nginx"
    command = nginx_command(folder, port, upstream)
    stage.ending.enter_context(Process(folder / "log", *command))
    return port


FEEDS: dict[str, tuple[Callable[[Stage], Sent], int, int]] = {
    # What opens it; how many bytes may be on the way; how many seconds of processor time it takes.
    "tcp": (tcp, SOCKET, 4),
    "tcp-listen": (tcp_listen, SOCKET, 4),
    "tcp-listen with acknowledgements": (tcp_acknowledged, SOCKET, 4),
    "unix": (unix, PIPE, 4),
    "http": (http, SOCKET, 4),
    "sse": (sse, SOCKET, 6),
    "sse behind nginx": (sse_behind_nginx, 2 * SOCKET, 6),
    "ws": (websocket, SOCKET, 6),
    "ws-listen": (websocket_server, SOCKET, 6),
    "webhook": (webhook, 0, 6),
    "webhook behind nginx": (webhook_behind_nginx, 0, 6),
    "stdin": (stdin, PIPE, 4),
    "exec": (program, PIPE, 4),
    "file": (file, 0, 4),
    "dir": (directory, 0, 4),
    "redis": (redis, SOCKET, 8),
    "mqtt": (mqtt, SOCKET, 8),
    "kafka": (kafka, SOCKET + READ_AHEAD, 15),
}
OF_FEW = {"tcp-listen with acknowledgements", "file", "dir", "redis", "mqtt", "kafka"}
"""Those whose sender has only the records that are there from the beginning."""


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with ExitStack() as ending:
        yield Stage(tmp_path, ending)


def ratio_in(samples: list[tuple[int, int, int]]) -> float:
    """How much the sender got rid of for each record that the consumer took, in the last window."""
    first, last = samples[-WINDOW - 1], samples[-1]
    return (last[1] - first[1]) / (last[0] - first[0])


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE * 3)
@pytest.mark.parametrize(
    "feed",
    [
        pytest.param(name, marks=pytest.mark.rare(cost, kind="slow consumers"))
        for name, (_, _, cost) in FEEDS.items()
    ],
)
def test_the_sender_goes_at_the_pace_of_a_slow_consumer(feed: str, stage: Stage) -> None:
    opened, on_the_way, _ = FEEDS[feed]
    longest = LONGEST_OF_FEW if feed in OF_FEW else LONGEST
    sent = opened(stage)
    pid = stage.gateway.process.pid
    most = LOG + DELIVERIES + on_the_way // SIZE
    reader = Reader()
    AquiferPublisher(stage.gateway.endpoint, id="slow").subscribe(reader)
    wait_until(lambda: sent() >= LOG // 2, "the sender does not begin")
    taken, began, samples = 0, time.monotonic(), []
    for tick in count():
        if tick >= TICKS * WARM_UP and tick % TICKS == 0:
            samples.append((taken, sent(), resident(pid)))
            # Some senders get rid of thousands at once: a short window can end just before or after that.
            if len(samples) > WINDOW and (len(samples) > longest or 0.9 <= ratio_in(samples) <= 1.1):
                break
        reader.subscription.request(RATE // TICKS)
        values = reader.take(RATE // TICKS)
        assert list(map(number_of, values)) == list(range(taken, taken + len(values)))
        taken += len(values)
        time.sleep(max(0.0, began + tick / TICKS - time.monotonic()))  # The pace of the consumer.
    reader.subscription.cancel()
    ahead = [by_sender - by_consumer for by_consumer, by_sender, _ in samples]
    grown = max(memory for _, _, memory in samples) - samples[0][2]
    ratio = ratio_in(samples)
    print(
        f"{feed}: sender/consumer {ratio:.3f}, ahead by {min(ahead)} to {max(ahead)} records of at most "
        f"{most}, memory {samples[0][2] / 1e6:.0f} MB, grown by {grown / 1e6:.1f} MB"
    )
    assert min(ahead) >= LOG // 2, "the sender was slower than the consumer: this shows nothing"
    assert max(ahead) <= most
    assert grown < FLAT
    assert 0.9 <= ratio <= 1.1


@pytest.mark.slow
@pytest.mark.rare(10)
@pytest.mark.timeout(PATIENCE * 3)
def test_datagrams_that_a_slow_consumer_leaves_no_space_for_are_counted(stage: Stage) -> None:
    port = free_port()
    stage.serve(f"udp://127.0.0.1:{port}")
    sender, pid = stage.send("udp", port), stage.gateway.process.pid
    reader = Reader()
    AquiferPublisher(stage.gateway.endpoint, id="slow").subscribe(reader)
    taken, began, memories = 0, time.monotonic(), []
    for tick in range(TICKS * (WARM_UP + WINDOW)):
        if tick >= TICKS * WARM_UP and tick % TICKS == 0:
            memories.append(resident(pid))
        reader.subscription.request(RATE // TICKS)
        taken += len(reader.take(RATE // TICKS))
        time.sleep(max(0.0, began + tick / TICKS - time.monotonic()))  # The pace of the consumer.
    (stage.folder / "sent.stop").touch()
    assert sender.wait() == 0
    reader.subscription.request(1_000_000)
    dropped, looks = 0, [0]

    def settled() -> bool:
        """Whether nothing has come for some looks."""
        looks.append(reader.lines.qsize())
        return len(looks) > 10 and len(set(looks[-10:])) == 1

    while taken + reader.lines.qsize() + dropped < stage.sent():
        dropped += int(stage.gateway.wait_for(r"(\d+) datagrams arrived while there was no space")[1])
        wait_until(settled, "records go on coming")
    taken += reader.lines.qsize()
    reader.subscription.cancel()
    print(
        f"udp: {stage.sent()} sent, {taken} taken, {dropped} counted as dropped, memory "
        f"{memories[0] / 1e6:.0f} MB, grown by {(max(memories) - memories[0]) / 1e6:.1f} MB"
    )
    assert taken + dropped == stage.sent()
    assert dropped > taken
    assert max(memories) - memories[0] < FLAT

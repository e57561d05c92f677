"""The processes of a pipeline over sockets, with a slow hop where the first argument says.

``gateway SLOW`` is a TCP sender, the connection that reads it, and a gateway behind that; it prints its
endpoint. ``listening SLOW`` is a gateway with a feed that several senders connect to. The last reader is
``reader SLOW ENDPOINT``. All end when their standard input does.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from penstock import feeds
from penstock.aquifer import AquiferPublisher, Batch, Gateway, MemoryJournal, SqliteJournal
from penstock.feeds import Decode, FeedOptions, TcpListenFeed
from penstock.net import TcpClient
from penstock.net.framing import lines

_RECORDS = 2000
"""What the log may hold."""
_SENDERS = 12
"""How many connect to the feed that listens: more than are shown one by one."""


def read_slowly(chunk: bytes) -> bytes:
    """A slow reader of the socket."""
    time.sleep(len(chunk) * 2e-5)
    return chunk


def enrich_slowly(line: bytes) -> bytes:
    """A slow function in the middle of the stream."""
    time.sleep(0.004)
    return line


class SlowDisk(SqliteJournal):
    """A journal whose disk takes long for each transaction."""

    nap = 0.3
    """Seconds."""

    def append(self, batches: Sequence[Batch], marks: object = None) -> None:
        """Append, slowly."""
        time.sleep(self.nap)
        super().append(batches, marks)  # type: ignore[arg-type]


def send_lines(server: socket.socket, pause: float) -> None:
    """Send lines to whoever connects, as fast as they are read, or with a pause after each."""
    connection, _ = server.accept()
    with connection:
        number = 0
        while True:
            try:
                connection.sendall(b"".join(b"line %d\n" % (number + k) for k in range(20)))
            except OSError:
                return
            number += 20
            if pause:
                time.sleep(pause)


def gateway(slow: set[str]) -> None:
    """A sender, a connection to it, and a gateway."""
    server = socket.create_server(("127.0.0.1", 0))
    pause = 0.02 if "none" in slow else 0.0
    threading.Thread(target=send_lines, args=(server, pause), daemon=True).start()
    connection = TcpClient.create().port(server.getsockname()[1]).connect_now()
    received = connection.inbound.receive()
    if "receive" in slow:
        received = received.map(read_slowly)
    records = received.transform(lines())
    if "map" in slow:
        records = records.map(enrich_slowly)
    with tempfile.TemporaryDirectory() as folder:
        journal = (
            SlowDisk(Path(folder) / "log.db", max_records=_RECORDS)
            if "journal" in slow
            else MemoryJournal(max_records=_RECORDS)
        )
        with Gateway(records, "tcp://127.0.0.1:0", journal=journal, prefetch=500) as serving:
            print(serving.endpoint, flush=True)
            sys.stdin.read()
            connection.abort()


def decode_slowly(line: bytes) -> bytes:
    """A slow decoder of a feed."""
    time.sleep(0.001)
    return line


class SlowDecoding(FeedOptions):
    """Options of a feed that takes long to make a record of a line."""

    def decoder(self) -> Decode:
        """A slow function."""
        return decode_slowly


def send_to(port: int) -> None:
    """Send lines to a feed, as fast as it takes them."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while True:
            try:
                connection.sendall(b"a line of a sender".ljust(4000) + b"\n")
            except OSError:
                return


def listening(slow: set[str]) -> None:
    """A gateway with a feed, and those who send to it."""
    options = SlowDecoding() if "decoding" in slow else FeedOptions()
    if "down" in slow:
        with socket.create_server(("127.0.0.1", 0)) as gone:
            url = f"tcp://127.0.0.1:{gone.getsockname()[1]}"
    else:
        url = "tcp-listen://127.0.0.1:0"
    journal = MemoryJournal(max_records=_RECORDS)
    with (
        feeds.open(url, options) as feed,
        Gateway(feed, "tcp://127.0.0.1:0", journal=journal, prefetch=500) as serving,
    ):
        if isinstance(feed, TcpListenFeed):
            for _ in range(_SENDERS):
                threading.Thread(target=send_to, args=(feed.port,), daemon=True).start()
        print(serving.endpoint, flush=True)
        sys.stdin.read()


def reader(slow: set[str], endpoint: str) -> None:
    """The last reader; its work is a stage of its stream, or the body of its loop."""
    pause = 0.02 if "reader" in slow else 0.0005 if "quick-reader" in slow else 0.0
    publisher = AquiferPublisher(endpoint, id="last", window=64)
    if "stage-of-reader" in slow:
        publisher.flux().map(enrich_slowly).subscribe(lambda _: None)
    else:
        threading.Thread(target=read, args=(publisher, pause), daemon=True).start()
    print("reading", flush=True)
    sys.stdin.read()


def read(publisher: AquiferPublisher, pause: float) -> None:
    """Read, with a pause after each record."""
    for _ in publisher.flux():
        if pause:
            time.sleep(pause)


if __name__ == "__main__":
    if sys.argv[1] == "gateway":
        gateway(set(sys.argv[2].split(",")))
    elif sys.argv[1] == "listening":
        listening(set(sys.argv[2].split(",")))
    else:
        reader(set(sys.argv[2].split(",")), sys.argv[3])

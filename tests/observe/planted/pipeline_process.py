"""The processes of a pipeline over sockets, with a slow hop where the first argument says.

``gateway SLOW`` is a TCP sender, the connection that reads it, and a gateway behind that; it prints its
endpoint. ``reader SLOW ENDPOINT`` is the last reader. Both end when their standard input does.
"""

from __future__ import annotations

import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from penstock.aquifer import AquiferPublisher, Batch, Gateway, MemoryJournal, SqliteJournal
from penstock.net import TcpClient
from penstock.net.framing import lines

_RECORDS = 2000
"""What the log may hold."""


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


def reader(slow: set[str], endpoint: str) -> None:
    """The last reader."""
    pause = 0.02 if "reader" in slow else 0.0005 if "quick-reader" in slow else 0.0
    publisher = AquiferPublisher(endpoint, id="last", window=64)
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
    else:
        reader(set(sys.argv[2].split(",")), sys.argv[3])

"""Sends lines with numbers, no number twice, whoever is killed.

As a program: ``python -m tests.feeds.number_sender KIND COUNTER ADDRESS``. A number is noted in the file of
the counter before it is sent. So what was on the way when somebody died is left out, and not sent again.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from tests.feeds.fast_sender import Counter

BLOCK = 20
"""Lines in one write: fewer bytes than a pipe takes at one go, and than a datagram may have."""


def line(number: int) -> bytes:
    """A line, with its newline."""
    return b"line %d.\n" % number


class Numbers:
    """The lines from where the last program was."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def send(self, write: Callable[[bytes], object]) -> None:
        """Send lines until that fails."""
        while True:
            first = self._counter.value
            self._counter.value = first + BLOCK
            write(b"".join(map(line, range(first, first + BLOCK))))
            time.sleep(0.002)

    def serve(self, server: socket.socket) -> None:
        """Send them to one peer after the other."""
        while True:
            connection, _ = server.accept()
            with connection:
                try:
                    self.send(connection.sendall)
                except OSError:
                    continue  # This one was killed. The next one gets what follows.

    def push(self, port: int) -> None:
        """Send them to a server, which may be away for a while."""
        while True:
            try:
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    self.send(connection.sendall)
            except OSError:
                time.sleep(0.02)

    def answer(self, port: int) -> None:
        """Send them as the body of a response, in chunks: so its client knows that a cut is not the end."""
        numbers = self

        class Lines(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/plain")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    numbers.send(lambda lines: self.wfile.write(b"%x\r\n%b\r\n" % (len(lines), lines)))
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        HTTPServer(("127.0.0.1", port), Lines).serve_forever()

    def cast(self, port: int) -> None:
        """Send each line as a datagram, whether somebody is there or not."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:

            def write(lines: bytes) -> None:
                for one in lines.splitlines():
                    sending.sendto(one, ("127.0.0.1", port))

            self.send(write)


def main(kind: str, counter: str, address: str) -> None:
    """Send until killed."""
    numbers = Numbers(Counter(Path(counter)))
    match kind:
        case "tcp":
            numbers.serve(socket.create_server(("127.0.0.1", int(address))))
        case "unix":
            Path(address).unlink(missing_ok=True)
            server = socket.socket(socket.AF_UNIX)
            server.bind(address)
            server.listen()
            numbers.serve(server)
        case "tcp-listen":
            numbers.push(int(address))
        case "http":
            numbers.answer(int(address))
        case "udp":
            numbers.cast(int(address))
        case "exec" | "stdin":
            with contextlib.suppress(BrokenPipeError):  # The gateway was killed.
                numbers.send(lambda lines: os.write(1, lines))
        case _:
            raise ValueError(f"no kind: {kind}")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""What is read before it is asked for, and what is heard of a peer meanwhile."""

from __future__ import annotations

import socket
import struct
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.net.backpressure.peers import BLOCK, Pushing, connected, unacknowledged
from tests.net.backpressure.serving import SMALL_BUFFERS, Served, at_rest, served, until
from tests.net.tcp.loops import LOOPS

pytestmark = pytest.mark.slow

loops = pytest.mark.parametrize("loop", LOOPS)
secured = pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])

MOST_IN_THE_KERNEL = 4 * sum(SMALL_BUFFERS.values())
"""The kernel doubles each size that it is told, and may exceed it by what it takes at once."""
MOST_IN_TLS = 600_000
"""Bytes that the loop's TLS reads ahead, in whose buffers nobody of ours can look."""


def at_rest_with(server: Served, pushing: Pushing) -> tuple[int, dict[str, Any]]:
    """What was sent, and the server's figures, when neither changes any more."""

    def look() -> tuple[int, int, list[dict[str, Any]]]:
        figures = server.figures()
        return pushing.sent, figures["consumed"], figures["connections"]

    at_rest(look)
    return pushing.sent, server.figures()


def ask_for_one(server: Served) -> None:
    """Ask for a chunk, and wait until it is given."""
    before = server.figures()["chunks"]
    server.tell("request", 1)
    until(lambda: int(server.figures()["chunks"]), lambda chunks: chunks > before)


@loops
def test_without_read_ahead_everything_stays_in_the_kernel_until_it_is_asked_for(loop: str) -> None:
    with (
        served("on_command", loop, read_ahead=0, options=SMALL_BUFFERS) as server,
        connected(server.port, options=SMALL_BUFFERS) as connection,
        ExitStack() as stack,
    ):
        # Before that, uvloop cannot be stopped: what is there when a connection is accepted, it reads once.
        until(server.figures, lambda figures: bool(figures["connections"]))
        pushing = stack.enter_context(Pushing([connection]))
        for asked in range(3):
            if asked:
                ask_for_one(server)
            until(lambda: pushing.sent, bool)
            at_rest_with(server, pushing)

            def look() -> tuple[int, dict[str, Any], int]:
                return pushing.sent, server.figures(), unacknowledged(connection)

            def not_a_byte_is_anywhere_else(seen: tuple[int, dict[str, Any], int]) -> bool:
                sent, figures, at_the_sender = seen
                (held,) = figures["connections"]
                return bool(sent == figures["consumed"] + held["unread"] + at_the_sender)

            # The kernels may move some of the bytes once more, between two of these figures.
            sent, figures, _ = until(look, not_a_byte_is_anywhere_else)
            (held,) = figures["connections"]

            assert figures["chunks"] == asked
            assert held["waiting"] == 0
            assert held["unread"] > 0
            assert sent - figures["consumed"] < MOST_IN_THE_KERNEL


@loops
def test_without_read_ahead_tls_gives_nothing_before_it_is_asked_for(loop: str, certificates: Path) -> None:
    with (
        served("on_command", loop, tls=certificates, read_ahead=0, options=SMALL_BUFFERS) as server,
        connected(server.port, tls=certificates, options=SMALL_BUFFERS) as connection,
        Pushing([connection]) as pushing,
    ):
        until(lambda: pushing.sent, bool)
        sent, figures = at_rest_with(server, pushing)
        (held,) = figures["connections"]
        assert figures["chunks"] == held["waiting"] == 0
        assert sent < MOST_IN_THE_KERNEL + MOST_IN_TLS

        ask_for_one(server)
        sent, figures = at_rest_with(server, pushing)
        (held,) = figures["connections"]
        assert figures["chunks"] == 1
        assert held["waiting"] == 0
        assert sent - figures["consumed"] < MOST_IN_THE_KERNEL + MOST_IN_TLS


@loops
def test_a_peer_that_ends_while_nobody_asks_is_heard(loop: str) -> None:
    with served("on_command", loop) as server, connected(server.port) as connection:
        connection.sendall(b"x" * 1000)
        connection.shutdown(socket.SHUT_WR)
        figures = until(server.figures, lambda seen: any(each["ended"] for each in seen["connections"]))

        assert (figures["consumed"], figures["completed"]) == (0, 0)
        assert figures["connections"][0]["waiting"] == 1000

        server.tell("request", 1)
        figures = until(server.figures, lambda seen: bool(seen["completed"]))
        assert (figures["consumed"], figures["failed"]) == (1000, 0)


@loops
@secured
def test_a_peer_that_resets_while_nobody_asks_is_heard(loop: str, secure: bool, certificates: Path) -> None:
    tls = certificates if secure else None
    with served("on_command", loop, tls=tls) as server:
        with connected(server.port, tls=tls) as connection:
            connection.sendall(b"x" * 1000)
            until(server.figures, lambda seen: [each["waiting"] for each in seen["connections"]] == [1000])
            reset_at_close = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset_at_close)
        until(server.figures, lambda seen: not seen["connections"])

        # What had come before is still there for whoever asks; then comes the end.
        server.tell("request", 2)
        figures = until(server.figures, lambda seen: bool(seen["failed"] or seen["completed"]))
        assert (figures["consumed"], figures["failed"]) == (1000, 1)


@loops
def test_all_that_a_peer_sent_before_it_ended_comes_when_it_is_asked_for(loop: str) -> None:
    """More than is read ahead: the peer's end is behind it, and is heard after it."""
    with served("on_command", loop) as server:
        with connected(server.port) as connection:
            for _ in range(8):
                connection.sendall(BLOCK)
        at_rest(lambda: server.figures()["connections"])
        assert server.figures()["consumed"] == 0

        server.tell("request", 1_000)
        figures = until(server.figures, lambda seen: bool(seen["failed"] or seen["completed"]))
        assert (figures["consumed"], figures["failed"]) == (8 * len(BLOCK), 0)

"""With ``acknowledge`` a listening feed has one sender at a time: the one that connected last."""

from __future__ import annotations

import contextlib
import socket
from contextlib import closing

from penstock.feeds import FeedOptions, TcpListenFeed
from penstock.streams import Flux
from tests.cli.running import PATIENCE
from tests.feeds.brokers import wait_until


def has_connections(feed: TcpListenFeed, count: int) -> None:
    wait_until(lambda: len(feed._server.connections) == count, f"there are not {count} connections")


def test_of_several_senders_that_wait_for_the_gateway_the_last_one_sends() -> None:
    with (
        closing(TcpListenFeed("127.0.0.1", 0, FeedOptions(), acknowledge=True)) as feed,
        contextlib.ExitStack() as senders,
    ):
        waiting = []
        for number in range(1, 5):  # one sender that lost its connection again and again without a word
            sender = senders.enter_context(socket.create_connection(("127.0.0.1", feed.port), PATIENCE))
            sender.settimeout(PATIENCE)
            waiting.append(sender)
            has_connections(feed, number)
        lines = Flux.from_publisher(feed(7)).first().to_future()
        *_, older, last = waiting
        assert last.recv(64) == b"7\n"
        assert older.recv(64) == b"", "it may be the same sender, which would send its lines twice"
        last.sendall(b"a line\n")
        assert lines.result(PATIENCE) == b"a line"

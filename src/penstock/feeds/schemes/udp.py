"""Datagrams over UDP, each of them a line."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import Any, Final

from penstock.feeds.feed import Feed, FeedOptions, FeedUnavailable
from penstock.feeds.lines import LineTooLong
from penstock.feeds.registry import FeedUrl, Scheme
from penstock.net import BindFailed, Datagram, UdpOverflow, UdpServer, address_text
from penstock.spec import Publisher
from penstock.streams import schedulers

__all__ = ["SCHEMES", "UdpFeed"]

_log = logging.getLogger("penstock.feeds")

_WAITING: Final = 4096
"""How many datagrams may wait for the gateway."""
_REPORT_EVERY: Final = 1.0
"""Seconds between two looks at how many were dropped."""


class UdpFeed(Feed):
    """A port to which anybody can send datagrams, each of them a line.

    A sender of UDP cannot be made to wait. Datagrams that arrive while the gateway has no space are dropped,
    counted and reported.
    """

    def __init__(self, host: str, port: int, options: FeedOptions) -> None:
        # Anybody can send a datagram, so by default a bad one does not end the feed for the others.
        self._bad = self.bad = options.bad_lines("skip")
        self._max_line = options.max_line
        self._decode = options.decoder()
        self._reported = 0
        self._mutex = threading.Lock()
        self._is_closed = False
        server = UdpServer.create().host(host).port(port).overflow(UdpOverflow.DROP_NEWEST, capacity=_WAITING)
        try:
            self._channel = server.bind_now()
        except BindFailed as error:
            raise FeedUnavailable(str(error)) from None
        self.name = f"datagrams sent to {address_text(self._channel.address)}"
        self._report_later()

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return the datagrams, without the newline at their end if they have one."""
        return self._channel.inbound.receive().flat_map_iterable(self._element)

    def _element(self, datagram: Datagram) -> Iterable[Any]:
        line = datagram.data.removesuffix(b"\n").removesuffix(b"\r")
        sender = address_text(datagram.address)
        if len(line) > self._max_line:
            error = LineTooLong(f"has {len(line)} bytes; allow more with max_line (--max-line)")
            return self._bad.refuse(error, line, at=f"a datagram from {sender}")
        try:
            return (line if self._decode is None else self._decode(line),)
        except (ValueError, RecursionError, OverflowError) as problem:
            return self._bad.refuse(problem, line, at=f"a datagram from {sender}")

    def _report_later(self) -> None:
        # A timer: the last datagrams that are dropped are reported, too, although no others come after them.
        self._timer = schedulers.shared_timer().submit_after(_REPORT_EVERY, self._report_again)

    def _report_again(self) -> None:
        self._report()
        with self._mutex:
            if not self._is_closed:
                self._report_later()

    def _report(self) -> None:
        """Log how many datagrams were dropped since the last report."""
        metrics = self._channel.metrics
        with self._mutex:
            dropped = metrics.dropped + (metrics.kernel_dropped or 0) - self._reported
            self._reported += max(dropped, 0)
        if dropped > 0:
            _log.warning("%d datagrams arrived while there was no space, and were dropped", dropped)

    def close(self) -> None:
        """Stop listening, and report what was dropped since the last report."""
        with self._mutex:
            self._is_closed = True
            self._timer.cancel()
        self._channel.close_now(0)
        self._report()


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    listener = url.listener(options)
    url.refuse_on_a_loop()
    return UdpFeed(*listener, options)


SCHEMES = (Scheme("udp", "udp://HOST:PORT", "a line in each datagram that anybody sends to the port", _open),)

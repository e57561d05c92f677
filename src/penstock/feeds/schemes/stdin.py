"""The lines of standard input: a pipe, a terminal, or a file."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Iterator
from typing import Any

from penstock.feeds.feed import BadFeed, Feed, FeedOptions
from penstock.feeds.lines import CHUNK, LinePublisher, LineSplitter
from penstock.feeds.registry import FeedUrl, Scheme
from penstock.spec import Publisher
from penstock.waker import Waker

__all__ = ["SCHEMES", "StdinFeed"]


class _DescriptorReader:
    """Reads a descriptor that may have nothing to read yet; the waiting can be ended."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._woken = False
        self._waker = Waker()

    def read(self) -> bytes | None:
        """Return the next bytes, none at the end; None after :meth:`wake`."""
        if sys.platform != "win32" or stat.S_ISSOCK(os.fstat(self._descriptor).st_mode):
            select.select([self._descriptor, self._waker.fileno()], [], [])
        return None if self._woken else os.read(self._descriptor, CHUNK)

    def wake(self) -> None:
        self._woken = True
        self._waker.wake()

    def close(self) -> None:
        self._waker.close()


class StdinFeed(Feed):
    """Standard input. It cannot be replayed: after a restart the feed continues with what arrives then."""

    def __init__(self, options: FeedOptions) -> None:
        self._options = options
        self._bad = self.bad = options.bad_lines()
        self.name = "standard input"
        if sys.stdin is None:
            raise BadFeed("standard input is closed; redirect something to it, or use another source")
        self.note = "reading lines from the terminal; Ctrl-D ends them" if sys.stdin.isatty() else None

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return the lines, however many records the journal holds."""
        descriptor = sys.stdin.fileno()
        return LinePublisher(lambda: _DescriptorReader(descriptor), self._elements)

    def _elements(self, reader: _DescriptorReader) -> Iterator[Any]:
        splitter = LineSplitter(self._options.max_line, self._options.decoder(), self._bad)
        # A generator's finally runs when the stream is over, however it ends.
        try:
            while chunk := reader.read():
                yield from splitter.feed(chunk)
            if chunk is not None:
                # The writer has closed the pipe, so the last line is complete. After a cancel it is not.
                yield from splitter.finish()
        finally:
            reader.close()


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    return StdinFeed(options)


SCHEMES = (Scheme("stdin", "stdin", "the lines of standard input, to its end", _open),)

"""What ``penstock gateway`` reads: the sources by name, and the lines of standard input.

The lines of standard input and of files come from Publishers that read when they are asked to, on the thread
that asks. Nobody reads ahead: while the gateway has no room, a pipe fills up and its writer waits. Files are
in :mod:`penstock.cli.file_source`, the network in :mod:`penstock.cli.network_sources`.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from penstock.cli.complaints import Complaint
from penstock.cli.line_splitter import BadLines, Decode, LineSplitter, LineTooLong, OnBadLine
from penstock.spec import Publisher, Subscriber, Subscription, check_subscriber
from penstock.streams import Flux

__all__ = [
    "NETWORK",
    "LineTooLong",
    "Lines",
    "Origin",
    "Reader",
    "SourceOptions",
    "StdinLines",
    "Writers",
    "open_source",
]

CHUNK: Final = 256 * 1024
"""How many bytes are read at once, at most."""
NETWORK: Final = "tcp://HOST:PORT, tcp-listen://HOST:PORT, udp://HOST:PORT, http://…"
"""The sources of the network, as they are written."""


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the command line says about how a source is read."""

    longest: int
    """Bytes of the longest line."""
    decode: Decode | None = None
    """What makes an element of a line; None if it is the line itself."""
    on_bad_line: OnBadLine | None = None
    """What happens to a line that cannot be a record; None is what suits the source."""
    follow: bool = False
    """Whether a file goes on when its end is reached."""
    take_last_line: bool = False
    """Whether the last line of a file is one without its newline."""
    insecure: bool = False
    """Whether a source may listen where other machines reach it."""

    def bad_lines(self, default: OnBadLine = "fail") -> BadLines:
        """For one source."""
        return BadLines(self.on_bad_line or default)


class Origin(ABC):
    """A source at the command line."""

    name: str
    note: str | None = None
    writable = False
    """Whether it is not lines that are read, but those who write to the gateway."""
    bad: BadLines | None = None
    """The lines that could not be records, if there can be any."""

    @abstractmethod
    def __call__(self, journalled: int) -> Publisher[Any]:
        """Its lines; those after the first ``journalled`` ones, if it can begin there."""

    def remember_at(self, path: str, epoch: str) -> None:
        """Hear where to note how far the source was read, for a restart on this log; most cannot go on."""
        return

    def journalled(self, head: int) -> None:
        """Hear how many lines are safe; most do not care."""
        return

    @abstractmethod
    def close(self) -> None:
        """Let go of what is open."""


class Reader(Protocol):
    """Something that gives bytes until it has no more."""

    def wake(self) -> None:
        """Make a read that waits return; from any thread."""
        ...

    def close(self) -> None:
        """Let go of what is read."""
        ...


class Lines(Publisher[Any]):
    """The elements that a generator makes of what a reader reads, and closes; for one subscriber."""

    def __init__(self, reader: Callable[[], Reader], elements: Callable[[Any], Iterator[Any]]) -> None:
        self._reader = reader
        self._elements = elements

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Begin to read as soon as something is asked for."""
        check_subscriber(subscriber)
        try:
            reader = self._reader()
        except (OSError, ValueError) as error:
            failed: Flux[Any] = Flux.error(error)
            failed.subscribe(subscriber)
            return
        Flux.from_iterable(self._elements(reader)).subscribe(_Passing(subscriber, reader))


class _Passing:
    """Between the lines and their subscriber, who is given a subscription that can wake the reader."""

    def __init__(self, subscriber: Subscriber[Any], reader: Reader) -> None:
        self._subscriber = subscriber
        self._reader = reader
        self._subscription: _Waking | None = None
        self.on_next = subscriber.on_next  # Nothing to do for an element: no call of our own.

    def on_subscribe(self, subscription: Subscription, /) -> None:
        self._subscription = _Waking(subscription, self._reader)
        self._subscriber.on_subscribe(self._subscription)

    def on_error(self, error: BaseException, /) -> None:
        self._subscriber.on_error(error)

    def on_complete(self) -> None:
        # A read that was woken looks like the end of the lines, and is not.
        if self._subscription is None or not self._subscription.cancelled:
            self._subscriber.on_complete()


class _Waking:
    """A subscription whose cancel also ends a read that waits for bytes; it does not know the subscriber."""

    def __init__(self, upstream: Subscription, reader: Reader) -> None:
        self.cancelled = False
        self._upstream = upstream
        self._reader = reader

    def request(self, n: int, /) -> None:
        self._upstream.request(n)

    def cancel(self) -> None:
        self.cancelled = True
        self._upstream.cancel()
        self._reader.wake()


class _Waiting:
    """A descriptor that may keep us waiting, and a way to end the waiting."""

    def __init__(self, descriptor: int, receive: Callable[[int], bytes]) -> None:
        self._descriptor = descriptor
        self._receive = receive
        self._woken = False
        self._outside, self._inside = socket.socketpair()

    def read(self) -> bytes | None:
        if sys.platform != "win32" or stat.S_ISSOCK(os.fstat(self._descriptor).st_mode):
            select.select([self._descriptor, self._inside.fileno()], [], [])
        return None if self._woken else self._receive(CHUNK)

    def wake(self) -> None:
        self._woken = True
        try:
            self._outside.send(b"!")
        except OSError:
            return  # Closed: nobody waits.

    def close(self) -> None:
        self._outside.close()
        self._inside.close()


class StdinLines(Origin):
    """Standard input: a pipe, a terminal, or a file. A restart goes on with whatever comes in then."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._bad = self.bad = options.bad_lines()
        self.name = "standard input"
        if sys.stdin is None:
            raise Complaint("standard input is closed; give it something to read, or another --source")
        self.note = "reading lines from the terminal; Ctrl-D ends them" if sys.stdin.isatty() else None

    def __call__(self, journalled: int) -> Publisher[Any]:
        """The lines, whatever the journal has already."""
        descriptor = sys.stdin.fileno()
        return Lines(lambda: _Waiting(descriptor, lambda n: os.read(descriptor, n)), self._elements)

    def _elements(self, reader: _Waiting) -> Iterator[Any]:
        splitter = LineSplitter(self._options.longest, self._options.decode, self._bad)
        # A generator's finally runs when the stream is over, however it ends.
        try:
            while chunk := reader.read():
                yield from splitter.feed(chunk)
            if chunk is not None:
                # Whoever wrote has closed the pipe, so the last line is whole. After a cancel it is not.
                yield from splitter.finish()
        finally:
            reader.close()

    def close(self) -> None:
        """Nothing to let go of: standard input is not ours."""


class Writers(Origin):
    """Whoever writes to the gateway: a Spark query with ``writeStream.format("aquifer")``, or a Courier."""

    name = "what others write"
    writable = True

    def __call__(self, journalled: int) -> Publisher[Any]:
        """There is nothing to read."""
        return Flux.never()

    def close(self) -> None:
        """Nothing to let go of."""


def open_source(text: str, options: SourceOptions) -> Origin:
    """The source with this name: ``stdin``, ``file:PATH``, or somewhere on the network."""
    if not text.startswith("file:") and (options.follow or options.take_last_line):
        which = "--follow" if options.follow else "--take-last-line"
        raise Complaint(f"{which} is for files: --source file:PATH")
    if text == "writers":
        return Writers()
    if text == "stdin":
        return StdinLines(options)
    if text.startswith("file:"):
        from penstock.cli.file_source import FileLines

        return FileLines(text.removeprefix("file:"), options)
    if "://" in text:
        from penstock.cli.network_sources import open_network_source

        return open_network_source(text, options)
    raise Complaint(f"--source {text!r} is not known; write stdin, file:PATH, {NETWORK} or writers")

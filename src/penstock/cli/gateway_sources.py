"""What ``penstock gateway`` reads: lines from standard input, from a file, or from the network.

The first two are Publishers of lines that read when they are asked to, on the thread that asks. Nobody reads
ahead: while the gateway has no room, a pipe fills up and its writer waits. Those of the network are in
:mod:`penstock.cli.network_sources`.
"""

from __future__ import annotations

import itertools
import os
import select
import socket
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Final, Protocol

from penstock.cli.complaints import Complaint
from penstock.spec import Publisher, Subscriber, Subscription, check_subscriber
from penstock.streams import Flux

__all__ = [
    "NETWORK",
    "Decode",
    "FileLines",
    "LineTooLong",
    "Lines",
    "Origin",
    "StdinLines",
    "Writers",
    "numbered",
    "open_source",
]

CHUNK: Final = 256 * 1024
"""How many bytes are read at once, at most."""
NETWORK: Final = "tcp://HOST:PORT, tcp-listen://HOST:PORT, udp://HOST:PORT, http://…"
"""The sources of the network, as they are written."""

Decode = Callable[[bytes], Any]


class Origin(ABC):
    """A source at the command line."""

    name: str
    note: str | None = None
    writable = False
    """Whether it is not lines that are read, but those who write to the gateway."""

    @abstractmethod
    def __call__(self, journalled: int) -> Publisher[Any]:
        """Its lines; those after the first ``journalled`` ones, if it can begin there."""

    def journalled(self, head: int) -> None:
        """Hear how many lines are safe; most do not care."""
        return

    @abstractmethod
    def close(self) -> None:
        """Let go of what is open."""


class LineTooLong(ValueError):
    """A line without an end in sight."""


class _Reader(Protocol):
    """Something that gives bytes until it has no more."""

    def read(self) -> bytes | None:
        """The next bytes, without any at the end; None after :meth:`wake`."""
        ...

    def wake(self) -> None:
        """Make a read that waits return; from any thread."""
        ...

    def close(self) -> None:
        """Let go of what is read."""
        ...


class Lines(Publisher[Any]):
    """The lines of a reader, without their newlines; for one subscriber."""

    def __init__(self, open: Callable[[], _Reader], skip: int, longest: int, decode: Decode | None) -> None:
        self._open = open
        self._skip = skip
        self._longest = longest
        self._decode = decode

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Begin at the first line that is wanted, as soon as one is asked for."""
        check_subscriber(subscriber)
        reader = self._open()
        Flux.from_iterable(self._elements(reader)).subscribe(_Passing(subscriber, reader))

    def _elements(self, reader: _Reader) -> Iterator[Any]:
        # A generator's finally runs when the stream is over, however it ends.
        try:
            lines = self._lines(reader)
            self._pass_over(lines)
            yield from lines if self._decode is None else map(numbered(self._decode, self._skip), lines)
        finally:
            reader.close()

    def _pass_over(self, lines: Iterator[bytes]) -> None:
        for passed in range(self._skip):
            if next(lines, None) is None:
                raise ValueError(
                    f"it has {passed} lines, but the journal has {self._skip} already: is it another file? "
                    "Give a new source a new journal"
                )

    def _lines(self, reader: _Reader) -> Iterator[bytes]:
        pieces: list[bytes] = []
        """What has come of a line whose end has not."""
        length = number = 0
        while chunk := reader.read():
            first, newline, rest = chunk.partition(b"\n")
            length += len(first)
            pieces.append(first)
            if length > self._longest:
                raise self._too_long(number + 1)
            if not newline:
                continue
            lines = rest.split(b"\n")
            lines.insert(0, b"".join(pieces))
            pieces = [lines.pop()]
            length = len(pieces[0])
            if len(chunk) > self._longest:
                self._check(lines, number)
            yield from lines
            number += len(lines)
            if length > self._longest:
                raise self._too_long(number + 1)
        if length and chunk is not None:
            # The last line has no newline. One that was broken off by a cancel is no line.
            yield b"".join(pieces)

    def _check(self, lines: list[bytes], before: int) -> None:
        for number, line in enumerate(lines, start=before + 1):
            if len(line) > self._longest:
                raise self._too_long(number)

    def _too_long(self, number: int) -> LineTooLong:
        return LineTooLong(
            f"line {number} has more than {self._longest} bytes; allow more with --max-line, or is this not "
            "a text with lines?"
        )


class _Passing:
    """Between the lines and their subscriber, who is given a subscription that can wake the reader."""

    def __init__(self, subscriber: Subscriber[Any], reader: _Reader) -> None:
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

    def __init__(self, upstream: Subscription, reader: _Reader) -> None:
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


class _File:
    """A file is always ready: nobody has to be woken."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._descriptor: int | None = None

    def read(self) -> bytes:
        if self._descriptor is None:
            # Here, so that a file that is gone by now is an error of the stream like any other.
            self._descriptor = os.open(self._path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
        return os.read(self._descriptor, CHUNK)

    def wake(self) -> None:
        return

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)


class StdinLines(Origin):
    """Standard input: a pipe, a terminal, or a file. A restart goes on with whatever comes in then."""

    def __init__(self, longest: int, decode: Decode | None) -> None:
        self._settings = longest, decode
        self.name = "standard input"
        if sys.stdin is None:
            raise Complaint("standard input is closed; give it something to read, or another --source")
        self.note = "reading lines from the terminal; Ctrl-D ends them" if sys.stdin.isatty() else None

    def __call__(self, journalled: int) -> Publisher[Any]:
        """The lines, whatever the journal has already."""
        descriptor = sys.stdin.fileno()
        return Lines(lambda: _Waiting(descriptor, lambda n: os.read(descriptor, n)), 0, *self._settings)

    def close(self) -> None:
        """Nothing to let go of: standard input is not ours."""


class FileLines(Origin):
    """A file; the lines that are in the journal already are passed over."""

    def __init__(self, path: str, longest: int, decode: Decode | None) -> None:
        self._settings = longest, decode
        self._path = path
        self.name = path
        try:
            mode = os.stat(path).st_mode
            with open(path, "rb"):
                pass
        except OSError as error:
            if os.path.isdir(path):
                raise Complaint(f"{path} is a directory; name a file in it") from None
            raise Complaint(f"cannot read {path}: {error.strerror}; check the path in --source") from None
        if not stat.S_ISREG(mode):
            raise Complaint(f"{path} is no regular file; read it with --source stdin < {path}")

    def __call__(self, journalled: int) -> Publisher[Any]:
        """The lines after the first ``journalled`` ones."""
        if journalled:
            self.note = f"going on after the {journalled:,} lines that the journal has already"
        return Lines(lambda: _File(self._path), journalled, *self._settings)

    def close(self) -> None:
        """Nothing to let go of: the file is closed with its lines."""


class Writers(Origin):
    """Whoever writes to the gateway: a Spark query with ``writeStream.format("aquifer")``, or a Courier."""

    name = "what others write"
    writable = True

    def __call__(self, journalled: int) -> Publisher[Any]:
        """There is nothing to read."""
        return Flux.never()

    def close(self) -> None:
        """Nothing to let go of."""


def open_source(text: str, longest: int, codec: str) -> Origin:
    """The source with this name: ``stdin``, ``file:PATH``, or somewhere on the network."""
    decode = _decoder(codec)
    if text == "writers":
        return Writers()
    if text == "stdin":
        return StdinLines(longest, decode)
    if text.startswith("file:"):
        return FileLines(text.removeprefix("file:"), longest, decode)
    if "://" in text:
        from penstock.cli.network_sources import open_network_source

        return open_network_source(text, longest, decode)
    raise Complaint(f"--source {text!r} is none; write stdin, file:PATH, {NETWORK} or writers")


def numbered(decode: Decode, skipped: int = 0) -> Decode:
    """``decode``, whose errors say which line was wrong."""
    count = itertools.count(skipped + 1)

    def element(line: bytes) -> Any:
        number = next(count)
        try:
            return decode(line)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None

    return element


def _decoder(codec: str) -> Decode | None:
    """What makes an element for this codec of a line; None if it is the line itself."""
    if codec == "bytes":
        return None
    if codec == "text":
        return bytes.decode
    import msgspec

    decode = msgspec.json.Decoder().decode

    def element(line: bytes) -> Any:
        # The codec's own encoder follows; here it only has to be seen that the line is JSON.
        value = decode(line)
        if value is None:
            raise ValueError("null is no record")
        return value

    return element

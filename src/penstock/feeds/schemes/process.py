"""Lines of a program's standard output, and of a Unix socket."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import shutil
import signal
import socket
from abc import abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

from penstock.delivery import Delivery
from penstock.feeds.connected import ConnectedFeed, ConnectionLost
from penstock.feeds.feed import BadFeed, Feed, FeedOptions
from penstock.feeds.lines import CHUNK, LineSplitter
from penstock.feeds.registry import FeedUrl, Scheme

__all__ = ["SCHEMES", "ProcessFeed", "ProgramFailed", "UnixFeed"]

_log = logging.getLogger("penstock.feeds")

_GRACE: Final = 5.0
"""Seconds for a program to end after SIGTERM."""
_LOOK: Final = 0.02
"""Seconds between two looks whether its children have ended, too."""
_LONGEST_PATH: Final = 107
"""Bytes of the path of a Unix socket; the system has no space for more."""


class ProgramFailed(Exception):
    """The program has ended with an error, and is not started again."""


class _LineStream(ConnectedFeed):
    """Lines of a stream of bytes, a few hundred to a delivery at most. Half a line at the end is left out."""

    def __init__(self, name: str, options: FeedOptions) -> None:
        super().__init__(name)
        self.bad = options.bad_lines()
        self._splitter = LineSplitter(options.max_line, options.decoder(), self.bad)

    async def _lines(
        self, reader: asyncio.StreamReader, ended_whole: Callable[[], Awaitable[bool]]
    ) -> AsyncGenerator[Delivery, None]:
        splitter = self._splitter
        try:
            while chunk := await reader.read(CHUNK):
                for delivery in self._lines_of(chunk, splitter):
                    yield delivery
            if splitter.pending and await ended_whole():
                yield Delivery(list(splitter.finish()))
        finally:
            self._leave_out_the_rest(splitter)

    @abstractmethod
    def connection(self) -> AsyncGenerator[Any, None]:
        """Connect, and yield the lines."""


class ProcessFeed(_LineStream):
    """The standard output of a program. Without demand it is not read, and the program waits to write.

    How the program ends is told. ``restart`` says whether it is started again: never, on-failure, always.
    """

    def __init__(self, command: list[str], options: FeedOptions) -> None:
        # A command may have lines of its own, and a name is within one.
        super().__init__(" ".join(shlex.join(command).split()), options)
        self._command = command
        self._restart = options.restart or "never"

    async def connection(self) -> AsyncGenerator[Any, None]:
        """Start the program, and yield its lines."""
        async with self._running() as process:
            self.connected()
            assert process.stdout is not None

            async def ended_whole() -> bool:
                # A program that fails may have lost what it reads in the middle of a line: ssh or curl does.
                # A shell ends with 128 and more if what runs in it is killed.
                return await process.wait() == 0

            async with aclosing(self._lines(process.stdout, ended_whole)) as deliveries:
                async for delivery in deliveries:
                    yield delivery
            status = await process.wait()
        how = f"ended with status {status}" if status >= 0 else f"was ended by signal {-status}"
        if self._restart == "always" or (status and self._restart == "on-failure"):
            raise ConnectionLost(f"the program {how}")
        if status:
            raise ProgramFailed(f"the program {self.name} {how}; --restart on-failure starts it again")
        _log.info("the program %s %s", self.name, how)

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[asyncio.subprocess.Process]:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                limit=CHUNK,
                start_new_session=True,
            )
        except OSError as error:
            if self._restart != "never":
                raise
            raise ProgramFailed(f"the program {self.name} cannot be started: {error.strerror}") from error
        try:
            yield process
        except BaseException:
            # Also if the program itself is gone: its children may still write.
            await asyncio.shield(_end(process))
            raise


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the program and its children: politely, then not."""
    assert process.stdout is not None
    # A pipe that nobody reads has no end, and would stay open.
    discarded = asyncio.ensure_future(_discard(process.stdout))
    await _end_group(process)
    await asyncio.wait([discarded], timeout=_GRACE)
    discarded.cancel()


async def _discard(reader: asyncio.StreamReader) -> None:
    while await reader.read(CHUNK):
        pass


async def _end_group(process: asyncio.subprocess.Process) -> None:
    for with_signal in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, with_signal)
            async with asyncio.timeout(_GRACE):
                await process.wait()
                while with_signal is signal.SIGTERM:
                    # Nobody tells when a group of processes is empty.
                    os.killpg(process.pid, 0)
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            continue
        except ProcessLookupError:
            return


class UnixFeed(_LineStream):
    """The lines that a server at a Unix socket sends; the feed reconnects when the connection is lost."""

    def __init__(self, path: str, options: FeedOptions) -> None:
        super().__init__(f"unix:{path}", options)
        self._path = path

    async def connection(self) -> AsyncGenerator[Any, None]:
        """Connect, and yield the lines."""
        reader, writer = await asyncio.open_unix_connection(sock=_called(self._path), limit=CHUNK)
        try:
            self.connected()
            async with aclosing(self._lines(reader, _torn)) as deliveries:
                async for delivery in deliveries:
                    yield delivery
            raise ConnectionLost("the server has closed the connection")
        finally:
            writer.close()


def _called(path: str) -> socket.socket:
    """A connected socket. asyncio would take the refusal of a full queue for a connection that is made."""
    calling = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        calling.setblocking(False)
        calling.connect(path)
    except BlockingIOError:
        calling.close()
        raise ConnectionLost("the server has as many waiting callers as it allows") from None
    except BaseException:
        calling.close()
        raise
    return calling


async def _torn() -> bool:
    """A connection that ends in the middle of a line has not sent all of it."""
    return False


def _open_exec(url: FeedUrl, options: FeedOptions) -> Feed:
    try:
        command = shlex.split(url.text.removeprefix("exec:"))
    except ValueError as error:
        raise BadFeed(f"{url.text}: {error}; write the command as in a shell") from None
    if not command:
        raise BadFeed("exec: does not name a program; write exec:COMMAND")
    if shutil.which(command[0]) is None:
        raise BadFeed(f"{url.text}: there is no program {command[0]!r}; for a shell write exec:sh -c '…'")
    return ProcessFeed(command, options)


def _open_unix(url: FeedUrl, options: FeedOptions) -> Feed:
    path = url.text.removeprefix("unix:")
    if not path:
        raise BadFeed("unix: does not name a socket; write unix:PATH")
    if len(os.fsencode(path)) > _LONGEST_PATH or "\0" in path:
        raise BadFeed(f"{url.text}: the path of a Unix socket has at most {_LONGEST_PATH} bytes and no NUL")
    return UnixFeed(path, options)


SCHEMES = (
    Scheme(
        "exec",
        "exec:COMMAND",
        "the lines that a program writes to its standard output",
        _open_exec,
        options=frozenset({"restart"}),
    ),
    Scheme(
        "unix",
        "unix:PATH",
        "the lines that a server at a Unix socket sends; the feed reconnects when the connection is lost",
        _open_unix,
    ),
)

"""Files as responses: whole or in ranges, at the client's pace, and never from outside of their directory.

Everything that may wait for a disk runs on a thread. A chunk is read when the client has taken the one before
it.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import stat
import time
from collections.abc import AsyncIterator, Callable
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from penstock.arguments import a_flag
from penstock.net.errors import NetError
from penstock.net.http.asgi import App, Headers, Receive, Scope, Send, header_pairs, named, steps_of
from penstock.net.http.ranges import Span, Validators, spans_of
from penstock.net.http.responses import Response, reply

if TYPE_CHECKING:
    from mimetypes import MimeTypes

    from penstock.net.http.incoming_request import Request

__all__ = ["Directory", "FileTruncated", "file"]

_log = logging.getLogger("penstock.net.http")

CHUNK: Final = 128 * 1024
"""How much is read at a time."""
_ABSENT: Final = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.EACCES,
        errno.EPERM,
        errno.ENXIO,
    }
)
"""Errors of a name, as opposed to those of a disk or of this process."""

_MORE_TYPES = (
    ("text/javascript", ".js"),
    ("text/javascript", ".mjs"),
    ("text/markdown", ".md"),
    ("application/wasm", ".wasm"),
    ("application/x-ndjson", ".ndjson"),
    ("font/woff2", ".woff2"),
    ("image/webp", ".webp"),
    ("image/avif", ".avif"),
)
_PACKED = {"gzip": "application/gzip", "bzip2": "application/x-bzip2", "xz": "application/x-xz"}


class FileTruncated(NetError):
    """A file became shorter while it was being sent. The connection is cut: a part must not look complete."""


class _Absent(Exception):
    """There is no such file for this client."""


class _OpenFile:
    """An open file that is read on threads."""

    def __init__(self, handle: int, status: os.stat_result) -> None:
        self._handle = handle
        self.size = status.st_size
        # A time to come, after the clock was set back, would make every copy look old.
        modified = min(int(status.st_mtime), int(time.time()))
        tag = f'"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"'
        self.validators = Validators(tag, modified)
        self._reading: asyncio.Future[bytes] | None = None
        self._closed = False

    async def read(self, span: Span) -> AsyncIterator[bytes]:
        """The bytes of a span, in chunks."""
        place = span.start
        while place < span.end:
            if self._closed:
                raise FileTruncated("the file was closed while it was being read")
            loop = asyncio.get_running_loop()
            size = min(CHUNK, span.end - place)
            self._reading = loop.run_in_executor(None, os.pread, self._handle, size, place)
            # A thread cannot be cancelled, and it must not find another file behind its handle.
            chunk = await asyncio.shield(self._reading)
            if not chunk:
                raise FileTruncated(
                    f"the file has become shorter while it was being sent: it ends at byte {place} "
                    f"of {self.size}"
                )
            place += len(chunk)
            yield chunk

    def close(self) -> None:
        """Close the file, when the thread that may still be reading has finished."""
        self._closed = True
        if self._reading is not None and not self._reading.done():
            self._reading.add_done_callback(self._read_for_nobody)
        else:
            os.close(self._handle)

    def _read_for_nobody(self, reading: asyncio.Future[bytes]) -> None:
        os.close(self._handle)
        if not reading.cancelled() and reading.exception() is not None:
            _log.debug("nobody wanted the file any more when reading it failed: %r", reading.exception())


def _regular(handle: int) -> _OpenFile:
    try:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise _Absent("not a file")
        return _OpenFile(handle, status)
    except BaseException:
        os.close(handle)
        raise


def _open_path(path: str) -> _OpenFile:
    # Without blocking: opening a pipe would wait for its writer.
    return _regular(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))


def _open_below(folder: str, names: list[str], index: str | None, links_out: bool) -> _OpenFile | str:
    """The file of these names below a folder; its last name, if it is a directory with an index."""
    root = os.path.realpath(folder)
    wanted = os.path.realpath(os.path.join(root, *names))
    if not names[-1] and not os.path.isdir(wanted):
        raise _Absent("a slash behind the name of a file")
    if index is not None and os.path.isdir(wanted):
        if names[-1]:
            return names[-1]
        wanted = os.path.realpath(os.path.join(wanted, index))
    if links_out:
        return _open_path(wanted)
    if os.path.commonpath((root, wanted)) != root:
        raise _Absent("a link leads out of the directory")
    # Step by step and without links: there are none left in the path, unless somebody has just made one.
    handle = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    steps = [name for name in os.path.relpath(wanted, root).split(os.sep) if name != os.curdir]
    if not steps:
        os.close(handle)
        raise _Absent("a directory")
    for number, name in enumerate(steps, 1):
        kind = os.O_NONBLOCK if number == len(steps) else os.O_DIRECTORY
        try:
            below = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | kind, dir_fd=handle)
        finally:
            os.close(handle)
        handle = below
    return _regular(handle)


class _FileApp:
    """Answers with a file that is opened for each request."""

    def __init__(
        self,
        opened: Callable[[], _OpenFile | str],
        name: str,
        content_type: str | None,
        headers: Headers | None,
    ) -> None:
        self._open = opened
        self._name = name
        self._content_type = content_type
        self._headers = header_pairs(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            opened = await self._opened()
        except _Absent as absent:
            _log.debug("%s: %s", named(scope), absent)
            await reply("not found\n", status=404)(scope, receive, send)
            return
        except OSError as error:
            _log.error("%s: the file cannot be opened", named(scope), exc_info=error)
            await reply("the server could not produce this response\n", status=500)(scope, receive, send)
            return
        if isinstance(opened, str):
            # Relative, so that it can lead to no other host.
            query = scope.get("query_string", b"").decode("latin-1")
            place = f"./{quote(opened, safe='')}/" + (f"?{query}" if query else "")
            await reply(status=307, headers={"location": place})(scope, receive, send)
            return
        try:
            await self._answer(scope, opened)(scope, receive, send)
        finally:
            opened.close()

    async def _opened(self) -> _OpenFile | str:
        opening = asyncio.get_running_loop().run_in_executor(None, self._open)
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            opening.add_done_callback(_close_at_once)
            raise
        except ValueError as error:  # a NUL, or what no file system can write
            raise _Absent(str(error)) from error
        except OSError as error:
            if error.errno in _ABSENT:
                raise _Absent(str(error)) from error
            raise

    def _answer(self, scope: Scope, opened: _OpenFile) -> App:
        asked = {
            name.decode("latin-1").lower(): value.decode("latin-1")
            for name, value in scope.get("headers", ())
        }
        about = [
            ("etag", opened.validators.etag),
            ("last-modified", opened.validators.last_modified),
            ("cache-control", "no-cache"),
        ]
        status = opened.validators.status(asked)
        if status == 304:
            return _Unchanged(self._all(about))
        if status == 412:
            return reply("the file has changed\n", status=412)
        spans = None
        # One header, and of a GET only (§14.2).
        if scope.get("method") == "GET" and opened.validators.allow_range(asked.get("if-range")):
            given = [value for name, value in scope["headers"] if name.lower() == b"range"]
            spans = spans_of(given[0].decode("latin-1"), opened.size) if len(given) == 1 else None
        if spans is not None and not spans:
            text = f"the file has {opened.size} bytes\n"
            return reply(text, status=416, headers={"content-range": f"bytes */{opened.size}"})
        kind = self._content_type or type_of(self._name)
        about += [("accept-ranges", "bytes"), ("x-content-type-options", "nosniff")]
        return _sent(opened, spans, kind, self._all(about))

    def _all(self, headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
        own = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in self._headers]
        names = {name for name, _ in own}
        return [pair for pair in headers if pair[0] not in names] + own


def _close_at_once(opening: asyncio.Future[_OpenFile | str]) -> None:
    if opening.cancelled() or opening.exception() is not None:
        return
    opened = opening.result()
    if isinstance(opened, _OpenFile):
        opened.close()


class _Unchanged:
    """Tells the client to use its own copy. Such an answer has no body, and no length."""

    def __init__(self, headers: list[tuple[str, str]]) -> None:
        self._headers = header_pairs(headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 304, "headers": self._headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _sent(opened: _OpenFile, spans: list[Span] | None, kind: str, headers: list[tuple[str, str]]) -> Response:
    """The whole, one range, or several as parts of one body."""
    whole = Span(0, opened.size)
    pieces: list[bytes | Span]
    if spans is None:
        status, pieces = 200, [whole]
    elif len(spans) == 1:
        status, pieces = 206, [spans[0]]
        headers = [*headers, ("content-range", _content_range(spans[0], opened.size))]
    else:
        boundary = os.urandom(16).hex()
        status, pieces = 206, []
        for span in spans:
            head = f"\r\n--{boundary}\r\ncontent-type: {kind}\r\n"
            pieces += [
                f"{head}content-range: {_content_range(span, opened.size)}\r\n\r\n".encode("latin-1"),
                span,
            ]
        pieces.append(f"\r\n--{boundary}--\r\n".encode("latin-1"))
        kind = f"multipart/byteranges; boundary={boundary}"
    length = sum(len(piece) if isinstance(piece, bytes) else piece.end - piece.start for piece in pieces)
    source = steps_of(lambda: _chunks(opened, pieces), "file")
    headers = [*headers, ("content-length", str(length))]
    return Response(source, status=status, headers=headers, content_type=kind, at_once=False)


async def _chunks(opened: _OpenFile, pieces: list[bytes | Span]) -> AsyncIterator[bytes]:
    for piece in pieces:
        if isinstance(piece, bytes):
            yield piece
        else:
            async for chunk in opened.read(piece):
                yield chunk


def _content_range(span: Span, size: int) -> str:
    return f"bytes {span.start}-{span.end - 1}/{size}"


@cache
def _types() -> MimeTypes:
    import mimetypes

    # Not the lists of the system: the same file has the same type on every machine.
    types = mimetypes.MimeTypes(filenames=())
    for kind, ending in _MORE_TYPES:
        types.add_type(kind, ending)
    return types


def type_of(name: str) -> str:
    """The content type of a file, by the ending of its name.

    >>> type_of("page.html"), type_of("logs.tar.gz"), type_of("unknown")
    ('text/html; charset=utf-8', 'application/gzip', 'application/octet-stream')
    """
    kind, packed = _types().guess_type(name, strict=False)
    if packed is not None:
        return _PACKED.get(packed, "application/octet-stream")
    if kind is None:
        return "application/octet-stream"
    return f"{kind}; charset=utf-8" if kind.startswith("text/") else kind


def file(
    path: str | os.PathLike[str], *, content_type: str | None = None, headers: Headers | None = None
) -> App:
    """Answer with a file: a 404 if there is none, a 304 if the client has it, a 206 if it wants a range.

    The path is yours: build no part of it from what a client sends, and use ``Http.directory()`` for that.
    The content type follows from the ending of the name.
    """
    place = os.fspath(path)
    return _FileApp(partial(_open_path, place), place, content_type, headers)


class Directory:
    """A route's function that answers with the files of a directory; made by ``Http.directory()``."""

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        index: str | None,
        links_out: bool,
        hidden: bool,
        headers: Headers | None,
    ) -> None:
        self._folder = str(Path(folder).absolute())
        if not os.path.isdir(self._folder):
            raise NotADirectoryError(f"directory() needs a directory, and {self._folder} is not one")
        self._index = index
        self._links_out = a_flag(links_out, "links_out")
        self._hidden = a_flag(hidden, "hidden")
        self._headers = headers
        header_pairs(headers)  # so that bad ones are refused now

    def __call__(self, request: Request) -> App:
        """The file that the rest of the path names."""
        names = request.path["file"].split("/")
        if not self._allowed(names, request.scope):
            return reply("not found\n", status=404)
        opened = partial(_open_below, self._folder, names, self._index, self._links_out)
        name = names[-1] or self._index or ""
        return _FileApp(opened, name, None, self._headers)

    def _allowed(self, names: list[str], scope: Scope) -> bool:
        # A slash that was encoded is part of a name for the client, and for a proxy that guards a folder.
        raw = (scope.get("raw_path") or b"").lower()
        if b"%2f" in raw or b"%5c" in raw:
            return False
        for number, name in enumerate(names, 1):
            if not name and number < len(names):
                return False
            if name in (".", "..") or "\0" in name or "\\" in name or os.sep in name:
                return False
            if name.startswith(".") and not self._hidden:
                return False
        return True

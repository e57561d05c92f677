"""Compressed bodies, of requests and of responses, decompressed as they are read.

A few bytes can stand for gigabytes. So the limit of a body counts what comes out, and no more comes out at a
time than one piece, however much the next one would be. Many bytes can also stand for nothing. So the limit
counts what goes in as well, and the event loop has a turn after each piece and each slice of the input.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from typing import Final

from penstock.net.http.asgi import BadEncoding, UnsupportedEncoding

__all__ = ["INFLATED", "InflatedBody", "Inflater", "inflated"]

_PIECE: Final = 64 * 1024
_SLICE: Final = 16 * 1024
"""So much input is decompressed at a time: what is left of it is copied for each piece and each member."""
_ANY_HEADER: Final = 32 + zlib.MAX_WBITS
"""gzip as well as zlib, which HTTP calls deflate."""
_NO_HEADER: Final = -zlib.MAX_WBITS
_GZIP: Final = b"\x1f\x8b"
INFLATED: Final = frozenset({"gzip", "x-gzip", "deflate"})
"""The names of the encodings that are decompressed here."""


class Inflater:
    """Decompresses piece by piece, without any input or output.

    The first two bytes tell gzip from zlib, which HTTP calls deflate. Some send deflate without the header of
    zlib: then they tell nothing, so only the name of the encoding allows it, and only at the beginning.

    >>> inflater = Inflater()
    >>> inflater.feed(zlib.compress(b"hello"))
    >>> inflater.piece(), inflater.piece(), inflater.finish()
    (b'hello', b'', None)
    """

    def __init__(self, what: str = "body of the request", encoding: str = "deflate") -> None:
        self._what = what
        self._may_lack_header = encoding == "deflate"
        self._stream = zlib.decompressobj(_ANY_HEADER)
        self._input = b""
        self._fresh = True
        """Nothing of this member has been read yet."""

    def feed(self, data: bytes) -> None:
        """Take what has arrived."""
        self._input += data

    def piece(self) -> bytes:
        """The next piece; empty if there is none before more arrives."""
        while True:
            if self._stream.eof and self._input:  # several members may follow each other
                self._fresh = True
            if self._fresh:
                if len(self._input) < len(_GZIP):
                    return b""
                self._begin_member()
            if self._stream.eof:
                return b""
            try:
                made = self._stream.decompress(self._input, _PIECE)
            except zlib.error:
                raise BadEncoding(f"the {self._what} cannot be decompressed") from None
            consumed = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            progressed = len(consumed) < len(self._input)
            self._input = consumed
            if made or not progressed:
                return made

    def _begin_member(self) -> None:
        has_header = self._input.startswith(_GZIP) or _begins_zlib(self._input)
        lacks_header = not has_header and self._may_lack_header
        self._stream = zlib.decompressobj(_NO_HEADER if lacks_header else _ANY_HEADER)
        self._fresh = self._may_lack_header = False

    def finish(self) -> None:
        """Check that nothing is missing."""
        if self._input or not (self._stream.eof or self._fresh):
            raise BadEncoding(f"the compressed {self._what} ends too early")


def _begins_zlib(data: bytes) -> bool:
    """Whether these are the two bytes of RFC 1950: deflate, with a window that exists, and their check."""
    return data[0] & 0x0F == 8 and data[0] >> 4 <= 7 and (data[0] << 8 | data[1]) % 31 == 0


class InflatedBody:
    """The chunks of a body, decompressed."""

    def __init__(
        self, encoding: str, allowed: bool, next_chunk: Callable[[], Awaitable[bytes | None]]
    ) -> None:
        self._encoding = encoding
        self._allowed = allowed and encoding in INFLATED
        self._next_chunk = next_chunk
        self._inflater = Inflater(encoding=encoding)
        self._chunk = memoryview(b"")
        """What has arrived and is not in the inflater yet."""

    async def next_chunk(self) -> bytes | None:
        """Wait for the next piece; None at the end."""
        if not self._allowed:
            raise UnsupportedEncoding(
                f"a body that is encoded as {self._encoding!r:.40} is not accepted here"
            )
        await asyncio.sleep(0)  # before a piece is taken, which a cancel would lose
        while not (piece := self._inflater.piece()):
            if self._chunk:
                await asyncio.sleep(0)
            else:
                chunk = await self._next_chunk()
                if chunk is None:
                    self._inflater.finish()
                    return None
                self._chunk = memoryview(chunk)
            self._inflater.feed(bytes(self._chunk[:_SLICE]))
            self._chunk = self._chunk[_SLICE:]
        return piece


async def inflated(
    chunks: AsyncIterable[bytes], what: str, encoding: str = "deflate"
) -> AsyncGenerator[bytes, None]:
    """The chunks of a compressed body, decompressed in pieces; each is made when it is asked for."""
    inflater = Inflater(what, encoding)
    async for chunk in chunks:
        for begin in range(0, len(chunk), _SLICE):
            inflater.feed(chunk[begin : begin + _SLICE])
            while piece := inflater.piece():
                yield piece
                await asyncio.sleep(0)
    inflater.finish()

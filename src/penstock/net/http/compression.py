"""Responses compressed with gzip, for clients that ask for it.

What an application sends in one message leaves in one message: the compressor is flushed each time, so that
the elements of a stream still arrive as they are made. A flush costs a few bytes, and messages hold up to 64
KiB of elements that were ready together.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable
from typing import Any, Final

from penstock.arguments import a_count, a_whole_number
from penstock.net.http.asgi import Message, Scope, Send

__all__ = ["COMPRESSED_TYPES", "Compression", "accepts_gzip"]

COMPRESSED_TYPES: Final = (
    "text/*",
    "application/json",
    "application/x-ndjson",
    "application/javascript",
    "application/xml",
    "application/wasm",
    "image/svg+xml",
    "*+json",
    "*+xml",
)
"""The types that become smaller. Images, videos and archives are compressed already."""
_GZIP: Final = 16 + zlib.MAX_WBITS
_ON_A_THREAD: Final = 32 * 1024
"""So many bytes take a millisecond, for which the event loop should not wait."""
_NEVER: Final = frozenset({204, 205, 206, 304})
"""Statuses without a body, or with a part of one: a range of the compressed bytes would be another range."""
_VARYING: Final = frozenset({206, 304})
"""Of these, the ones that stand for a 200, and have its ``vary`` (§15.3.7, §15.4.5)."""


class Compression:
    """Which responses are compressed, and how well; made by ``Http.compress()``."""

    def __init__(self, minimum: int, level: int, types: Iterable[str]) -> None:
        self._minimum = a_count(minimum, "minimum", least=0)
        self._level = a_whole_number(level, "level", least=1, most=9)
        if isinstance(types, str):
            raise TypeError(f"types has to be a collection of content types, such as [{types!r}]")
        self._types = tuple(one.lower() for one in types)

    def sender(self, scope: Scope, send: Send) -> Send:
        """What takes the place of the server's ``send`` for this request."""
        return _CompressedSend(self, scope, send)

    def suits(self, status: int, headers: dict[bytes, bytes]) -> bool:
        """Whether such a response may be compressed at all, whatever the client says."""
        if status < 200 or status in _NEVER or b"content-encoding" in headers or b"content-range" in headers:
            return False
        if b"no-transform" in headers.get(b"cache-control", b"").lower():
            return False
        kind = headers.get(b"content-type", b"").decode("latin-1").partition(";")[0].strip().lower()
        return any(_matches(kind, wanted) for wanted in self._types)

    def large_enough(self, headers: dict[bytes, bytes], first: Message) -> bool:
        """Whether there are enough bytes; a stream whose length nobody knows has enough."""
        announced = headers.get(b"content-length", b"").decode("latin-1")
        if announced.isdecimal():
            return len(announced.lstrip("0")) > 15 or int(announced) >= self._minimum
        return first.get("more_body", False) or len(first.get("body", b"")) >= self._minimum

    def compressor(self) -> Any:
        """A compressor for one response."""
        return zlib.compressobj(self._level, zlib.DEFLATED, _GZIP)


def _matches(kind: str, wanted: str) -> bool:
    if wanted.startswith("*"):
        return kind.endswith(wanted[1:])
    return kind.startswith(wanted[:-1]) if wanted.endswith("*") else kind == wanted


def accepts_gzip(accepted: str) -> bool:
    """Whether a client would rather have gzip than plain bytes (RFC 9110, §12.5.3).

    >>> [accepts_gzip(given) for given in ("br, gzip", "gzip;q=0", "*", "identity, gzip;q=0.5", "")]
    [True, False, True, False, False]
    """
    weights: dict[str, float] = {}
    for one in accepted.lower().split(","):
        name, _, parameters = one.partition(";")
        key, _, value = parameters.partition("=")
        weights[name.strip()] = _weight(value) if key.strip() == "q" else 1.0
    gzip = weights.get("gzip", weights.get("x-gzip", weights.get("*", 0.0)))
    return gzip > 0 and gzip >= weights.get("identity", 0.0)


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


class _CompressedSend:
    """The messages of one response on their way to the server."""

    def __init__(self, compression: Compression, scope: Scope, send: Send) -> None:
        self._compression = compression
        self._scope = scope
        self._send = send
        self._start: Message | None = None
        """The first message, which waits for the second: that one tells how large the body is."""
        self._compressor: Any = None

    async def __call__(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._start = message
            return
        if self._start is not None:
            start, self._start = self._start, None
            if kind == "http.response.body":
                message = await self._begin(start, message)
            await self._send(start)
        elif self._compressor is not None and kind == "http.response.body":
            message = await self._compressed(message)
        await self._send(message)

    async def _begin(self, start: Message, first: Message) -> Message:
        """Decide, change the headers, and return what is sent of the first part of the body."""
        pairs = [(name.lower(), value) for name, value in start.get("headers", ())]
        headers = dict(pairs)
        if not self._compression.suits(start["status"], headers):
            if start["status"] in _VARYING:
                start["headers"] = _varying(pairs)
            return first
        start["headers"] = _varying(pairs)
        accepted = [
            value for name, value in self._scope.get("headers", ()) if name.lower() == b"accept-encoding"
        ]
        if not accepts_gzip(b",".join(accepted).decode("latin-1")):
            return first
        # The answer to HEAD has the headers that GET would get.
        head = self._scope.get("method") == "HEAD"
        if not self._compression.large_enough(headers, first):
            return first
        self._compressor = self._compression.compressor()
        whole = not first.get("more_body", False)
        # Without a body: granian announces the length of the one that it leaves out.
        message = {**first, "body": b""} if head else await self._compressed(first)
        if whole and not head and len(message["body"]) >= len(first.get("body", b"")):
            self._compressor = None
            return first
        kept = [
            pair for pair in start["headers"] if pair[0] not in (b"content-length", b"accept-ranges", b"etag")
        ]
        kept.append((b"content-encoding", b"gzip"))
        if b"etag" in headers:
            tag = headers[b"etag"]
            # The bytes are others, and what they stand for is the same: that is a weak tag.
            kept.append((b"etag", tag if tag.startswith(b"W/") else b"W/" + tag))
        if whole and not head:
            kept.append((b"content-length", b"%d" % len(message["body"])))
        start["headers"] = kept
        return message

    async def _compressed(self, message: Message) -> Message:
        data, more = message.get("body", b""), message.get("more_body", False)
        if not data and more:
            return message  # an empty message makes the server send the headers
        if len(data) > _ON_A_THREAD:
            packed = await asyncio.to_thread(self._pack, data, more)
        else:
            packed = self._pack(data, more)
        return {**message, "body": packed}

    def _pack(self, data: bytes, more: bool) -> bytes:
        packed: bytes = self._compressor.compress(data)
        packed += self._compressor.flush(zlib.Z_SYNC_FLUSH if more else zlib.Z_FINISH)
        return packed


def _varying(pairs: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers, which say that another client may get another answer."""
    given = b",".join(value for name, value in pairs if name == b"vary")
    names = {name.strip().lower() for name in given.split(b",")}
    if b"*" in names or b"accept-encoding" in names:
        return pairs
    return [*pairs, (b"vary", b"accept-encoding")]

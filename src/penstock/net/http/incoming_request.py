"""A request, as the function of a route sees it."""

from __future__ import annotations

from urllib.parse import parse_qsl

from penstock.arguments import a_count
from penstock.net.http.asgi import BodyTooLarge, Receive, Scope
from penstock.net.http.forms import MAX_FIELDS, MAX_FORM_BYTES, Form, FormPart, form_of, parts_of
from penstock.net.http.inflation import InflatedBody
from penstock.net.http.multipart import MultipartDecoder, boundary_of
from penstock.net.http.reception import Reception, body
from penstock.streams import Flux, Single

__all__ = ["Request"]


class Request:
    """A request."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        path: dict[str, str],
        body_limit: int | None = None,
        decompress: bool = False,
    ) -> None:
        """Made by :class:`Http`, for each request."""
        self.scope = scope
        self.path = path
        """The parts of the path for which the route has a name in braces."""
        self._receive = receive
        self._body_limit = body_limit
        self._body_size = 0
        self._compressed_size = 0
        self._decompress = decompress
        self._inflated: InflatedBody | None = None

    @property
    def method(self) -> str:
        """``GET``, ``POST``, …"""
        return str(self.scope["method"])

    @property
    def headers(self) -> dict[str, str]:
        """The headers, with names in lower case. Of a repeated header, the last value."""
        return {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in self.scope["headers"]
        }

    def header_values(self, name: str) -> list[str]:
        """All values of a header, in their order; the name may be written in any case."""
        wanted = name.lower().encode("latin-1")
        return [value.decode("latin-1") for given, value in self.scope["headers"] if given.lower() == wanted]

    @property
    def query(self) -> dict[str, str]:
        """The query parameters. Of a repeated name, the last value."""
        return dict(self._query())

    def query_values(self, name: str) -> list[str]:
        """All values of a query parameter, in their order."""
        return [value for given, value in self._query() if given == name]

    def _query(self) -> list[tuple[str, str]]:
        return parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True)

    def body(self) -> Flux[bytes]:
        """The body of the request; see :func:`penstock.net.http.body`.

        It fails with BodyTooLarge or RequestTimeout beyond the limits of the application.
        """
        if self._decompress and self._encoding:
            return Reception.of(self._receive).flux("body", self._next_chunk)
        chunks = body(self._receive)
        return chunks if self._body_limit is None else chunks.map(self._counted)

    def form(self, *, max_bytes: int = MAX_FORM_BYTES, max_fields: int = MAX_FIELDS) -> Single[Form]:
        """The fields of a form without files (``application/x-www-form-urlencoded``), for one subscriber.

        It fails with NotAForm (415), BadForm (400) or FormTooLarge (413), which a route need not catch.
        """
        most, fields = a_count(max_bytes, "max_bytes"), a_count(max_fields, "max_fields")
        return form_of(Reception.of(self._receive), self._content_type, self._next_chunk, most, fields)

    def parts(
        self,
        *,
        max_parts: int = MAX_FIELDS,
        max_header_bytes: int = 8 * 1024,
        max_part_bytes: int | None = None,
    ) -> Flux[FormPart]:
        """The parts of a form with files (``multipart/form-data``), for one subscriber.

        Take them one at a time, with ``async for`` or ``map_async(…, concurrency=1)``: both ask for the next
        part when this one has been dealt with, on whatever thread that was. ``concat_map`` asks a moment
        earlier, so its inner streams must not change their thread; and ``publish_on`` belongs behind these.

        Emits when the head of a part has arrived and there is demand. A part that is being read comes first;
        one that nobody has begun to read is skipped, and its body fails with PartSkipped.
        Backpressures when there is no demand for a part, nor for the body of one: the client has to wait.
        Completes when the last boundary has arrived. It fails with NotAForm (415), BadForm (400) or
        FormTooLarge (413), which a route need not catch.
        Cancels when its subscriber cancels. The part that it has can still be read.
        """
        parts, head = a_count(max_parts, "max_parts"), a_count(max_header_bytes, "max_header_bytes")
        size = None if max_part_bytes is None else a_count(max_part_bytes, "max_part_bytes", least=0)

        def decoder() -> MultipartDecoder:
            boundary = boundary_of(self._content_type)
            return MultipartDecoder(boundary, max_parts=parts, max_header_bytes=head, max_part_bytes=size)

        return parts_of(Reception.of(self._receive), self._next_chunk, decoder)

    @property
    def _content_type(self) -> str:
        return self.headers.get("content-type", "")

    async def _next_chunk(self) -> bytes | None:
        chunk: bytes | None
        if not self._encoding:
            chunk = await Reception.of(self._receive).next_chunk()
        else:
            if self._inflated is None:
                self._inflated = InflatedBody(self._encoding, self._decompress, self._next_compressed_chunk)
            chunk = await self._inflated.next_chunk()
        return None if chunk is None else self._counted(chunk)

    async def _next_compressed_chunk(self) -> bytes | None:
        chunk: bytes | None = await Reception.of(self._receive).next_chunk()
        if chunk is not None:
            self._compressed_size += len(chunk)
            self._check_size(self._compressed_size)
        return chunk

    @property
    def _encoding(self) -> str:
        """How the body is compressed; empty if it is not."""
        given = ",".join(self.header_values("content-encoding")).strip().lower()
        return "" if given == "identity" else given

    def _counted(self, chunk: bytes) -> bytes:
        self._body_size += len(chunk)
        self._check_size(self._body_size)
        return chunk

    def _check_size(self, size: int) -> None:
        if self._body_limit is not None and size > self._body_limit:
            raise BodyTooLarge(f"the body of the request has more than {self._body_limit} bytes")

    def check_announced_size(self) -> None:
        """Refuse a body that is too large before any of it has been read, if the client says its size."""
        for size in self.header_values("content-length"):
            if size.isdecimal():
                # The first digits are enough. Python refuses to read thousands of them.
                self._check_size(int(size.lstrip("0")[:20] or "0"))

"""Routes for a service whose responses are streams. Any framework's router works as well."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl

from penstock.arguments import a_count, a_number
from penstock.net.http.asgi import (
    App,
    BodyTooLarge,
    ClientGone,
    Headers,
    Message,
    Receive,
    RequestRefused,
    Scope,
    Send,
    named,
)
from penstock.net.http.files import Directory
from penstock.net.http.forms import MAX_FIELDS, MAX_FORM_BYTES, Form, FormPart, form_of, parts_of
from penstock.net.http.multipart import MultipartDecoder, boundary_of
from penstock.net.http.reception import Reception, body
from penstock.net.http.responses import ndjson, reply
from penstock.net.http.websockets import WebSocketHandler, websocket
from penstock.spec import Publisher
from penstock.streams import Flux, Single

__all__ = ["Http", "Request"]

_log = logging.getLogger("penstock.net.http")

Returned = App | Publisher[Any] | bytes | str
Function = Callable[["Request"], Returned | Awaitable[Returned]]


class Request:
    """A request."""

    def __init__(
        self, scope: Scope, receive: Receive, path: dict[str, str], body_limit: int | None = None
    ) -> None:
        """Made by :class:`Http`, for each request."""
        self.scope = scope
        self.path = path
        """The parts of the path for which the route has a name in braces."""
        self._receive = receive
        self._body_limit = body_limit
        self._body_size = 0

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

        Take them one at a time, with ``async for``, ``concat_map`` or ``map_async(…, concurrency=1)``.

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
        chunk: bytes | None = await Reception.of(self._receive).next_chunk()
        return None if chunk is None else self._counted(chunk)

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


@dataclass(frozen=True, slots=True)
class Route:
    """A method, a path and the function that answers; made by the methods of :class:`Http`."""

    method: str
    pattern: re.Pattern[str]
    run: Any

    @classmethod
    def at(cls, method: str, path: str, run: Any) -> Route:
        """Check the path and the function, and compile the path."""
        if not path.startswith("/"):
            raise ValueError(f"a path has to begin with a slash, unlike {path!r}")
        if not callable(run):
            raise TypeError(f"{method} {path} needs a function, not {run!r}")
        pieces = re.split(r"\{(\w+)\}", path)
        text = "".join(f"(?P<{piece}>[^/]+)" if i % 2 else re.escape(piece) for i, piece in enumerate(pieces))
        return cls(method, re.compile(text), run)


@dataclass(frozen=True, slots=True)
class Http:
    """An ASGI application of a few routes. It is immutable: each method returns a new one.

    ::

        app = (
            Http()
            .get("/ticks/{name}", lambda request: sse(ticks(request.path["name"])))
            .post("/lines", lambda request: request.body().transform(lines()).count())
            .ws("/echo", lambda inbound, outbound: outbound.send(inbound.receive()))
        )

    A function takes the :class:`Request` and returns a response, bytes, text, or a publisher, whose elements
    are then sent as JSON lines. It may be a coroutine function. ``uvicorn module:app`` serves the
    application.
    """

    routes: tuple[Route, ...] = ()
    most_of_a_body: int | None = None
    seconds_for_a_request: float | None = None

    def body_limit(self, most: int) -> Http:
        """Refuse a request whose body has more bytes than this, with status 413; there is no limit otherwise.

        If the client announces the size, the function is not called. If it does not, reading the body fails
        with BodyTooLarge.
        """
        return replace(self, most_of_a_body=a_count(most, "body_limit()", least=0))

    def request_timeout(self, seconds: float) -> Http:
        """Refuse a request whose body has not arrived after so many seconds, with status 408.

        Reading the body fails with RequestTimeout. A function that does not read it has all the time it
        needs, and so has the response.
        """
        return replace(self, seconds_for_a_request=a_number(seconds, "request_timeout()", above=0))

    def get(self, path: str, function: Function) -> Http:
        """Answer GET, and HEAD, at this path."""
        return self.route("GET", path, function)

    def post(self, path: str, function: Function) -> Http:
        """Answer POST at this path."""
        return self.route("POST", path, function)

    def put(self, path: str, function: Function) -> Http:
        """Answer PUT at this path."""
        return self.route("PUT", path, function)

    def ws(self, path: str, handler: WebSocketHandler) -> Http:
        """Accept WebSockets at this path; see :func:`penstock.net.http.websocket`."""
        return self._with(Route.at("WS", path, websocket(handler)))

    def route(self, method: str, path: str, function: Function) -> Http:
        """Answer any method at this path."""
        return self._with(Route.at(method.upper(), path, function))

    def directory(
        self,
        path: str,
        folder: str | os.PathLike[str],
        *,
        index: str | None = None,
        links_out: bool = False,
        hidden: bool = False,
        headers: Headers | None = None,
    ) -> Http:
        """Answer GET and HEAD with the files below a folder; see :func:`penstock.net.http.file`.

        With an ``index``, such as ``"index.html"``, a path that ends with a slash gets that file. Symbolic
        links that lead out of the folder are followed with ``links_out`` only, and names that begin with a
        dot are served with ``hidden`` only. Everything else is a 404.
        """
        if not path.startswith("/"):
            raise ValueError(f"a path has to begin with a slash, unlike {path!r}")
        serve = Directory(folder, index=index, links_out=links_out, hidden=hidden, headers=headers)
        pattern = re.compile(re.escape(path.rstrip("/")) + "/(?P<file>.*)", re.DOTALL)
        return self._with(Route("GET", pattern, serve))

    def _with(self, route: Route) -> Http:
        return replace(self, routes=(*self.routes, route))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, as an ASGI application."""
        kind = scope["type"]
        if kind == "lifespan":
            await _live(receive, send)
            return
        if kind not in ("http", "websocket"):
            raise RuntimeError(f"this application does not speak {kind!r}")
        method = "WS" if kind == "websocket" else scope["method"]
        wanted = "GET" if method == "HEAD" else method
        found = [(route, match) for route in self.routes if (match := route.pattern.fullmatch(scope["path"]))]
        for route, match in found:
            if route.method == wanted:
                answer = route.run
                if kind == "http":
                    reception = Reception.of(receive)
                    if self.seconds_for_a_request is not None:
                        now = asyncio.get_running_loop().time()
                        reception.deadline = now + self.seconds_for_a_request
                    request = Request(scope, receive, match.groupdict(), self.most_of_a_body)
                    answer = await _answer(route.run, request)
                await answer(scope, receive, send)
                return
        if kind == "websocket":
            await receive()
            await _no_such_websocket(scope, send)
        elif found:
            allowed = ", ".join(sorted({route.method for route, _ in found} - {"WS"}))
            await reply("method not allowed\n", status=405, headers={"allow": allowed})(scope, receive, send)
        else:
            await reply("not found\n", status=404)(scope, receive, send)


async def _no_such_websocket(scope: Scope, send: Send) -> None:
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        # All that this server can do is to refuse the handshake; most say 403 to the client.
        await send({"type": "websocket.close", "code": 1008, "reason": "no such path"})
        return
    text = b"not found\n"
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(text))]
    await send({"type": "websocket.http.response.start", "status": 404, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": text, "more_body": False})


async def _answer(function: Function, request: Request) -> App:
    try:
        request.check_announced_size()
        answer = function(request)
        if inspect.isawaitable(answer) and not isinstance(answer, Publisher):
            answer = await answer
        if isinstance(answer, bytes | str):
            return reply(answer)
        if isinstance(answer, Publisher):
            return ndjson(answer)
        if callable(answer):
            return answer
        raise TypeError(f"a route returns a response, a publisher, bytes or text, not {answer!r:.80}")
    except Exception as error:
        if isinstance(error, ClientGone) or Reception.of(request._receive).client_left:
            # Most likely the route was reading from the client. There is nobody to answer.
            _log.debug("%s: the client disconnected (%r)", named(request.scope), error)
            return _to_nobody
        if isinstance(error, RequestRefused):
            _log.info("%s: refused: %s", named(request.scope), error)
            return reply(f"{error}\n", status=error.status)
        _log.error("%s: the route failed", named(request.scope), exc_info=error)
        return reply("the server could not produce this response\n", status=500)


async def _to_nobody(scope: Scope, receive: Receive, send: Send) -> None:
    """The answer to a client that has disconnected."""


async def _live(receive: Receive, send: Send) -> None:
    """Answer the server's lifespan messages; there is nothing to start or stop."""
    while True:
        message: Message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return

"""Routes for a service whose responses are streams. Any framework's router works as well."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from penstock.arguments import a_count, a_number
from penstock.net.http.access_log import AccessEntry, AccessLog
from penstock.net.http.asgi import (
    App,
    ClientGone,
    Headers,
    Message,
    Receive,
    RequestRefused,
    Scope,
    Send,
    named,
)
from penstock.net.http.compression import COMPRESSED_TYPES, Compression
from penstock.net.http.files import Directory
from penstock.net.http.incoming_request import Request
from penstock.net.http.reception import Reception
from penstock.net.http.responses import ndjson, reply
from penstock.net.http.websockets import WebSocketHandler, websocket
from penstock.spec import Publisher

__all__ = ["Http", "Route"]

_log = logging.getLogger("penstock.net.http")

Returned = App | Publisher[Any] | bytes | str
Function = Callable[[Request], Returned | Awaitable[Returned]]


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
    decompresses: bool = False
    compression: Compression | None = None
    accesses: AccessLog | None = None

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

    def decompress(self) -> Http:
        """Decompress the body of a request as it is read, if the client sent it as gzip or deflate.

        The limit of the body counts what comes out, and what goes in. A body that is compressed in another
        way fails with UnsupportedEncoding, status 415, and a broken one with BadEncoding, status 400.
        """
        return replace(self, decompresses=True)

    def compress(
        self, *, minimum: int = 1024, level: int = 6, types: Iterable[str] = COMPRESSED_TYPES
    ) -> Http:
        """Compress responses with gzip, for clients that accept it.

        A body of fewer than ``minimum`` bytes is left as it is, and so is one whose content type is none of
        ``types`` (``"text/*"``, ``"*+json"``), that is encoded already, or that is a range. Elements of a
        stream are flushed as they are sent.
        """
        return replace(self, compression=Compression(minimum, level, types))

    def access_log(
        self, format: Literal["common", "json"] | Callable[[AccessEntry], str] | None = "common"
    ) -> Http:
        """Write a line for each request and WebSocket when it is over; None turns it off again.

        The logger is ``penstock.net.http.access``, the level INFO. A function takes an :class:`AccessEntry`
        and returns the line. If it fails, that is logged once, and lines are written as ``"common"``.
        """
        return replace(self, accesses=None if format is None else AccessLog(format))

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
        if self.accesses is not None and self.accesses.is_on:
            await self.accesses.run(self._serve, scope, receive, send)
        else:
            await self._serve(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http" and self.compression is not None:
            send = self.compression.sender(scope, send)
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
                    request = Request(
                        scope, receive, match.groupdict(), self.most_of_a_body, self.decompresses
                    )
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

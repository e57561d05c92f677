"""Routes for a service whose responses are streams. Any framework's router works as well."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from penstock.net.http.asgi import App, ClientGone, Message, Receive, Scope, Send, named
from penstock.net.http.reception import Reception, body
from penstock.net.http.responses import ndjson, reply
from penstock.net.http.websockets import WebSocketHandler, websocket
from penstock.spec import Publisher
from penstock.streams import Flux

__all__ = ["Http", "Request"]

_log = logging.getLogger("penstock.net.http")

Returned = App | Publisher[Any] | bytes | str
Function = Callable[["Request"], Returned | Awaitable[Returned]]


class Request:
    """A request."""

    def __init__(self, scope: Scope, receive: Receive, path: dict[str, str]) -> None:
        self.scope = scope
        self.path = path
        """The parts of the path for which the route has a name in braces."""
        self._receive = receive

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

    @property
    def query(self) -> dict[str, str]:
        """The query parameters. Of a repeated name, the last value."""
        return dict(parse_qsl(self.scope["query_string"].decode("latin-1"), keep_blank_values=True))

    def body(self) -> Flux[bytes]:
        """The body of the request; see :func:`penstock.net.http.body`."""
        return body(self._receive)


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
        return Http((*self.routes, Route.at("WS", path, websocket(handler))))

    def route(self, method: str, path: str, function: Function) -> Http:
        """Answer any method at this path."""
        return Http((*self.routes, Route.at(method.upper(), path, function)))

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
                    answer = await _answer(route.run, Request(scope, receive, match.groupdict()))
                await answer(scope, receive, send)
                return
        if kind == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008, "reason": "no such path"})
        elif found:
            allowed = ", ".join(sorted({route.method for route, _ in found} - {"WS"}))
            await reply("method not allowed\n", status=405, headers={"allow": allowed})(scope, receive, send)
        else:
            await reply("not found\n", status=404)(scope, receive, send)


async def _answer(function: Function, request: Request) -> App:
    try:
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

"""HTTP as streams: a response is a Publisher, and so is the body of a request.

Any server that speaks ASGI 3 will do: uvicorn, hypercorn, granian from 2.8 on. Nothing else has to be
installed for this side. The client needs the extra ``http``: ``pip install 'penstock-streams[http]'``.

>>> import asyncio
>>> from penstock.net.http import Http, ndjson
>>> from penstock.streams import Flux
>>> app = Http().get("/numbers", lambda request: ndjson(Flux.range(3)))

The result is an ASGI application like any other, so a function can play the server:

>>> async def ask(path):
...     sent = []
...     async def receive():
...         return await asyncio.Future()  # the client waits
...     async def send(message):
...         sent.append(message.get("body", b""))
...     scope = {"type": "http", "method": "GET", "path": path, "headers": [], "query_string": b""}
...     await app(scope, receive, send)
...     return b"".join(sent)
>>> asyncio.run(ask("/numbers"))
b'0\\n1\\n2\\n'
"""

from penstock.net.http.access_log import AccessEntry, AccessLog
from penstock.net.http.asgi import (
    App,
    BadEncoding,
    BadForm,
    BadStatus,
    BodyTooLarge,
    ClientGone,
    FormTooLarge,
    NotAForm,
    PartSkipped,
    PoolExhausted,
    RequestRefused,
    RequestTimeout,
    ResponseBroken,
    UnsupportedEncoding,
    WebSocketClosed,
)
from penstock.net.http.client import Answer, Call, RequestOptions, get, post, request
from penstock.net.http.compression import Compression
from penstock.net.http.events import Event, EventDecoder, WrongEvent
from penstock.net.http.files import FileTruncated, file
from penstock.net.http.forms import Form, FormPart
from penstock.net.http.incoming_request import Request
from penstock.net.http.pool import HttpLease, HttpPool, HttpPoolStatus, http_pool
from penstock.net.http.reception import body
from penstock.net.http.responses import Response, ndjson, reply, sse, stream
from penstock.net.http.routes import Http, Route
from penstock.net.http.websocket_client import WebSocketClient, WebSocketConnection, ws
from penstock.net.http.websocket_link import WebSocketSettings
from penstock.net.http.websockets import WebSocketHandler, WebSocketInbound, WebSocketOutbound, websocket

__all__ = [
    "AccessEntry",
    "AccessLog",
    "Answer",
    "App",
    "BadEncoding",
    "BadForm",
    "BadStatus",
    "BodyTooLarge",
    "Call",
    "ClientGone",
    "Compression",
    "Event",
    "EventDecoder",
    "FileTruncated",
    "Form",
    "FormPart",
    "FormTooLarge",
    "Http",
    "HttpLease",
    "HttpPool",
    "HttpPoolStatus",
    "NotAForm",
    "PartSkipped",
    "PoolExhausted",
    "Request",
    "RequestOptions",
    "RequestRefused",
    "RequestTimeout",
    "Response",
    "ResponseBroken",
    "Route",
    "UnsupportedEncoding",
    "WebSocketClient",
    "WebSocketClosed",
    "WebSocketConnection",
    "WebSocketHandler",
    "WebSocketInbound",
    "WebSocketOutbound",
    "WebSocketSettings",
    "WrongEvent",
    "body",
    "file",
    "get",
    "http_pool",
    "ndjson",
    "post",
    "reply",
    "request",
    "sse",
    "stream",
    "websocket",
    "ws",
]

"""The dashboard as an ASGI application: the page, its files, the form for the token, and the events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from importlib.resources import files
from typing import Final
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.observe.dashboard.access import VisitorAccess
from penstock.observe.dashboard.latest import LatestUpdate

__all__ = ["application"]

_log = logging.getLogger("penstock.observe")

MOST_BROWSERS: Final = 32
_PING: Final = 5.0
"""Seconds after which a browser hears that the server is there, if there is nothing new."""
_STALLED: Final = 30.0
"""Seconds that a browser may take to read one update, before it is given up."""
_LONGEST_FORM: Final = 4096
_FORM_TIME: Final = 10.0
"""Seconds for the form to arrive."""

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    "LICENSE": "text/plain; charset=utf-8",
}
_PAGES: Final = ("index.html", "login.html")
"""Files that are not served by their names: they stand for an address each."""

_HEADERS: Final = [
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        b"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
]


def application(access: VisitorAccess, latest: LatestUpdate, history: Callable[[], bytes]) -> ASGIApp:
    """Make the application. ``history`` returns the last minutes as JSON."""
    return _Guarded(_Pages(access, latest, history).routes(), access)


class _Guarded:
    """Refuses requests for foreign host names, and puts the security headers on every answer."""

    def __init__(self, app: ASGIApp, access: VisitorAccess) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        started = False

        async def send_guarded(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                message = {**message, "headers": [*message["headers"], *_HEADERS]}
            await send(message)

        hosts = [value for name, value in scope["headers"] if name == b"host"]
        app: ASGIApp = self._app
        if len(hosts) != 1 or not self._access.knows_host(hosts[0].decode("latin-1")):
            app = PlainTextResponse(
                "This dashboard does not know the host name of your request. Use its address, or start it "
                "with --dashboard-name NAME.\n",
                status_code=421,
            )
        try:
            await app(scope, receive, send_guarded)
        except Exception:
            # The path has no secret: tokens come in headers and bodies only.
            _log.exception("the dashboard failed to answer %s %s", scope["method"], scope["path"])
            if not started:
                await PlainTextResponse("The dashboard failed.\n", 500)(scope, receive, send_guarded)


class _Pages:
    """The answers."""

    def __init__(self, access: VisitorAccess, latest: LatestUpdate, history: Callable[[], bytes]) -> None:
        self._access = access
        self._latest = latest
        self._history = history
        self._browsers = 0
        self._files = dict(_page_files())

    def routes(self) -> ASGIApp:
        """One route for each address."""
        served = [Route(f"/{name}", self._served(name)) for name in self._files if name not in _PAGES]
        return Starlette(
            routes=[
                Route("/", self._page),
                Route("/login", self._login, methods=["POST"]),
                Route("/logout", self._logout, methods=["POST"]),
                Route("/events", self._events),
                Route("/snapshot.json", self._snapshot),
                *served,
            ]
        )

    def _is_in(self, request: Request) -> bool:
        access = self._access
        if not access.needs_token:
            return True
        if access.accepts_header(request.headers.get("authorization")):
            return True
        return access.accepts_cookie(request.cookies.get(access.cookie_name))

    def _file(self, name: str, status: int = 200) -> Response:
        kind = next(kind for end, kind in _TYPES.items() if name.endswith(end))
        # Asked for again each time: a page of an older version must not meet newer figures.
        return Response(self._files[name], status, {"cache-control": "no-cache"}, kind)

    def _served(self, name: str) -> Callable[[Request], Response]:
        return lambda request: self._file(name)

    async def _page(self, request: Request) -> Response:
        return self._file("index.html") if self._is_in(request) else self._file("login.html", 401)

    async def _login(self, request: Request) -> Response:
        body = b""
        try:
            async with asyncio.timeout(_FORM_TIME):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > _LONGEST_FORM:
                        return PlainTextResponse("This form is too long.\n", 413)
        except TimeoutError:
            return PlainTextResponse("This form has not arrived.\n", 408, {"connection": "close"})
        try:
            given = parse_qs(body.decode("ascii"), max_num_fields=4).get("token", [""])[0].strip()
        except ValueError:
            given = ""
        if not self._access.needs_token:
            return RedirectResponse("/", 303)
        if not self._access.accepts_token(given):
            wrong = self._files["login.html"].replace(b'class="wrong" hidden', b'class="wrong" role="alert"')
            return Response(wrong, 401, {"cache-control": "no-store"}, _TYPES[".html"])
        cookie = self._access.set_cookie(self._access.cookie())
        return RedirectResponse("/", 303, {"set-cookie": cookie, "cache-control": "no-store"})

    async def _logout(self, request: Request) -> Response:
        return RedirectResponse("/", 303, {"set-cookie": self._access.set_cookie("")})

    async def _snapshot(self, request: Request) -> Response:
        if not self._is_in(request):
            return _refused()
        _, value = self._latest.current
        if value is None:
            return JSONResponse({"error": "there is no snapshot yet; ask again in a second"}, 503)
        headers = {"cache-control": "no-store"}
        if self._browsers >= MOST_BROWSERS:
            headers["x-penstock-full"] = "1"  # a browser does not learn why its event stream was refused
        return Response(value, headers=headers, media_type="application/json")

    async def _events(self, request: Request) -> Response:
        if not self._is_in(request):
            return _refused()
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        if self._browsers >= MOST_BROWSERS:
            text = f"{MOST_BROWSERS} browsers are watching already; close one of them.\n"
            return PlainTextResponse(text, 503)
        return _EventStream(self)

    async def stream(self, receive: Receive, send: Send) -> None:
        """Send the history, then each update that the browser is ready for, until it leaves."""
        self._browsers += 1
        gone = asyncio.ensure_future(_disconnected(receive))
        sending = asyncio.ensure_future(self._send_all(send))
        try:
            await asyncio.wait((gone, sending), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._browsers -= 1
            gone.cancel()
            sending.cancel()
            results = await asyncio.gather(gone, sending, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, OSError):
                raise result

    async def _send_all(self, send: Send) -> None:
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store"),
            (b"x-accel-buffering", b"no"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _send_event(send, b"history", self._history())
        number = 0
        while not self._latest.is_closed:
            newer = await self._latest.after(number, _PING)
            if newer is None:
                await _send_event(send, b"ping", b"{}")
                continue
            number, value = newer
            await _send_event(send, b"update", value)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class _EventStream(Response):
    """Server-sent events, for as long as the browser listens."""

    def __init__(self, pages: _Pages) -> None:
        super().__init__()
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._pages.stream(receive, send)


async def _send_event(send: Send, event: bytes, data: bytes) -> None:
    """Send one event; TimeoutError, which is an OSError, if the browser does not read."""
    body = b"event: %s\ndata: %s\n\n" % (event, data)
    async with asyncio.timeout(_STALLED):
        await send({"type": "http.response.body", "body": body, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _refused() -> Response:
    text = "A token is needed: send it in the header Authorization: Bearer, or open / in a browser.\n"
    return PlainTextResponse(text, 401, {"www-authenticate": "Bearer", "cache-control": "no-store"})


def _page_files() -> list[tuple[str, bytes]]:
    """Everything in the folder ``page``, by its path; read once, so no request ever names a path."""
    found: list[tuple[str, bytes]] = []
    folder = files("penstock.observe.dashboard").joinpath("page")
    for each in folder.iterdir():
        if each.is_file():
            found.append((each.name, each.read_bytes()))
        else:
            found += [(f"{each.name}/{inner.name}", inner.read_bytes()) for inner in each.iterdir()]
    return found

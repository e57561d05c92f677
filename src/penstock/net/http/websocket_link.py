"""A connection to a WebSocket server, with the two functions that an ASGI server passes to an application.

The library ``websockets`` does the handshake and the frames. Its own queue holds one frame, so the socket is
read when somebody receives. Its keep-alive is not used, because it takes a reader that is slow for a server
that is dead: while we do not read, we do not see a pong either.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from penstock.net.errors import ConnectFailed, ConnectionAborted, HandshakeFailed, NetError, SendRefused
from penstock.net.http.asgi import BadStatus, Message, WebSocketClosed, without_password
from penstock.net.http.reception import Reception
from penstock.net.tls import TlsSettings

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection
    from websockets.exceptions import ConnectionClosed
    from websockets.http11 import Response

__all__ = ["ServerReception", "WebSocketLink", "WebSocketSettings", "open_link", "websockets_library"]

_SHOWN = 1024
"""How much of a refusal's body is kept."""
_BROKEN: Final = 1006
_NOT_UTF8: Final = 1007
_MOST_PONGS: Final = 1 << 20
"""Bytes of answers to pings that may wait for a server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebSocketSettings:
    """Where to connect to, and how."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    subprotocols: tuple[str, ...] = ()
    connect_timeout: float | None = 10.0
    ping_interval: float | None = 20.0
    ping_timeout: float = 20.0
    close_timeout: float = 10.0
    max_length: int = 16 * 1024 * 1024
    tls: TlsSettings | None = None

    @property
    def place(self) -> str:
        """The address as errors show it."""
        return without_password(self.url)


class ServerReception(Reception):
    """What a server sends. The link knows how the connection ended, so it makes the error."""

    def _closed(self, message: Message) -> None:
        error: WebSocketClosed = message["error"]
        self.close_code, self.close_reason = message["code"], message["reason"]
        self._leave(error)
        self._whole = error.clean


class WebSocketLink:
    """The open connection."""

    def __init__(self, connection: ClientConnection, settings: WebSocketSettings) -> None:
        self._connection = connection
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._receiving = False
        self._sending = 0
        self._last_progress = self._loop.time()
        """When something was received or sent, or somebody began to receive."""
        self._silent = False
        """Whether the server did not answer a ping."""
        self.reception = ServerReception(self.receive)
        self._pinging = asyncio.ensure_future(self._ping()) if settings.ping_interval is not None else None

    # ---------------------------------------------------------------- ASGI
    async def receive(self) -> Message:
        """The next message, or how the connection ended."""
        self._receiving = True
        self._progress()
        try:
            content = await self._connection.recv()
        except websockets_library().exceptions.ConnectionClosed as closed:
            error = self._end(closed)
            code = self._connection.close_code
            reason = self._connection.close_reason
            return {"type": "websocket.disconnect", "code": code, "reason": reason, "error": error}
        finally:
            self._receiving = False
        self._progress()
        return {"type": "websocket.receive", ("text" if isinstance(content, str) else "bytes"): content}

    async def send(self, message: Message) -> None:
        """Send a message, and wait until the connection has room for another; or close."""
        if message["type"] == "websocket.close":
            await self._close(message["code"], message["reason"])
            return
        text = message.get("text")
        try:
            # Encoded here: the library takes text that cannot be encoded for a broken connection.
            content = message["bytes"] if text is None else text.encode()
        except UnicodeEncodeError as wrong:
            raise SendRefused(f"a message has text that cannot be encoded as UTF-8: {wrong}") from wrong
        self._sending += 1
        try:
            await self._connection.send(content, text=text is not None)
        except websockets_library().exceptions.ConnectionClosed as closed:
            raise self._end(closed) from closed
        finally:
            self._sending -= 1
            self._progress()

    async def _close(self, code: int, reason: str) -> None:
        # The server's close comes behind the messages that it has sent, so somebody has to read these.
        reading = asyncio.ensure_future(self._read_to_the_end())
        try:
            async with asyncio.timeout(self._settings.close_timeout):
                await self._connection.close(code, reason)
        except TimeoutError:
            self.abort()
        except BaseException:
            self.abort()
            raise
        finally:
            self._stop_pinging()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
        await self.wait_closed()

    async def _read_to_the_end(self) -> None:
        while True:
            await self._connection.recv()

    # ---------------------------------------------------------------- the end
    def abort(self) -> None:
        """Cut the connection, if it is still there."""
        self._stop_pinging()
        self._connection.transport.abort()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed. Then it is known how the server closed."""
        await self._connection.wait_closed()
        self.reception.close_code = self._connection.close_code
        self.reception.close_reason = self._connection.close_reason or ""

    def _stop_pinging(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()

    def _end(self, closed: ConnectionClosed) -> WebSocketClosed:
        """How it ended, in our words."""
        self._stop_pinging()
        url, received, sent = self._settings.place, closed.rcvd, closed.sent
        if sent is not None and not closed.rcvd_then_sent:
            said = _said(sent.code, sent.reason)
            return WebSocketClosed(
                f"{url}: this side closed the WebSocket {said}", code=sent.code, reason=sent.reason
            )
        if isinstance(closed.__cause__, UnicodeDecodeError):
            # The server was gone, or had closed, before it could be told: either way a message is lost.
            return WebSocketClosed(
                f"{url}: the server sent text that is not UTF-8 ({closed.__cause__})", code=_NOT_UTF8
            )
        if received is not None:
            said = _said(received.code, received.reason)
            return WebSocketClosed(
                f"{url}: the server closed the WebSocket {said}", code=received.code, reason=received.reason
            )
        why = "the connection was cut without a close frame"
        if getattr(self._connection, "deaf", False):
            why = "the server sent pings and did not read the answers"
        elif self._silent:
            why = f"the server did not answer a ping for {self._settings.ping_timeout} s"
        elif closed.__cause__ is not None:
            why += f" ({closed.__cause__})"
        return WebSocketClosed(f"{url}: {why}", code=_BROKEN)

    # ---------------------------------------------------------------- ping
    def _progress(self) -> None:
        self._last_progress = self._loop.time()

    async def _ping(self) -> None:
        """Ask now and then whether the server is there; if it is not, cut the connection."""
        assert self._settings.ping_interval is not None
        try:
            while True:
                await asyncio.sleep(self._settings.ping_interval)
                if not await self._answers(await self._connection.ping()):
                    self._silent = True
                    self._connection.transport.abort()
                    return
        except websockets_library().exceptions.ConnectionClosed:
            return  # whoever receives or sends is told

    async def _answers(self, pong: Any) -> bool:
        """Whether the answer comes in time. Time counts while we read, and no send waits for the server."""
        asked, patience = self._loop.time(), self._settings.ping_timeout
        while True:
            since = max(asked, self._last_progress)
            await asyncio.wait((pong,), timeout=max(0.0, since + patience - self._loop.time()))
            if pong.done():
                return True
            if not self._receiving or self._sending:
                self._progress()
            if self._loop.time() - max(asked, self._last_progress) >= patience:
                return False

    # ---------------------------------------------------------------- what was agreed on
    @property
    def subprotocol(self) -> str | None:
        """The subprotocol that the server has chosen."""
        return self._connection.subprotocol

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers of the server's answer."""
        response = self._connection.response
        assert response is not None
        return [(name.lower(), value) for name, value in response.headers.raw_items()]


def _said(code: int, reason: str) -> str:
    return f"with code {code}" + (f" ({reason})" if reason else "")


async def open_link(settings: WebSocketSettings) -> WebSocketLink:
    """Connect, and agree on a WebSocket; the error says why there is none."""
    websockets_library()
    from websockets.asyncio.client import ClientConnection, connect
    from websockets.exceptions import WebSocketException
    from websockets.typing import Subprotocol

    made: list[ClientConnection] = []
    closing: list[asyncio.TimerHandle] = []

    class Made(ClientConnection):
        deaf = False
        """Whether the server was cut off because it does not read our answers."""
        pongs = 0
        """How many bytes of answers may be waiting."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            """Keep it: a refusal is told with the answer that this connection got."""
            super().connection_made(transport)
            made.append(self)

        def data_received(self, data: bytes) -> None:
            """Have an end: the server closes the socket after the last frame, but not every server does."""
            before = self.transport.get_write_buffer_size()
            super().data_received(data)
            waiting = self.transport.get_write_buffer_size()
            # The library answers each ping at once, whether or not there is space.
            self.pongs = min(self.pongs + max(0, waiting - before), waiting)
            if self.pongs > _MOST_PONGS:
                self.deaf = True
                self.transport.abort()
            if self.protocol.close_expected() and not closing:
                closing.append(self.loop.call_later(settings.close_timeout, self.transport.abort))

        def connection_lost(self, exc: Exception | None) -> None:
            """The socket is closed."""
            for timer in closing:
                timer.cancel()
            super().connection_lost(exc)

    class Connect(connect):
        def process_redirect(self, exc: Exception) -> Exception:
            """A redirect is a refusal: credentials in the headers are for the server that was named."""
            return exc

    options: dict[str, Any] = {}
    try:
        if urlsplit(settings.url).scheme == "wss":
            tls = settings.tls or _trusted()
            options = {
                "ssl": tls.context,
                "ssl_handshake_timeout": tls.handshake_timeout,
                "ssl_shutdown_timeout": settings.close_timeout,
            }
            if tls.server_hostname is not None:
                options["server_hostname"] = tls.server_hostname
        async with asyncio.timeout(settings.connect_timeout):
            connection = await Connect(
                settings.url,
                additional_headers=list(settings.headers),
                subprotocols=[Subprotocol(name) for name in settings.subprotocols] or None,
                compression=None,
                proxy=None,
                open_timeout=None,
                ping_interval=None,
                close_timeout=settings.close_timeout,
                max_size=settings.max_length,
                max_queue=(1, 0),
                create_connection=Made,
                **options,
            )
    except (WebSocketException, OSError, ValueError) as error:
        response = made[-1].response if made else None
        raise _refusal(settings.place, error, response) from error
    return WebSocketLink(connection, settings)


@cache
def _trusted() -> TlsSettings:
    """The authorities that this machine trusts. They are read once, because that takes a while."""
    return TlsSettings.for_client(None, None, None, None, None, None, 10.0)


def _refusal(url: str, error: Exception, response: Response | None) -> NetError:
    exceptions = websockets_library().exceptions
    if response is not None:
        return _bad_status(url, error, response)
    if isinstance(error, ssl.SSLError):
        return HandshakeFailed.to(url, error)
    if isinstance(error, ConnectionResetError | ConnectionAbortedError) and url.startswith("wss:"):
        return HandshakeFailed.to(url, error)
    if isinstance(error, OSError):  # TimeoutError is one
        return ConnectFailed.to(url, error)
    if isinstance(error, exceptions.InvalidURI | ValueError):
        reason = getattr(error, "msg", error)  # without the address, which may have a password
        return NetError(
            f"{url!r} is not the address of a WebSocket ({reason}); write ws://HOST/PATH or wss://…"
        )
    if isinstance(error.__cause__, EOFError):
        return ConnectionAborted(f"{url}: the connection was lost in the handshake of the WebSocket")
    return ConnectFailed(
        f"cannot connect to {url}: the server's answer is not HTTP ({error.__cause__ or error})"
    )


def _bad_status(url: str, error: Exception, response: Response) -> BadStatus:
    status = f"{response.status_code} {response.reason_phrase}".strip()
    content = bytes(response.body or b"")[:_SHOWN]
    text = content.decode("utf-8", "replace").strip()
    if response.status_code == 101:
        said = f"WebSocket {url} was answered with {status}, but not as a WebSocket should be: {error}"
    elif 300 <= response.status_code < 400:
        target = response.headers.get("location", "no address")
        said = f"WebSocket {url} was answered with {status}, a redirect to {target}, which is not followed"
    else:
        said = f"WebSocket {url} was answered with {status}"
    return BadStatus(said + (f": {text}" if text else ""), status=response.status_code, body=content)


def websockets_library() -> Any:
    """The library, which is imported when it is needed."""
    try:
        import websockets.asyncio.client
        import websockets.exceptions
    except ImportError:
        raise ImportError(
            "the WebSocket client needs websockets 15 or newer: pip install 'penstock-streams[http]'"
        ) from None
    return websockets

"""How a client asks a proxy for a connection to its target: HTTP CONNECT, and SOCKS5 (RFC 1928, RFC 1929).

The name of the target is left to the proxy. Everything behind the proxy's answer belongs to the target, and
stays in the socket.
"""

from __future__ import annotations

import re
import socket
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from penstock.net.errors import ResolveFailed, reason_of
from penstock.net.proxies.errors import (
    SOCKS_REPLIES,
    STATUS_REMEDIES,
    ProxyAuthenticationFailed,
    ProxyFailed,
)
from penstock.net.proxies.proxy import Proxy, host_and_port
from penstock.net.proxies.raw_socket import RawSocket

__all__ = ["Tunnel"]

_LONGEST_ANSWER: Final = 16 * 1024
_INTERIM_ANSWERS: Final = 8
"""The head of an HTTP proxy's answer has at most this many bytes."""

_EMPTY_LINE: Final = re.compile(rb"\r?\n\r?\n")
"""The end of that head. A line may end with LF alone (RFC 9112, 2.2)."""

_SOCKS: Final = 5
_NO_AUTHENTICATION: Final = 0
_PASSWORD: Final = 2
_NO_METHOD: Final = 0xFF

_WRONG_PROTOCOL: Final = "is this the right port, and the right scheme in the URL of the proxy?"
_LOST: Final = {
    "connect": "is the proxy running there?",
    "greeting": _WRONG_PROTOCOL,
    "authentication": "check the user name and the password in proxy()",
    "request": "look into the log of the proxy; it may not allow this target",
}


class Tunnel:
    """One attempt to reach a target through a proxy."""

    def __init__(self, proxy: Proxy, host: str, port: int) -> None:
        self._proxy = proxy
        self._host = _ascii(host)
        self._port = port
        self._phase: str | None = "connect"
        """How far it is; None once the target is connected."""

    @property
    def target(self) -> str:
        """The target as people write it."""
        return host_and_port(self._host, self._port)

    async def open(self, raw: RawSocket) -> None:
        """Ask for the target, on a socket that is connected to the proxy."""
        if self._proxy.scheme == "http":
            await self._connect(raw)
        else:
            await self._greet(raw)
            await self._request(raw)
        self._phase = None

    @contextmanager
    def telling(self) -> Iterator[None]:
        """Turn the errors of the system into one that says how far it came."""
        try:
            yield
        except ProxyFailed:
            raise
        except (OSError, EOFError) as error:
            if self._phase is None:
                raise  # It has nothing to do with the proxy.
            raise self._broken(error) from error

    # ---------------------------------------------------------------- HTTP CONNECT
    async def _connect(self, raw: RawSocket) -> None:
        self._phase = "request"
        lines = [f"CONNECT {self.target} HTTP/1.1", f"Host: {self.target}"]
        if self._proxy.username is not None:
            credentials = f"{self._proxy.username}:{self._proxy.password or ''}".encode()
            lines.append(f"Proxy-Authorization: Basic {b64encode(credentials).decode('ascii')}")
        await raw.send("\r\n".join((*lines, "", "")).encode("ascii"))
        for _ in range(_INTERIM_ANSWERS + 1):
            status, fields = await self._status(raw)
            if not 100 <= status < 200:
                break
        else:
            # A proxy that sends nothing else would keep the event loop busy for ever.
            raise self._failed(f"it sent more than {_INTERIM_ANSWERS} interim answers", _WRONG_PROTOCOL)
        if status == 407:
            self._phase = "authentication"
            raise self._unauthorized(fields)
        if not 200 <= status < 300:
            unknown = (f"the proxy answered with status {status}", "look into the log of the proxy")
            raise self._failed(*STATUS_REMEDIES.get(status, unknown), code=status)

    async def _status(self, raw: RawSocket) -> tuple[int, list[str]]:
        line, *fields = (await self._answer(raw)).decode("latin-1").split("\n")
        words = line.rstrip("\r").split(" ", 2)
        if len(words) < 2 or len(words[1]) != 3 or not (words[1].isascii() and words[1].isdigit()):
            raise self._not("HTTP")
        return int(words[1]), fields

    async def _answer(self, raw: RawSocket) -> bytes:
        """The head of an answer, with the empty line at its end, and not one byte more."""
        head = b""
        while True:
            data = await raw.peek(_LONGEST_ANSWER)
            if not data:
                raise EOFError
            seen = head + data
            if not seen.startswith(b"HTTP/"[: len(seen)]):
                raise self._not("HTTP")
            end = _EMPTY_LINE.search(seen)
            if end is not None:
                raw.take(end.end() - len(head))
                return seen[: end.start()]
            if len(seen) >= _LONGEST_ANSWER:
                raise self._failed("the head of its answer is longer than 16 KiB", _WRONG_PROTOCOL)
            head += raw.take(len(data))

    def _unauthorized(self, fields: list[str]) -> ProxyFailed:
        schemes = {
            value.split(" ")[0].lower()
            for name, _, field in (line.partition(":") for line in fields)
            if name.lower() == "proxy-authenticate" and (value := field.strip())
        }
        if self._proxy.username is None:
            remedy = "pass them: proxy('http://user:password@host:port')"
        elif schemes and "basic" not in schemes:
            remedy = "it does not take Basic, the only scheme that is supported; use another proxy"
        else:
            remedy = "check the user name and the password in proxy()"
        return self._failed("the proxy requires credentials (407)", remedy, 407, ProxyAuthenticationFailed)

    # ---------------------------------------------------------------- SOCKS5
    async def _greet(self, raw: RawSocket) -> None:
        self._phase = "greeting"
        known = self._proxy.username is not None
        methods = [_NO_AUTHENTICATION, _PASSWORD] if known else [_NO_AUTHENTICATION]
        await raw.send(bytes([_SOCKS, len(methods), *methods]))
        version, method = await raw.exactly(2)
        if version != _SOCKS:
            raise self._not("SOCKS5")
        if method == _NO_METHOD:
            self._phase = "authentication"
            remedy = "ask its operator which method it requires; user name and password are supported"
            if not known:
                remedy = "pass credentials: proxy('socks5://user:password@host:port')"
            raise self._failed(
                "the proxy accepts no way to authenticate that was offered",
                remedy,
                kind=ProxyAuthenticationFailed,
            )
        if method not in methods:
            raise self._failed(f"the proxy chose method {method}, which was not offered", _WRONG_PROTOCOL)
        if method == _PASSWORD:
            await self._authenticate(raw)

    async def _authenticate(self, raw: RawSocket) -> None:
        self._phase = "authentication"
        texts = [(text or "").encode() for text in (self._proxy.username, self._proxy.password)]
        await raw.send(b"\x01" + b"".join(bytes([len(text)]) + text for text in texts))
        _, refused = await raw.exactly(2)
        if refused:
            raise self._failed(
                "the proxy does not accept the user name and the password",
                "check both in proxy()",
                refused,
                ProxyAuthenticationFailed,
            )

    async def _request(self, raw: RawSocket) -> None:
        self._phase = "request"
        await raw.send(b"\x05\x01\x00" + self._socks_address() + self._port.to_bytes(2, "big"))
        version, reply = await raw.exactly(2)
        if version != _SOCKS:
            raise self._not("SOCKS5")
        if reply:
            unknown = (f"the proxy replied with code {reply}", "look into the log of the proxy")
            raise self._failed(*SOCKS_REPLIES.get(reply, unknown), code=reply)
        _, kind = await raw.exactly(2)
        # The address that the proxy connects from, which says nothing to us.
        sizes = {1: 4, 4: 16}
        size = (await raw.exactly(1))[0] if kind == 3 else sizes.get(kind)
        if size is None:
            raise self._failed(f"its reply has an address of the unknown kind {kind}", _WRONG_PROTOCOL)
        await raw.exactly(size + 2)

    def _socks_address(self) -> bytes:
        for kind, family in ((b"\x01", socket.AF_INET), (b"\x04", socket.AF_INET6)):
            try:
                return kind + socket.inet_pton(family, self._host)
            except OSError:
                continue
        name = self._host.encode("ascii")
        if len(name) > 255:
            raise self._failed("the host name is longer than 255 bytes", "check the host")
        return bytes([3, len(name)]) + name

    # ---------------------------------------------------------------- errors
    def _failed(
        self, why: str, remedy: str, code: int | None = None, kind: type[ProxyFailed] = ProxyFailed
    ) -> ProxyFailed:
        return kind.at(self._proxy.where, self.target, self._phase or "request", why, remedy, code)

    def _not(self, protocol: str) -> ProxyFailed:
        return self._failed(f"what is there does not speak {protocol}", _WRONG_PROTOCOL)

    def _broken(self, error: OSError | EOFError) -> ProxyFailed:
        phase = self._phase or "request"
        if isinstance(error, ResolveFailed):
            cause = error.__cause__
            why = reason_of(cause) if isinstance(cause, socket.gaierror) else str(error)
            return self._failed(why, "check the spelling of the proxy's host")
        gone = isinstance(error, EOFError | ConnectionResetError | BrokenPipeError)
        why = "the proxy closed the connection" if gone else reason_of(error)
        remedy = _LOST[phase]
        if isinstance(error, TimeoutError):
            remedy = "is the proxy reachable, and is its target? connect_timeout() allows more time"
        failed = self._failed(why, remedy)
        failed.errno = getattr(error, "errno", None)
        return failed


def _ascii(host: str) -> str:
    """The host as it can be written into a request."""
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError as error:
            raise ValueError(f"host({host!r:.80}): this is not a name that a proxy could look up") from error
    if any(character <= " " or character == "\x7f" for character in host):
        raise ValueError(f"host({host!r:.80}): a name has no spaces or control characters")
    return host

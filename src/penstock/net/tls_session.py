"""A TLS session that knows more than the standard one: which name was asked for, and how its peer ended."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from penstock.net.errors import ConnectionAborted

__all__ = ["TlsSession", "asked_name", "choosing", "cut_off"]

_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_LONGEST_HELLO: Final = 1 << 16

Choose = Callable[[str | None], ssl.SSLContext | None]
"""The context for the name that a client asks for, or None for the one that is there."""

choosing: ContextVar[Choose | None] = ContextVar("penstock.net.choosing", default=None)
"""How a server chooses, while it makes a session: two servers may share a context and have other names."""


class TlsSession(ssl.SSLObject):
    """What ``context.wrap_bio()`` makes for our connections.

    The context for a name is chosen before the handshake begins, by a look at the client's first message. The
    callback that OpenSSL has for this comes too late: whether a client has to show a certificate is settled
    by then, so the rules of the default context would hold for every name.
    """

    ended = False
    """Whether the peer has said that it sends no more (``close_notify``). Without it, a TCP connection that
    ends has been cut, by a crash or by somebody on the way."""
    _hello: ssl.MemoryBIO | None = None
    _outgoing: ssl.MemoryBIO
    _choose: Choose | None = None

    @classmethod
    def _create(
        cls,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | None = None,
        session: Any = None,
        context: ssl.SSLContext | None = None,
    ) -> TlsSession:
        made: TlsSession = super()._create(  # type: ignore[misc]
            incoming,
            outgoing,
            server_side=server_side,
            server_hostname=server_hostname,
            session=session,
            context=context,
        )
        choose = choosing.get()
        if server_side and choose is not None:
            made._choose, made._hello, made._outgoing = choose, incoming, outgoing
        return made

    def do_handshake(self) -> None:
        """As ever; on a server with names, the context is chosen first."""
        if self._hello is not None:
            self._choose_context(self._hello)
        super().do_handshake()

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        """As ever; an empty result is the peer's proper end."""
        got = super().read(len, buffer)
        if not got:
            self.ended = True
        return got

    def _choose_context(self, incoming: ssl.MemoryBIO) -> None:
        begun = incoming.read()
        incoming.write(begun)  # nobody has read it yet
        try:
            name = asked_name(begun)
        except EOFError:
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "the client's hello goes on") from None
        self._hello = None
        context = self._choose(name) if self._choose is not None else None
        if context is not None:
            chosen: Any = ssl.SSLObject._create(  # type: ignore[attr-defined]
                incoming, self._outgoing, server_side=True, context=context
            )
            self._sslobj = chosen._sslobj
            self._sslobj.owner = self


def cut_off(label: str) -> ConnectionAborted:
    """The error for a session whose connection ended before the session did."""
    return ConnectionAborted(
        f"{label} the connection was cut: it ended without the peer's close_notify, so more may have been "
        "sent than has come"
    )


def asked_name(begun: bytes) -> str | None:
    """The server's name in a client's first message; None if there is none, or it is no such message.

    EOFError says that more bytes are needed to know.
    """
    message = _first_message(begun)
    if message is None:
        return None
    try:
        return _name_in(_Reader(message))
    except EOFError:
        return None  # A length in it is wrong: the handshake is going to say so.


def _first_message(begun: bytes) -> bytes | None:
    """The ClientHello, which may be spread over several records."""
    records, message = _Reader(begun), b""
    while True:
        if records.left and begun[records.at] != _HANDSHAKE:
            return None
        records.take(3)
        message += records.take(records.number(2))
        if message and message[0] != _CLIENT_HELLO:
            return None
        if len(message) >= 4:
            length = int.from_bytes(message[1:4], "big")
            if length > _LONGEST_HELLO:
                return None
            if len(message) >= 4 + length:
                return message[4 : 4 + length]


def _name_in(hello: _Reader) -> str | None:
    hello.take(2 + 32)  # version, random
    hello.take(hello.number(1))  # session
    hello.take(hello.number(2))  # ciphers
    hello.take(hello.number(1))  # compressions
    if not hello.left:
        return None
    extensions = _Reader(hello.take(hello.number(2)))
    while extensions.left:
        kind, content = extensions.number(2), extensions.take(extensions.number(2))
        if kind == 0:  # server_name: a list of which there is one kind, the name of a host
            names = _Reader(content[2:])
            if names.number(1) != 0:
                return None
            return names.take(names.number(2)).decode("ascii", "replace")
    return None


class _Reader:
    """Takes bytes one after the other; EOFError where there are too few."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self.at

    def take(self, count: int) -> bytes:
        if count > self.left or count < 0:
            raise EOFError
        self.at += count
        return self._data[self.at - count : self.at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

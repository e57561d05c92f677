"""TLS for servers and clients: certificates, trust, server names, and reloading while a server runs."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Self
from weakref import WeakKeyDictionary

from penstock.net.errors import ConnectionAborted, NetError

__all__ = ["BadCertificate", "ServerNames", "TlsSession", "TlsSettings", "asked_name", "choosing", "cut_off"]

Path = str | os.PathLike[str]


class BadCertificate(NetError):
    """A certificate or a key cannot be used."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """A context, and how long a handshake may take."""

    context: ssl.SSLContext
    handshake_timeout: float = 10.0
    server_hostname: str | None = None
    chain: tuple[Path, Path | None, str | None] | None = None
    """The files that the certificate came from, for :meth:`reload`."""
    names: ServerNames | None = None
    """Contexts for further names of a server."""

    @classmethod
    def for_server(
        cls,
        context: ssl.SSLContext | None,
        certificate: Path | None,
        key: Path | None,
        password: str | None,
        client_authority: Path | None,
        names: Mapping[str, ssl.SSLContext] | None,
        handshake_timeout: float,
    ) -> Self:
        """Settings of a server. With ``client_authority``, its clients have to present a certificate too."""
        chain = None
        if context is None:
            if certificate is None:
                raise ValueError(
                    "secure() needs a certificate: secure(certificate='server.pem', key='server.key') or an "
                    "ssl.SSLContext; SelfSigned.make('localhost') makes a certificate to try things out"
                )
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            chain = (certificate, key, password)
            load_chain(context, *chain)
        elif certificate is not None:
            raise ValueError("secure() takes a context or a certificate, not both")
        if client_authority is not None:
            load_authority(context, client_authority)
            context.verify_mode = ssl.CERT_REQUIRED
        context.sslobject_class = TlsSession
        chosen = ServerNames(names, client_authority) if names else None
        return cls(context, handshake_timeout, None, chain, chosen)

    @classmethod
    def for_client(
        cls,
        context: ssl.SSLContext | None,
        trust: Path | None,
        certificate: Path | None,
        key: Path | None,
        password: str | None,
        server_hostname: str | None,
        handshake_timeout: float,
    ) -> Self:
        """The settings of a client: whom it trusts, and what it presents if it has to."""
        if context is None:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
            if trust is not None:
                load_authority(context, trust)
            if certificate is not None:
                load_chain(context, certificate, key, password)
        elif trust is not None or certificate is not None:
            raise ValueError("secure() takes a context, or trust and certificate, not both")
        context.sslobject_class = TlsSession
        return cls(context, handshake_timeout, server_hostname)

    def reload(self) -> None:
        """Read certificate and key again. New connections use them."""
        if self.chain is None:
            raise NetError(
                "this context does not come from a certificate file, so there is nothing to reload"
            )
        # First into another context: a bad file must not spoil the one in use.
        load_chain(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), *self.chain)
        load_chain(self.context, *self.chain)


class ServerNames:
    """Chooses the context for the name that a client asks for: that name, then ``*.…``, then the default."""

    def __init__(self, names: Mapping[str, ssl.SSLContext], client_authority: Path | None = None) -> None:
        for name, context in names.items():
            if not isinstance(context, ssl.SSLContext):
                raise TypeError(
                    f"secure(names={{{name!r}: {context!r}}}): pass an ssl.SSLContext for each name"
                )
            if client_authority is not None:
                _ask_for_certificates(context, client_authority, name)
        self._names = {name.lower(): context for name, context in names.items()}

    def context_for(self, name: str | None) -> ssl.SSLContext | None:
        """The context for a name, or None for the default."""
        if name is None:
            return None
        name = name.lower()
        return self._names.get(name) or self._names.get(f"*.{name.partition('.')[2]}")


_authorities: WeakKeyDictionary[ssl.SSLContext, str] = WeakKeyDictionary()
"""Contexts that ask for certificates of an authority because their server does."""


def _ask_for_certificates(context: ssl.SSLContext, authority: Path, name: str) -> None:
    """``client_authority`` holds for every name. But no name may trust clients by accident."""
    if _authorities.get(context) == os.fspath(authority):
        return
    if context in _authorities:
        raise ValueError(
            f"secure(names={{{name!r}: …}}): this context already trusts the clients of another server, with "
            "another client_authority; make a context for each server"
        )
    if context.verify_mode == ssl.CERT_REQUIRED:
        return  # It has authorities of its own.
    if context.verify_mode != ssl.CERT_NONE or context.cert_store_stats()["x509"]:
        raise ValueError(
            f"secure(names={{{name!r}: …}}, client_authority=…): this context has authorities of its own and "
            "does not require a certificate; set its verify_mode to ssl.CERT_REQUIRED"
        )
    load_authority(context, authority)
    context.verify_mode = ssl.CERT_REQUIRED
    _authorities[context] = os.fspath(authority)


def load_chain(context: ssl.SSLContext, certificate: Path, key: Path | None, password: str | None) -> None:
    """Read a certificate and its key."""
    for path in (certificate, key):
        if path is not None and not os.path.isfile(path):
            raise BadCertificate(
                f"there is no file {os.fspath(path)!r}; check the paths of the certificate and the key"
            )
    try:
        context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as error:
        raise BadCertificate(
            f"{os.fspath(certificate)!r} is not a certificate that fits its key ({error.reason or error}); "
            "both have to be in PEM format; the key may be in the same file"
        ) from error


def load_authority(context: ssl.SSLContext, authority: Path) -> None:
    """Trust what these certificates have signed."""
    if not os.path.exists(authority):
        raise BadCertificate(f"there is no file {os.fspath(authority)!r}; check the path of the authority")
    try:
        if os.path.isdir(authority):
            context.load_verify_locations(capath=authority)
        else:
            context.load_verify_locations(cafile=authority)
    except ssl.SSLError as error:
        raise BadCertificate(
            f"{os.fspath(authority)!r} has no certificates in PEM format ({error.reason})"
        ) from error


_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_LONGEST_HELLO: Final = 1 << 16

Choose = Callable[[str | None], ssl.SSLContext | None]
"""The context for the name that a client asks for, or None for the default."""

choosing: ContextVar[Choose | None] = ContextVar("penstock.net.choosing", default=None)
"""How the server that is making a session chooses. Servers that share a context may have different names."""


alerting: ContextVar[Callable[[bytes], object] | None] = ContextVar("penstock.net.alerting", default=None)
"""Sends the alert of a handshake that failed, past the event loop, which has given up by then."""


class TlsSession(ssl.SSLObject):
    """The session of our connections: it knows how the peer ended, and chooses a context by server name.

    The context is chosen before the handshake begins, from the client's first message. OpenSSL's own callback
    for this comes too late: by then it is settled whether the client has to present a certificate, so the
    rules of the default context would hold for every name.
    """

    ended = False
    """Whether the peer has said that it sends no more (``close_notify``). If TCP ends without it, the
    connection was cut, by a crash or by somebody on the way."""
    _hello: ssl.MemoryBIO | None = None
    _outgoing: ssl.MemoryBIO
    _choose: Choose | None = None
    _alert: Callable[[bytes], object] | None = None

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
        made._outgoing = outgoing
        choose = choosing.get()
        if server_side and choose is not None:
            made._choose, made._hello = choose, incoming
        if server_side:
            made._alert = alerting.get()
        return made

    def do_handshake(self) -> None:
        """Choose the context first, on a server with several names. A peer that is refused learns why."""
        try:
            if self._hello is not None:
                self._choose_context(self._hello)
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError:
            # OpenSSL has written an alert that says why. Both event loops would throw it away.
            if self._alert is not None and (alert := self._outgoing.read()):
                self._alert(alert)
            raise

    def read(self, len: int = 1024, buffer: Any = None) -> Any:
        """Read. An empty result is the peer's proper end."""
        got = super().read(len, buffer)
        if not got:
            self.ended = True
        return got

    def _choose_context(self, incoming: ssl.MemoryBIO) -> None:
        begun = incoming.read()
        incoming.write(begun)  # put it back: the handshake reads it again
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
    """The error for a connection that ended before its TLS session did."""
    return ConnectionAborted(
        f"{label} the connection was cut: it ended without the peer's close_notify, so the peer may have "
        "sent more than has arrived"
    )


def asked_name(begun: bytes) -> str | None:
    """The server name in a client's first message; None if there is none, or this is not such a message.

    Raises EOFError if more bytes are needed.
    """
    message = _first_message(begun)
    if message is None:
        return None
    try:
        return _name_in(_Reader(message))
    except EOFError:
        return None  # A length in it is wrong, as the handshake will find out.


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
    """Takes bytes one after the other. Raises EOFError if there are too few."""

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

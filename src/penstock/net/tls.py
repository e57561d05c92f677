"""TLS for servers and clients: certificates, names, trust, and certificates that change as a server runs."""

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
    """A certificate or key that cannot be used."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """A context, and how long its handshakes may take."""

    context: ssl.SSLContext
    handshake_timeout: float = 10.0
    server_hostname: str | None = None
    chain: tuple[Path, Path | None, str | None] | None = None
    """Where the certificate came from, for :meth:`reload`."""
    names: ServerNames | None = None
    """Other contexts for other names of a server."""

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
        """What a server presents; with ``client_authority`` its clients have to present something, too."""
        chain = None
        if context is None:
            if certificate is None:
                raise ValueError(
                    "secure() needs a certificate: secure(certificate='server.pem', key='server.key'), an "
                    "ssl.SSLContext, or self_signed() for a trial"
                )
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            chain = (certificate, key, password)
            load_chain(context, *chain)
        elif certificate is not None:
            raise ValueError("secure(): give a context or a certificate, not both")
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
        """Whom a client trusts; and what it presents, if it has to."""
        if context is None:
            context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
            if trust is not None:
                load_authority(context, trust)
            if certificate is not None:
                load_chain(context, certificate, key, password)
        elif trust is not None or certificate is not None:
            raise ValueError("secure(): give a context, or trust and certificate, not both")
        context.sslobject_class = TlsSession
        return cls(context, handshake_timeout, server_hostname)

    def reload(self) -> None:
        """Read certificate and key again; connections from now on get them."""
        if self.chain is None:
            raise NetError("this context was not made from a certificate file, so there is nothing to reload")
        # First into a context of its own: a bad file must not spoil the one in use.
        load_chain(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), *self.chain)
        load_chain(self.context, *self.chain)


class ServerNames:
    """Chooses a context by the name that a client asks for: the exact one, then ``*.…``, then the default."""

    def __init__(self, names: Mapping[str, ssl.SSLContext], client_authority: Path | None = None) -> None:
        for name, context in names.items():
            if not isinstance(context, ssl.SSLContext):
                raise TypeError(
                    f"secure(names={{{name!r}: {context!r}}}): give an ssl.SSLContext for each name"
                )
            if client_authority is not None:
                _ask_for_certificates(context, client_authority, name)
        self._names = {name.lower(): context for name, context in names.items()}

    def context_for(self, name: str | None) -> ssl.SSLContext | None:
        """The context for a name; None for the default one."""
        if name is None:
            return None
        name = name.lower()
        return self._names.get(name) or self._names.get(f"*.{name.partition('.')[2]}")


_authorities: WeakKeyDictionary[ssl.SSLContext, str] = WeakKeyDictionary()
"""Contexts that were made to ask for certificates of an authority, because their server does."""


def _ask_for_certificates(context: ssl.SSLContext, authority: Path, name: str) -> None:
    """``client_authority`` holds for every name; but nobody is to be trusted at one by accident."""
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
                f"there is no file {os.fspath(path)!r}; check the path of certificate and key"
            )
    try:
        context.load_cert_chain(certificate, key, password)
    except ssl.SSLError as error:
        raise BadCertificate(
            f"{os.fspath(certificate)!r} is not a certificate that fits its key ({error.reason or error}); "
            "both have to be in PEM, the key perhaps in the same file"
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
            f"{os.fspath(authority)!r} has no certificates in PEM ({error.reason})"
        ) from error


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

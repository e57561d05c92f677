"""TLS for servers and clients: certificates, names, trust, and certificates that change as a server runs."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Self

from penstock.net.errors import NetError

__all__ = ["BadCertificate", "Handshake", "ServerNames", "Tls"]

Path = str | os.PathLike[str]


class BadCertificate(NetError):
    """A certificate or key that cannot be used."""


@dataclass(frozen=True, slots=True)
class Tls:
    """A context, and how long its handshakes may take."""

    context: ssl.SSLContext
    handshake_timeout: float = 10.0
    server_hostname: str | None = None
    chain: tuple[Path, Path | None, str | None] | None = None
    """Where the certificate came from, for :meth:`reload`."""

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
        if names:
            context.sni_callback = ServerNames(names)
        return cls(context, handshake_timeout, None, chain)

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
        return cls(context, handshake_timeout, server_hostname)

    def reload(self) -> None:
        """Read certificate and key again; connections from now on get them."""
        if self.chain is None:
            raise NetError("this context was not made from a certificate file, so there is nothing to reload")
        # First into a context of its own: a bad file must not spoil the one in use.
        load_chain(ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), *self.chain)
        load_chain(self.context, *self.chain)

    def watched(self, loop: asyncio.AbstractEventLoop, failed: Callable[[str], object]) -> Handshake:
        """The handshake of a connection that is being accepted here and now."""
        self.context.sslobject_class = _Watched
        handshake = Handshake(loop, self.handshake_timeout, failed)
        _under_way.set(handshake)
        return handshake


class Handshake:
    """One that is under way on a server. If it fails, that is told once: asyncio and uvloop tell nobody."""

    __slots__ = ("_failed", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, failed: Callable[[str], object]
    ) -> None:
        self._failed: Callable[[str], object] | None = failed
        # A peer that says nothing, or goes, makes the loop drop the connection without a word to anybody.
        self._timer = loop.call_later(
            seconds + _SLACK, self.fail, f"the peer went, or had not finished after {seconds:g} s"
        )

    def fail(self, why: str) -> None:
        """It has not come about."""
        failed = self._failed
        self.over()
        if failed is not None:
            failed(why)

    def over(self) -> None:
        """It has come about, or nobody wants to know."""
        self._failed = None
        self._timer.cancel()


_under_way: ContextVar[Handshake | None] = ContextVar("penstock.net.handshake", default=None)
"""Everything that a loop calls for one connection has the context in which that was accepted."""

_SLACK: Final = 0.25
"""Seconds after the limit of the loop at which a handshake that has not come about is given up."""


class _Watched(ssl.SSLObject):
    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            handshake = _under_way.get()
            if handshake is not None:
                handshake.fail(str(error.reason or error))
            raise


class ServerNames:
    """Chooses a context by the name that a client asks for: the exact one, then ``*.…``, then the default."""

    def __init__(self, names: Mapping[str, ssl.SSLContext]) -> None:
        for name, context in names.items():
            if not isinstance(context, ssl.SSLContext):
                raise TypeError(
                    f"secure(names={{{name!r}: {context!r}}}): give an ssl.SSLContext for each name"
                )
        self._names = {name.lower(): context for name, context in names.items()}

    def __call__(self, session: Any, name: str | None, default: ssl.SSLContext) -> None:
        """Called by the handshake."""
        if name is None:
            return
        name = name.lower()
        context = self._names.get(name) or self._names.get(f"*.{name.partition('.')[2]}")
        if context is not None:
            session.context = context


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

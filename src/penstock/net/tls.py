"""TLS for servers and clients: certificates, names, trust, and certificates that change as a server runs."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self
from weakref import WeakKeyDictionary

from penstock.net.errors import NetError
from penstock.net.tls_session import TlsSession

__all__ = ["BadCertificate", "ServerNames", "Tls"]

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

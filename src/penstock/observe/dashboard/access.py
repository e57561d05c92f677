"""Who may see the dashboard: the token, the cookie that stands for it, and the names that it is reached by.

On loopback no token is needed. Elsewhere a browser sends the token once, in a form, and gets a cookie; a
program sends it in the header ``Authorization: Bearer``. The token is never part of a URL, because URLs end
up in logs and histories. The cookie does not contain it: it is a signature made with it, so it is still good
after a restart with the same token, and the server has nothing to remember.

A page of another origin cannot read the answers, but it could give its own name the address 127.0.0.1 (DNS
rebinding). So requests for a name that is not one of ours are refused.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import time
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from penstock.endpoint import Endpoint
from penstock.secret_file import read_secret

__all__ = ["BadToken", "VisitorAccess", "read_token"]

SHORTEST_TOKEN: Final = 16
_LONGEST_TOKEN: Final = 1024
_COOKIE_SECONDS: Final = 12 * 3600
_MAKE_ONE: Final = "python -c 'import secrets; print(secrets.token_urlsafe(32))' > token; chmod 600 token"


class BadToken(ValueError):
    """The token of a dashboard is missing, too short, or can be read by others."""


def read_token(file: str) -> str:
    """Read the token from a file that only its owner can read; BadToken if it cannot be used."""

    def check_mode(found: os.stat_result) -> None:
        mode = found.st_mode & 0o777
        if mode & 0o077 and os.name == "posix":
            raise BadToken(f"other users can read the token in {file} (mode {mode:o}); chmod 600 {file}")

    try:
        token = read_secret(file, check_mode).decode()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise BadToken(f"cannot read the token in {file}: {reason}; make one with {_MAKE_ONE}") from None
    return check_token(token, f"the token in {file}")


def check_token(token: str, subject: str) -> str:
    """The token, if it is long enough and fits into a header; the message never shows it."""
    if not SHORTEST_TOKEN <= len(token) <= _LONGEST_TOKEN:
        raise BadToken(
            f"{subject} has {len(token)} characters, and needs {SHORTEST_TOKEN} to {_LONGEST_TOKEN}; "
            f"make one with {_MAKE_ONE}"
        )
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise BadToken(f"{subject} has characters other than ASCII without blanks; make one with {_MAKE_ONE}")
    return token


class VisitorAccess:
    """Decides about one request: is its host name ours, and does it bring the token or a cookie?"""

    def __init__(
        self, listen: Endpoint, *, token: str | None, names: Iterable[str] = (), encrypted: bool
    ) -> None:
        """Guard a server at ``listen``, with its real port; BadToken if it needs a token and has none."""
        if token is None and not listen.is_loopback:
            raise BadToken(
                f"a dashboard at {listen.host} can be reached from other machines, so it needs a token: "
                f"{_MAKE_ONE}; then --dashboard-token token"
            )
        self._token = None if token is None else check_token(token, "the token").encode()
        self._local = listen.is_loopback
        self._names = {name.lower().rstrip(".") for name in names}
        if self._local:
            self._names |= {"localhost", "127.0.0.1", "::1", listen.host.lower()}
        else:
            self._names |= {socket.gethostname().lower(), listen.host.lower()}
        self.encrypted = encrypted
        # Browsers keep cookies by host and not by port: two dashboards on one machine need two names.
        self.cookie_name = f"penstock-{listen.port}"

    @property
    def needs_token(self) -> bool:
        """Whether a visitor has to bring a token."""
        return self._token is not None

    def knows_host(self, header: str) -> bool:
        """Whether a request was meant for this server: its Host header has one of our names.

        The port is not compared: a tunnel has another one. Off loopback, an address is as good as a name,
        because rebinding needs a name.
        """
        host = _without_port(header).lower().rstrip(".")
        if host in self._names:
            return True
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return address.is_loopback or not self._local

    def accepts_token(self, given: str) -> bool:
        """Compare in a time that does not depend on how much of it is right."""
        if self._token is None:
            return True
        digests = (hashlib.sha256(each).digest() for each in (given.encode(), self._token))
        return hmac.compare_digest(*digests)

    def accepts_header(self, authorization: str | None) -> bool:
        """Whether an Authorization header brings the token: ``Bearer TOKEN``."""
        scheme, _, given = (authorization or "").partition(" ")
        return scheme.lower() == "bearer" and self.accepts_token(given.strip())

    def cookie(self) -> str:
        """A new value for the cookie of a visitor who has shown the token."""
        said = f"{int(time.time()) + _COOKIE_SECONDS}.{secrets.token_hex(8)}"
        return f"{said}.{self._signature(said)}"

    def accepts_cookie(self, value: str | None) -> bool:
        """Whether this is a cookie of ours that has not expired."""
        if self._token is None:
            return True
        said, _, signature = (value or "").rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(said).encode()):
            return False
        return time.time() < int(said.partition(".")[0])

    def set_cookie(self, value: str) -> str:
        """The header that gives a browser its cookie."""
        secure = "; Secure" if self.encrypted else ""
        age = _COOKIE_SECONDS if value else 0
        return f"{self.cookie_name}={value}; Max-Age={age}; Path=/; HttpOnly; SameSite=Strict{secure}"

    def _signature(self, said: str) -> str:
        assert self._token is not None
        key = hashlib.sha256(b"penstock dashboard cookie\0" + self._token).digest()
        return hmac.new(key, said.encode(), hashlib.sha256).hexdigest()


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0]


def check_certificate(certificate: str | None, key: str | None) -> None:
    """ValueError if only one of the two is given, or a file is not there."""
    if (certificate is None) != (key is None):
        raise ValueError("--tls-cert and --tls-key go together: a certificate and its key, both as PEM files")
    for file in (certificate, key):
        if file is not None and not Path(file).is_file():
            raise ValueError(f"there is no file {file}; --tls-cert and --tls-key name PEM files")

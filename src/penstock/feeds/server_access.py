"""How a feed is let in by a server over HTTP: the certificates that it trusts, and its token."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from typing import Final

from penstock.feeds.feed import BadFeed
from penstock.feeds.registry import FeedUrl

__all__ = ["TLS_PARAMETERS", "TOKEN_PARAMETERS", "ServerAccess"]

TOKEN_PARAMETERS: Final = {
    "token-file": "a file with a secret, which is sent as Authorization: Bearer SECRET",
}
TLS_PARAMETERS: Final = {"ca": "a file with the certificates to trust"}

_UNAUTHORIZED: Final = 401
_FORBIDDEN: Final = 403
_EXPIRED: Final = frozenset({9, 10})
"""The codes of OpenSSL for a certificate that is not valid yet, or not any more."""
_OTHER_NAME: Final = frozenset({62, 64})
"""The codes for a certificate of another host."""
_IN_A_HEADER: Final = re.compile(r"[\x21-\x7e]+")


class ServerAccess:
    """A token, and whom to trust. What another attempt cannot mend is a BadFeed that says what to do.

    Without ``ca``, a file in PEM format, the authorities count that this machine trusts.
    """

    def __init__(self, *, token: str | None = None, ca: str | None = None) -> None:
        """Read the certificates; BadFeed if that, or the token, is not possible."""
        if token is not None and _IN_A_HEADER.fullmatch(token) is None:
            raise BadFeed(
                "the token-file has to have one token, in one line, of characters that a header may have"
            )
        self.headers: Mapping[str, str] = {} if token is None else {"authorization": f"Bearer {token}"}
        self.context = None if ca is None else _trusting(ca)
        """What TLS needs, if it is not the usual."""

    @classmethod
    def of(cls, url: FeedUrl) -> ServerAccess:
        """What the parameters of a URL say."""
        address = url.address(0)
        token = url.secret("token-file")
        if token is not None and address.user is not None:
            raise BadFeed(
                f"{url.shown}: there is a user and a token, and a request has space for one of them; leave "
                "the user or token-file out"
            )
        return cls(token=token, ca=url.parameters.get("ca"))

    def check_status(self, name: str, status: int) -> None:
        """Raise BadFeed if the server has refused us."""
        if status == _UNAUTHORIZED and self.headers:
            raise BadFeed(
                f"{name}: the server does not accept the token ({status}); put a valid one into the "
                "token-file, and start the feed again"
            )
        if status == _UNAUTHORIZED:
            raise BadFeed(
                f"{name}: the server asks who we are ({status}); name a file with a token "
                "(#token-file=FILE), or check the user and the password in the URL"
            )
        if status == _FORBIDDEN:
            raise BadFeed(
                f"{name}: the server does not allow us to read this ({status}); check the address, and what "
                "the token or the user may read"
            )

    def check_certificate(self, name: str, error: BaseException) -> None:
        """Raise BadFeed if a certificate is behind the error of a library."""
        below: BaseException | None = error
        while below is not None and not isinstance(below, ssl.SSLCertVerificationError):
            below = below.__cause__ or below.__context__
        if below is None:
            return
        if below.verify_code in _OTHER_NAME:
            remedy = "write the host as it is in the certificate"
        elif below.verify_code in _EXPIRED:
            remedy = "the server needs a new one, or the clock of this machine is wrong"
        else:
            remedy = "name the certificates to trust with #ca=FILE"
        reason = below.verify_message.rstrip(".")
        raise BadFeed(f"{name}: the certificate of the server is not trusted ({reason}); {remedy}") from error


def _trusting(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except ssl.SSLError:
        raise BadFeed(f"{ca} has no certificates in PEM format; check #ca=") from None
    except OSError as error:
        raise BadFeed(f"cannot read the certificates in {ca}: {error.strerror}; check #ca=") from None

"""What can go wrong on the network, each with what was wrong and what to do about it.

All of them are :class:`NetError`; those that the operating system reported are ``OSError`` as well, so that
code which knows only that still catches them.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl

__all__ = [
    "BindFailed",
    "ConnectFailed",
    "ConnectionAborted",
    "DatagramOverflow",
    "DatagramTooLarge",
    "HandshakeFailed",
    "IdleTimeout",
    "MulticastFailed",
    "NetError",
    "ReceiveStopped",
    "ReceiverTaken",
    "SendRefused",
]


class NetError(Exception):
    """Something about the network, or about how a connection was used."""


class BindFailed(NetError, OSError):
    """A server could not take its address."""

    @classmethod
    def at(cls, where: str, error: OSError) -> BindFailed:
        """The error for this address, with a remedy."""
        failed = cls(f"cannot listen on {_shown(where)}: {_reason(error)}; {_bind_remedy(error)}")
        failed.errno = error.errno
        return failed


class ConnectFailed(NetError, OSError):
    """A client could not get a connection."""

    @classmethod
    def to(cls, where: str, error: BaseException) -> ConnectFailed:
        """The error for this address, with a remedy."""
        failed = cls(f"cannot connect to {_shown(where)}: {_reason(error)}; {_connect_remedy(error)}")
        failed.errno = getattr(error, "errno", None)
        return failed


class HandshakeFailed(ConnectFailed):
    """The other side was reached, but TLS did not come about."""

    @classmethod
    def to(cls, where: str, error: BaseException) -> ConnectFailed:
        """The error for this address, with a remedy."""
        if isinstance(error, ssl.SSLError):
            return super().to(where, error)
        reason = str(error) or "it closed the connection instead"
        failed = cls(f"cannot connect to {_shown(where)}: TLS did not come about ({reason}); {_TLS_REMEDY}")
        failed.errno = getattr(error, "errno", None)
        return failed


class ConnectionAborted(NetError, ConnectionError):
    """A connection was lost while something was still to be sent or received.

    ``elements`` were given to the socket, ``written`` bytes in all; ``unsent`` bytes at most of them had not
    left this process when the connection was lost.
    """

    def __init__(self, message: str, *, elements: int = 0, written: int = 0, unsent: int = 0) -> None:
        super().__init__(message)
        self.elements = elements
        self.written = written
        self.unsent = unsent


class ReceiveStopped(ConnectionAborted):
    """This side stopped receiving before the peer had ended: more may have been on its way.

    ``receive()`` fails with it when the server is being closed. A handler that only reads and sends needs to
    do nothing about it. One that acts on the end of its input, such as an upload, learns that it has a part.
    """

    only_for_readers = True
    """A reader that left its loop before the connection was closed does not miss anything."""


class IdleTimeout(NetError, TimeoutError):
    """Nothing has moved on a connection for as long as its settings allow."""


class ReceiverTaken(NetError):
    """``receive()`` has one subscriber, and it has had it."""


class SendRefused(NetError):
    """A send that cannot be: a second one beside the first, or of something that is not bytes."""


_TLS_REMEDY = "does the other side speak TLS on this port, with a version and a certificate that fit?"


def _shown(where: str) -> str:
    return f"@{where[1:]}" if where.startswith("\0") else where


def _reason(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was not accepted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error})"
    if isinstance(error, TimeoutError) and not error.args:
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return f"the name is not known ({error.strerror})"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # asyncio puts a text of its own, with the address, into strerror
    return str(error) or type(error).__name__


def _bind_remedy(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program has it: stop that one, or take another port (port 0 takes any free one)"
    if error.errno == errno.EEXIST:
        return "something that is no socket is at this path: take another one, or remove it"
    if error.errno == errno.EACCES:
        return "take a port above 1023 or a path of your own, or give the program the right to this one"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address; 0.0.0.0 means all that it has"
    if isinstance(error, socket.gaierror):
        return "give an address of this machine, or a name that stands for one"
    return "check host and port, or the path"


def _connect_remedy(error: BaseException) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "trust its authority with secure(trust=…), or check the name and the clock"
    if isinstance(error, ssl.SSLError):
        return _TLS_REMEDY
    if isinstance(error, socket.gaierror):
        return "check the spelling of the host"
    if isinstance(error, ConnectionRefusedError):
        return "is a server listening there?"
    if isinstance(error, TimeoutError):
        return "is the host right, and is there a firewall between? connect_timeout() allows more time"
    if isinstance(error, FileNotFoundError):
        return "no server has made this socket; check the path"
    return "check the host, the port and the network"


class DatagramOverflow(NetError):
    """More datagrams came than were asked for and may wait, and the overflow policy is ``ERROR``."""


class DatagramTooLarge(SendRefused):
    """A datagram of ``size`` bytes cannot be sent; ``limit`` is what fits, if that is known."""

    def __init__(self, size: int, limit: int | None, where: str, why: str) -> None:
        fits = "" if limit is None else f", and {limit:,} is the most"
        super().__init__(
            f"{where} a datagram of {size:,} bytes is too large{fits}: {why}; cut it into smaller ones, or "
            "drop those with filter() before send()"
        )
        self.size = size
        self.limit = limit


class MulticastFailed(NetError, OSError):
    """A multicast group could not be joined or left, or its settings were not accepted."""

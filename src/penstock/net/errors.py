"""The errors of the network layer. Each message says what is wrong and what to do about it.

All of them are a :class:`NetError`. Those that the operating system reported are an ``OSError`` too, so that
code which only knows that one still catches them.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl

__all__ = [
    "AcquireTimeout",
    "BindFailed",
    "ConnectFailed",
    "ConnectionAborted",
    "DatagramOverflow",
    "DatagramTooLarge",
    "HandshakeFailed",
    "IdleTimeout",
    "LoopsClosed",
    "MulticastFailed",
    "NetError",
    "PoolClosed",
    "PoolFull",
    "ReceiveStopped",
    "ReceiverTaken",
    "ResolveFailed",
    "SendRefused",
    "reason_of",
]


class NetError(Exception):
    """Something went wrong on the network, or a connection was used in a wrong way."""


class BindFailed(NetError, OSError):
    """A server could not bind its address."""

    @classmethod
    def at(cls, where: str, error: OSError) -> BindFailed:
        """The error for this address, with a remedy."""
        failed = cls(f"cannot listen on {_shown(where)}: {reason_of(error)}; {_bind_remedy(error)}")
        failed.errno = error.errno
        return failed


class ConnectFailed(NetError, OSError):
    """A client could not connect."""

    @classmethod
    def to(cls, where: str, error: BaseException) -> ConnectFailed:
        """The error for this address, with a remedy."""
        failed = cls(f"cannot connect to {_shown(where)}: {reason_of(error)}; {_connect_remedy(error)}")
        failed.errno = getattr(error, "errno", None)
        return failed


class ResolveFailed(ConnectFailed):
    """The host has no address: its name is unknown, or the client's resolver failed."""

    @classmethod
    def by(cls, resolver: object, where: str, why: str) -> ConnectFailed:
        """The error for a resolver of the client."""
        name = getattr(resolver, "__qualname__", None) or repr(resolver)
        return cls(
            f"cannot connect to {where}: its resolver {name} {why}; resolver() needs a coroutine function "
            "of host and port that returns a list of IP addresses"
        )


class HandshakeFailed(ConnectFailed):
    """The other side was reached, but the TLS handshake failed."""

    @classmethod
    def to(cls, where: str, error: BaseException) -> ConnectFailed:
        """The error for this address, with a remedy."""
        if isinstance(error, ssl.SSLError):
            return super().to(where, error)
        reason = str(error) or "the other side closed the connection"
        failed = cls(f"cannot connect to {_shown(where)}: the TLS handshake failed ({reason}); {_TLS_REMEDY}")
        failed.errno = getattr(error, "errno", None)
        return failed


class AcquireTimeout(NetError, TimeoutError):
    """No connection of a pool became free in time."""


class LoopsClosed(NetError):
    """The event loops of a LoopResources are closed, so nothing can be opened on them."""


class PoolFull(NetError):
    """All connections of a pool are in use, and as many callers as may wait for one do so."""


class PoolClosed(NetError):
    """A pool was closed, so it has no connection for this caller."""


class ConnectionAborted(NetError, ConnectionError):
    """A connection was lost while there was still something to send or to receive.

    ``elements`` had been written to the socket, ``written`` bytes in all. Up to ``unsent`` of these bytes had
    not left this process when the connection was lost.
    """

    def __init__(self, message: str, *, elements: int = 0, written: int = 0, unsent: int = 0) -> None:
        super().__init__(message)
        self.elements = elements
        self.written = written
        self.unsent = unsent


class ReceiveStopped(ConnectionAborted):
    """This side stopped receiving before the peer had ended, so more may have been on its way.

    ``receive()`` fails with it when the server is being closed. A handler that only reads and sends need not
    do anything about it. A handler that acts on the end of its input, such as an upload, learns from it that
    the input is incomplete.
    """

    only_for_readers = True
    """A reader that left its loop before the connection was closed misses nothing."""


class IdleTimeout(NetError, TimeoutError):
    """Nothing was received or sent on a connection for as long as its settings allow."""


class ReceiverTaken(NetError):
    """``receive()`` has one subscriber in its life, and there has been one already."""


class SendRefused(NetError):
    """A send that is not possible: a second one beside the first, or of something other than bytes."""

    @classmethod
    def of(cls, data: object) -> SendRefused:
        """The error for something that is not bytes."""
        return cls(
            f"send() was given {data!r:.80}, which is not bytes; encode it first, or configure an encoder() "
            "and use send_object()"
        )


_TLS_REMEDY = "does the other side speak TLS on this port, with a matching version and certificate?"


def _shown(where: str) -> str:
    return f"@{where[1:]}" if where.startswith("\0") else where


def reason_of(error: BaseException) -> str:
    """What the system says, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate was not accepted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error})"
    if isinstance(error, TimeoutError) and not error.args:
        return "there was no answer in time"
    if isinstance(error, socket.gaierror):
        return f"the host name is unknown ({error.strerror})"
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)  # asyncio puts a text of its own, with the address, into strerror
    return str(error) or type(error).__name__


_FULL = frozenset({errno.EMFILE, errno.ENFILE})
_FULL_REMEDY = "close some connections or files, or raise the limit (ulimit -n)"


def _bind_remedy(error: OSError) -> str:
    if error.errno in _FULL:
        return _FULL_REMEDY
    if error.errno == errno.EADDRINUSE:
        return "another program is using it: stop that one, or choose another port (port 0: any free one)"
    if error.errno == errno.EEXIST:
        return "there is a file at this path that is not a socket: choose another path, or remove the file"
    if error.errno == errno.EACCES:
        return "choose a port above 1023 or a path of your own, or give the program permission for this one"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address: use one that it has, or 0.0.0.0 for all of them"
    if isinstance(error, socket.gaierror):
        return "use an address of this machine, or a name for one"
    return "check the host and the port, or the path"


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
        return "is the host right, and is there a firewall in between? connect_timeout() allows more time"
    if isinstance(error, FileNotFoundError):
        return "no server has created this socket; check the path"
    if isinstance(error, PermissionError):
        return "may this user write to the path? For a host, is there a firewall on this machine?"
    if getattr(error, "errno", None) in _FULL:
        return _FULL_REMEDY
    return "check the host, the port and the network"


class DatagramOverflow(NetError):
    """More datagrams arrived than may wait for demand, and the overflow policy is ``ERROR``."""


class DatagramTooLarge(SendRefused):
    """A datagram of ``size`` bytes cannot be sent. ``limit`` is the largest size that can, if it is known."""

    def __init__(self, size: int, limit: int | None, where: str, why: str) -> None:
        fits = "" if limit is None else f", and {limit:,} is the most"
        super().__init__(
            f"{where} a datagram of {size:,} bytes is too large{fits}: {why}; split it, or drop "
            "such datagrams with filter() before send()"
        )
        self.size = size
        self.limit = limit


class MulticastFailed(NetError, OSError):
    """A multicast group could not be joined or left, or its settings were not accepted."""

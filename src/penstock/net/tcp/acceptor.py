"""Accepts connections and shakes hands on them, for servers that speak TLS.

The servers of both event loops drop a connection whose handshake fails without a word. Here every failure is
told at once, with the peer's address and the reason.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from typing import Final

from penstock.net.addresses import address_text
from penstock.net.channel.bridge import Bridge
from penstock.net.channel.identity import new_id
from penstock.net.channel.tracking import Connections
from penstock.net.tls import Tls
from penstock.net.tls_session import choosing

__all__ = ["Acceptor"]

_log = logging.getLogger("penstock.net")

_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_REST: Final = 1.0
"""Seconds after which a system that was out of descriptors or memory is asked again."""


class Acceptor:
    """One listening socket."""

    def __init__(self, listening: socket.socket, connections: Connections, tls: Tls) -> None:
        self._listening = listening
        self._connections = connections
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._handshakes: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Take connections, from now on."""
        self._listening.listen(self._connections.settings.backlog)
        self._loop.add_reader(self._listening, self._accept)

    def close(self) -> None:
        """Take no more. A handshake that is under way may end, and its connection is refused then."""
        if self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
            self._listening.close()

    def _accept(self) -> None:
        for _ in range(self._connections.settings.backlog):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                _log.error("cannot accept a connection for now: %s; it is tried again", error.strerror)
                self._loop.remove_reader(self._listening)
                self._loop.call_later(_REST, self._accept_again)
                return
            accepted.setblocking(False)
            handshake = self._loop.create_task(self._shake_hands(accepted, address_text(address)))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)

    def _accept_again(self) -> None:
        if self._listening.fileno() >= 0:
            self._loop.add_reader(self._listening, self._accept)

    async def _shake_hands(self, accepted: socket.socket, remote: str) -> None:
        bridge = Bridge(self._connections, self._loop)
        ends = address_text(accepted.getsockname()), remote
        names = self._tls.names
        choosing.set(None if names is None else names.context_for)
        try:
            await self._loop.connect_accepted_socket(
                lambda: bridge,
                accepted,
                ssl=self._tls.context,
                ssl_handshake_timeout=self._tls.handshake_timeout,
                ssl_shutdown_timeout=max(self._connections.settings.linger, 0.1),
            )
        except OSError as error:
            self._failed(*ends, self._reason(error))
        else:
            if not hasattr(bridge, "connection"):
                self._failed(*ends, _GONE)  # Both loops take a peer that has gone for one that is done.

    def _failed(self, local: str, remote: str, why: str) -> None:
        if not self._connections.closed:
            self._connections.metrics.handshakes_failed += 1
            _log.warning("[%s, L:%s ! R:%s] a TLS handshake failed: %s", new_id(), local, remote, why)

    def _reason(self, error: OSError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"{error.reason or error}: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return str(error.reason or error)
        if isinstance(error, ConnectionAbortedError | TimeoutError):
            return f"the peer had not finished after {self._tls.handshake_timeout:g} s"
        return _GONE if isinstance(error, ConnectionError) else str(error)


_GONE: Final = "the peer went away"

"""How this side of a connection says that it is done, and waits for the other one.

To close a socket with unread bytes resets the connection, and could destroy what was just sent. So this side
says its end, and reads on until the peer has ended, too, for as long as the settings let a close linger.
Plain TCP has its half-close for that. TLS has ``close_notify``, which the transports of both loops send only
together with a close, and then give up if the peer is still sending. So it is sent here, when everything
before it has been handed to the kernel.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

from penstock.net.channel.flushing import Flushing, push_out

__all__ = ["Closing"]


class Closing:
    """The end of one connection, from our decision until the socket is closed."""

    __slots__ = ("_flushing", "_loop", "_timer", "_transport")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: Any) -> None:
        self._loop = loop
        self._transport = transport
        self._flushing: Flushing | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, linger: float, peer_ended: bool) -> bool:
        """Say the end; whether the peer has to be listened to, because it may still be sending."""
        listens = not peer_ended and linger > 0
        if not listens:
            self._transport.close()
        elif self._transport.can_write_eof():
            # Not now: we may be in a callback of the transport's, which would say it once more.
            self._loop.call_soon(self._say_end)
        else:
            self._flushing = Flushing(self._loop, self._transport, self._say_end_of_tls)
            self._loop.call_soon(self._flushing.check)
        self._timer = self._loop.call_later(linger, self._transport.abort)
        return listens

    def resume(self) -> None:
        """The transport has room."""
        if self._flushing is not None:
            self._flushing.check()

    def over(self) -> None:
        """The connection is lost."""
        if self._flushing is not None:
            self._flushing.cancel()
        if self._timer is not None:
            self._timer.cancel()

    def _say_end(self) -> None:
        if not self._transport.is_closing():
            try:
                self._transport.write_eof()
            except OSError:
                self._transport.abort()  # The peer has reset it, which we have not been told yet.

    def _say_end_of_tls(self) -> None:
        if self._transport.is_closing():
            return
        # It waits for the peer's own end, or finds that the peer is still sending: we know.
        with contextlib.suppress(ssl.SSLError):
            self._transport.get_extra_info("ssl_object").unwrap()
        push_out(self._transport)

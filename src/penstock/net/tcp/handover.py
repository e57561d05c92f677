"""How a transport takes over a client's socket: at once, or with a TLS handshake, which may be cancelled.

From then on the socket belongs to the event loop. If somebody else closed it, its descriptor would be blocked
for whoever gets that number next. asyncio closes it when the handshake is cancelled, with two exceptions. In
the turn of the loop that creates the transport it takes the session for one that is over already, so a cancel
waits until the handshake has begun. And in the turn that ends the handshake it waits for the peer's end.

Without TLS nothing waits for the peer, so a cancel waits for those few turns. uvloop would close the socket
and never say so to a connection that has just been made: its handler would run for ever.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

from penstock.net.bridge import AsyncioBridge

__all__ = ["handed_over"]

_Made = tuple[Any, AsyncioBridge]

_TURNS: Final = 3
"""Turns of the event loop after which a handshake has begun: its task, its transport, its first message."""


async def handed_over(
    loop: asyncio.AbstractEventLoop,
    made: Callable[[], AsyncioBridge],
    calling: socket.socket,
    tls: dict[str, Any],
) -> _Made:
    """The transport and the bridge of a connected socket. If that fails, the socket is closed."""
    bridge: AsyncioBridge | None = None

    def bridge_made() -> AsyncioBridge:
        nonlocal bridge
        bridge = made()
        return bridge

    create: Any = loop.create_connection
    if calling.family == socket.AF_UNIX:
        create = loop.create_unix_connection
    try:
        opening = create(bridge_made, sock=calling, **tls)
        made_both: _Made = await _finished(loop.create_task(opening), with_tls=bool(tls))
        return made_both
    except BaseException:
        if bridge is None:
            calling.close()  # There is no transport.
        elif hasattr(bridge, "connection"):
            bridge.connection.transport.abort()  # It was connected before it could be cancelled.
        raise


async def _finished(opening: asyncio.Task[_Made], *, with_tls: bool) -> _Made:
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        try:
            for _ in range(_TURNS):
                await asyncio.sleep(0)
        finally:
            if with_tls:
                opening.cancel()
            await asyncio.wait([opening])
            if not opening.cancelled():
                opening.exception()  # Nobody else asks for it.
        raise

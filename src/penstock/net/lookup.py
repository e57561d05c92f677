"""Asks the system for the addresses of a host."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

__all__ = ["addresses_of"]


async def addresses_of(
    host: str | None, port: int, **hints: int
) -> list[tuple[int, int, int, str, tuple[Any, ...]]]:
    """``getaddrinfo()`` of the running loop. A name that cannot be one is unknown, as any other."""
    try:
        found: list[Any] = await asyncio.get_running_loop().getaddrinfo(host, port, **hints)
    except UnicodeError as wrong:
        why = "a label of it is empty, too long, or has a character that no name has"
        raise socket.gaierror(socket.EAI_NONAME, why) from wrong
    return found

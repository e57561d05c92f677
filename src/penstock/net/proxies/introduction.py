"""How a server learns who its clients are: it reads the header of the PROXY protocol before anything else."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass
from typing import Any

from penstock.net.labels import address_text
from penstock.net.proxies.header import ProxyHeader
from penstock.net.proxies.parser import HeaderParser
from penstock.net.proxies.protocol import ProxyProtocol
from penstock.net.proxies.raw_socket import RawSocket

__all__ = ["Introduction"]


@dataclass(frozen=True, slots=True)
class Introduction:
    """What was read at the beginning of a connection."""

    header: ProxyHeader | None = None
    early: bytes = b""
    """Bytes that looked like a header and were not one."""
    refusal: str | None = None
    """Why the connection has to be closed before it begins."""
    left: bool = False
    """Whether the peer has gone without a word, as the health check of a load balancer does."""

    @classmethod
    async def read(
        cls, accepted: socket.socket, address: Any, expected: ProxyProtocol, loop: asyncio.AbstractEventLoop
    ) -> Introduction:
        """Read the header of a connection from this address."""
        trusted = expected.trusts(address)
        if expected.required and not trusted:
            return cls(refusal=_stranger(address, expected))
        parser = HeaderParser(expected.max_size)
        try:
            async with asyncio.timeout(expected.timeout):
                ended = await _ended(RawSocket(accepted, loop), parser)
        except TimeoutError:
            if parser.begun or expected.required:
                return cls(refusal=f"the PROXY header was not complete after {expected.timeout:g} s")
            return cls()  # The peer waits for us to speak first.
        except OSError as error:
            return cls(refusal=f"the connection was lost before the PROXY header: {error}")
        if parser.fault is not None:
            return cls(refusal=f"the PROXY header is malformed: {parser.fault}")
        if parser.header is not None:
            return cls(parser.header) if trusted else cls(refusal=_stranger(address, expected))
        if not expected.required:
            return cls(early=parser.begun)
        if parser.absent:
            return cls(refusal="the PROXY header is missing: the connection begins with something else")
        if ended and not parser.begun:
            return cls(left=True)
        return cls(refusal="the connection ended in the middle of the PROXY header")


async def _ended(raw: RawSocket, parser: HeaderParser) -> bool:
    """Read until the parser has what it needs. Returns whether the peer ended before."""
    while not parser.done:
        data = await raw.peek()
        if not data:
            return True
        raw.take(parser.take(data))
    return False


def _stranger(address: Any, expected: ProxyProtocol) -> str:
    networks = ", ".join(map(str, expected.trusted))
    return f"{address_text(address)} may not send a PROXY header: proxy_protocol() trusts {networks}"

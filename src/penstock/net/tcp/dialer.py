"""From a host and a port, or a path, to a connected socket: looking up the addresses, and trying them.

Addresses are tried side by side, as RFC 8305 says: the next one when the one before has failed, or has not
answered for a moment. asyncio can do that itself, but leaves a socket open if it is cancelled meanwhile, and
uvloop cannot.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain, zip_longest
from typing import Any, Final

from penstock.net.endpoint import EndpointState, tell_endpoint
from penstock.net.errors import ResolveFailed
from penstock.net.labels import address_text
from penstock.net.lookup import addresses_of
from penstock.net.settings import TcpSettings

__all__ = ["Resolver", "dial", "dial_path"]

Resolver = Callable[[str, int], Awaitable[Iterable[str | tuple[Any, ...]]]]
"""Takes host and port. Returns addresses in the order to try them: ``"192.0.2.1"``, or with a port."""

_Found = tuple[int, Any]
"""A family, and an address as sockets of this family take it."""

_NEXT_ADDRESS: Final = 0.25
"""Seconds after which the next address of a host is tried beside the first (RFC 8305)."""

_FIRST_PAUSE: Final = 0.001
_LONGEST_PAUSE: Final = 0.1
"""Seconds until a full Unix socket is tried again, at first and at most."""


async def dial(settings: TcpSettings, host: str, port: int) -> socket.socket:
    """A socket that is connected to one of the addresses of this host.

    Fails with ResolveFailed, or with the ``OSError`` of the address that was tried last.
    """
    where = f"{host}:{port}"
    tell_endpoint(settings, EndpointState.RESOLVING, where=where)
    if settings.resolver is None:
        found = await _looked_up(host, port)
    else:
        found = await _resolved(settings.resolver, host, port)
    addresses = tuple(address_text(address) for _, address in found)
    tell_endpoint(settings, EndpointState.RESOLVED, addresses, where=where)
    if len(found) == 1:
        return await _connected(settings, *found[0])
    return await _first_connected(settings, found)


async def dial_path(path: str) -> socket.socket:
    """A socket that is connected to the Unix socket at this path, or with this abstract name.

    While as many callers wait there as the server allows, the system refuses further ones and does not tell
    when there is space again. asyncio takes that refusal for a connection that is being made. So the socket
    is connected here, and tried again and again; ``connect_timeout`` bounds that.
    """
    calling = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    pause = _FIRST_PAUSE
    try:
        calling.setblocking(False)
        while True:
            try:
                calling.connect(path)
            except (BlockingIOError, InterruptedError):
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
            else:
                return calling
    except BaseException:
        calling.close()
        raise


# ---------------------------------------------------------------- looking up
async def _looked_up(host: str, port: int) -> list[_Found]:
    try:
        found = await addresses_of(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise ResolveFailed.to(f"{host}:{port}", error) from error
    families: dict[int, list[_Found]] = {}
    for family, _, _, _, address in found:
        families.setdefault(family, []).append((family, address))
    # Families take turns, so that a broken one costs a moment and not one for each of its addresses.
    return [each for each in chain.from_iterable(zip_longest(*families.values())) if each is not None]


async def _resolved(resolver: Resolver, host: str, port: int) -> list[_Found]:
    where = f"{host}:{port}"
    try:
        answer = await resolver(host, port)
        if isinstance(answer, str | bytes):
            raise TypeError(f"it returned {answer!r:.80} and not a list")
        found = [_numeric(address, port) for address in answer]
    except Exception as error:
        raise ResolveFailed.by(resolver, where, f"failed ({type(error).__name__}: {error})") from error
    if not found:
        raise ResolveFailed.by(resolver, where, "returned no address")
    return found


def _numeric(address: Any, port: int) -> _Found:
    try:
        host, port, *_ = address if isinstance(address, tuple) else (address, port)
        # The system takes a port beyond the last for another one, and text up to the first NUL.
        if not isinstance(host, str) or "\0" in host:
            raise TypeError("an address is text")
        if type(port) is not int or not 0 < port <= 65_535:
            raise ValueError("a port is a number from 1 to 65535")
        # No name is looked up here: that would block the event loop.
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except (OSError, TypeError, ValueError) as error:
        raise ValueError(f"{address!r:.80} is not an IP address, nor a pair of one and a port") from error
    return found[0][0], found[0][4]


# ---------------------------------------------------------------- connecting
async def _connected(settings: TcpSettings, family: int, address: Any) -> socket.socket:
    calling = _new_socket(family)
    try:
        await _connect(calling, settings, address)
    except BaseException:
        calling.close()
        raise
    return calling


def _new_socket(family: int) -> socket.socket:
    return socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)


async def _first_connected(settings: TcpSettings, found: list[_Found]) -> socket.socket:
    untried, attempts = deque(found), dict[asyncio.Task[None], socket.socket]()
    winner: socket.socket | None = None
    last: BaseException | None = None
    try:
        while winner is None and (untried or attempts):
            if untried:
                family, address = untried.popleft()
                try:
                    calling = _new_socket(family)
                except OSError as error:  # a system without IPv6 may know addresses of it
                    last = error
                    continue
                attempts[asyncio.ensure_future(_connect(calling, settings, address))] = calling
            done, _ = await asyncio.wait(
                attempts, timeout=_NEXT_ADDRESS if untried else None, return_when=asyncio.FIRST_COMPLETED
            )
            for attempt in done:
                failed = attempt.exception()
                if failed is None:
                    winner = attempts.pop(attempt)
                    break
                attempts.pop(attempt).close()
                if not isinstance(failed, OSError):
                    raise failed
                last = failed
        await _give_up(attempts)
    except BaseException:
        if winner is not None:
            winner.close()
        await _give_up(attempts)
        raise
    if winner is None:
        raise last or ConnectionRefusedError("the host has no address")
    return winner


async def _give_up(attempts: dict[asyncio.Task[None], socket.socket]) -> None:
    """End the attempts that are still under way. The event loop lets go of a socket before it is closed."""
    for attempt in attempts:
        attempt.cancel()
    try:
        await asyncio.gather(*attempts, return_exceptions=True)
    finally:
        for calling in attempts.values():
            calling.close()


async def _connect(calling: socket.socket, settings: TcpSettings, address: Any) -> None:
    """Set the options, bind to the local address, and connect."""
    loop = asyncio.get_running_loop()
    calling.setblocking(False)
    tell_endpoint(settings, EndpointState.CONNECTING, (address_text(address),))
    # Options belong before the connection: the size of a window is settled with the first packet.
    for option in settings.socket_options:
        with contextlib.suppress(OSError):  # A connection warns of it when it begins.
            option.apply(calling)
    if settings.local_address is not None:
        host, port = settings.local_address
        found = await addresses_of(host, port, family=calling.family, type=socket.SOCK_STREAM)
        calling.bind(found[0][4])
    await loop.sock_connect(calling, address)

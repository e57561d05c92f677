"""The server that has a Redis stream: how to connect to it, and where it is in a cluster.

A feed asks for one key only. So in a cluster it needs one node, and any node says which one that is.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from penstock.feeds.registry import FeedAddress

if TYPE_CHECKING:
    from redis.asyncio import Redis
    from redis.exceptions import MovedError

__all__ = ["WAIT", "RedisNode"]

WAIT: Final = 5.0
"""Seconds after which a read that found nothing is repeated: it shows that the line is alive."""
_PATIENCE: Final = 10.0
"""Seconds for connecting, and for an answer."""


class RedisNode:
    """The server at the address in the URL, or the node of its cluster that has the stream."""

    def __init__(self, address: FeedAddress, database: int, *, tls: bool, ca: str | None) -> None:
        self._given = self._address = address
        self._database = database
        self._secure: dict[str, Any] = {"ssl_ca_certs": ca} if tls else {}
        self._tls = tls

    def move(self, moved: MovedError) -> str:
        """Connect to the node that has the stream from now on; returns its name."""
        host = moved.host or self._address.host  # A node may know only the port of another one.
        self._address = replace(self._given, host=host, port=moved.port)
        return f"{host}:{moved.port}"

    def go_back(self) -> None:
        """Ask at the address in the URL again: the node does not answer."""
        self._address = self._given

    @asynccontextmanager
    async def client(self) -> AsyncIterator[Redis]:
        """A client, which connects with its first command, and never tries again by itself."""
        from redis.asyncio import Redis, SSLConnection
        from redis.asyncio.connection import Connection, ConnectionPool
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        address = self._address
        pool: Any = ConnectionPool(
            SSLConnection if self._tls else Connection,
            **self._secure,
            host=address.host,
            port=address.port,
            db=self._database,
            username=address.user or None,
            password=address.password,
            socket_connect_timeout=_PATIENCE,
            socket_timeout=WAIT + _PATIENCE,
            socket_keepalive=True,
            retry=Retry(NoBackoff(), 0),
            client_name="penstock",
        )
        client = Redis(connection_pool=pool)
        try:
            yield client
        finally:
            await client.aclose()
            await pool.disconnect()

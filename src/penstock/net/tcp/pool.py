"""A pool of client connections: a bound for each remote address, and a queue in front of it."""

from __future__ import annotations

from penstock.arguments import a_count, a_number
from penstock.net.connection import Connection
from penstock.net.lifecycle import CloseReport
from penstock.net.loops import ClosedByBlocks, refuse_on_a_loop, run_in_background
from penstock.net.metrics import PoolMetrics
from penstock.net.settings import TcpSettings
from penstock.net.tcp.pool_ledger import Opening, PoolLedger

__all__ = ["ConnectionPool", "acquire"]


class ConnectionPool(ClosedByBlocks):
    """Keeps the connections of clients for their next use, with a bound for each remote address.

    ::

        async with ConnectionPool(max_connections=10) as pool:
            client = TcpClient.create().host("localhost").port(7000).pool(pool)
            async with await client.connect() as connection:  # gives it back at the end
                await connection.outbound.send(b"hello\\n")

    If all connections to an address are in use, ``connect()`` waits in a queue, first come, first served.
    Each address has a queue of its own, so a slow one does not delay the others.
    """

    def __init__(
        self,
        max_connections: int = 16,
        *,
        max_pending: int = 1024,
        acquire_timeout: float = 45.0,
        max_idle_time: float | None = 60.0,
        max_life_time: float | None = None,
    ) -> None:
        """Make a pool; times are in seconds.

        ``max_connections`` and ``max_pending`` hold for each remote address: how many connections there may
        be, and how many callers may wait. A caller waits for ``acquire_timeout`` at most. A connection is
        closed when it was idle for ``max_idle_time``, and not used again after ``max_life_time``.
        """
        self.max_connections = a_count(max_connections, "max_connections of ConnectionPool()")
        self.max_pending = a_count(max_pending, "max_pending of ConnectionPool()", least=0)
        self.acquire_timeout = a_number(acquire_timeout, "acquire_timeout of ConnectionPool()", above=0)
        self.max_idle_time = _seconds(max_idle_time, "max_idle_time of ConnectionPool()")
        self.max_life_time = _seconds(max_life_time, "max_life_time of ConnectionPool()")
        self._ledger = PoolLedger(
            self.max_connections,
            self.max_pending,
            self.acquire_timeout,
            self.max_idle_time,
            self.max_life_time,
        )

    # ---------------------------------------------------------------- what it has
    @property
    def metrics(self) -> PoolMetrics:
        """The counts of all remote addresses together."""
        return self._ledger.counted()

    def metrics_by_remote(self) -> dict[str, PoolMetrics]:
        """The counts of each remote address that has connections or waiting callers."""
        return self._ledger.counted_by_remote()

    @property
    def closed(self) -> bool:
        """Whether the pool hands out no more connections."""
        return self._ledger.closed

    def __repr__(self) -> str:
        counted = self.metrics
        return (
            f"<ConnectionPool {counted.connections_active} active, {counted.connections_idle} idle, "
            f"{counted.acquires_pending} pending>"
        )

    # ---------------------------------------------------------------- the end
    async def aclose(self, grace: float = 3.0) -> CloseReport:
        """Hand out no more connections, and close those that there are.

        Callers in the queue fail with PoolClosed. Idle connections are closed at once. Those in use have
        ``grace`` seconds to be given back, and are then cut off; the report names them. Any event loop may
        call this.
        """
        return await self._ledger.close(grace)

    def close_now(self, grace: float = 3.0) -> CloseReport:
        """:meth:`aclose` for a thread that has no event loop."""
        refuse_on_a_loop("aclose()")
        return run_in_background(self.aclose(grace))


def _seconds(value: float | None, name: str) -> float | None:
    return None if value is None else a_number(value, name, above=0)


async def acquire(pool: ConnectionPool, settings: TcpSettings, open_one: Opening) -> Connection:
    """A connection of this pool: an idle one, or one that ``open_one`` opens."""
    return await pool._ledger.acquire(settings, open_one)

"""The entries of a Redis stream, read as a member of a consumer group: each becomes a record exactly once.

The id of the last entry is stored with the records, in one transaction. XACK follows the commit. What was
stored and not acknowledged when something died is recognised by its id, and acknowledged then.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from penstock.delivery import Delivery
from penstock.feeds.bodies import record_of_fields
from penstock.feeds.connected import ConnectedFeed, ConnectionLost, heed_cancel
from penstock.feeds.feed import BadFeed, Feed, FeedOptions
from penstock.feeds.lines import LineTooLong
from penstock.feeds.redis_entries import READ_ENTRIES, EntryId, entry_id, id_text
from penstock.feeds.redis_node import WAIT, RedisNode
from penstock.feeds.registry import FeedAddress, FeedUrl, Scheme

if TYPE_CHECKING:
    from redis.asyncio import Redis

__all__ = ["SCHEMES", "RedisFeed", "RedisSettings"]

_log = logging.getLogger("penstock.feeds")

_PORT: Final = 6379
_ENTRIES: Final = 256
_BYTES: Final = 256 * 1024
"""A delivery has at most so many entries, and ends with the entry that exceeds so many bytes."""
_REDIRECTS: Final = 5
"""How often a cluster may send us to another node in a row."""
_ACKNOWLEDGED: Final = 1000
"""How many ids are in one XACK."""

_NOT_REDIS: Final = "the server does not answer as Redis does; check the port"
_FATAL: Final = {
    "WRONGTYPE": "this key is not a stream; check the name in the URL",
    "NOPERM": "the user may not read this stream; allow XREADGROUP, XACK, XGROUP, XINFO, XREAD and EVALSHA",
    "DB index": "there is no such database",
    "unknown command": "streams need Redis 6.2 or newer",
}
"""Answers that do not change by waiting, by a part of their text."""

_Entry: TypeAlias = tuple[bytes, Sequence[bytes] | None]


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Which part of which stream is read, and as whom."""

    group: str
    field: str | None = None
    """The field that is the record; None for a JSON object with all fields."""
    start: str = "0"
    """Where a new group begins: ``0`` for the first entry, ``$`` for those from now on."""
    consumer: str | None = None
    """The name in the group; None for one that is made up, and kept in the journal."""
    database: int = 0
    tls: bool = False
    ca: str | None = None
    """A file with the certificates to trust; None for those of the system."""


class RedisFeed(ConnectedFeed):
    """The entries of a stream, in their order, as one consumer of a group.

    While the gateway does not ask, nothing is read: the entries stay in Redis.
    """

    def __init__(self, address: FeedAddress, settings: RedisSettings, options: FeedOptions) -> None:
        super().__init__(f"redis stream {address.path} at {address.host}:{address.port}")
        self.bad = self._bad = options.bad_lines()
        self.trimmed = 0
        """How many entries were removed from the stream before they could be read."""
        self._address = address
        self._settings = settings
        self._options = options
        self._decode = options.decoder()
        self._node = RedisNode(address, settings.database, tls=settings.tls, ca=settings.ca)
        self._marks = f"redis:{settings.database}/{address.path}/"
        """How the marks of this stream begin."""
        self._mark = f"{self._marks}{settings.group}"
        """Its text has our name in the group, and the last id that this name has taken."""
        self._consumer = settings.consumer
        self._other_group: str | None = None
        """The group as which the log was read, if it was never this one."""
        self._is_named = False
        """Whether the journal has our name."""
        self._taken: EntryId = (0, 0)
        """The last entry that was given to the gateway."""
        self._stored: EntryId = (0, 0)
        """The last entry that is in the journal."""
        self._unacknowledged: deque[bytes] = deque()
        """Entries that are in the journal, and that Redis has to be told about."""
        self._safe = asyncio.Event()

    def resume(self, marks: Mapping[str, str]) -> None:
        """Continue after the last entry that is in the journal, under the name that is there."""
        if self._mark not in marks:
            others = [it.removeprefix(self._marks) for it in marks if it.startswith(self._marks)]
            # One with a slash may be of another stream.
            self._other_group = next((group for group in others if "/" not in group), None)
        last, _, name = marks.get(self._mark, "").partition(" ")
        if name and name == (self._settings.consumer or name):
            # The entries that another name has taken say nothing about those that are pending for this one.
            self._consumer, self._is_named = name, True
            self._taken = self._stored = entry_id(last)

    async def connection(self) -> AsyncGenerator[Any, None]:
        """Join the group; yield what it gave to us before, and then what is new."""
        from redis import exceptions

        if self._other_group is not None:
            raise BadFeed(
                f"{self.name}: the log was read as the group {self._other_group}, and the group "
                f"{self._settings.group} would read all of the stream again into the same log; write "
                f"?group={self._other_group}, or take a new journal"
            )
        try:
            async with self._joined() as client:
                self.connected()
                self._safe = asyncio.Event()
                if not self._is_named:
                    # Before anything is read: what was read by a name that is forgotten would stay pending.
                    yield self._naming()
                    while not self._is_named:
                        await self._safe.wait()
                acknowledging = asyncio.ensure_future(self._acknowledge(client))
                try:
                    async with aclosing(self._deliveries(client)) as deliveries:
                        async for delivery in deliveries:
                            yield delivery
                            if acknowledging.done():
                                acknowledging.result()
                finally:
                    acknowledging.cancel()
                    await asyncio.wait([acknowledging])
        except exceptions.AuthenticationError as error:
            raise BadFeed(f"{self.name} refuses the user or the password: {error}") from error
        except exceptions.MovedError as moved:
            raise ConnectionLost(f"the cluster has moved the stream to {self._node.move(moved)}") from moved
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            self._node.go_back()
            raise ConnectionLost(str(error) or type(error).__name__) from error
        except exceptions.ResponseError as error:
            for code, reason in _FATAL.items():
                if code in str(error):
                    raise BadFeed(f"{self.name}: {reason}; the server says: {error}") from error
            raise ConnectionLost(f"the server says: {error}") from error
        except exceptions.RedisError as error:
            raise ConnectionLost(f"{_NOT_REDIS} ({error})") from error

    # ---------------------------------------------------------------- reading
    async def _deliveries(self, client: Redis) -> AsyncGenerator[Delivery, None]:
        read = client.register_script(READ_ENTRIES)
        arguments = [self._settings.group, self._consumer or ""]
        pending: bytes | None = b"0"
        while True:
            given: list[bytes | str | int] = [*arguments, pending or b">", _ENTRIES, _BYTES]
            with _understood():
                trimmed, entries = await read(keys=[self._address.path], args=given)
                heed_cancel()
                if trimmed:
                    self._missing(trimmed)
                if pending is not None:
                    pending = entries[-1][0] if entries else None
                elif not entries:
                    await self._arrival(client)
                    heed_cancel()
                new = [entry for entry in entries if self._is_new(*entry)]
            if not new:
                continue
            records: list[Any] = []
            for count, (key, fields) in enumerate(new):
                try:
                    records += self._records(key, fields or ())
                except ValueError:
                    if count:
                        yield self._delivery(new[:count], records)
                    raise
            yield self._delivery(new, records)

    async def _arrival(self, client: Redis) -> None:
        """Wait until there is an entry that the group has not read; it is read then."""
        groups = await client.xinfo_groups(self._address.path)
        name = self._settings.group.encode()
        last = next((it["last-delivered-id"] for it in groups if it["name"] == name), b"0-0")
        await client.xread({self._address.path: last}, count=1, block=round(WAIT * 1000))

    def _is_new(self, key: bytes, fields: Sequence[bytes] | None) -> bool:
        number = entry_id(key.decode())
        if number <= self._taken:
            if number <= self._stored:
                self._acknowledged_later([key])
            return False  # Otherwise it is on its way to the journal.
        if fields is None:
            self._missing(1)
            self._acknowledged_later([key])
            return False
        if len(fields) % 2 and self._bad.policy == "fail":
            # No Redis has such an entry: the fault is the server's, and may be mended by the next time.
            raise ValueError(f"the entry {key.decode()} has a field without a value")
        return True

    def _missing(self, count: int) -> None:
        self.trimmed += count
        _log.warning(
            "%s: %d entries were removed before they could be read, %d so far; keep more of the stream "
            "(MAXLEN, MINID)",
            self.name,
            count,
            self.trimmed,
        )

    def _records(self, key: bytes, flat: Sequence[bytes]) -> list[Any]:
        fields = dict(zip(flat[::2], flat[1::2], strict=False))
        wanted = self._settings.field
        try:
            size = sum(map(len, flat))
            if len(flat) % 2:
                raise ValueError("it has a field without a value")
            if size > self._options.max_line:
                raise LineTooLong(f"has {size} bytes; allow more with max_line (--max-line)")
            if wanted is None:
                named = {name.decode(): value.decode() for name, value in fields.items()}
                return [record_of_fields(named, self._options)]
            if wanted.encode() not in fields:
                raise ValueError(f"it has no field {wanted!r}")
            value = fields[wanted.encode()]
            return [value if self._decode is None else self._decode(value)]
        except (ValueError, RecursionError, OverflowError) as error:
            is_whole = wanted is None or len(flat) % 2
            value = b"\n".join(flat) if is_whole else fields.get(str(wanted).encode(), b"")
            return list(self._bad.refuse(error, value, at=f"entry {key.decode()} of {self.name}"))

    def _delivery(self, entries: Sequence[_Entry], records: list[Any]) -> Delivery:
        keys = [key for key, _ in entries]
        last = keys[-1].decode()
        self._taken = entry_id(last)
        tell = partial(self._commit, asyncio.get_running_loop(), keys)
        return Delivery(records, {self._mark: f"{last} {self._consumer}"}, tell)

    # ---------------------------------------------------------------- telling Redis
    def _naming(self) -> Delivery:
        self._consumer = self._consumer or f"penstock-{secrets.token_hex(6)}"
        loop = asyncio.get_running_loop()

        def stored() -> None:
            self._is_named = True
            _call(loop, self._safe.set)

        return Delivery([], {self._mark: f"{id_text(self._taken)} {self._consumer}"}, stored)

    def _commit(self, loop: asyncio.AbstractEventLoop, keys: list[bytes]) -> None:
        """On the thread of the journal, in the order of the deliveries."""
        self._stored = entry_id(keys[-1].decode())
        _call(loop, partial(self._acknowledged_later, keys))

    def _acknowledged_later(self, keys: list[bytes]) -> None:
        self._unacknowledged += keys
        self._safe.set()

    async def _acknowledge(self, client: Redis) -> None:
        while True:
            while self._unacknowledged:
                some = [self._unacknowledged[i] for i in range(min(_ACKNOWLEDGED, len(self._unacknowledged)))]
                with _understood():
                    await client.xack(self._address.path, self._settings.group, *some)
                heed_cancel()
                for _ in some:
                    self._unacknowledged.popleft()
            self._safe.clear()
            await self._safe.wait()

    # ---------------------------------------------------------------- connecting
    @asynccontextmanager
    async def _joined(self) -> AsyncIterator[Redis]:
        """A client of the server that has the stream, as a member of the group."""
        from redis import exceptions

        for _ in range(_REDIRECTS):
            async with self._node.client() as client:
                try:
                    with _understood():
                        await self._join(client)
                    heed_cancel()
                except exceptions.MovedError as moved:
                    self._node.move(moved)
                    continue
                yield client
                return
        raise ConnectionLost("the nodes of the cluster do not agree on which of them has the stream")

    async def _join(self, client: Redis) -> None:
        from redis import exceptions

        stream, group = self._address.path, self._settings.group
        known = id_text(self._taken)
        start = known if self._taken != (0, 0) else self._settings.start
        try:
            await client.xgroup_create(stream, group, start, mkstream=True)
        except exceptions.ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise
        info = await client.xinfo_stream(stream)
        if entry_id(info["last-generated-id"].decode()) < self._taken:
            # The server has lost its last entries in a crash. New ones must not get ids that we have seen.
            _log.warning("%s: the server has lost entries that the journal has", self.name)
            await client.execute_command("XSETID", stream, known)  # type: ignore[no-untyped-call]
        for other in await client.xinfo_consumers(stream, group):
            if other["pending"] and other["name"].decode() != self._consumer:
                _log.warning(
                    "%s: the consumer %s of the group %s has %d entries that it has not acknowledged; if it "
                    "is gone for good, name it with ?consumer=%s to read them",
                    self.name,
                    other["name"].decode(),
                    group,
                    other["pending"],
                    other["name"].decode(),
                )


@contextmanager
def _understood() -> Iterator[None]:
    """ConnectionLost if the client cannot make sense of an answer, or we cannot."""
    try:
        yield
    except BadFeed:
        raise
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError, OverflowError) as error:
        raise ConnectionLost(f"{_NOT_REDIS} ({type(error).__name__}: {error})") from error


def _call(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(function)


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    try:
        import redis.asyncio  # noqa: F401
    except ModuleNotFoundError as error:
        raise BadFeed("feeds of Redis need redis: pip install 'penstock-streams[redis]'") from error
    address, given = url.address(_PORT), url.parameters
    if (password := url.secret("password-file")) is not None:
        address = replace(address, password=password)
    if not address.path:
        raise BadFeed(f"{url.shown} names no stream; write {url.scheme}://HOST/STREAM?group=NAME")
    group, start = given.get("group", ""), given.get("from", "start")
    if not group:
        raise BadFeed(f"{url.shown} names no group; write ?group=NAME")
    if start not in _STARTS:
        raise BadFeed(f"{url.shown}: from={start} is not known; write {' or '.join(_STARTS)}")
    if " " in given.get("consumer", "-") or given.get("consumer") == "":
        raise BadFeed(f"{url.shown}: consumer= needs a name without spaces")
    database = given.get("db", "0")
    if not database.isdecimal():
        raise BadFeed(f"{url.shown}: db={database} is not a number; write db=0, for instance")
    if "ca" in given and not Path(given["ca"]).is_file():
        raise BadFeed(f"{url.shown}: there is no file {given['ca']}; check ca=")
    settings = RedisSettings(
        group=group,
        field=given.get("field"),
        start=_STARTS[start],
        consumer=given.get("consumer"),
        database=int(database),
        tls=url.scheme == "rediss",
        ca=given.get("ca"),
    )
    return RedisFeed(address, settings, options)


_STARTS: Final = {"start": "0", "now": "$"}

SCHEMES = tuple(
    Scheme(
        name,
        f"{name}://HOST/STREAM",
        f"the entries of a Redis stream{', over TLS' if name == 'rediss' else ''}, each exactly once",
        _open,
        parameters={
            "group": "the consumer group to read as, which is required; it is created if it is not there",
            "field": "the field that is the record; without it, a record is a JSON object with all fields",
            "from": "where a new group begins: start (the first entry) or now",
            "consumer": "the name in the group; without it, one that the journal keeps",
            "db": "the number of the database (default 0)",
            "password-file": "a file with the password of the user in the URL",
            **({"ca": "a file with the certificates to trust"} if name == "rediss" else {}),
        },
    )
    for name in ("redis", "rediss")
)

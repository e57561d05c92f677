"""A server that takes POST requests: an answer with 2xx means that the records are in the journal.

While the gateway has no space, a request waits. After some seconds its answer is 429 with Retry-After, and
nothing of it is kept.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from penstock.delivery import BadRecord, Delivery
from penstock.feeds.bodies import kind_of, records_in
from penstock.feeds.feed import BadFeed, Feed, FeedOptions
from penstock.feeds.http_listener import LISTENER_PARAMETERS, HttpListener, ListenerAddress
from penstock.feeds.idempotency import KeyLog
from penstock.feeds.registry import FeedUrl, Scheme
from penstock.feeds.rendezvous import FeedClosed, Rendezvous
from penstock.feeds.senders import DEMAND, WORKING, SenderLedger, SenderVisit
from penstock.options import parse_count, parse_duration, parse_size
from penstock.spec import Publisher

if TYPE_CHECKING:
    from penstock.net.http import App, Http, Request

__all__ = ["SCHEMES", "WebhookFeed", "WebhookSettings"]

_log = logging.getLogger("penstock.feeds")

_BODY_TIME: Final = 30.0
"""Seconds in which the body of a request has to arrive."""
_HELD: Final = 64 * 1024 * 1024
"""How many bytes of bodies may wait for the gateway, all senders together."""
_LONGEST_KEY: Final = 255
_SHORT: Final = 1.0
"""Seconds that a sender is told to wait, at least, before it tries again."""


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """What a webhook allows."""

    max_body: int = 8 * 1024 * 1024
    """Bytes of one body, before and after decompression."""
    wait: float = 10.0
    """Seconds for which a request waits while the gateway has no space."""
    keys: int = 10_000
    """How many idempotency keys are remembered."""


class _Refused(Exception):
    """An answer that is not 2xx."""

    def __init__(self, status: int, error: str, **headers: str) -> None:
        super().__init__(error)
        self.status = status
        self.headers = headers


class WebhookFeed(Feed):
    """A port that takes POST requests with records in their bodies.

    The records of a request become safe together. The answer waits for that: ``200 {"stored": 3}``. A request
    with an ``Idempotency-Key`` that was used before gets the same answer again, and is not stored twice.
    """

    def __init__(
        self, address: ListenerAddress, options: FeedOptions, settings: WebhookSettings | None = None
    ) -> None:
        self.bad = self._bad = options.bad_lines("fail")  # The sender is told.
        self.senders = self._ledger = SenderLedger(remember=True, capacity_bytes=_HELD)
        self._address = address
        self._options = options
        self._settings = settings or WebhookSettings()
        self._keys = KeyLog(self._settings.keys)
        self._in_progress: dict[str, asyncio.Future[None]] = {}
        """Keys whose records are being stored."""
        self._held = 0
        self._is_read = False
        self._most: tuple[int | None, int | None] = None, None
        """How many records and bytes the log can hold."""
        self._listener = HttpListener(address)
        self._rendezvous: Rendezvous
        self._listener.start(self._application)
        self.name = f"records posted to {self._listener.where}"

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self._listener.port

    def bounded(self, records: int | None, nbytes: int | None) -> None:
        """Learn what the log can hold, and refuse a larger request: it is stored as a whole or not at all."""
        self._most = records, nbytes

    def resume(self, marks: Mapping[str, str]) -> None:
        """Learn the keys that are in the journal."""
        self._keys.resume(marks)

    def __call__(self, journalled: int) -> Publisher[Any]:
        """Return a delivery for each request."""
        self._is_read = True
        return self._rendezvous.publisher()

    def close(self) -> None:
        """Stop listening; requests that wait are answered with 503."""
        self._listener.close(self._rendezvous.close)

    # ---------------------------------------------------------------- on the server's loop
    def _application(self, loop: asyncio.AbstractEventLoop) -> Http:
        from penstock.net.http import Http

        self._rendezvous = Rendezvous(loop)
        limits = Http().body_limit(self._settings.max_body).request_timeout(_BODY_TIME).decompress()
        return limits.post(self._address.path, self._answer)

    async def _answer(self, request: Request) -> App:
        from penstock.net.http import reply

        try:
            answer = await self._take(request)
        except _Refused as refused:
            headers = {"content-type": "application/json"} | {
                name.replace("_", "-"): value for name, value in refused.headers.items()
            }
            return reply(json.dumps({"error": str(refused)}) + "\n", status=refused.status, headers=headers)
        return reply(json.dumps(answer) + "\n", headers={"content-type": "application/json"})

    async def _take(self, request: Request) -> dict[str, int]:
        headers = request.headers
        if not self._address.admits(headers.get("authorization")):
            raise _Refused(
                401, "this address needs the header Authorization: Bearer TOKEN", www_authenticate="Bearer"
            )
        if not self._is_read:
            raise _later(503, "the gateway is starting")
        key = headers.get("idempotency-key", "")
        if len(key) > _LONGEST_KEY:
            raise _Refused(400, f"an Idempotency-Key has at most {_LONGEST_KEY} characters")
        announced = headers.get("content-length", "")
        expected = int(announced) if announced.isdigit() else self._settings.max_body
        # An announced size is that of the compressed body.
        room = (
            self._settings.max_body
            if "content-encoding" in headers
            else min(expected, self._settings.max_body)
        )
        if self._held and self._held + room > _HELD:
            raise _later(429, "too many requests wait for the gateway")
        self._held += room
        # A sender may connect anew for each request, so it is known by its host alone.
        host = str((request.scope.get("client") or ("unnamed",))[0])
        try:
            with self._ledger.visit(host) as visit:
                return await self._store(request, key, visit)
        finally:
            self._held -= room

    async def _store(self, request: Request, key: str, visit: SenderVisit) -> dict[str, int]:
        """What to answer, once the records are stored."""
        body = await self._body(request)
        visit.doing, visit.held = WORKING, len(body)
        name = KeyLog.name_of(key) if key else ""
        digest = KeyLog.digest_of(body) if key else ""
        while key and (earlier := self._in_progress.get(name)) is not None:
            # The same request is being stored: its sender has lost patience, or there are two of them.
            visit.doing = DEMAND
            await self._wait_for(earlier)
        known = self._keys.find(name) if key else None
        if known is not None:
            if known.digest != digest:
                raise _Refused(422, "this Idempotency-Key was used for another body")
            return {"stored": known.records, "repeated": True}
        kind = kind_of(request.headers.get("content-type", ""))
        try:
            records = records_in(body, kind, self._options, self._bad)
        except ValueError as error:
            raise _Refused(400, f"{error}; nothing of this request was stored") from None
        if not records:
            return {"stored": 0}
        self._refuse_too_large(len(records), len(body))
        stored, tell = self._rendezvous.commit()
        bad = sum(isinstance(record, BadRecord) for record in records)
        marks = self._begin(name, len(records) - bad, digest, stored) if key else {}
        delivery = Delivery(records, marks, tell)
        visit.doing = DEMAND
        try:
            taken = await self._rendezvous.offer(delivery, self._settings.wait, stored.cancel)
        except FeedClosed:
            raise _later(503, "the gateway is being stopped") from None
        if not taken:
            raise _later(429, "the gateway has no space at the moment")
        await self._wait_for(stored)
        if stored.exception() is not None:
            raise _later(503, "the gateway is being stopped")
        visit.took(len(records), len(body))
        return {"stored": len(records) - bad} | ({"dead_letters": bad} if bad else {})

    async def _body(self, request: Request) -> bytes:
        """The whole body; a sender that is slow does not hold up the end of the feed."""

        async def whole() -> bytes:
            return b"".join([chunk async for chunk in request.body()])

        reading = asyncio.ensure_future(whole())
        try:
            either: list[asyncio.Future[Any]] = [reading, self._rendezvous.closing]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not reading.done():
                reading.cancel()
                await asyncio.wait([reading])
        if reading.cancelled():
            raise _later(503, "the gateway is being stopped")
        return reading.result()

    def _refuse_too_large(self, records: int, nbytes: int) -> None:
        most, most_bytes = self._most
        if (most is not None and records > most) or (most_bytes is not None and nbytes > most_bytes):
            bounds = ((most, "records"), (most_bytes, "bytes"))
            known = " and ".join(f"{bound} {what}" for bound, what in bounds if bound is not None)
            raise _Refused(
                413,
                f"this request has {records} records and {nbytes} bytes, and the whole log of the gateway "
                f"has space for {known}; send fewer at a time, or raise the bounds of the log",
            )

    def _begin(
        self, name: str, records: int, digest: str, stored: asyncio.Future[None]
    ) -> dict[str, str | None]:
        """Remember a new key; if its records are not stored, it is a new one again."""

        def over(stored: asyncio.Future[None]) -> None:
            del self._in_progress[name]
            if stored.cancelled() or stored.exception() is not None:
                self._keys.withdraw(name)
            else:
                self._keys.stored(name)

        self._in_progress[name] = stored
        stored.add_done_callback(over)
        return self._keys.add(name, records, digest)

    async def _wait_for(self, stored: asyncio.Future[None]) -> None:
        await asyncio.wait([stored], timeout=self._settings.wait)
        if not stored.done():
            raise _later(
                503,
                "the gateway cannot store this yet; send it again, with an Idempotency-Key to have it once",
            )


def _later(status: int, error: str) -> _Refused:
    # At random, so that senders that were refused together do not come back together.
    seconds = max(1, round(_SHORT + random.random()))
    return _Refused(status, error, retry_after=str(seconds))


def _open(url: FeedUrl, options: FeedOptions) -> Feed:
    address = ListenerAddress(url, options, tls=url.scheme.endswith("https"))
    given = url.parameters
    try:
        settings = WebhookSettings(
            max_body=parse_size(given.get("max-body", "8M")),
            wait=parse_duration(given.get("wait", "10s")),
            keys=parse_count(given.get("keys", "10K")),
        )
    except ValueError as error:
        raise BadFeed(f"{url.shown}: {error}") from None
    url.refuse_on_a_loop()
    return WebhookFeed(address, options, settings)


SCHEMES = tuple(
    Scheme(
        f"webhook+{protocol}",
        f"webhook+{protocol}://HOST:PORT/PATH",
        "the records that are posted to this address; an answer of 200 means that they are in the journal",
        _open,
        parameters={
            "wait": "how long a request waits while the log is full, before it gets 429 (default 10s)",
            "max-body": "the largest body (default 8M)",
            "keys": "how many idempotency keys are remembered (default 10K)",
            **LISTENER_PARAMETERS,
        },
    )
    for protocol in ("http", "https")
)

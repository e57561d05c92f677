"""A Publisher whose elements come from a gateway, in another process or on another machine."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from penstock.aquifer.client.elements import Unpacker
from penstock.aquifer.client.sockets import GatewaySockets
from penstock.aquifer.client.subscription import AquiferSubscription, Deficit, Metrics
from penstock.aquifer.protocol.subscribe_options import SubscribeOptions
from penstock.aquifer.protocol.subscriber_side import SubscriberSide
from penstock.aquifer.records.batch import ARROW, MSGPACK
from penstock.aquifer.records.codecs import Codec, codec_named
from penstock.aquifer.security import CurveClient
from penstock.endpoint import Endpoint
from penstock.spec import Publisher, Subscriber, check_subscriber
from penstock.streams import Flux
from penstock.streams.source import PublisherSource

__all__ = ["AquiferPublisher"]


class AquiferPublisher(Publisher[Any]):
    """Reads the log of a gateway; every subscriber has a subscription, and a connection, of its own.

    ::

        for value in AquiferPublisher("tcp://127.0.0.1:5556").flux():
            print(value)

    Demand goes all the way: the gateway is granted a window ahead of the reader, in records and in bytes,
    and when the reader stops, the window closes. The window grows by itself to twice the rate times the
    round trip, up to ``max_window`` records and ``window_bytes``.

    ``start`` is ``"earliest"``, ``"latest"`` or an offset. With an ``id`` the gateway remembers how far this
    subscriber has come, for ``lease`` seconds after it was last heard of, and ``start`` is needed only for
    another beginning. ``keep=False`` is for those who would rather miss records than hold the source up:
    they get an :class:`~penstock.aquifer.Overtaken` error, or a call of ``on_gap`` and what is still there.

    Elements are the values, decoded by ``codec``; with ``records=True`` they are
    :class:`~penstock.aquifer.Record` with offset, time and key; with ``batches=True`` they are lists of what
    came together, one for each data frame, for whoever works on many at a time. What was delivered counts as
    dealt with, unless ``acknowledge="manual"``, when :meth:`AquiferSubscription.acknowledge` says so.

    A lost connection or a restarted gateway is found again for up to ``patience`` seconds, and reading goes
    on at the same offset. A gateway that knows only the plain dialect has no offsets: what is lost on the way
    is counted, logged and told to ``on_deficit``.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        id: str | None = None,
        start: int | str | None = None,
        stop: int | None = None,
        epoch: str | None = None,
        keep: bool = True,
        lease: float = 60.0,
        codec: str | Codec = "bytes",
        records: bool = False,
        batches: bool = False,
        acknowledge: str = "auto",
        dialect: str = "auto",
        window: int = 65_536,
        max_window: int = 262_144,
        window_bytes: int = 8 * 1024 * 1024,
        timeout: float = 1.0,
        patience: float = 30.0,
        curve: CurveClient | None = None,
        on_gap: Callable[[int, int], object] | None = None,
        on_deficit: Callable[[Deficit], object] | None = None,
    ) -> None:
        self._endpoint = Endpoint.parse(endpoint)
        if not self._endpoint.is_one_place:
            raise ValueError(f"AquiferPublisher({endpoint!r}): name the host and port of one gateway")
        if id is not None and (not isinstance(id, str) or not id):
            raise ValueError(f"id={id!r}: give a name that is not empty, or None for none")
        if start is not None and not _is_offset(start) and start not in ("earliest", "latest"):
            raise ValueError(f"start={start!r}: give an offset, 'earliest' or 'latest'")
        if stop is not None and not _is_offset(stop):
            raise ValueError(f"stop={stop!r}: give an offset")
        if acknowledge not in ("auto", "manual"):
            raise ValueError(f"acknowledge={acknowledge!r}: give 'auto' or 'manual'")
        if dialect not in ("auto", "extended", "plain"):
            raise ValueError(f"dialect={dialect!r}: give 'auto', 'extended' or 'plain'")
        for name, count in (("window", window), ("max_window", max_window), ("window_bytes", window_bytes)):
            if isinstance(count, bool) or not isinstance(count, int) or count < 1:
                raise ValueError(f"{name}={count!r}: give a whole number of at least 1")
        for name, seconds in (("lease", lease), ("timeout", timeout), ("patience", patience)):
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds > 0:
                raise ValueError(f"{name}={seconds!r}: give seconds above 0")
        self._codec = codec_named(codec)
        if records and self._codec.name == "arrow":
            raise ValueError("records=True and codec='arrow': the rows of a batch are no single records")
        self._options = SubscribeOptions(
            name=id,
            start=start,
            stop=stop,
            epoch=epoch,
            keep=keep,
            formats=[ARROW] if self._codec.name == "arrow" else [MSGPACK],
            lease=lease,
            dialect=dialect,
            window=min(window, max_window),
            max_window=max_window,
            window_bytes=window_bytes,
            timeout=timeout,
            patience=patience,
            on_gap=on_gap,
            on_deficit=None if on_deficit is None else lambda *figures: on_deficit(Deficit(*figures)),
        )
        self._records = records
        self._batches = batches
        self._acknowledge = acknowledge
        self._curve = curve
        self._subscriptions: weakref.WeakSet[AquiferSubscription] = weakref.WeakSet()

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Open a subscription; the connection comes about in the background."""
        check_subscriber(subscriber)
        subscription = AquiferSubscription(
            subscriber,
            SubscriberSide(str(self._endpoint), self._options),
            GatewaySockets(self._endpoint, self._curve),
            Unpacker(self._codec, records=self._records, batches=self._batches),
            acknowledge=self._acknowledge,
        )
        self._subscriptions.add(subscription)
        subscription.start()

    def flux(self) -> Flux[Any]:
        """This publisher with the operators of a Flux."""
        return Flux._of(PublisherSource(self))

    def metrics(self) -> list[Metrics]:
        """What the subscriptions that are still in use have seen, the oldest first."""
        return [subscription.metrics() for subscription in self._subscriptions]


def _is_offset(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0

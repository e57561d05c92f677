"""A Publisher whose elements come from a gateway, in another process or on another machine."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec import UNSET

from penstock.aquifer.client.connection import GatewayConnection, gateway_endpoint
from penstock.aquifer.client.elements import Unpacker
from penstock.aquifer.client.group import GroupSubscription
from penstock.aquifer.client.keys import key_list
from penstock.aquifer.client.log_reader import LogReader
from penstock.aquifer.client.metrics import Deficit, Metrics
from penstock.aquifer.client.partition_subscription import PartitionSubscription
from penstock.aquifer.client.recipient import Recipient
from penstock.aquifer.client.redelivery import LetterWriter, PendingRecords, Redelivery
from penstock.aquifer.client.sockets import GatewaySockets
from penstock.aquifer.client.subscription import AquiferSubscription
from penstock.aquifer.errors import EpochChanged
from penstock.aquifer.protocol.messages import VERSION, GroupFields, SubscribeFields
from penstock.aquifer.protocol.subscribe_options import SubscribeOptions
from penstock.aquifer.protocol.subscriber_side import SubscriberSide
from penstock.aquifer.records import Partition
from penstock.aquifer.records.batch import ARROW, MSGPACK
from penstock.aquifer.records.codecs import Codec, codec_named
from penstock.aquifer.security import CurveClient
from penstock.arguments import a_count, seconds, whole
from penstock.spec import Publisher, Subscriber, check_subscriber
from penstock.streams import Flux
from penstock.streams.spi import PublisherSource, flux_of, meters_for_new_streams

__all__ = ["AquiferPublisher"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class AquiferPublisher(Publisher[Any]):
    """Reads the log of a gateway; every subscriber has a subscription, and a connection, of its own.

    ::

        for value in AquiferPublisher("tcp://127.0.0.1:5556").flux():
            print(value)

    Demand reaches the gateway as credit: it may send one window ahead of the subscriber, in records and in
    bytes. When the subscriber stops requesting, the window closes, and the gateway waits. The window grows to
    twice the rate times the round trip, up to ``max_window`` records and ``window_bytes``.

    The endpoint of a named stream is ``"tcp://127.0.0.1:5556/orders"``; without a name it is the default one.

    ``start`` is ``"earliest"``, ``"latest"``, an offset, or a time: with a ``datetime`` that has a time zone,
    the first record is the first one of that time or later, or the next one if there is none yet. With an
    ``id`` the gateway keeps a cursor for this subscriber, for ``lease`` seconds after it last heard of it;
    then ``start`` is needed only to begin elsewhere. The source waits for a slow subscriber, unless
    ``keep=False`` makes it an optional reader. An optional reader that is too slow misses records: it fails
    with :class:`~penstock.aquifer.Overtaken`, or with ``on_gap`` it is told, and continues at the oldest
    record that is left.

    With ``keys`` only the records with one of these keys come: the gateway leaves the others out, and they
    count as passed. A key is bytes, or text in UTF-8.

    With a ``group``, each subscriber is a member of a reader group: the gateway divides the records by their
    keys into ``partitions``, and each partition is read by one member at a time. Partitions change hands when
    members come, leave or die. All members together get every record, and acknowledged ones once. ``start``
    is where a new group begins, and ``lease`` is how long the gateway remembers it while no member is there.

    Elements are the values, decoded by ``codec``. With ``records=True`` they are
    :class:`~penstock.aquifer.Record` objects with offset, time and key. With ``batches=True`` they are lists,
    one for each data frame. Delivered elements are acknowledged, unless ``acknowledge="manual"``: then call
    :meth:`AquiferSubscription.acknowledge`. With ``acknowledge="each"`` every record is settled by itself, in
    any order: with :meth:`AquiferSubscription.ack`, or with :meth:`AquiferSubscription.nack`, and then it is
    delivered again as ``redelivery`` says.

    If the connection is lost or the gateway restarted, the subscription connects again for up to ``patience``
    seconds, and continues at the same offset. A gateway that speaks the plain dialect only has no offsets:
    records that are lost on the way are counted, logged and reported to ``on_deficit``.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        id: str | None = None,
        group: str | None = None,
        partitions: int | None = None,
        start: int | str | datetime | None = None,
        stop: int | None = None,
        epoch: str | None = None,
        keys: Iterable[bytes | str] | None = None,
        keep: bool = True,
        lease: float = 60.0,
        codec: str | Codec = "bytes",
        records: bool = False,
        batches: bool = False,
        acknowledge: str = "auto",
        redelivery: Redelivery | None = None,
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
        self._endpoint = gateway_endpoint(endpoint, "AquiferPublisher")
        if id is not None and (not isinstance(id, str) or not id):
            raise ValueError(f"id={id!r}: give a name that is not empty, or None")
        if id is not None and not keep:
            raise ValueError(
                "id=… and keep=False do not go together: the gateway remembers nothing for an optional reader"
            )
        if group is not None and (not isinstance(group, str) or not group):
            raise ValueError(f"group={group!r}: give a name that is not empty, or None")
        if partitions is not None:
            a_count(partitions, f"AquiferPublisher({partitions=!r})")
            if group is None:
                raise ValueError(f"{partitions=!r} needs group=…: only a reader group has partitions")
        self._starts_at = start if isinstance(start, datetime) else None
        """The time to start at; its offset is looked for when somebody subscribes."""
        if isinstance(start, datetime):
            _check_start(start, group, dialect)
            start = None
        elif start is not None and not _is_offset(start) and start not in ("earliest", "latest"):
            raise ValueError(f"start={start!r}: give an offset, a datetime, 'earliest' or 'latest'")
        if stop is not None and not _is_offset(stop):
            raise ValueError(f"stop={stop!r}: give an offset")
        if acknowledge not in ("auto", "manual", "each"):
            raise ValueError(f"acknowledge={acknowledge!r}: give 'auto', 'manual' or 'each'")
        if acknowledge == "each" and (not records or batches or not keep):
            raise ValueError(
                "acknowledge='each' needs records=True, without batches=True and keep=False: records are "
                "settled by their offset, and have to be kept until then"
            )
        if group is not None:
            _check_for_group(
                {"id": id, "keys": keys, "stop": stop, "on_gap": on_gap}, keep, acknowledge, dialect
            )
        if redelivery is not None and acknowledge != "each":
            raise ValueError("redelivery=… needs acknowledge='each'")
        letters = None if redelivery is None else redelivery.dead_letters
        if letters is not None and gateway_endpoint(letters, "Redelivery") == self._endpoint:
            raise ValueError(
                f"Redelivery(dead_letters={letters!r}) is the stream that is read: it would get its own dead "
                "letters, and refuse them, for ever. Give it another stream"
            )
        if dialect not in ("auto", "extended", "plain"):
            raise ValueError(f"dialect={dialect!r}: give 'auto', 'extended' or 'plain'")
        for name, count in (("window", window), ("max_window", max_window), ("window_bytes", window_bytes)):
            a_count(count, f"AquiferPublisher({name}={count!r})")
        lease = seconds(lease, f"AquiferPublisher({lease=!r})", positive=True)
        timeout = seconds(timeout, f"AquiferPublisher({timeout=!r})", positive=True)
        patience = seconds(patience, f"AquiferPublisher({patience=!r})", positive=True)
        self._codec = codec_named(codec)
        if records and self._codec.name == "arrow":
            raise ValueError("records=True and codec='arrow': the rows of a batch are not single records")
        self._options = SubscribeOptions(
            name=id,
            stream=self._endpoint.stream,
            start=start,
            stop=stop,
            epoch=epoch,
            keys=None if keys is None else key_list(keys, "AquiferPublisher"),
            keep=keep,
            formats=[ARROW] if self._codec.name == "arrow" else [MSGPACK],
            lease=lease,
            dialect=dialect,
            window=min(window, max_window),
            max_window=max_window,
            window_bytes=window_bytes,
            timeout=timeout,
            patience=patience,
            encrypted=curve is not None,
            each=acknowledge == "each",
            on_gap=on_gap,
            on_deficit=None if on_deficit is None else lambda *figures: on_deficit(Deficit(*figures)),
        )
        self._records = records
        self._batches = batches
        self._acknowledge = acknowledge
        self._redelivery = redelivery if redelivery is not None else Redelivery()
        self._curve = curve
        self._group = group
        self._partitions = partitions
        self._subscriptions: weakref.WeakSet[AquiferSubscription] = weakref.WeakSet()

    def subscribe(self, subscriber: Subscriber[Any], /) -> None:
        """Open a subscription; it connects in the background."""
        check_subscriber(subscriber)
        if self._group is not None:
            self._join(subscriber, self._group)
            return
        subscription = AquiferSubscription(
            Recipient(subscriber, self._endpoint.address),
            SubscriberSide(self._endpoint.address, self._options),
            GatewaySockets(self._endpoint, self._curve),
            self._unpacker(),
            acknowledge=self._acknowledge,
            pending=self._pending(),
            letters=None if self._redelivery.dead_letters is None else self._letters,
            find_start=None if self._starts_at is None else self._find_start,
        )
        self._subscriptions.add(subscription)
        subscription.start()
        for meter in meters_for_new_streams():
            meter.add(subscription)

    def _join(self, subscriber: Subscriber[Any], group: str) -> None:
        meters = meters_for_new_streams()

        def make(
            partition: Partition, fields: GroupFields, group: GroupSubscription, sure_until: float
        ) -> PartitionSubscription:
            # All partitions together have the window of the member, who may have to read them all.
            windows = self._options
            options = dataclasses.replace(
                windows,
                name=partition.id,
                start=None,
                group=fields,
                window=max(windows.window // partition.partitions, 1),
                max_window=max(windows.max_window // partition.partitions, 1),
                window_bytes=max(windows.window_bytes // partition.partitions, 1),
            )
            one = PartitionSubscription(
                group.subscriber,
                SubscriberSide(self._endpoint.address, options),
                GatewaySockets(self._endpoint, self._curve),
                self._unpacker(),
                acknowledge=self._acknowledge,
                pending=self._pending(),
                letters=None if self._redelivery.dead_letters is None else self._letters,
                demand=group.demand,
                turns=group.turns,
                sure_until=sure_until,
                look=group.wake,
            )
            self._subscriptions.add(one)
            for meter in meters:
                meter.add(one)
            return one

        options = self._options
        connection = GatewayConnection(self._endpoint, self._curve, patience=options.patience)
        fields = SubscribeFields(
            v=VERSION,
            probe=True,
            from_=options.start if options.start is not None else UNSET,
            epoch=options.epoch if options.epoch is not None else UNSET,
            lease=max(round(options.lease * 1000), 1),
        )
        GroupSubscription(subscriber, connection, group, self._partitions, fields, make).start()

    def _find_start(self, while_waiting: Callable[[], object]) -> tuple[int | str, str]:
        assert self._starts_at is not None, "otherwise there is nothing to find"
        instant = (self._starts_at - _EPOCH) // timedelta(microseconds=1)
        endpoint, patience = str(self._endpoint), self._options.patience
        with LogReader(endpoint, patience=patience, curve=self._curve) as log:
            while True:
                state = log.state(epoch=self._options.epoch, while_waiting=while_waiting)
                with suppress(EpochChanged):  # The gateway came back with another log: look there.
                    offset = log.offset_at(instant, state=state, format=self._options.formats[0])
                    break
        # The oldest record may be gone by the time that we ask for it.
        return "earliest" if offset <= state.first else offset, state.epoch

    def _unpacker(self) -> Unpacker:
        return Unpacker(self._codec, records=self._records, batches=self._batches)

    def _pending(self) -> PendingRecords | None:
        return PendingRecords(self._redelivery) if self._acknowledge == "each" else None

    def _letters(self, pending: PendingRecords, subscription: AquiferSubscription) -> LetterWriter:
        assert self._redelivery.dead_letters is not None, "only then there are dead letters"
        return LetterWriter(
            pending,
            self._redelivery.dead_letters,
            self._codec,
            curve=self._curve,
            patience=self._options.patience,
            place=subscription.place,
            wake=subscription.wake,
        )

    def flux(self) -> Flux[Any]:
        """This publisher with the operators of a Flux."""
        return flux_of(PublisherSource(self))

    def metrics(self) -> list[Metrics]:
        """The metrics of the subscriptions that are still in use, the oldest first."""
        return [subscription.metrics() for subscription in self._subscriptions]


def _check_for_group(others: dict[str, object], keep: bool, acknowledge: str, dialect: str) -> None:
    for name, value in others.items():
        if value is not None:
            raise ValueError(
                f"group=… and {name}=… do not go together: the group has ids and keys of its own"
            )
    if not keep:
        raise ValueError("group=… and keep=False do not go together: nothing of a group may be missed")
    if acknowledge == "manual":
        raise ValueError(
            "group=… and acknowledge='manual' do not go together: records of several partitions do not come "
            "in the order of their offsets. Settle each with acknowledge='each'"
        )
    if dialect == "plain":
        raise ValueError("group=… and dialect='plain' do not go together: the plain dialect has no groups")


def _check_start(start: datetime, group: str | None, dialect: str) -> None:
    if start.tzinfo is None:
        raise ValueError(f"start={start!r} has no time zone; write datetime(…, tzinfo=timezone.utc)")
    if group is not None:
        raise ValueError(
            "group=… and start=datetime(…) do not go together: the members would look for the offset one by "
            "one. Give the group an offset, which LogReader.offset_at() finds"
        )
    if dialect == "plain":
        raise ValueError("start=datetime(…) and dialect='plain' do not go together: it has no offsets")


def _is_offset(value: Any) -> bool:
    offset = whole(value)
    return offset is not None and offset >= 0

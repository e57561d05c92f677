"""The gateway as a Subscriber: elements arrive as they were requested, and wait to be written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, Protocol, runtime_checkable

from penstock.aquifer.gateway.source_figures import connection_figures, stage_status
from penstock.aquifer.hop_clock import Doing, HopClock
from penstock.aquifer.log import Log
from penstock.aquifer.records import Record
from penstock.aquifer.source_status import BadElements, SourceStatus
from penstock.bad_reasons import BadReason, ExplainingSource
from penstock.delivery import BadRecord, ConnectionMeter, Delivery, FeedState
from penstock.spec import UNBOUNDED, Publisher, Subscription, check_subscription, none_element, none_error
from penstock.streams import StageMeter, metering
from penstock.streams.spi import ElementInbox, drop_error

__all__ = ["BoundedSource", "Intake", "ReplayableSource"]

_log = logging.getLogger("penstock.aquifer")

_FIRST_PORTION: Final = 16
_LARGEST_PORTION: Final = 512
"""The most elements to request at a time of a source that emits inside ``request``."""
_SAMPLE: Final = 8
"""How many elements of a list are measured."""
_UNKNOWN: Final = 100
"""Bytes of an element of unknown size; the bound on the number of elements has to do."""
_GLANCE: Final = 0.05
_DELIVERIES: Final = 32
"""The most deliveries that a source may be asked for before the first of them has come.

A source that has given one record at a time may give hundreds the next time: what it was asked for has to fit
into memory all the same.
"""


@runtime_checkable
class ReplayableSource(Protocol):
    """A source that can be read again, and keeps track of how much of it the log has.

    A :class:`~penstock.aquifer.Gateway` takes it in place of a Publisher. Its elements are records, or
    :class:`~penstock.aquifer.Delivery` objects: records with marks that are stored in the same transaction,
    and somebody to be told when that was done.
    """

    def resume(self, marks: Mapping[str, str]) -> None:
        """These marks of earlier deliveries are stored; called before the source is read."""
        ...

    def __call__(self, journalled: int) -> Publisher[Any]:
        """The elements after those that the log has: ``journalled`` records."""
        ...

    def journalled(self, head: int) -> None:
        """The log has so many records; called on the writer's thread, several times a second."""
        ...

    @property
    def skipped(self) -> int:
        """How many elements were left out, because they could not become records."""
        ...

    @property
    def state(self) -> FeedState:
        """Whether it can give records at the moment; from any thread."""
        ...


@runtime_checkable
class FeedOfConnections(Protocol):
    """A source that others connect to."""

    @property
    def senders(self) -> ConnectionMeter | None:
        """What there is to know about its connections; None if it has none."""
        ...


@runtime_checkable
class BoundedSource(Protocol):
    """A source that can refuse what is larger than the whole log."""

    def bounded(self, records: int | None, nbytes: int | None) -> None:
        """So much the log can hold at most; None means any number. Called before the source is read."""
        ...


class Intake(ElementInbox):
    """Receives elements on any thread, and requests them on one of its own.

    A source may do its work inside ``request``, and may block there: a file, a terminal. So the thread that
    requests does nothing else, and the writer writes what has arrived meanwhile.
    """

    def __init__(self, log: Log, nbytes: int) -> None:
        self.done = False
        """Whether the source has ended; ``error`` says how."""
        self.error: BaseException | None = None
        self.left_out = 0
        self.left_out_for: tuple[BadReason, ...] = ()
        """How many elements the writer has left out, because they could not become records."""
        self.idle = False
        """Whether the writer waits for elements, and has to be woken."""
        self.feed: ReplayableSource | None = None
        """The source, if it wants to know how far the log has come."""
        self._meter = StageMeter()
        self._clock = HopClock()
        self._log = log
        self._arrived: list[Any] = []
        """What the writer has not taken. One thread at a time appends, and the writer alone removes."""
        self.append = self._arrived.append
        self.extend = self._arrived.extend
        self._most_bytes = nbytes
        """How many bytes may wait, if the source can be slowed down."""
        self._portion = _FIRST_PORTION
        self._mean_bytes = 1.0
        """Bytes of one element, as far as is known."""
        self._held_back = False
        """Whether the thread that requests waits until the writer takes something."""
        self._taken = 0
        self._delivers = False
        """Whether the source emits deliveries, which may have any number of records each."""
        self._delivered = 0
        """How many records have come in deliveries; one for a delivery that has none."""
        self._delivered_taken = 0
        """How many of these the writer has taken."""
        self._bytes_per_record = 1.0
        self._free_space: tuple[float, float] = UNBOUNDED, UNBOUNDED
        """For how many records and bytes the log has space."""
        self._asker_waits = False
        """Whether the thread that requests has to be woken when something comes or is taken."""
        self._gathered = 0
        """By how many the records in the deliveries that were taken exceed the number of deliveries."""
        self._demand = 0
        """How many elements are wanted, since the beginning."""
        self._asked = 0
        """How many of these were requested; portion by portion, if the source gives them at once."""
        self._changed = threading.Condition()
        self._subscription: Subscription | None = None
        self._cancelled = False
        self._thread = threading.Thread(target=self._ask, name="penstock-gateway-intake", daemon=True)

    # ---------------------------------------------------------------- the Subscriber
    def on_subscribe(self, subscription: Subscription, /) -> None:
        """Keep the subscription; the first request follows when the writer sets a demand."""
        check_subscription(subscription)
        with self._changed:
            refused = self._subscription is not None or self._cancelled
            if not refused:
                self._subscription = subscription
                self._changed.notify_all()
        if refused:
            subscription.cancel()  # §2.5

    def on_next(self, element: Any, /) -> None:
        """Queue the element for the writer."""
        if element is None:
            raise none_element("on_next")
        if self.feed is not None and isinstance(element, Delivery):
            self._count_arrival(element)
        self.append(element)
        if self._delivers and self._may_ask_again():
            self._ask_again()
        if self.idle:
            self.wake()

    def takes_elements(self) -> bool:
        """Whether elements need nothing but to be kept: deliveries are counted as they come."""
        return self.feed is None

    def wake(self) -> None:
        """Wake the writer."""
        self.idle = False  # Once is enough.
        self._log.notify()

    def on_error(self, error: BaseException, /) -> None:
        """No more elements, because the source failed."""
        if error is None:
            raise none_error()
        if self._cancelled:
            drop_error(error, "the source of a gateway that was closed")
            return
        self.error = error
        self.done = True
        self._log.notify()

    def on_complete(self) -> None:
        """No more elements."""
        if self._cancelled:
            return  # Not the end of the stream: its readers may continue after a restart.
        self.done = True
        self._log.notify()

    # ---------------------------------------------------------------- the writer's side
    def start(self) -> None:
        """Start the thread; it requests as soon as there is demand."""
        self._thread.start()

    def take(self, most: int) -> list[Any]:
        """The oldest elements that have arrived."""
        arrived = self._arrived
        elements = arrived[:most]
        count = len(elements)
        # In this order: an observer in between sees too many elements for a moment, and never too few. With
        # too few, a source that emits inside request() would look like one that does not.
        self._taken += count
        del arrived[:count]
        if self._delivers:
            self._delivered_taken += sum(_weight(each) for each in elements if isinstance(each, Delivery))
            self._wake_asker_if_needed()
        if self._held_back:
            with self._changed:
                self._changed.notify_all()
        return elements

    def count_delivered(self, deliveries: int, records: int) -> None:
        """So many of the elements that were taken are deliveries, with so many records."""
        self._gathered += records - deliveries

    @property
    def arrived(self) -> int:
        """How many elements have come; a delivery is one."""
        return self._taken + len(self._arrived)

    @property
    def received(self) -> int:
        """How many elements have come; a delivery counts as its records, once the writer has taken it."""
        return self.arrived + self._gathered

    @property
    def requested(self) -> int:
        """How many elements the source may have given by now, since the beginning."""
        return 0 if self._subscription is None else self._demand + self._gathered

    @property
    def state(self) -> FeedState | None:
        """Whether the source can give records at the moment; None if it does not say."""
        return None if self.feed is None else self.feed.state

    @property
    def skipped(self) -> int:
        """How many elements the source has left out, because they could not become records."""
        return self.left_out + (0 if self.feed is None else self.feed.skipped)

    def note_stored(self, head: int) -> None:
        """Tell the source how many records the log has, if it wants to know."""
        if self.feed is not None:
            try:
                self.feed.journalled(head)
            except BaseException:
                # The records are stored; only what the source remembers of it is out of date.
                _log.exception("the source could not note how far the log has come")

    @staticmethod
    def tell_stored(delivery: Delivery) -> None:
        """Tell whom it concerns that a delivery is in the log."""
        if delivery.stored is not None:
            try:
                delivery.stored()
            except BaseException:
                # The records are stored; only its sender does not know, and may send them again.
                _log.exception("the source could not acknowledge a delivery")

    def subscribe_to(self, publisher: Publisher[Any]) -> None:
        """Subscribe, and follow the stages of the stream from now on."""
        with metering(self._meter):
            publisher.subscribe(self)

    def sample(self, now: float) -> None:
        """Note what the source, its stages and its connections do at this moment."""
        self._meter.sample(now)
        if (senders := self._senders) is not None:
            senders.sample(now)
        starved = not self.waiting and self.received < self.requested
        self._clock.now(Doing.WAITING_FOR_DATA if starved else Doing.WAITING_FOR_DEMAND, now)

    def status(self) -> SourceStatus:
        """How far the source has come, and where its time goes."""
        status = SourceStatus.of(self.requested, self.received, self.skipped, self.state)
        status.waiting = self.waiting
        told = self.feed.bad_reasons if isinstance(self.feed, ExplainingSource) else ()
        if reasons := (*told, *self.left_out_for):
            status.bad = [
                BadElements(reason=each.reason, count=each.count, at=each.at, kept=each.is_kept)
                for each in reasons
            ]
        status.times = self._clock.times()
        status.stages = [stage_status(figures) for figures in self._meter.figures()]
        if (senders := self._senders) is not None:
            status.connections = connection_figures(senders.figures())
        return status

    @property
    def _senders(self) -> ConnectionMeter | None:
        return self.feed.senders if isinstance(self.feed, FeedOfConnections) else None

    @property
    def waiting(self) -> int:
        """How many elements have arrived and not been taken."""
        return len(self._arrived)

    def set_demand(self, total: int) -> None:
        """So many elements are wanted, since the beginning: more than before, or no change."""
        if total <= self._demand:
            return
        with self._changed:
            self._demand = total
            self._changed.notify_all()

    def set_free_space(self, records: float, nbytes: float) -> None:
        """The log has space for so much: deliveries that wait for more are enough for now."""
        self._free_space = records, nbytes
        self._wake_asker_if_needed()

    def cancel(self) -> None:
        """Request nothing more, and cancel the source."""
        with self._changed:
            self._cancelled = True
            subscription = self._subscription
            self._changed.notify_all()
        if subscription is not None:
            subscription.cancel()

    def join(self, timeout: float) -> None:
        """Wait for the thread that requests; a blocking source may hold it up."""
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout)
            if self._thread.is_alive():
                _log.warning("the source still blocks inside request(); the gateway does not wait for it")

    def _ask(self) -> None:
        while (request := self._wait_for_demand()) is not None:
            self._ask_for_some(*request)

    def _wait_for_demand(self) -> tuple[Subscription, int] | None:
        """Wait until elements may be requested, and note that they are; None after a cancel."""
        with self._changed:
            while not self._cancelled:
                self._asker_waits = True  # Before the look: what changes after it wakes this thread.
                if (request := self._next_request()) is not None:
                    self._asker_waits = False
                    return request
                self._changed.wait()
            return None

    def _ask_again(self) -> None:
        """After a delivery has come: request the next ones, here and now if the source does not block."""
        if self._portion != UNBOUNDED:
            self._wake_asker_if_needed()
            return
        with self._changed:
            request = self._next_request()
        if request is not None:
            self._ask_for_some(*request)

    def _next_request(self) -> tuple[Subscription, int] | None:
        count, subscription = min(self._open_demand(), self._portion), self._subscription
        if subscription is None or count <= 0 or self.done or self._cancelled:
            return None
        self._asked += count
        return subscription, count

    def _wake_asker_if_needed(self) -> None:
        if self._asker_waits and self._may_ask_again():
            with self._changed:
                self._asker_waits = False  # Once is enough.
                self._changed.notify_all()

    def _open_demand(self) -> int:
        """How many elements may be requested now."""
        wanted = self._demand - self._asked
        if not self._delivers or wanted <= 0:
            return wanted
        return min(wanted, _DELIVERIES - (self._asked - self.arrived)) if self._may_ask_again() else 0

    def _may_ask_again(self) -> bool:
        """Whether most of the deliveries that were asked for have come, and what waits fits into the log."""
        if self._demand <= self._asked or self._asked - self.arrived > _DELIVERIES // 2:
            return False
        waiting = self._delivered - self._delivered_taken
        records, nbytes = self._free_space
        return waiting < records and waiting * self._bytes_per_record < nbytes

    def _count_arrival(self, delivery: Delivery) -> None:
        self._delivers = True
        count = _weight(delivery)
        self._delivered += count
        mean = size_of(delivery.records) / count
        # Growth is believed at once, shrinking slowly.
        self._bytes_per_record = max(mean, (self._bytes_per_record * 3 + mean) / 4)

    def _ask_for_some(self, subscription: Subscription, count: int) -> None:
        before = self.arrived
        try:
            subscription.request(count)
        except BaseException as error:
            # §3.16: request must not raise. Nothing more can be expected of this source.
            self.on_error(error)
            return
        if self.arrived - before < count:
            # The source is asynchronous, and cannot be slowed down here.
            self._portion = UNBOUNDED
            return
        # A source that emits inside request() is slowed down by not requesting.
        self._measure(count)
        self._portion = max(1, min(2 * count, _LARGEST_PORTION, int(self._most_bytes / 8 / self._mean_bytes)))
        while len(self._arrived) * self._mean_bytes > self._most_bytes and not self._cancelled:
            with self._changed:
                self._held_back = True
                # With a timeout: the writer may have taken something just before this thread began to wait.
                self._changed.wait(_GLANCE)
                self._held_back = False

    def _measure(self, came: int) -> None:
        """Learn from two of the last elements how large they are."""
        with suppress(IndexError):  # The writer has taken them meanwhile.
            mean = (size_of(self._arrived[-1]) + size_of(self._arrived[-came])) / 2
            # Growth is believed at once, shrinking slowly.
            self._mean_bytes = max(mean, (self._mean_bytes * 3 + mean) / 4, 1.0)


def _weight(delivery: Delivery) -> int:
    return len(delivery.records) or 1


def size_of(element: Any) -> int:
    """About how many bytes of memory an element takes."""
    if isinstance(element, bytes | bytearray | str):
        return len(element)
    if isinstance(element, Record):
        return size_of(element.value)
    if isinstance(element, Delivery):
        return size_of(element.records)
    if isinstance(element, BadRecord):
        return len(element.value)
    if isinstance(element, list | tuple):
        # Of a long list, a sample is enough.
        some = element[:: len(element) // _SAMPLE + 1]
        return sum(map(size_of, some)) * len(element) // max(len(some), 1)
    nbytes = getattr(element, "nbytes", None)
    return nbytes if isinstance(nbytes, int) else _UNKNOWN

"""A subscription to a gateway: a thread that drives the protocol and signals the subscriber.

All signals come from this thread, one after the other (§1.3). ``request`` and ``cancel`` may be called from
any thread, and from within a signal; they only note what is wanted and wake the thread.

A subscriber that is an inbox, as a ``for`` loop is, asks for a few hundred elements at a time. If these are
unpacked already, ``request`` puts them into the inbox itself: to change threads and back would cost more than
that. The thread still ends each chunk, and does all that has to do with the gateway.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import length_hint
from typing import Any, ClassVar

from penstock.aquifer.client.demand import Demand
from penstock.aquifer.client.driver import Driver
from penstock.aquifer.client.elements import Chunk, Unpacker
from penstock.aquifer.client.metrics import Metrics
from penstock.aquifer.client.redelivery import LetterWriter, PendingRecords, refused_too_often
from penstock.aquifer.client.sockets import GatewaySockets
from penstock.aquifer.errors import SourceFailed
from penstock.aquifer.protocol.extended_reader import ExtendedReader
from penstock.aquifer.protocol.frames import Frame, unpacked_bytes
from penstock.aquifer.protocol.plain_reader import PlainReader
from penstock.aquifer.protocol.subscriber_side import Phase, SubscriberSide
from penstock.arguments import whole
from penstock.spec import UNBOUNDED, RuleViolation, Subscriber, non_positive_request
from penstock.streams import StageState
from penstock.streams.spi import ElementInbox, Glimpse, asks_main_thread_to_stop, drop_error

__all__ = ["AquiferSubscription"]

_log = logging.getLogger("penstock.aquifer")

_LONGEST_WAIT = 0.5
_LAST_LETTERS = 5.0
"""Seconds that a subscription which is over waits for dead letters that are being written."""
_LONGEST_SILENCE = 0.1
"""Seconds between two looks at the sockets, even if no message is complete."""
_LONGEST_PORTION = 0.1
"""Seconds that a subscriber may take for a portion of several elements."""
_TAKES_ITS_TIME = 1.0
"""If the subscriber took longer than this many seconds, the silence was its own."""


class AquiferSubscription:
    """The Subscription of an :class:`~penstock.aquifer.AquiferPublisher`."""

    meter_kind: ClassVar[str] = "reader"

    def __init__(
        self,
        subscriber: Subscriber[Any],
        side: SubscriberSide,
        sockets: GatewaySockets,
        unpacker: Unpacker,
        *,
        acknowledge: str,
        pending: PendingRecords | None = None,
        letters: Callable[[PendingRecords, AquiferSubscription], LetterWriter] | None = None,
        demand: Demand | None = None,
    ) -> None:
        """Made by ``AquiferPublisher.subscribe``."""
        self._pending = pending
        """The records that were delivered and not settled, if each is acknowledged by itself."""
        self._reached = 0
        """The offset before which everything was delivered, or left out."""
        self._subscriber: Subscriber[Any] | None = subscriber
        self._inbox: ElementInbox | None = None
        """The subscriber, if it only keeps elements for somebody: it gets many of them at once."""
        self._side = side
        self._sockets = sockets
        self._automatic = acknowledge == "auto"
        self._unpacker = unpacker
        self._waiting: deque[Chunk] = deque()
        """Elements that have arrived and were not requested yet: never more than the window."""
        if isinstance(subscriber, ElementInbox) and subscriber.takes_elements():
            self._inbox = subscriber
        self._mutex = threading.Lock()
        self._demand = demand or Demand()
        self._illegal: RuleViolation | None = None
        self._cancelled = False
        """No more signals: the subscription was cancelled, or has ended."""
        self._left = False
        """The subscriber has cancelled."""
        self._delivered = 0
        self._handing_over = threading.Lock()
        """Held while elements go to the subscriber."""
        self._signalling = False
        """The subscriber, or what stands before it, is at work."""
        self._acknowledge: int | None = None
        self._last_record = 0
        """The offset after the last record of the chunks that were handed on."""
        self._driver = Driver(side, sockets, self._take, self._take_records)
        self._listened = 0.0
        """When we last read the sockets."""
        self._portion = 16
        """How many elements to signal before it is the gateway's turn again."""
        self._thread = threading.Thread(target=self._run, name="penstock-aquifer", daemon=True)
        self._letters = letters(pending, self) if letters is not None and pending is not None else None

    def start(self) -> None:
        """Signal on_subscribe, then begin."""
        assert self._subscriber is not None
        try:
            self._subscriber.on_subscribe(self)
        except Exception as error:
            drop_error(error, f"a subscriber of {self._side.endpoint}")  # §2.13
            self._cancelled = True
        except BaseException:
            self._never_connect()
            raise
        if self._cancelled:
            self._never_connect()  # It has cancelled already.
        else:
            self._thread.start()

    def _never_connect(self) -> None:
        self._cancelled = True
        self._subscriber = self._inbox = None
        self._sockets.close()
        self._closed()

    # ---------------------------------------------------------------- the Subscription
    def request(self, n: int, /) -> None:
        """Ask for ``n`` more elements (§3.8)."""
        number = n if type(n) is int else whole(n)
        with self._mutex:
            if self._cancelled:
                return
            if number is None or number <= 0:
                if self._illegal is None:
                    self._illegal = non_positive_request(n)
            else:
                self._demand.add(number)
        if self._illegal is not None or not self._put_at_hand():
            self.wake()

    def cancel(self) -> None:
        """Stop the signals, soon (§3.12)."""
        self._left = self._cancelled = True
        self.wake()

    def acknowledge(self, offset: int) -> None:
        """Tell the gateway that every record before ``offset`` was processed, so that it may drop them.

        Only with ``acknowledge="manual"``; otherwise delivered records are acknowledged automatically.
        """
        if self._automatic:
            raise RuntimeError(
                "this subscription acknowledges automatically; for acknowledge() use acknowledge='manual'"
            )
        if self._pending is not None:
            raise RuntimeError("with acknowledge='each', settle each record with ack() or nack()")
        self._acknowledge = max(offset, self._acknowledge or 0)
        self.wake()

    def ack(self, offset: int) -> None:
        """This one record was processed; from any thread, in any order.

        Only with ``acknowledge="each"``. To say it again changes nothing.
        """
        self._unsettled().ack(offset)
        self.wake()

    def nack(self, offset: int, reason: str = "") -> None:
        """This one record was not processed, so that it is delivered again, after ``Redelivery.delay``.

        Only with ``acknowledge="each"``. A record that is refused with its last delivery becomes a dead
        letter with this reason. It then comes no more, and later records are not held up in the meantime.
        """
        self._unsettled().nack(offset, str(reason), time.monotonic())
        self.wake()

    def _unsettled(self) -> PendingRecords:
        if self._pending is None:
            raise RuntimeError("ack() and nack() need AquiferPublisher(acknowledge='each', records=True)")
        return self._pending

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the connection is closed, after the end or a cancel; False if the time is over first."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def metrics(self) -> Metrics:
        """A snapshot of what this subscription has seen so far."""
        side, reader = self._side, self._side.reader
        extended = reader if isinstance(reader, ExtendedReader) else None
        plain = reader if isinstance(reader, PlainReader) else None
        return Metrics(
            dialect=side.dialect,
            connected=side.phase is Phase.READING,
            epoch=side.epoch,
            records=self._delivered,
            next=reader.next if reader is not None else 0,
            lag=max(extended.head - extended.next, 0) if extended is not None else 0,
            window=side.ahead.size,
            rate=side.ahead.rate,
            subscriptions=side.subscriptions,
            gaps=extended.gaps if extended is not None else 0,
            deficits=plain.deficits if plain is not None else 0,
            missing=plain.missing if plain is not None else 0,
            request_size=plain.rate.size if plain is not None else 0,
        )

    # ---------------------------------------------------------------- what a meter looks at, from any thread
    @property
    def meter_peer(self) -> str:
        """The cursor at the gateway; without an id it is not known which one."""
        options = self._side.options
        endpoint = f"{self._side.endpoint}/{options.stream}" if options.stream else self._side.endpoint
        return f"{endpoint}/cursor/{options.name or ''}"

    def glimpse(self) -> Glimpse | None:
        """Whether records wait for the subscriber, or it waits for records; None if it is over."""
        if self._cancelled or not self._thread.is_alive():
            return None
        if self._signalling:
            return Glimpse(0)  # the subscriber is at work
        if not self._waiting:
            return Glimpse(1)
        return Glimpse(2 if self._demand.left else 0)

    def meter_state(self) -> StageState:
        """The records that have arrived, and the window that bounds them."""
        reader, options = self._side.reader, self._side.options
        queued = max(reader.next - reader.handed, 0) if reader is not None else 0
        requested = min(self._delivered + self._demand.left, UNBOUNDED)
        name, runs_on = options.name or self._side.endpoint, self._thread.name
        return StageState(
            name, requested, self._delivered, queued, self._side.ahead.size, runs_on, self._cancelled
        )

    def waiting_bytes(self) -> tuple[int | None, int | None]:
        """How many bytes may wait; how many do is known to the thread alone."""
        return None, self._side.options.window_bytes

    def upstreams(self) -> list[Any]:
        """None in this process."""
        return []

    def place(self) -> dict[str, int | str | None]:
        """Where its records come from, for a dead letter."""
        side = self._side
        stream = f"/{side.options.stream}" if side.options.stream else ""
        return {"endpoint": f"{side.endpoint}{stream}", "epoch": side.epoch, "reader": side.options.name}

    def wake(self) -> None:
        """Make the thread look for something to do."""
        if threading.get_ident() != self._thread.ident:
            self._sockets.wake()

    # ---------------------------------------------------------------- the thread
    def _run(self) -> None:
        side, sockets = self._side, self._sockets
        try:
            self._driver.do(side.start(time.monotonic()))
            while not self._over():
                self._deliver()
                self._note_acknowledgement()
                now = time.monotonic()
                self._tick(now)
                if self._over():
                    break
                due = float("inf") if self._driver.finished is not None else side.deadline()
                may_signal = self._may_signal()
                if self._pending is not None and self._demand.left and may_signal:
                    due = min(due, self._pending.next_due())
                ready = may_signal and self._deliverable()
                arrived = sockets.wait(0.0 if ready else min(due - now, _LONGEST_WAIT))
                now = time.monotonic()
                # A subscriber that requests a little at a time wakes this thread often, without any news.
                if arrived or now - self._listened > _LONGEST_SILENCE:
                    self._listen(now)
            self._end()
        except BaseException as error:  # Also what asks a thread to stop: the subscriber waits for an end.
            self._note_acknowledgement()
            self._driver.do(side.leave())
            self._signal_error(error)
        finally:
            self._subscriber = self._inbox = None  # §3.13
            sockets.close()
            self._closed()

    def _over(self) -> bool:
        """Whether there is nothing left to signal but the end."""
        if self._cancelled or self._illegal is not None:
            return True
        if self._driver.finished is not None and self._driver.finished.error is not None:
            if isinstance(self._driver.finished.error, SourceFailed):
                # This is the end of the stream, so it comes after all its records.
                return not self._waiting and not self._pending
            # Our reading is over. What was not requested is not acknowledged, and can be read again.
            return not self._deliverable()
        reader = self._side.reader
        return reader is not None and reader.ended and not self._waiting and not self._pending

    def _tick(self, now: float) -> None:
        if now - self._listened > _TAKES_ITS_TIME:
            # The subscriber took so long. What has arrived meanwhile shows that the gateway is alive.
            self._listen(now)
        self._driver.do(self._side.tick(now))

    def _listen(self, now: float) -> None:
        self._listened = now
        finished = self._driver.finished
        if finished is not None and not isinstance(finished.error, SourceFailed):
            return
        try:
            self._driver.listen(now)
        except Exception as error:
            # Everything that arrived before it is signalled first.
            if finished is None:
                self._driver.fail(error)

    def _take(self, frame: Frame) -> None:
        nbytes = len(frame.payload) + len(frame.metadata)
        unpack, end = partial(self._unpacker.of_frame, frame), frame.first + frame.count
        unpacked = nbytes if self._pending is None else unpacked_bytes(frame)
        self._waiting.append(Chunk(unpack, frame.count, end, nbytes, frame.chosen, unpacked))

    def _take_records(self, records: list[bytes], before: int, nbytes: int) -> None:
        unpack = partial(self._unpacker.of_values, records, before)
        self._waiting.append(Chunk(unpack, len(records), 0, nbytes))

    # ---------------------------------------------------------------- signals
    def _deliverable(self) -> bool:
        if self._pending is not None and not self._pending.room:
            return False
        return bool(self._waiting) and self._demand.left > 0 and not self._cancelled

    # A partition of a group shares its subscriber with others: it says when it may signal, and ends its turn.
    def _may_signal(self) -> bool:
        return True

    def _has_turn(self) -> bool:
        return True

    def _end_turn(self) -> None: ...

    def _closed(self) -> None: ...

    def _deliver(self) -> None:
        """Signal what was requested."""
        self._pass_over()
        if self._pending is not None:
            self._see_to(self._pending)
        while self._deliverable() and self._has_turn():
            began = time.monotonic()
            with self._handing_over:
                self._deliver_portion(self._waiting[0], self._demand.left)
            self._end_turn()
            if self._illegal is not None:
                return
            now = time.monotonic()
            # A slow subscriber gets smaller portions: the gateway has to hear from us before the lease ends.
            slow = now - began > _LONGEST_PORTION
            self._portion = max(self._portion // 4, 1) if slow else min(self._portion * 2, UNBOUNDED)
            self._tick(now)
            self._pass_over()
            if self._pending is not None:
                self._note_acknowledgement()
                self._see_to(self._pending)

    def _deliver_portion(self, chunk: Chunk, demand: int) -> None:
        if self._pending is None:
            elements = self._before_none(chunk.take(min(demand, self._portion)), chunk)
        else:
            elements = chunk.take(min(demand, self._portion, self._pending.room))
            self._pending.deliver(elements, chunk.unpacked_bytes // max(chunk.count, 1))
        chunk.handed(self._signal_some(elements))
        self._reached = chunk.reached
        reader = self._side.reader
        if self._automatic and isinstance(reader, ExtendedReader):
            reader.acknowledged = chunk.reached
        if chunk.done:
            self._waiting.popleft()
            self._handed(chunk)

    def _put_at_hand(self) -> bool:
        """Put requested elements into the inbox, on any thread; whether that met all demand.

        The last element of a chunk is left to the subscription's thread, which tells the gateway. So is
        everything while that thread is at it.
        """
        inbox = self._inbox
        if inbox is None or self._pending is not None or not self._handing_over.acquire(False):
            return False
        try:
            chunk = self._waiting[0] if self._waiting else None
            count = min(self._demand.left, chunk.at_hand - 1) if chunk is not None else 0
            if chunk is None or count <= 0 or self._cancelled:
                return False
            elements = chunk.take(count)
            if self._unpacker.none_in(elements) is not None:
                return False
            chunk.handed(self._signal_some(elements))
            self._reached = chunk.reached
            return not self._demand.left
        except IndexError:
            return False  # The thread has passed over an empty chunk meanwhile.
        finally:
            self._handing_over.release()

    def _before_none(self, elements: list[Any], chunk: Chunk) -> list[Any]:
        """The elements before the first None, which cannot be an element (§2.13)."""
        place = self._unpacker.none_in(elements)
        if place is None:
            return elements
        if not place:
            text = f"the record at offset {chunk.reached} is null, and None cannot be an element of a stream"
            raise ValueError(f"{text}; read it with records=True, or with codec='bytes'")
        return elements[:place]

    def _see_to(self, pending: PendingRecords) -> None:
        """Deliver again what is due, and see to the records that were refused the last time."""
        now = time.monotonic()
        if self._demand.left and pending.next_due() <= now and not self._cancelled and self._has_turn():
            again = pending.take_due(now, min(self._demand.left, self._portion))
            self._signal_some(again)
            self._end_turn()
        if self._letters is not None and self._letters.failure is not None:
            raise self._letters.failure
        if dead := pending.dead():
            if self._letters is None:
                raise refused_too_often(dead[0])
            self._letters.write_soon()

    def _signal_some(self, elements: list[Any]) -> int:
        self._signalling = True
        count = self._signal_elements(elements)
        self._signalling = False
        self._demand.spend(count)
        self._delivered += count
        return count

    def _signal_elements(self, elements: list[Any]) -> int:
        """Signal elements, and return how many: fewer if the subscription is cancelled meanwhile.

        An element for which the subscriber raised does not count. It was not processed, and the next
        subscriber with this id gets it again.
        """
        if self._inbox is not None:
            return self._put_into(self._inbox, elements)
        assert self._subscriber is not None
        on_next = self._subscriber.on_next
        left = iter(elements)
        try:
            for element in left:
                on_next(element)
                if self._cancelled:
                    break
        except BaseException as error:
            self._fail_subscriber(error)
            return len(elements) - length_hint(left) - 1
        return len(elements) - length_hint(left)

    def _put_into(self, inbox: ElementInbox, elements: list[Any]) -> int:
        try:
            inbox.extend(elements)
            if inbox.idle:
                inbox.wake()
        except BaseException as error:
            if asks_main_thread_to_stop(error):
                raise  # A Ctrl-C while the loop itself asks for more: the loop ends with it.
            self._fail_subscriber(error)
            return 0
        return len(elements)

    def _fail_subscriber(self, error: BaseException) -> None:
        """The subscriber has raised in on_next: it counts as cancelled (§2.13)."""
        self._cancelled = True
        drop_error(error, f"a subscriber of {self._side.endpoint}")

    def _handed(self, chunk: Chunk) -> None:
        reader = self._side.reader
        if isinstance(reader, ExtendedReader):
            if not chunk.is_empty:
                self._last_record = chunk.delivered
            reader.hand_on(chunk.end, chunk.nbytes)
        elif reader is not None:
            reader.hand_on(reader.handed + chunk.records, chunk.nbytes)

    def _pass_over(self) -> None:
        """Hand on what only says that records with other keys were left out: nobody has to request that."""
        while self._waiting and self._waiting[0].is_empty:
            chunk = self._waiting.popleft()
            self._handed(chunk)
            self._reached = chunk.end
            reader = self._side.reader
            if self._automatic and reader is not None:
                reader.acknowledged = chunk.end

    def _note_acknowledgement(self) -> None:
        reader = self._side.reader
        if reader is None:
            return
        if self._automatic:
            if self._inbox is not None and isinstance(reader, ExtendedReader):
                reader.acknowledged = max(reader.acknowledged, min(self._reached, reader.next))
            return
        if self._pending is not None:
            self._note_settled(self._pending, reader)
            return
        acknowledged = max(self._acknowledge or 0, reader.acknowledged)
        if self._side.options.keys is not None and self._last_record <= acknowledged < reader.handed:
            acknowledged = reader.handed  # No record that was delivered lies between: they have other keys.
        # Not beyond what has arrived: the gateway would refuse that.
        reader.acknowledged = max(reader.acknowledged, min(acknowledged, reader.next))

    def _note_settled(self, pending: PendingRecords, reader: ExtendedReader | PlainReader) -> None:
        reached = self._reached  # First: what is delivered after this is not settled.
        lowest = pending.lowest()
        settled = min(reached if lowest is None else lowest, reader.next)
        reader.acknowledged = max(reader.acknowledged, settled)
        if isinstance(reader, ExtendedReader):
            reader.redelivered = pending.redelivered

    def _end(self) -> None:
        """Leave the gateway, then signal the end; the other way round if it has to be told of records yet."""
        error = self._illegal or (self._driver.finished.error if self._driver.finished is not None else None)
        # A source that fails ends the stream as one that completes does: all its records were delivered.
        complete = not self._cancelled and (error is None or isinstance(error, SourceFailed))
        if complete and self._side.options.is_durable:
            self._listen(time.monotonic())  # If the gateway was lost meanwhile, another one has to be told.
        # With each record settled by itself, none is left at the end.
        awaited = complete and ((not self._automatic and self._pending is None) or self._is_looking())
        if awaited:
            self._signal_end(error)
            self._await_acknowledgements()
        if self._letters is not None:
            self._letters.join(_LAST_LETTERS)
        self._note_acknowledgement()
        self._driver.do(self._side.leave())
        if not awaited:
            self._signal_end(error)

    def _signal_end(self, error: BaseException | None) -> None:
        if error is not None:
            self._signal_error(error)
        elif not self._cancelled:
            self._signal(lambda subscriber: subscriber.on_complete())

    def _is_looking(self) -> bool:
        """Whether a gateway that keeps a cursor for us was lost, and has not answered since."""
        return self._side.options.is_durable and self._side.phase in (Phase.ASKING, Phase.RESTING)

    def _await_acknowledgements(self) -> None:
        """Stay until the gateway knows that all delivered records are acknowledged; at most for the lease."""
        deadline = time.monotonic() + self._side.options.lease
        reader = self._side.reader
        while reader is not None and not self._left:
            now = time.monotonic()
            self._tick(now)
            self._listen(now)
            if now > deadline or (reader.acknowledged >= reader.next and not self._is_looking()):
                return
            self._sockets.wait(min(self._side.deadline() - now, _LONGEST_WAIT))
            self._note_acknowledgement()

    def _signal_error(self, error: BaseException) -> None:
        if self._cancelled:
            drop_error(error, f"a subscription to {self._side.endpoint} that was cancelled")
            return
        self._signal(lambda subscriber: subscriber.on_error(error))

    def _signal(self, signal: Callable[[Subscriber[Any]], None]) -> None:
        with self._handing_over:  # No element comes after the end.
            self._cancelled = True
        assert self._subscriber is not None
        try:
            signal(self._subscriber)
        except BaseException as error:
            drop_error(error, f"a subscriber of {self._side.endpoint}")  # §2.13

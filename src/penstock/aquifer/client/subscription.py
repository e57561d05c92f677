"""A subscription to a gateway: a thread that drives the protocol and signals the subscriber.

All signals come from this thread, one after the other (§1.3). ``request`` and ``cancel`` may be called from
any thread, and from within a signal; they only note what is wanted and wake the thread.

A subscriber that is an inbox, as a ``for`` loop is, asks for a few hundred elements at a time. If these are
unpacked already, ``request`` puts them into the inbox itself: to change threads and back would cost more than
that. The thread still ends each chunk, and does all that has to do with the gateway.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Final

from penstock.aquifer.client.acknowledgements import Acknowledgements
from penstock.aquifer.client.driver import Driver
from penstock.aquifer.client.elements import Chunk, Unpacker
from penstock.aquifer.client.metrics import Metrics, metrics_of
from penstock.aquifer.client.recipient import Recipient
from penstock.aquifer.client.redelivery import LetterWriter, PendingRecords
from penstock.aquifer.client.sockets import GatewaySockets
from penstock.aquifer.errors import SourceFailed
from penstock.aquifer.protocol.extended_reader import ExtendedReader
from penstock.aquifer.protocol.frames import Frame
from penstock.aquifer.protocol.subscriber_side import Phase, SubscriberSide
from penstock.arguments import whole
from penstock.spec import UNBOUNDED, RuleViolation, non_positive_request
from penstock.streams import StageState
from penstock.streams.spi import Glimpse, Pausable, drop_error

__all__ = ["AquiferSubscription"]

_LONGEST_WAIT = 0.5
_LONGEST_SILENCE = 0.1
"""Seconds between two looks at the sockets, even if no message is complete."""
_LONGEST_PORTION = 0.1
"""Seconds that a subscriber may take for a portion of several elements."""
_LARGE: Final = 4096
"""Elements of so many bytes are large. A loop holds 256 smaller ones, a megabyte at most: to measure each of
them would cost half as much again as to read it."""
_TAKES_ITS_TIME = 1.0
"""If the subscriber took longer than this many seconds, the silence was its own."""


class _Left(Exception):
    """The subscriber has cancelled while the gateway was being asked where to start."""


class AquiferSubscription(Pausable):
    """The Subscription of an :class:`~penstock.aquifer.AquiferPublisher`."""

    meter_kind: ClassVar[str] = "reader"

    def __init__(
        self,
        recipient: Recipient,
        side: SubscriberSide,
        sockets: GatewaySockets,
        unpacker: Unpacker,
        *,
        acknowledge: str,
        pending: PendingRecords | None = None,
        letters: Callable[[PendingRecords, AquiferSubscription], LetterWriter] | None = None,
        find_start: Callable[[Callable[[], object]], tuple[int | str, str]] | None = None,
    ) -> None:
        """Made by ``AquiferPublisher.subscribe``.

        ``find_start`` asks the gateway at which offset to start, and of which epoch, before anything else. It
        calls the function that it gets now and then, which raises when the subscriber has cancelled.
        """
        self._recipient = recipient
        self._demand = recipient.demand
        self._side = side
        self._sockets = sockets
        self._unpacker = unpacker
        self._find_start = find_start
        self._waiting: deque[Chunk] = deque()
        """Elements that have arrived and were not requested yet: never more than the window."""
        self._pending = pending
        """The records that were delivered and not settled, if each is acknowledged by itself."""
        self._acknowledgements = Acknowledgements(
            acknowledge,
            pending,
            letters(pending, self) if letters is not None and pending is not None else None,
            from_any_thread=recipient.inbox is not None,
            of_keys=side.options.keys is not None,
        )
        self._mutex = threading.Lock()
        self._illegal: RuleViolation | None = None
        self._left = False
        """The subscriber has cancelled."""
        self._driver = Driver(side, sockets, self._take, self._take_records)
        self._listened = 0.0
        """When we last read the sockets."""
        self._portion = 16
        """How many elements to signal before it is the gateway's turn again."""
        self._size_of_one: int | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-aquifer", daemon=True)

    def start(self) -> None:
        """Signal on_subscribe, then begin."""
        try:
            self._recipient.begin(self)
        except BaseException:
            self._never_connect()
            raise
        if self._recipient.cancelled:
            self._never_connect()  # It has cancelled already.
        else:
            self._thread.start()

    def _never_connect(self) -> None:
        self._recipient.cancelled = True
        self._recipient.let_go()
        self._sockets.close()
        self._closed()

    # ---------------------------------------------------------------- the Subscription
    def request(self, n: int, /) -> None:
        """Ask for ``n`` more elements (§3.8)."""
        number = n if type(n) is int else whole(n)
        with self._mutex:
            if self._recipient.cancelled:
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
        self._left = self._recipient.cancelled = True
        self.wake()

    def acknowledge(self, offset: int) -> None:
        """Tell the gateway that every record before ``offset`` was processed, so that it may drop them.

        Only with ``acknowledge="manual"``; otherwise delivered records are acknowledged automatically.
        """
        self._acknowledgements.up_to(offset)
        self.wake()

    def ack(self, offset: int) -> None:
        """This one record was processed; from any thread, in any order.

        Only with ``acknowledge="each"``. To say it again changes nothing.
        """
        self._acknowledgements.unsettled.ack(offset)
        self.wake()

    def nack(self, offset: int, reason: str = "") -> None:
        """This one record was not processed, so that it is delivered again, after ``Redelivery.delay``.

        Only with ``acknowledge="each"``. A record that is refused with its last delivery becomes a dead
        letter with this reason. It then comes no more, and later records are not held up in the meantime.
        """
        self._acknowledgements.unsettled.nack(offset, str(reason), time.monotonic())
        self.wake()

    def can_pause(self) -> bool:
        """What has arrived and may not be signalled waits in the window, which is bounded in bytes."""
        return True

    def pause(self) -> None:
        """Signal nothing more until :meth:`resume`, whatever was requested; called inside ``on_next``."""
        self._demand.pause()

    def resume(self) -> None:
        """Go on with what was requested; from any thread."""
        self._demand.resume()
        self.wake()

    def size_of_one(self) -> int | None:
        """The mean size of the elements that are being signalled."""
        return self._size_of_one

    def join(self, timeout: float | None = None) -> bool:
        """Wait until the connection is closed, after the end or a cancel; False if the time is over first."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def metrics(self) -> Metrics:
        """A snapshot of what this subscription has seen so far."""
        return metrics_of(self._side, self._recipient.delivered)

    # ---------------------------------------------------------------- what a meter looks at, from any thread
    @property
    def meter_peer(self) -> str:
        """The cursor at the gateway; without an id it is not known which one."""
        options = self._side.options
        endpoint = f"{self._side.endpoint}/{options.stream}" if options.stream else self._side.endpoint
        return f"{endpoint}/cursor/{options.name or ''}"

    def glimpse(self) -> Glimpse | None:
        """Whether records wait for the subscriber, or it waits for records; None if it is over."""
        if self._recipient.cancelled or not self._thread.is_alive():
            return None
        if self._recipient.is_at_work:
            return Glimpse(0)  # the subscriber is at work
        if not self._waiting and not self._demand.is_paused:
            return Glimpse(1)
        return Glimpse(2 if self._demand.left else 0)

    def meter_state(self) -> StageState:
        """The records that have arrived, and the window that bounds them."""
        reader, options = self._side.reader, self._side.options
        queued = max(reader.next - reader.handed, 0) if reader is not None else 0
        delivered, is_over = self._recipient.delivered, self._recipient.cancelled
        requested = min(delivered + self._demand.open, UNBOUNDED)
        name, runs_on = options.name or self._side.endpoint, self._thread.name
        return StageState(name, requested, delivered, queued, self._side.ahead.size, runs_on, is_over)

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
            self._ask_where_to_start()
            if not self._over():
                self._driver.do(side.start(time.monotonic()))
            while not self._over():
                self._deliver()
                self._acknowledgements.note(self._side.reader)
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
            self._acknowledgements.note(self._side.reader)
            self._driver.do(side.leave())
            self._signal_error(error)
        finally:
            self._recipient.let_go()
            sockets.close()
            self._closed()

    def _ask_where_to_start(self) -> None:
        if self._find_start is not None:
            with suppress(_Left):
                # The offset means nothing in another log, which the gateway may have by now.
                start, self._side.epoch = self._find_start(self._go_on)
                self._side.options = replace(self._side.options, start=start)

    def _go_on(self) -> None:
        if self._recipient.cancelled or self._illegal is not None:
            raise _Left

    def _over(self) -> bool:
        """Whether there is nothing left to signal but the end."""
        if self._recipient.cancelled or self._illegal is not None:
            return True
        if self._driver.finished is not None and self._driver.finished.error is not None:
            if isinstance(self._driver.finished.error, SourceFailed):
                # This is the end of the stream, so it comes after all its records.
                return not self._waiting and not self._pending
            # Our reading is over. What was not requested is not acknowledged, and can be read again.
            # In this order: the subscriber may resume in between, and what it wants is deliverable then.
            return not ((self._waiting and self._is_held_up()) or self._deliverable())
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
            if finished.error is not None:
                # It may take long until all is signalled, and what is not read wakes us again and again.
                self._sockets.discard()
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
        unpacked = self._unpacker.size_of(frame)
        self._waiting.append(Chunk(unpack, frame.count, end, nbytes, frame.chosen, unpacked_bytes=unpacked))

    def _take_records(self, records: list[bytes], before: int, nbytes: int) -> None:
        unpack = partial(self._unpacker.of_values, records, before)
        self._waiting.append(Chunk(unpack, len(records), 0, nbytes, unpacked_bytes=nbytes))

    # ---------------------------------------------------------------- signals
    def _deliverable(self) -> bool:
        if self._pending is not None and not self._pending.room:
            return False
        return bool(self._waiting) and self._demand.left > 0 and not self._recipient.cancelled

    def _is_held_up(self) -> bool:
        """Whether the subscriber wants more, but not now."""
        return self._demand.is_paused and self._demand.open > 0

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
            with self._recipient.handing_over:
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
                self._acknowledgements.note(self._side.reader)
                self._see_to(self._pending)

    def _deliver_portion(self, chunk: Chunk, demand: int) -> None:
        most = min(demand, self._portion)
        self._size_of_one = size = chunk.size_of_one()
        if size >= _LARGE:
            self._recipient.announce_large()
        if self._pending is None:
            elements = self._unpacker.before_none(chunk.take(most), chunk)
            chunk.handed(self._recipient.take(elements))
        else:
            elements = chunk.take(min(most, self._pending.room))
            self._pending.deliver(elements, chunk.unpacked_bytes // max(chunk.count, 1))
            count = self._recipient.take(elements)
            if count < len(elements):
                self._pending.withdraw(elements[count:])
            chunk.handed(count)
        self._acknowledgements.reach(chunk.reached, self._side.reader)
        if chunk.done:
            self._waiting.popleft()
            self._handed(chunk)

    def _put_at_hand(self) -> bool:
        """Put requested elements into the inbox, on any thread; whether that met all demand.

        The last element of a chunk is left to the subscription's thread, which tells the gateway. So is
        everything while that thread is at it.
        """
        recipient = self._recipient
        if recipient.inbox is None or self._pending is not None or not recipient.handing_over.acquire(False):
            return False
        try:
            chunk = self._waiting[0] if self._waiting else None
            count = min(self._demand.left, chunk.at_hand - 1) if chunk is not None else 0
            if chunk is None or count <= 0 or recipient.cancelled or recipient.inbox is None:
                return False
            elements = chunk.take(count)
            if self._unpacker.none_in(elements) is not None:
                return False
            chunk.handed(recipient.take(elements))
            self._acknowledgements.reached = chunk.reached
            return not self._demand.left
        except IndexError:
            return False  # The thread has passed over an empty chunk meanwhile.
        finally:
            recipient.handing_over.release()

    def _see_to(self, pending: PendingRecords) -> None:
        """Deliver again what is due, and see to the records that were refused the last time."""
        now = time.monotonic()
        may_signal = self._demand.left and not self._recipient.cancelled
        if may_signal and pending.next_due() <= now and self._has_turn():
            again = pending.take_due(now, min(self._demand.left, self._portion))
            self._size_of_one = pending.size_of(again)
            count = self._recipient.take(again)
            if count < len(again):
                pending.give_back(again[count:])
            self._end_turn()
        self._acknowledgements.see_to_dead(pending)

    def _handed(self, chunk: Chunk) -> None:
        reader = self._side.reader
        if isinstance(reader, ExtendedReader):
            if not chunk.is_empty:
                self._acknowledgements.last_record = chunk.delivered
            reader.hand_on(chunk.end, chunk.nbytes)
        elif reader is not None:
            reader.hand_on(reader.handed + chunk.records, chunk.nbytes)

    def _pass_over(self) -> None:
        """Hand on what only says that records with other keys were left out: nobody has to request that."""
        while self._waiting and self._waiting[0].is_empty:
            chunk = self._waiting.popleft()
            self._handed(chunk)
            self._acknowledgements.reach(chunk.end, self._side.reader)

    def _end(self) -> None:
        """Leave the gateway, then signal the end; the other way round if it has to be told of records yet."""
        error = self._illegal or (self._driver.finished.error if self._driver.finished is not None else None)
        # A source that fails ends the stream as one that completes does: all its records were delivered.
        complete = not self._recipient.cancelled and (error is None or isinstance(error, SourceFailed))
        if complete and self._side.options.is_durable:
            self._listen(time.monotonic())  # If the gateway was lost meanwhile, another one has to be told.
        # With each record settled by itself, none is left at the end.
        is_manual = not self._acknowledgements.automatic and self._pending is None
        awaited = complete and (is_manual or self._is_looking())
        if awaited:
            self._signal_end(error)
            self._await_acknowledgements()
        self._acknowledgements.finish()
        self._acknowledgements.note(self._side.reader)
        self._driver.do(self._side.leave())
        if not awaited:
            self._signal_end(error)

    def _signal_end(self, error: BaseException | None) -> None:
        if error is not None:
            self._signal_error(error)
        elif not self._recipient.cancelled:
            self._recipient.complete()

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
            self._acknowledgements.note(self._side.reader)

    def _signal_error(self, error: BaseException) -> None:
        if self._recipient.cancelled:
            drop_error(error, f"a subscription to {self._side.endpoint} that was cancelled")
            return
        self._recipient.fail(error)

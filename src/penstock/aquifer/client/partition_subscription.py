"""The subscription of a group member to one partition: it shares the subscriber, and its demand, with others.

Each partition has a thread and a connection of its own. There is no queue between them and the subscriber:
whose turn it is signals what has arrived, as far as there is demand. What was not requested waits in the
window of the partition.

A member may signal records of a partition only while it is sure that nobody else reads it. The gateway gives
the partition to another one when it has not heard of the member for a while, so every answer of the gateway
is good for that long, from when the question was sent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import UNSET

from penstock.aquifer.client.demand import Demand, Turns
from penstock.aquifer.client.elements import Unpacker
from penstock.aquifer.client.recipient import Recipient
from penstock.aquifer.client.redelivery import LetterWriter, PendingRecords
from penstock.aquifer.client.sockets import GatewaySockets
from penstock.aquifer.client.subscription import AquiferSubscription
from penstock.aquifer.errors import SourceFailed, TakenOver
from penstock.aquifer.protocol.extended_reader import ExtendedReader
from penstock.aquifer.protocol.subscriber_side import Phase, SubscriberSide
from penstock.spec import Subscriber, Subscription
from penstock.streams.spi import ExpectsLarge, announce_large

__all__ = ["PartitionSubscription", "moment"]


moment: Callable[[], float] = time.monotonic
"""Seconds on a clock that never jumps, and that goes on while the machine sleeps, if there is one."""
if hasattr(time, "CLOCK_BOOTTIME"):
    # Without a function around it: it is asked before each record.
    moment = partial(time.clock_gettime, time.CLOCK_BOOTTIME)


class _Inlet(ExpectsLarge):
    """Hands the records of a partition to the subscriber of the group, and keeps how they ended."""

    def __init__(self, subscriber: Subscriber[Any]) -> None:
        self._subscriber = subscriber
        self.on_next = subscriber.on_next
        self.error: BaseException | None = None
        self.over = False
        """Whether the end was signalled: by the gateway, or because the partition was given up."""

    def on_subscribe(self, subscription: Subscription, /) -> None: ...

    def expect_large(self, step: int) -> bool:
        """Tell the subscriber of the group, which pauses all partitions at once."""
        return announce_large(self._subscriber, step)

    def on_error(self, error: BaseException, /) -> None:
        self.error = error
        self.over = True

    def on_complete(self) -> None:
        self.over = True


class _PartitionRecipient(Recipient):
    """Signals records as long as nobody else can read them; a member that was asleep leaves the partition."""

    def __init__(
        self,
        inlet: _Inlet,
        endpoint: str,
        demand: Demand,
        sure_until: float,
        leave: Callable[[], object],
    ) -> None:
        super().__init__(inlet, endpoint, demand)
        self.sure_until = sure_until
        """Until then nobody else reads this partition, on the clock of :data:`moment`."""
        self._leave = leave

    def _signal(self, elements: list[Any]) -> int:
        assert self._subscriber is not None
        on_next, demand, count = self._subscriber.on_next, self.demand, 0
        try:
            for element in elements:
                if moment() >= self.sure_until:
                    self._leave()
                    break
                on_next(element)
                count += 1
                if self.cancelled or demand.is_paused:
                    break
        except BaseException as error:
            self._drop(error)
        return count


class PartitionSubscription(AquiferSubscription):
    """Reads one partition for a member of a group."""

    _recipient: _PartitionRecipient

    def __init__(
        self,
        subscriber: Subscriber[Any],
        side: SubscriberSide,
        sockets: GatewaySockets,
        unpacker: Unpacker,
        *,
        acknowledge: str,
        pending: PendingRecords | None,
        letters: Callable[[PendingRecords, AquiferSubscription], LetterWriter] | None,
        demand: Demand,
        turns: Turns,
        sure_until: float,
        look: Callable[[], object],
    ) -> None:
        self._inlet = _Inlet(subscriber)
        super().__init__(
            _PartitionRecipient(self._inlet, side.endpoint, demand, sure_until, self.cancel),
            side,
            sockets,
            unpacker,
            acknowledge=acknowledge,
            pending=pending,
            letters=letters,
        )
        self._turns = turns
        self._waits_for_turn = False
        self._give_up_by: float | None = None
        """If it is being given up: when to leave, even if there are unsettled records."""
        self._must_rejoin = False
        self._told: int | None = None
        """The acknowledgement that the gateway has heard of, or where it has begun."""
        self._finished_at = 0.0
        """When everything was settled that this member will get of the partition; 0 before that."""
        self.is_closed = False
        """Whether its thread has ended, or is about to."""
        self._look = look

    # ---------------------------------------------------------------- the group
    @property
    def has_begun(self) -> bool:
        """Whether the gateway has given it to this member, so that it can continue after a loss."""
        return self._side.subscriptions > 0

    @property
    def acknowledged(self) -> int | None:
        """The offset before which everything is settled; None if the gateway has never welcomed it."""
        reader = self._side.reader
        return None if reader is None else reader.acknowledged

    @property
    def is_given_up(self) -> bool:
        """Whether it is to be left as soon as what was delivered is settled."""
        return self._give_up_by is not None

    @property
    def is_finished(self) -> bool:
        """Whether it is about to be left, as soon as the gateway has heard what was acknowledged."""
        return self._finished_at > 0

    @property
    def error(self) -> BaseException | None:
        """Why it has ended, if that was an error."""
        return self._inlet.error

    @property
    def has_failed_silently(self) -> bool:
        """Whether it has ended without a signal although it was not cancelled: the subscriber has raised."""
        return not self._inlet.over and not self._left

    @property
    def waits_for_demand(self) -> bool:
        """Whether it has something to signal, as soon as that is requested."""
        return bool(self._waiting) or bool(self._pending)

    def confirm(self, until: float, acknowledged: int) -> None:
        """Nobody else reads this partition until then; and the gateway has heard what is acknowledged."""
        was_sure = self._is_sure()
        self._recipient.sure_until = max(until, self._recipient.sure_until)
        self._told = acknowledged
        if self.is_finished or not was_sure:
            self.wake()

    def rejoin(self) -> None:
        """Ask for the partition again, if it was given to this member: the gateway knows nothing of that."""
        if self.has_begun:
            self._must_rejoin = True
            self.wake()

    def give_up(self) -> None:
        """Signal nothing new; leave when what was delivered is settled, or when the lease would end."""
        if self._give_up_by is None:
            self._give_up_by = time.monotonic() + self._side.options.lease
            self.wake()

    def has_pending(self, offset: int) -> bool:
        """Whether this record was delivered and is not settled."""
        return self._pending is not None and offset in self._pending

    # ---------------------------------------------------------------- the thread
    def _over(self) -> bool:
        finished = self._driver.finished
        if finished is not None and not isinstance(finished.error, SourceFailed | None):
            return True  # Somebody else may read the partition already: what has arrived is left to them.
        is_settled = self._give_up_by is not None and not self._pending
        if self._recipient.cancelled or not (is_settled or super()._over()):
            return self._recipient.cancelled or (
                self._give_up_by is not None and time.monotonic() > self._give_up_by
            )
        if not self.is_finished:
            self._finished_at = time.monotonic()
            self._tell()
            self._look()
        # What this member has acknowledged has to be known before the next one begins.
        waits = self._is_untold() and time.monotonic() - self._finished_at < self._side.options.lease
        return not waits

    def _tell(self) -> None:
        reader = self._side.reader
        self._acknowledgements.note(reader)
        if self._side.phase is Phase.READING and isinstance(reader, ExtendedReader):
            self._driver.do(reader.tell(time.monotonic()))

    def _is_untold(self) -> bool:
        reader = self._side.reader
        return reader is not None and self._told is not None and reader.acknowledged > self._told

    def _tick(self, now: float) -> None:
        self._note_lapse()
        if self._must_rejoin:
            self._must_rejoin = False
            if self._side.phase is Phase.READING:
                # Also if everything has arrived: what is acknowledged from now on has to be told.
                self._driver.do(self._side.lost("the gateway has no session of this partition", now))
        super()._tick(now)

    def _listen(self, now: float) -> None:
        self._note_lapse()
        super()._listen(now)
        if self._told is None and self._side.reader is not None:
            self._told = self._side.reader.acknowledged

    def _note_lapse(self) -> None:
        """If it has to ask again, the gateway is told whether another member may have the partition."""
        fields = self._side.options.group
        assert fields is not None, "it reads a partition"
        fields.lapsed = UNSET if self._is_sure() else True

    def _is_sure(self) -> bool:
        """Whether nobody else can be reading the partition at this moment."""
        return moment() < self._recipient.sure_until

    def _deliverable(self) -> bool:
        return self._give_up_by is None and self._is_sure() and super()._deliverable()

    def _may_signal(self) -> bool:
        return not self._waits_for_turn and self._is_sure()

    def _has_turn(self) -> bool:
        if not self._is_sure():
            return False
        has_turn = self._turns.take(self)
        self._waits_for_turn = not has_turn
        return has_turn

    def _end_turn(self) -> None:
        self._turns.give_back(self)

    def _deliver(self) -> None:
        super()._deliver()
        if self._waits_for_turn and not self._wants_turn():
            self._waits_for_turn = False
            self._turns.give_back(self)

    def _wants_turn(self) -> bool:
        if self._deliverable():
            return True
        pending = self._pending
        due = pending is not None and pending.next_due() <= time.monotonic()
        return due and self._demand.left > 0 and not self._recipient.cancelled and self._is_sure()

    def _signal_error(self, error: BaseException) -> None:
        # While it was being given up, it was given to somebody else: nobody has to know.
        if not (self._recipient.cancelled and isinstance(error, TakenOver)):
            super()._signal_error(error)

    def _closed(self) -> None:
        self._turns.give_back(self)
        self.is_closed = True
        self._look()

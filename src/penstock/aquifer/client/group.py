"""A member of a reader group: it reads some of the partitions, and sees to it that others are read as well.

A thread tells the gateway now and then that the member is there, learns how the group is, and gives up or
takes partitions. The records come from the threads of the partitions: see
:mod:`~penstock.aquifer.client.partition_subscription`.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

from msgspec import UNSET

from penstock.aquifer.client.assignment import is_done, moves_of
from penstock.aquifer.client.connection import GatewayConnection
from penstock.aquifer.client.demand import Demand, Turns
from penstock.aquifer.client.metrics import Metrics
from penstock.aquifer.client.partition_subscription import PartitionSubscription, moment
from penstock.aquifer.errors import AquiferError, ProtocolViolation, SourceFailed, TakenOver
from penstock.aquifer.protocol.messages import (
    GroupFields,
    OnSubscribe,
    Subscribe,
    SubscribeFields,
    extension,
    read_status,
)
from penstock.aquifer.records import Partition
from penstock.aquifer.status import GroupStatus, PartitionStatus
from penstock.arguments import whole
from penstock.spec import Subscriber, non_positive_request
from penstock.streams.spi import Pausable, drop_error, drop_raised

__all__ = ["GroupSubscription", "PartitionMaker"]

_log = logging.getLogger("penstock.aquifer")

_AT_ONCE: Final = 0.01
"""Seconds until the first look whether the others have read everything, too."""
_SOON: Final = 0.1
"""Seconds until the next look at a group in which partitions change hands."""
_USUALLY: Final = 0.5
"""The most seconds until the next look at one in which nothing happens."""
_FAREWELL: Final = 5.0
"""Seconds that a gateway has to hear that a member leaves."""


class PartitionMaker(Protocol):
    """Makes the subscription to a partition."""

    def __call__(
        self, partition: Partition, fields: GroupFields, group: GroupSubscription, sure_until: float
    ) -> PartitionSubscription:
        """``fields`` is what to tell the gateway. Nobody else reads the partition until ``sure_until``."""
        ...


class _Left(Exception):
    """The subscriber has cancelled while the gateway was being asked."""


class GroupSubscription(Pausable):
    """The Subscription of an :class:`~penstock.aquifer.AquiferPublisher` with a ``group``."""

    def __init__(
        self,
        subscriber: Subscriber[Any],
        connection: GatewayConnection,
        group: str,
        partitions: int | None,
        fields: SubscribeFields,
        make: PartitionMaker,
    ) -> None:
        """Made by ``AquiferPublisher.subscribe``."""
        self.group = group
        self.member = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        """The name of this member, as the gateway shows it."""
        self.subscriber = subscriber
        self.demand = Demand()
        """What the subscriber has requested, of all partitions together."""
        self.turns = Turns()
        self._connection = connection
        self._asked = partitions
        self._fields = fields
        """Where a new group begins, and how long the gateway remembers the group."""
        self._make = make
        self._mutex = threading.Lock()
        self._read: dict[int, PartitionSubscription] = {}
        """The partitions that this member reads, or is about to give up."""
        self._settled: PartitionSubscription | None = None
        """The one that the last settled record is of: the next one often is, too."""
        self._left: dict[int, int] = {}
        """What it had acknowledged of those that it has left, until the gateway's journal has that."""
        self._waits = _AT_ONCE
        """Seconds between the last two looks at a group in which only others have something left to read."""
        self._cancelled = False
        self._error: BaseException | None = None
        self._is_complete = False
        self._look = threading.Event()
        """There may be something to do."""
        self._thread = threading.Thread(target=self._run, name="penstock-group", daemon=True)

    def start(self) -> None:
        """Signal on_subscribe, then join the group."""
        try:
            self.subscriber.on_subscribe(self)
        except BaseException as error:
            self._cancelled = True
            drop_raised(error, f"a member of the reader group {self.group}")  # §2.13
        if not self._cancelled:
            self._thread.start()

    # ---------------------------------------------------------------- the Subscription
    def request(self, n: int, /) -> None:
        """Ask for ``n`` more elements, of whatever partitions this member reads (§3.8)."""
        if self._cancelled:
            return
        number = n if type(n) is int else whole(n)
        if number is None or number <= 0:
            self._fail(non_positive_request(n))
            return
        self.demand.add(number)
        self._wake_all()

    def _wake_all(self) -> None:
        for one in self._subscriptions():
            if one.waits_for_demand:
                one.wake()

    def can_pause(self) -> bool:
        """What has arrived and may not be signalled waits in the windows of the partitions."""
        return True

    def pause(self) -> None:
        """Signal nothing more until :meth:`resume`, of whatever partition; called inside ``on_next``."""
        self.demand.pause()

    def resume(self) -> None:
        """Go on with what was requested; from any thread."""
        self.demand.resume()
        self._wake_all()

    def size_of_one(self) -> int | None:
        """The size of the elements that are being signalled: that of the partition with the largest ones."""
        return max((one.size_of_one() or 0 for one in self._subscriptions()), default=0) or None

    def cancel(self) -> None:
        """Stop the signals, soon (§3.12), and leave the group."""
        self._cancelled = True
        for one in self._subscriptions():
            one.cancel()
        self.wake()

    def ack(self, offset: int) -> None:
        """This one record was processed; from any thread, in any order.

        Only with ``acknowledge="each"``. Nothing happens if the record was settled before, or if its
        partition has another reader meanwhile, which gets it again.
        """
        if (one := self._with(offset)) is not None:
            one.ack(offset)

    def nack(self, offset: int, reason: str = "") -> None:
        """This one record was not processed, so that it is delivered again, after ``Redelivery.delay``.

        Only with ``acknowledge="each"``. Nothing happens where :meth:`ack` does nothing.
        """
        if (one := self._with(offset)) is not None:
            one.nack(offset, reason)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until this member has left the group; False if the time is over first."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    @property
    def partitions(self) -> tuple[int, ...]:
        """The numbers of the partitions that this member reads at the moment."""
        with self._mutex:
            read = (number for number, one in self._read.items() if one.has_begun and not one.is_given_up)
            return tuple(sorted(read))

    def metrics(self) -> list[Metrics]:
        """What the subscriptions to the partitions have seen so far."""
        return [one.metrics() for one in self._subscriptions()]

    def wake(self) -> None:
        """Look at the group now."""
        self._look.set()

    def _subscriptions(self) -> list[PartitionSubscription]:
        with self._mutex:
            return list(self._read.values())

    def _with(self, offset: int) -> PartitionSubscription | None:
        if type(offset) is not int:
            raise ValueError(f"{offset!r} is not the offset of a record: give record.offset")
        settled = self._settled
        if settled is not None and not settled.is_closed and settled.has_pending(offset):
            return settled
        for one in self._subscriptions():
            if one.has_pending(offset):
                self._settled = one
                return one
        return None

    # ---------------------------------------------------------------- the thread
    def _run(self) -> None:
        try:
            while not self._is_over():
                self._look.wait(self._take_part())
                self._look.clear()
        except _Left:
            pass
        except BaseException as error:  # Also what asks a thread to stop: the subscriber waits for an end.
            self._fail(error)
        try:
            self._leave()
        finally:
            self._connection.close()
            self._signal_end()

    def _is_over(self) -> bool:
        return self._cancelled or self._error is not None or self._is_complete

    def _take_part(self) -> float:
        """Ask how the group is, and do what follows; return in how many seconds to ask again."""
        asked_at = moment()
        group = self._ask()
        self._reap()
        sure_until = asked_at + group.timeout
        for number, one in list(self._read.items()):
            partition = group.partitions[number]
            if partition.member == self.member:
                one.confirm(sure_until, partition.acknowledged)
            elif partition.member is None:
                one.rejoin()  # The gateway was restarted.
            elif not partition.free:
                one.cancel()  # Another member was given it, because this one was not heard of.
        if self._is_over():
            return 0.0
        if all(is_done(group, number) for number in range(len(group.partitions))) and not self._read:
            self._is_complete = True
            if group.failure is not None:
                self._error = SourceFailed(group.failure)
            return 0.0
        mine = [number for number, one in self._read.items() if not one.is_given_up]
        moves = moves_of(group, self.member, mine)
        for number in moves.give_up:
            self._read[number].give_up()
        for number in moves.take:
            if number not in self._read:
                self._begin(number, len(group.partitions), sure_until)
        settled = not (moves.give_up or moves.take or any(one.is_finished for one in self._subscriptions()))
        settled &= all(
            one.member is not None and not one.free
            for one in group.partitions
            if not is_done(group, one.number)
        )
        pause = _USUALLY if settled else _SOON
        if group.end is not None and not self._read:
            # The others will be done as well: perhaps soon, and if not, probably not soon after that.
            self._waits = min(2 * self._waits, _USUALLY)
            pause = min(pause, self._waits)
        return min(pause, group.timeout / 4)

    def _begin(self, number: int, partitions: int, sure_until: float) -> None:
        partition = Partition(self.group, number, partitions)
        fields = GroupFields(name=self.group, member=self.member, partitions=partitions, partition=number)
        one = self._make(partition, fields, self, sure_until)
        with self._mutex:
            self._read[number] = one
        one.start()
        if self._cancelled:
            one.cancel()

    def _reap(self) -> None:
        """See how partitions have ended."""
        for number, one in list(self._read.items()):
            if not one.is_closed:
                continue
            one.join()
            with self._mutex:
                del self._read[number]
            self._settled = None
            if one.acknowledged is not None:
                self._left[number] = one.acknowledged
            if one.error is not None and not isinstance(one.error, SourceFailed | TakenOver):
                self._fail(one.error)
            elif one.error is None and one.has_failed_silently:
                self.cancel()  # Its error was reported, and it counts as cancelled (§2.13).

    def _fail(self, error: BaseException) -> None:
        with self._mutex:
            if self._error is None:
                self._error = error
        self.wake()

    # ---------------------------------------------------------------- the gateway
    def _ask(self, *, leave: bool = False) -> GroupStatus:
        about = GroupFields(name=self.group, member=self.member, reads=sorted(self._read))
        about.begun = sorted(number for number, one in self._read.items() if one.has_begun)
        if self._left:
            # Each partition has told this over its own connection. This question may overtake that, and a
            # gateway that is killed before it has stored it learns it from here when it is started again.
            about.acks = sorted(self._left.items())
        if self._asked is not None:
            about.partitions = self._asked
        patience: float | None = None
        go_on: Callable[[], None] | None = self._go_on
        if leave:
            about.leave, patience, go_on = True, _FAREWELL, None
        fields = self._fields
        fields.group = about
        answer = self._connection.ask(Subscribe(x=fields), patience=patience, while_waiting=go_on)
        details = extension(answer.x) if isinstance(answer, OnSubscribe) else None
        if details is None or details.status is UNSET:
            raise self._cannot()
        group = read_status(details.status, GroupStatus)
        if group.name != self.group:
            if details.topic is not UNSET:
                self._connection.tell(Subscribe(cancel=True))  # It took the question for a subscriber.
            raise self._cannot()
        if details.epoch is not UNSET:
            fields.epoch = details.epoch
        if leave:
            self._left.clear()  # The gateway has answered when all of it was stored.
            return group  # Perhaps without partitions: it may have been killed before it had stored them.
        self._asked = len(group.partitions)
        if isinstance(fields.from_, int) or fields.from_ == "latest":
            # If the gateway is killed before it has stored the group, another one begins where this one is.
            fields.from_ = min((one.acknowledged for one in group.partitions), default=fields.from_)
        for number, acknowledged in list(self._left.items()):
            if self._is_kept(group.partitions[number], acknowledged):
                del self._left[number]
        return group

    def _is_kept(self, partition: PartitionStatus, acknowledged: int) -> bool:
        """Whether the gateway does not need to hear again what was acknowledged of a partition that was left.

        It has just heard it. If it shows less, it has a reason: somebody has moved the cursor back.
        """
        knows = partition.member != self.member or partition.number in self._read
        return knows and (partition.stored or partition.acknowledged < acknowledged)

    def _go_on(self) -> None:
        if self._cancelled or self._error is not None:
            raise _Left

    def _cannot(self) -> AquiferError:
        return ProtocolViolation(
            f"the gateway at {self._connection.endpoint} knows nothing of reader groups, because it is of an "
            "earlier version; update it, or read with an id"
        )

    def _leave(self) -> None:
        """Leave all partitions, then the group. While the subscriber is at work, its partition is kept."""
        for one in self._subscriptions():
            one.cancel()
        answers = self._say_goodbye() if self._read else True
        while self._read:
            self._look.wait(_USUALLY)
            self._look.clear()
            self._reap()
            answers = answers and self._say_goodbye()
        if answers:
            self._say_goodbye()

    def _say_goodbye(self) -> bool:
        try:
            self._ask(leave=True)
        except AquiferError as error:
            # It finds out by itself.
            about = {"endpoint": str(self._connection.endpoint), "reason": str(error)}
            _log.info("the gateway was not told that a member of %s leaves", self.group, extra=about)
            return False
        return True

    def _signal_end(self) -> None:
        if self._cancelled:
            if self._error is not None:
                drop_error(self._error, f"a member of {self.group} that was cancelled")
            return
        self._cancelled = True
        try:
            if self._error is not None:
                self.subscriber.on_error(self._error)
            else:
                self.subscriber.on_complete()
        except BaseException as error:  # Nobody is left on this thread who could receive it.
            drop_error(error, f"a member of the reader group {self.group}")  # §2.13
